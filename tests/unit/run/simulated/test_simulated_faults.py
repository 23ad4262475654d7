"""Faults on a timeline, simulated: what is noticed when, what is lost, and that every packet is accounted for."""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.base.errors import ScenarioError, SpecError
from testbed.base.units import Duration
from testbed.protocols.simulation.faults import Impairments
from testbed.record.record import Outcome, Record, RunResult
from testbed.run.faults.registry import lab_fault
from testbed.run.schema.model import Fault
from testbed.run.simulated import faults
from testbed.run.simulated.fabric import planned_lab
from testbed.run.simulated.support import check_supported
from testbed.run.simulated.sweep import run_simulated
from testbed.run.sweep.points import Sweep
from testbed.run.sweep.runner import RecordOptions
from testbed.run.sweeps import read_sweep

pytestmark = pytest.mark.process

SCENARIOS = Path(__file__).parents[4] / "scenarios"
UPLINK = "p1-s1-rail1:uplink1"
NIC = "p1-s1-h1:rail1"
SMALL = """
name: small
topology:
  inline:
    name: small
    scale: {time: 20000}
    fabric:
      {design: rail-optimized, segments: 2, hosts: 2, gpus: 1, spines: 2, nic: {rate: 100G}, routing: {ROUTING}}
    qos: {preset: uec, base_rtt: 12us, load_balancing: {mode: flow}}
transport: {kind: uet, cc: nscc}
workload: {kind: permutation, scope: inter-leaf, bytes: 2MB}
faults: [FAULT]
repeat: {runs: 1, seed: 3}
expect:
  - {metric: retransmits, min: 0, source: "nobody"}
"""


Changes = tuple[tuple[str, str], ...]


@cache
def record_of(fault: str, routing: str = "bfd: {interval: 300ms}", changes: Changes = ()) -> Record:
    text = SMALL.replace("{ROUTING}", f"{{{routing}}}").replace("FAULT", fault)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    outcome = run_simulated(read_sweep(text, {}), RecordOptions(), processes=1)
    assert outcome.failure is None, outcome.failure
    return outcome.record


def run_of(fault: str, routing: str = "bfd: {interval: 300ms}", changes: Changes = ()) -> RunResult:
    record = record_of(fault, routing, changes)
    one = record.points[0].runs[0]
    assert {check.name: check.message for check in one.checks if not check.ok} == {}
    assert record.points[0].lab.k == 20_000, "times of faults are the lab's"
    return one


def seen(one: RunResult, kind: str) -> Mapping[str, float]:
    return {f"{event.target} {event.detail}": event.at_s for event in one.events if event.kind == kind}


def test_a_link_that_goes_down_is_seen_at_once_and_traffic_takes_the_other_way() -> None:
    one = run_of(f"{{at: 500ms, until: 1500ms, link: '{UPLINK}', down: true}}")
    assert [event.kind for event in one.events][:1] == ["link-down"]
    lost = seen(one, "carrier-lost")
    assert lost == {"p1-s1-rail1 uplink1": 0.5022, "p1-spine1 down1": 0.5022}
    assert seen(one, "detected") == {"p1-s1-rail1 uplink1 carrier": 0.5034, "p1-spine1 down1 carrier": 0.5034}
    assert one.metrics["detection_time"] == pytest.approx(0.0034)
    assert one.metrics["streams_hit"] is not None and 0 < one.metrics["streams_hit"] <= 0.5
    assert one.metrics["blackhole_time_loss"] is not None and one.metrics["blackhole_time_loss"] < 0.4
    assert seen(one, "undone-link-down") and all(end is not None for end in one.transfers.end_s)


def test_the_times_of_convergence_can_be_stated() -> None:
    stated = ("repeat:", "convergence: {carrier: 20ms, reaction: 5ms, establish: 100ms}\nrepeat:")
    one = run_of(f"{{at: 500ms, until: 1500ms, link: '{UPLINK}', down: true}}", changes=(stated,))
    assert set(seen(one, "carrier-lost").values()) == {0.52} and set(seen(one, "detected").values()) == {0.525}
    said = record_of(f"{{at: 500ms, until: 1500ms, link: '{UPLINK}', down: true}}", changes=(stated,))
    assert "carrier 20 ms" in " ".join(said.environment.approximations)


def test_keepalives_that_take_no_time_are_refused() -> None:
    text = SMALL.replace("{ROUTING}", "{bfd: off}").replace("FAULT", f"{{at: 1s, link: '{UPLINK}', down: true}}")
    with pytest.raises(SpecError, match="keepalive"):
        read_sweep(text.replace("repeat:", "convergence: {keepalive: 0}\nrepeat:"), {})


def test_a_silent_link_is_missed_by_bfd_and_nobody_else_loses_by_it() -> None:
    one = run_of(f"{{at: 500ms, link: '{UPLINK}', set: {{silent: true, both: true}}}}")
    detected = seen(one, "detected")
    assert set(detected) == {"p1-s1-rail1 uplink1 BFD", "p1-spine1 down1 BFD"}
    assert all(1.1 < at_s < 1.41 for at_s in detected.values())
    time, loss = one.metrics["detection_time"], one.metrics["blackhole_time_loss"]
    assert time is not None and loss is not None and 0.6 < time <= 0.902 and time - 0.06 < loss < time + 0.3


def test_the_end_that_hears_nothing_tells_the_other_one() -> None:
    one = run_of(f"{{at: 500ms, link: '{UPLINK}', set: {{silent: true}}}}")
    first, second = sorted(seen(one, "detected").items(), key=lambda item: item[1])
    assert first[0] == "p1-spine1 down1 BFD" and second[0] == "p1-s1-rail1 uplink1 notification"
    assert first[1] <= second[1] < first[1] + 0.1


def test_without_bfd_the_hold_timer_misses_it() -> None:
    one = run_of(
        f"{{at: 500ms, link: '{UPLINK}', set: {{silent: true, both: true}}}}",
        routing="bfd: off",
        changes=(("bytes: 2MB", "bytes: 6MB"),),
    )
    assert set(seen(one, "detected").values()) == {8.7012}


def test_what_comes_back_before_it_was_missed_was_never_gone() -> None:
    one = run_of(f"{{at: 500ms, until: 900ms, link: '{UPLINK}', set: {{silent: true, both: true}}}}")
    assert not seen(one, "detected")


def test_a_flap_is_a_link_down_again_and_again() -> None:
    one = run_of(f"{{at: 500ms, until: 2500ms, link: '{UPLINK}', flap: {{period: 1s}}}}")
    assert [event.at_s for event in one.events if event.kind == "link-flap"] == [0.5, 1.5]
    assert [event.at_s for event in one.events if event.kind == "undone-link-flap"] == [1.0, 2.0]
    assert len([event for event in one.events if event.kind == "detected"]) == 4


def test_the_port_of_a_nic_has_nothing_to_withdraw() -> None:
    one = run_of(f"{{at: 500ms, until: 1500ms, link: '{NIC}', down: true}}")
    assert not seen(one, "detected") and len(seen(one, "carrier-lost")) == 2
    assert one.metrics["blackhole_time_loss"] == pytest.approx(1.0, abs=0.13)
    assert all(end is not None for end in one.transfers.end_s), "sent again when it is back"


def test_a_switch_without_power_takes_its_hosts_along_and_is_back_with_its_daemons() -> None:
    one = run_of("{at: 500ms, until: 1500ms, node: p1-s1-rail1, kill: true}")
    assert len(seen(one, "carrier-lost")) == 8, "both ends of two NICs and two uplinks, one after the other"
    lost = sorted(seen(one, "carrier-lost").values())
    assert lost[0] == 0.505 and lost[-1] == pytest.approx(0.505 + 3 * 0.0017)
    assert one.metrics["streams_hit"] == 1, "each flow has an end there"
    assert one.metrics["blackhole_time_loss"] == pytest.approx(1.81, abs=0.15), "1 s, and 0.81 s for its routing"


def test_a_switch_that_has_power_again_before_its_ports_go_keeps_them() -> None:
    one = run_of("{at: 500ms, until: 501ms, node: p1-s1-rail1, kill: true}")
    assert not seen(one, "carrier-lost") and all(end is not None for end in one.transfers.end_s)
    one = run_of("{at: 500ms, until: 504ms, node: p1-s1-rail1, kill: true}")
    assert all(end is not None for end in one.transfers.end_s), "no port stays down"


def test_a_spine_without_power_is_left_by_all() -> None:
    one = run_of("{at: 500ms, until: 1500ms, node: p1-spine1, kill: true}")
    assert one.metrics["streams_hit"] is not None and one.metrics["streams_hit"] < 1
    assert one.metrics["blackhole_time_loss"] is not None and one.metrics["blackhole_time_loss"] < 0.2


@pytest.mark.parametrize(("daemon", "words"), [("bgpd", "session closed"), ("bfdd", "BFD")])
def test_a_daemon_that_ends_takes_the_sessions_along(daemon: str, words: str) -> None:
    one = run_of(f"{{at: 500ms, until: 1500ms, node: p1-s1-rail1, daemon: {daemon}, kill: true}}")
    detected = seen(one, "detected")
    assert len(detected) == 4 and all(name.endswith(words) for name in detected)
    assert all((0.5 < at_s < 0.51) == (daemon == "bgpd") for at_s in detected.values())


def test_a_link_that_is_back_has_no_session_while_bgpd_is_dead() -> None:
    killed = "{at: 500ms, until: 1200ms, node: p1-s1-rail1, daemon: bgpd, kill: true}"
    flap = f"{{at: 600ms, until: 1150ms, link: '{UPLINK}', flap: {{period: 400ms}}}}"
    one = run_of(f"{killed}, {flap}", changes=(("repeat:", "convergence: {establish: 100ms}\nrepeat:"),))
    assert len([event for event in one.events if event.kind == "link-flap"]) == 2
    assert {name.rpartition(" ")[2] for name in seen(one, "detected")} == {"closed"}, "none that a carrier could end"
    assert all(end is not None for end in one.transfers.end_s), "they come back with bgpd"


def dual_homed(homing: str, fault: str) -> Sweep:
    """Return the shipped scenario with another fault of four seconds than the death of the leaf."""
    shipped = (SCENARIOS / "leaf-dies-dual-homed.yml").read_text()
    dies = "node: fe-leaf1, kill: true"
    assert dies in shipped
    return read_sweep(shipped.replace(dies, fault), {}, {"homing": homing})


@pytest.mark.parametrize("fault", ["node: fe-leaf1, daemon: bgpd, kill: true", "link: 'fe-leaf1:down1', down: true"])
def test_a_host_that_speaks_bgp_is_reached_by_its_other_leaf(fault: str) -> None:
    sweep = dual_homed("routed", fault)
    check_supported(sweep)
    [point] = run_simulated(sweep, RecordOptions(), processes=1).record.points
    lost = point.runs[0].metrics["blackhole_time_loss"]
    assert lost is not None and lost < 0.3, "not the four seconds for which bgpd is dead, or the link down"


def test_a_packet_that_waits_in_a_full_queue_without_classes_is_not_lost() -> None:
    """Hosts of a shipped scenario send eight flows of TCP each to one which has one of its two links left: behind 200
    packets a probe waits 1.2 s. All that did so counted as lost, and a link down for four seconds as a hole of six."""
    two = {"file": "../../topologies/papers/hpn-dual-tor.yml"}
    sweep = read_sweep(SCENARIOS / "papers" / "hpn-link-fails.yml", {"workload.duration": "7s"}, two)
    [one] = run_simulated(sweep, RecordOptions(), processes=1).record.points[0].runs
    assert not one.counters["probes_late"] and one.counters["probes_lost"]
    lost = one.metrics["blackhole_time_loss"]
    assert lost is not None and lost < 2  # the band of the scenario, which says why


def test_a_loop_in_another_network_than_that_of_the_run_does_nothing_to_it() -> None:
    loop = "node: p1-s1-rail1, loop: {through: [p1-spine1], to: 'p1-s1-h1:rail1'}"
    outcome = run_simulated(dual_homed("routed", loop), RecordOptions(), processes=1)
    assert outcome.failure is None, outcome.failure
    [one] = outcome.record.points[0].runs
    assert [event.kind for event in one.events] == ["routing-loop", "undone-routing-loop"]
    assert not one.counters["probes_lost"]


def test_a_host_with_a_subnet_for_each_port_sends_on_by_the_next_one() -> None:
    """Of 32 pairs whose probes are watched, the address of a dead port is the destination of 11, and the source of
    others, whose probes arrive: an emulated lab has 34.4 % of the streams hit, too."""
    [point] = run_simulated(
        dual_homed("subnets", "node: fe-leaf1, kill: true"), RecordOptions(), processes=1
    ).record.points
    assert point.runs[0].metrics["streams_hit"] == pytest.approx(11 / 32)


@pytest.mark.parametrize(
    "fault",
    ["link: 'fe-leaf1:down1', down: true", "link: 'p1-s1-h1:fe1', down: true",
     "node: fe-leaf1, daemon: bgpd, kill: true"],
)  # fmt: skip
def test_what_takes_a_peer_link_is_refused(fault: str) -> None:
    check_supported(dual_homed("mlag", "node: fe-leaf1, kill: true"))
    with pytest.raises(ScenarioError, match="has no peer links") as caught:
        check_supported(dual_homed("mlag", fault))
    assert caught.value.hint


def test_without_zebra_the_kernel_goes_on() -> None:
    one = run_of("{at: 500ms, until: 1500ms, node: p1-s1-rail1, daemon: zebra, kill: true}")
    assert not seen(one, "detected") and one.metrics["streams_hit"] == 0


def test_a_rate_that_changes_for_a_while_costs_its_share() -> None:
    one = run_of(f"{{at: 500ms, until: 1500ms, link: '{NIC}', set: {{rate: 25%, both: true}}}}")
    whole = run_of(f"{{at: 500ms, until: 501ms, link: '{NIC}', set: {{rate: 99%, both: true}}}}")
    longer = (one.metrics["tail_fct"] or 0) - (whole.metrics["tail_fct"] or 0)
    assert 0.6 < longer < 1.4, "3/4 of a second's worth is later"


class Wire:
    """A line, with the impairments that it is given."""

    def __init__(self) -> None:
        self.rate_bps, self.delay_ns = 10**9, 1_050
        self.given: list[Impairments | None] = []

    def impair(self, impairments: Impairments | None) -> None:
        self.given.append(impairments)


def test_of_two_changes_of_a_link_each_changes_what_it_names() -> None:
    wire = Wire()
    site: Any = SimpleNamespace(
        fabric=SimpleNamespace(network=SimpleNamespace(lines={"a:p": wire}), delays={"a:p": 1_050}, k=1.0),
        links=SimpleNamespace(
            ports={"a:p": SimpleNamespace(rate_bps=10**9, delay_ns=1_000, loss=0.01)},
            impairments={},
            speak=lambda now, names: None,
        ),
    )

    def changed(settings: Mapping[str, str]) -> Any:
        made = faults._make(lab_fault(Fault(at=Duration(0), kind="link-set", target="a:p", settings=settings)), site)
        made.do(0)
        return made

    changed({"delay": "5us"})
    assert wire.delay_ns == 5_050 and not wire.given, "the link goes on to lose what it is declared to"
    changed({"delay": "2us", "corruption": "2%"})
    assert wire.delay_ns == 2_050 and wire.given[-1] == Impairments(loss=0.01, corrupt=0.02)
    last = changed({"loss": "0%"})
    assert wire.given[-1] == Impairments(corrupt=0.02)
    last.undo(0)
    assert wire.delay_ns == 1_050 and wire.given[-1] == Impairments(loss=0.01)


WAYS = {UPLINK: ("p1-s1-rail1", "p1-spine1"), "p1-spine1:down1": ("p1-spine1", "p1-s1-rail1")}


def looped(
    divert: Callable[..., object], *ttl: str, ends: Mapping[str, tuple[str, str]] = WAYS
) -> tuple[Any, str, Any]:
    """The loops of a scenario in a fabric with these ends, the address that they lead to, and its NIC."""
    loop = f"{{at: 1s, until: 3s, node: p1-s1-rail1, loop: {{through: [p1-spine1], to: '{NIC}'%s}}}}"
    text = SMALL.replace("{ROUTING}", "{bfd: off}").replace("FAULT", ", ".join(loop % one for one in ttl))
    sweep = read_sweep(text)
    [point] = sweep.points
    ports = {f"{port.node}:{port.name}": port for port in planned_lab(sweep.lab_of(point), 20_000.0).plan.ports}
    address, nic = str(ports[NIC].address.ip), SimpleNamespace(ttl=64)
    fabric = SimpleNamespace(network=SimpleNamespace(nics={address: nic}, divert=divert), ends=ends)
    site: Any = SimpleNamespace(fabric=fabric, links=SimpleNamespace(ports=ports), lasting=[])
    return [faults._make(lab_fault(one), site) for one in point.scenario.faults], address, nic


@pytest.mark.parametrize("there", [True, False])
def test_a_loop_that_no_packet_of_the_run_can_come_by_is_none(there: bool) -> None:
    """As that of switches of a network that none of the ranks is in."""
    diverted: list[Any] = []
    [made], address, _ = looped(lambda *way: diverted.append(way), "", ends=WAYS if there else {})
    made.do(0)
    expected = [(source, address, [line]) for line, (source, _) in WAYS.items()] if there else []
    assert diverted == expected
    diverted.clear()
    made.undo(1)
    assert diverted == [(source, address, []) for source, address, _ in expected]


@pytest.mark.parametrize("first_ends_first", [True, False])
def test_of_two_loops_at_once_the_one_that_is_left_keeps_its_ways_and_its_ttl(first_ends_first: bool) -> None:
    now = dict[tuple[str, str], list[str]]()
    (first, second), address, nic = looped(
        lambda node, to, lines: now.update({(node, to): lines}), ", ttl: 16", ", ttl: 32"
    )
    first.do(0)
    second.do(1)
    both = {(source, address): [line] for line, (source, _) in WAYS.items()}
    assert nic.ttl == 32 and now == both
    ending, left, ttl = (first, second, 32) if first_ends_first else (second, first, 16)
    ending.undo(2)
    assert nic.ttl == ttl and now == both
    left.undo(3)
    assert nic.ttl == 64 and not any(now.values())


STORM = (
    ("kind: uet, cc: nscc", "kind: roce, cc: dcqcn"), ("preset: uec, base_rtt: 12us", "preset: dcqcn, watchdog: false"),
)  # fmt: skip


def test_a_storm_stops_its_class_for_as_long_as_it_lasts() -> None:
    one = run_of(
        "{at: 500ms, until: 2s, link: 'p1-s1-h2:rail1', storm: {priority: 3}}",
        changes=(*STORM, ("kind: permutation, scope: inter-leaf", "kind: point-to-point")),
    )
    assert [event.kind for event in one.events] == ["pfc-storm", "undone-pfc-storm"]
    assert one.metrics["pause_frames"] == 2, "that of the storm, and one of the leaf, whose port is full"
    alone = 2e6 * 8 / (100e9 / 20_000)
    assert alone + 1.4 < (one.metrics["tail_fct"] or 0) < alone + 2.6


def test_probes_that_wait_in_a_queue_when_the_traffic_ends_are_not_lost() -> None:
    one = run_of(
        f"{{at: 500ms, until: 800ms, link: '{UPLINK}', down: true}}",
        changes=(
            ("kind: uet, cc: nscc", "kind: tcp"),
            ("kind: permutation, scope: inter-leaf, bytes: 2MB", "kind: incast, senders: 3, duration: 5s"),
        ),
    )
    waits_s = (one.metrics["queue_max"] or 0) * 8 / (100e9 / 20_000)
    assert waits_s > 0.5, "so long a packet waits for its turn at the end"
    assert one.counters["probes_sent"] > 100 and not one.counters["probes_lost"], "none goes by the link that is down"


def test_a_fault_that_the_traffic_does_not_live_to_see_makes_the_run_invalid() -> None:
    record = record_of(f"{{at: 50s, link: '{UPLINK}', down: true}}")
    assert record.verdict.outcome is Outcome.INVALID
    [check] = [one for one in record.points[0].runs[0].checks if not one.ok]
    assert check.name == "faults" and f"link-down of {UPLINK} at 50 s never happened" in check.message


def test_the_same_seed_gives_the_same_run_across_faults() -> None:
    fault = f"{{at: 500ms, link: '{UPLINK}', set: {{silent: true, both: true}}}}"
    first = run_of(fault)
    record_of.cache_clear()
    assert run_of(fault).transfers == first.transfers


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (f"{{at: 1s, link: '{UPLINK}', set: {{jitter: 1us}}}}", "is to vary"),
        ("{at: 1s, agent: p1-s1-h1, kill: true}", "has no workers, and that of p1-s1-h1 is to be killed"),
    ],
)
def test_what_cannot_be_simulated_is_refused_by_name(fault: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message) as caught:
        record_of(fault)
    assert caught.value.hint
