"""Changes of links: what may be asked, what is recorded when, and what reaches the maps. No kernel is touched."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from memory_maps import maps_in_memory

from testbed.base.datapath.abi import PROBABILITY_ONE
from testbed.base.datapath.maps import LabMaps
from testbed.base.errors import DriverError
from testbed.base.units import Duration, Rate
from testbed.lab.core.deploy.links import changes as links
from testbed.lab.core.deploy.links import recorded as linkstate
from testbed.lab.core.deploy.links.changes import LinkChange, LinkControl, LinkRefused
from testbed.lab.core.deploy.links.recorded import LinkState, WireChange, read_link_state, write_link_state
from testbed.lab.core.deploy.links.wires import probability
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.journal import StateError
from testbed.lab.core.deploy.records.kept_events import told_by
from testbed.lab.core.deploy.records.state import UnfinishedChange
from testbed.lab.core.fabric import QOS_PRESETS, generate_fabric
from testbed.lab.core.fabric.params import FabricParams, UplinkParams
from testbed.lab.core.model import NO_GUARDS, Delay, DelayBy, Guards, QosPolicy
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.link_delays import WirePaths
from testbed.lab.core.schema.load import load_topology_text

NIC = "p1-s1-h1:rail1"
SWITCH_PORT = "p1-s1-rail1:down1"


class FakeLab:
    """What `LinkControl` asks of a lab, over maps in memory."""

    def __init__(
        self, directory: Path, *, qos: bool = True, k: float = 1000, guards: Guards = NO_GUARDS, by: str = "endpoint"
    ) -> None:
        params = FabricParams(
            design="rail-optimized",
            segments=1,
            hosts=2,
            gpus=2,
            spines=2,
            uplink=UplinkParams(delay=Delay(value=Duration.parse("500ns"))),
        )
        lab = replace(generate_fabric(params, name="x"), guards=guards)
        self.plan = plan_lab(replace(lab, qos=QosPolicy(profiles=(QOS_PRESETS["uec"].profile,)) if qos else None), k=k)
        self.model = SimpleNamespace(policies=(object(),) if qos else (), infiniband=None)
        self.whole = self
        self.record = SimpleNamespace(k=k, delay_by=by)
        self.name = "x"
        self.state_directory = directory
        self.hosts = [host.node for host in self.plan.hosts]
        self._maps = maps_in_memory(len(self.plan.ports))
        self.opened = 0

    def maps(self, *, writable: bool = False) -> LabMaps:
        assert writable
        self.opened += 1
        return self._maps

    def port(self, node: str, interface: str) -> Any:
        return next(port for port in self.plan.ports if (port.node, port.name) == (node, interface))

    def namespace_of(self, port: Any) -> str:
        return self.namespace(port.node)

    def namespace(self, node: str) -> str:
        raise AssertionError(f"the namespace of {node} is not for this test")

    def at_receiver(self, port: str) -> Any:
        """The record of the wire that `port` sends into."""
        keys = [f"{item.node}:{item.name}" for item in self.plan.ports]
        peer = next(item.peer for item in self.plan.ports if f"{item.node}:{item.name}" == port)
        return self._maps.ports[keys.index(peer) + 1]


@pytest.fixture
def lab(tmp_path: Path) -> FakeLab:
    return FakeLab(tmp_path)


def control_of(lab: FakeLab) -> LinkControl:
    return LinkControl(cast(RunningLab, lab))


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"loss": 1.01},
        {"corruption": -0.1},
        {"rate": Rate(0)},
        {"rate_share": 0.0},
        {"rate": Rate(1), "rate_share": 0.5},
        {"loss_every": -1},
    ],
)
def test_impossible_changes_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        LinkChange(**wrong)


def test_loss_of_what_a_port_sends_is_written_at_the_port_that_receives(lab: FakeLab) -> None:
    with control_of(lab) as control:
        control.set(NIC, LinkChange(loss=0.25, corruption=0.001, loss_every=7))
    record = lab.at_receiver(NIC)
    assert record["loss"] == round(0.25 * PROBABILITY_ONE)
    assert record["corruption"] == round(0.001 * PROBABILITY_ONE)
    assert record["loss_every"] == 7
    assert lab.at_receiver(SWITCH_PORT)["loss"] == 0, "the other direction is as it was"


def test_both_directions(lab: FakeLab) -> None:
    with control_of(lab) as control:
        control.set(NIC, LinkChange(silent=True), both=True)
        assert lab.at_receiver(NIC)["loss"] == lab.at_receiver(SWITCH_PORT)["loss"] == PROBABILITY_ONE
        assert sorted(control.changed()) == sorted([NIC, SWITCH_PORT])
        control.reset(NIC)
    assert lab.at_receiver(NIC)["loss"] == lab.at_receiver(SWITCH_PORT)["loss"] == 0
    assert not (lab.state_directory / "links.json").exists(), "a lab as declared has no record of changes"


def test_a_link_whose_other_end_is_on_another_machine_is_shown_and_reset_at_this_one(
    lab: FakeLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    with control_of(lab) as control:
        peer = control.ends(SWITCH_PORT)[1]
    lab.plan = replace(lab.plan, ports=tuple(port for port in lab.plan.ports if f"{port.node}:{port.name}" != peer))
    done: list[tuple[str, bool]] = []
    monkeypatch.setattr(LinkControl, "_set_up", lambda _, port, up: done.append((f"{port.node}:{port.name}", up)))
    monkeypatch.setattr(LinkControl, "_route", lambda *_: None)
    monkeypatch.setattr(LinkControl, "rate_bps", lambda *_: 8)
    monkeypatch.setattr(links, "read_counters", lambda _: {})
    with control_of(lab) as control:
        assert control.ends(SWITCH_PORT) == [SWITCH_PORT]
        control.set(SWITCH_PORT, LinkChange(up=False))
        shown = control.show(SWITCH_PORT)
        assert shown.peer == peer and "loss" not in shown.actual and shown.actual["rate_bps"] == 8
        control.reset(SWITCH_PORT)
        assert control.changed() == []
        for change in (LinkChange(loss=0.5), LinkChange(delay=Duration.parse("1us"))):
            with pytest.raises(LinkRefused, match="is on another machine"):
                control.set(SWITCH_PORT, change)
            assert control.changed() == [], "what is refused is not recorded"
    assert done == [(SWITCH_PORT, False), (SWITCH_PORT, True)]


def test_what_was_changed_is_kept_for_who_asks_later(lab: FakeLab) -> None:
    with control_of(lab) as control:
        control.set(NIC, LinkChange(loss=0.25))
        control.set(NIC, LinkChange(loss=0.25))
        control.reset(NIC)
    kept = [json.loads(line) for line in (lab.state_directory / "link-events.jsonl").read_text().splitlines()]
    node, interface = NIC.split(":")
    assert [(event["node"], event["kind"], event["subject"], event["detail"]) for event in kept] == [
        (node, "link-set", interface, "loss 0.25"),
        (node, "link-set", interface, "loss 0.0"),
    ], "what changes nothing is no event"
    assert {event["by"] for event in kept} == {told_by()}


@pytest.mark.parametrize(
    "change", [LinkChange(rate_share=4.0), LinkChange(rate=Rate.parse("800G")), LinkChange(lab_rate=Rate(400_000_002))]
)
def test_a_link_is_not_made_faster_than_it_is(lab: FakeLab, change: LinkChange) -> None:
    with control_of(lab) as control, pytest.raises(LinkRefused, match="is more than the 400 Mbit/s") as raised:
        control.set(NIC, change, both=True)
    assert "can be made slower" in (raised.value.hint or "")
    assert not list(lab.state_directory.iterdir()) and lab.opened == 0
    declared = LinkChange(rate=Rate.parse("400G"))
    assert control_of(lab)._resolve(lab.port("p1-s1-h1", "rail1"), declared).rate_bps == 400_000_000


def test_silence_ends_in_the_loss_of_before(lab: FakeLab) -> None:
    with control_of(lab) as control:
        control.set(NIC, LinkChange(loss=0.5))
        control.set(NIC, LinkChange(silent=True))
        assert lab.at_receiver(NIC)["loss"] == PROBABILITY_ONE
        control.set(NIC, LinkChange(silent=False))
        assert lab.at_receiver(NIC)["loss"] == probability(0.5)
        control.set(NIC, LinkChange(loss=0.0))
        assert control.changed() == [], "the declared value again is no change"


def test_a_change_after_a_crash_is_still_known_and_undone(lab: FakeLab) -> None:
    control_of(lab).set(NIC, LinkChange(loss=0.5))  # and the process ends without another word
    with control_of(lab) as control:
        assert control.reset_all() == [NIC]
    assert lab.at_receiver(NIC)["loss"] == 0


def test_the_record_is_written_before_the_deed(lab: FakeLab, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, WireChange]] = []

    def crash(*_: object) -> None:
        seen.append(dict(read_link_state(lab.state_directory).changes))
        raise KeyboardInterrupt

    monkeypatch.setattr(LinkControl, "_apply", crash)
    with control_of(lab) as control, pytest.raises(KeyboardInterrupt):
        control.set(NIC, LinkChange(loss=0.5))
    assert seen == [{NIC: WireChange(loss=0.5)}]
    assert read_link_state(lab.state_directory).changes == seen[0]


def test_a_refused_change_is_taken_back(lab: FakeLab, monkeypatch: pytest.MonkeyPatch) -> None:
    applied: list[tuple[float, float]] = []

    def refuse_once(self: LinkControl, key: str, old: Any, new: Any, *_: object) -> None:
        applied.append((old.loss, new.loss))
        if len(applied) == 1:
            raise DriverError("no")

    monkeypatch.setattr(LinkControl, "_apply", refuse_once)
    with control_of(lab) as control, pytest.raises(DriverError):
        control.set(NIC, LinkChange(loss=0.5))
    assert applied == [(0.0, 0.5), (0.5, 0.0)]
    assert read_link_state(lab.state_directory) == LinkState()


def test_without_a_data_path_loss_is_refused_with_the_way_to_get_it(tmp_path: Path) -> None:
    lab = FakeLab(tmp_path, qos=False)
    for change in (LinkChange(loss=0.1), LinkChange(silent=True), LinkChange(corruption=0.1), LinkChange(loss_every=9)):
        with control_of(lab) as control, pytest.raises(LinkRefused) as raised:
            control.set(NIC, change)
        assert "qos: {preset: uec}" in (raised.value.hint or "")
        assert raised.value.exit_code == 3
    assert lab.opened == 0
    assert not list(tmp_path.iterdir())


def test_units_of_the_fabric_and_of_the_lab(lab: FakeLab) -> None:
    control = control_of(lab)
    port = lab.port("p1-s1-h1", "rail1")

    def resolved(change: LinkChange) -> WireChange:
        return control._resolve(port, change)

    assert port.rate_bps == 400_000_000
    assert resolved(LinkChange(rate=Rate.parse("100G"))).rate_bps == 100_000_000
    assert resolved(LinkChange(lab_rate=Rate.parse("5M"))).rate_bps == 5_000_000
    assert resolved(LinkChange(rate_share=0.25)).rate_bps == 100_000_000
    assert resolved(LinkChange(delay=Duration.parse("5us"), jitter=Duration.parse("1us"))) == WireChange(
        delay_ns=5_000_000, jitter_ns=1_000_000
    )
    with pytest.raises(LinkRefused, match="more than a wire can hold"):
        resolved(LinkChange(delay=Duration.parse("1s")))


def test_delay_by_endpoints_changes_what_transports_are_told(lab: FakeLab) -> None:
    a, b = "p1-s1-h1:rail1", "p1-s1-h2:rail2"
    running = cast(RunningLab, lab)

    def delay_ns(a: str, b: str) -> int:
        return WirePaths(links.ports_now(running), lab.hosts).path(a, b).endpoint_ns

    assert delay_ns(a, b) == 1_000_000
    with control_of(lab) as control:
        for uplink in ("uplink1", "uplink2"):
            control.set(f"p1-s1-rail1:{uplink}", LinkChange(delay=Duration.parse("2us")))
        control.set(NIC, LinkChange(delay=Duration.parse("1us")))
    assert read_link_state(lab.state_directory).changes[NIC] == WireChange(delay_ns=1_000_000)
    assert delay_ns(a, b) == 1_000_000 + 2_000_000 + 500_000
    assert delay_ns(b, a) == 1_000_000, "the way back is as declared"
    assert {port.delay_by for port in links.ports_now(running) if port.delay_ns} == {DelayBy.ENDPOINT}


def test_the_kernel_may_not_delay_what_comes_in_at_a_guarded_port(tmp_path: Path) -> None:
    """A delayed packet comes in anew, past the guards; towards the host, and by endpoints, it is of no matter."""
    change = LinkChange(delay=Duration.parse("1us"))
    with control_of(FakeLab(tmp_path, guards=Guards.all(), by="kernel")) as control:
        with pytest.raises(LinkRefused, match=f"come in at {SWITCH_PORT} past the guards"):
            control.set(NIC, change)
        with pytest.raises(AssertionError, match="the namespace of p1-s1-h1"):
            control.set(SWITCH_PORT, change)
    assert not read_link_state(tmp_path).changes.get(NIC)
    with control_of(FakeLab(tmp_path / "more", guards=Guards.all())) as control:
        (tmp_path / "more").mkdir()
        control.set(NIC, change)


def test_the_kernel_may_not_delay_what_comes_in_at_a_port_with_programs_of_a_link_group(tmp_path: Path) -> None:
    """A delayed packet comes in anew, past from_member, which hands it to the aggregate."""
    lab = FakeLab(tmp_path, by="kernel")
    text = "name: x\nfabric: {design: rail-only, hosts: 2, gpus: 1}\nnetworks: {a: {homing: mlag, nic: {ports: 2}}}\n"
    lab.plan = plan_lab(load_topology_text(text, file="x.yml"), k=1000)
    change = LinkChange(delay=Duration.parse("1us"))
    with control_of(lab) as control:
        for port, other in (("a-leaf1:down1", "p1-s1-h1:a1"), ("p1-s1-h2:a2", "a-leaf2:down2")):
            with pytest.raises(LinkRefused, match=f"come in at {other} past the programs of its link group"):
                control.set(port, change)


def test_the_record_survives_a_round_trip(tmp_path: Path) -> None:
    state = LinkState(
        changes={NIC: WireChange(rate_bps=5, silent=True), SWITCH_PORT: WireChange(up=False)},
        classes={NIC: [[1, 2, 3, 4, 5, 6, 7, 8]]},
    )
    write_link_state(tmp_path, state)
    assert read_link_state(tmp_path) == state
    assert [path.name for path in tmp_path.iterdir()] == [linkstate.FILE_NAME]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"changes": {}}', '{"changes": {"a:b": {"colour": 1}}, "classes": {}}']
)
def test_a_damaged_record_says_how_to_go_on(tmp_path: Path, text: str) -> None:
    (tmp_path / linkstate.FILE_NAME).write_text(text)
    with pytest.raises(StateError) as raised:
        read_link_state(tmp_path)
    assert "reconfigure" in (raised.value.hint or "")


def test_an_old_record_may_say_less(tmp_path: Path) -> None:
    (tmp_path / linkstate.FILE_NAME).write_text(
        json.dumps({"schema": 1, "changes": {NIC: {"loss": 0.5}}, "classes": {}})
    )
    assert read_link_state(tmp_path).changes == {NIC: WireChange(loss=0.5)}


def test_links_of_a_lab_in_the_middle_of_a_change_stay_as_they_are(lab: FakeLab) -> None:
    """The change has read what is changed of them, and decided by it."""
    (lab.state_directory / "next.json").touch()
    with control_of(lab) as control:
        for act in (lambda: control.set(NIC, LinkChange(silent=True)), lambda: control.reset(NIC), control.reset_all):
            with pytest.raises(UnfinishedChange, match="a change of the lab x began and has not ended"):
                act()
    assert lab.at_receiver(NIC)["loss"] == 0
