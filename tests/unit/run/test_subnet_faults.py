"""Faults of an InfiniBand back end that is up: they take no longer than is needed to do them, whenever the subnet
manager has new tables."""

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from waiting import until

from testbed.base.errors import DriverError, ScenarioError
from testbed.base.units import Duration
from testbed.lab.core.schema.load import load_topology
from testbed.lab.features.infiniband.live import LinksChange
from testbed.lab.features.infiniband.wires import Reroute
from testbed.run.faults.lab_fault import FaultSite
from testbed.run.faults.registry import fault_findings, lab_fault
from testbed.run.faults.subnet import SubnetSite
from testbed.run.placed.lab import lab_of_runs
from testbed.run.schema.model import Fault

TOPOLOGIES = Path(__file__).parents[3] / "topologies" / "infiniband"
TREE = load_topology(TOPOLOGIES / "fat-tree-32.yml")
UPLINK = "p1-s1-rail1:uplink1"
PATIENCE_S = 20.0


class Live:
    """Stands for `LiveSubnet`: tables are there when `tables` is set, or an error of `fails` is raised."""

    def __init__(self) -> None:
        fabric = TREE.infiniband
        assert fabric is not None
        self.names = [(str(link.a), str(link.b)) for link in fabric.links]
        self.up = [True] * len(self.names)
        self.tables = threading.Event()
        self.fails: list[Exception] = []
        self.awaited: list[tuple[int, ...]] = []
        self.done: list[tuple[Any, ...]] = []
        subnet = SimpleNamespace(engine="updn", sm="p1-s1-h1:rail1")
        self.wires = SimpleNamespace(subnet=lambda: subnet, set_leak=lambda *leak: self.done.append(leak))
        managers = [SimpleNamespace(name=f"{host}:rail1", host=host) for host in ("p1-s1-h1", "p1-s2-h1")]
        self.planned = SimpleNamespace(managers=managers)

    def find_link(self, place: str) -> int:
        return next(number for number, ends in enumerate(self.names) if place in ends)

    def channel(self, place: str) -> tuple[str, int]:
        return place.partition(":")[0], 7

    def require_wires(self) -> Any:
        return self.wires

    def links(self) -> Iterator[Any]:
        return (SimpleNamespace(up=up) for up in self.up)

    def link(self, place: str) -> Any:
        return SimpleNamespace(up=self.up[self.find_link(place)])

    def links_of(self, switch: str) -> list[int]:
        of_switch = ((number, [end.partition(":")[0] for end in ends]) for number, ends in enumerate(self.names))
        return [number for number, nodes in of_switch if switch in nodes and self.up[number]]

    def change_links(self, links: Sequence[int], *, up: bool) -> LinksChange:
        for link in links:
            assert self.up[link] != up
            self.up[link] = up
        return LinksChange(links=tuple(links), begun_s=0.0, sweeps=0)

    def no_change(self) -> LinksChange:
        return LinksChange(links=(), begun_s=0.0, sweeps=0)

    def await_tables(self, change: LinksChange) -> Reroute:
        assert self.tables.wait(PATIENCE_S)
        self.awaited.append(change.links)
        if self.fails:
            raise self.fails.pop(0)
        return Reroute(manager_s=0.1, lab_s=0.2, time_scale=1000)

    def kill_manager(self, name: str) -> None:
        self.done.append(("killed", name))

    def restart_manager(self, name: str) -> None:
        self.done.append(("started", name))


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> Iterator[Live]:
    found = Live()
    monkeypatch.setattr("testbed.lab.features.infiniband.live.LiveSubnet", lambda lab: found)
    yield found
    found.tables.set()  # whatever waits for them ends


@pytest.fixture
def site(live: Live) -> FaultSite:
    lab: Any = SimpleNamespace(name="tree", whole=SimpleNamespace(model=TREE))
    none: Any = None
    return FaultSite(lab=lab, links=none, kill_worker=none, subnet=SubnetSite(lab))


def subnet_of(site: FaultSite) -> SubnetSite:
    assert site.subnet is not None
    return site.subnet


def fault(kind: str, target: str, **settings: Any) -> Any:
    return lab_fault(Fault(at=Duration(0), kind=kind, target=target, settings=settings))


def test_a_link_is_down_before_there_are_new_tables(live: Live, site: FaultSite) -> None:
    one = fault("link-down", UPLINK)
    one.prepare(site)
    one.do(site)
    assert not live.link(UPLINK).up
    assert not subnet_of(site).seen, "no tables yet, and the fault has been done"
    live.tables.set()
    subnet_of(site).settle()
    (event,) = subnet_of(site).seen
    assert (event.kind, event.target) == ("rerouted", "p1-s1-h1:rail1")
    told = "updn: new tables after 100 ms of the subnet manager, and frames by them after 200 ms"
    assert event.detail.startswith(told)
    one.undo(site)
    one.undo(site)
    assert live.link(UPLINK).up
    subnet_of(site).settle()
    assert [event.kind for event in subnet_of(site).seen] == ["rerouted"] * 2


def test_changes_that_come_before_tables_are_waited_for_together(live: Live, site: FaultSite) -> None:
    one, other = fault("link-down", UPLINK), fault("link-down", "p1-s2-rail1:uplink2")
    one.do(site)
    other.do(site)
    one.undo(site)
    live.tables.set()
    subnet_of(site).settle()
    numbers = {live.find_link(one.target), live.find_link(other.target)}
    assert {link for links in live.awaited for link in links} == numbers
    assert len(live.awaited) <= 2, "the last one has both"


def test_a_switch_comes_back_with_the_links_that_went_with_it(live: Live, site: FaultSite) -> None:
    down = fault("link-down", UPLINK)
    down.do(site)
    spine = next(end for end in live.names[live.find_link(UPLINK)] if end.startswith("p1-spine")).partition(":")[0]
    kill = fault("node-kill", spine)
    kill.prepare(site)
    kill.do(site)
    assert live.links_of(spine) == []
    kill.undo(site)
    kill.undo(site)
    assert len(live.links_of(spine)) == 7, "the one that was down before still is"
    assert not live.link(UPLINK).up
    down.undo(site)
    assert all(live.up)


def test_tables_that_do_not_come_are_told_and_asked_for_once_more(live: Live, site: FaultSite) -> None:
    live.fails = [DriverError("no subnet manager runs", operation="opensm")]
    live.tables.set()
    fault("link-down", UPLINK).do(site)
    subnet_of(site).settle()
    assert [event.kind for event in subnet_of(site).seen] == ["not-rerouted", "rerouted"]
    live.fails = [DriverError("still none", operation="opensm"), DriverError("none at all", operation="opensm")]
    fault("link-down", "p1-s2-rail1:uplink2").do(site)
    with pytest.raises(ScenarioError, match="frames go by tables of before: none at all"):
        subnet_of(site).settle()


def test_a_manager_that_is_killed_leaves_the_subnet_to_another_one(live: Live, site: FaultSite) -> None:
    live.tables.set()
    one = fault("manager-kill", "p1-s2-h1")
    one.prepare(site)
    one.do(site)
    until(lambda: len(subnet_of(site).seen) == 1, "another one has swept")
    one.undo(site)
    assert live.done == [("killed", "p1-s2-h1:rail1"), ("started", "p1-s2-h1:rail1")]


def test_a_lane_lacks_credits_until_the_leak_is_undone(live: Live, site: FaultSite) -> None:
    one = fault("credit-leak", UPLINK, vl=0, share=0.9)
    one.prepare(site)
    one.do(site)
    one.undo(site)
    assert live.done == [("p1-s1-rail1", 7, 0, 0.9), ("p1-s1-rail1", 7, 0, 0.0)]
    assert not one.may_lose


@pytest.mark.parametrize(
    ("kind", "target", "settings", "message"),
    [
        ("credit-leak", "p1-s1-h1:eth0", {"vl": 0, "share": 1.0}, "p1-s1-h1 has no port 'eth0'"),
        ("credit-leak", UPLINK, {"vl": 1, "share": 1.0}, "links of ib-fat-tree-32 have no VL 1"),
        ("credit-leak", UPLINK, {"vl": 0, "share": 1.0}, ""),
        ("manager-kill", "p1-s3-h1", {}, "has no subnet manager at p1-s3-h1"),
        ("manager-kill", "p1-s2-h1", {}, ""),
        ("node-kill", "p1-spine1", {}, ""),
    ],
)
def test_faults_that_a_subnet_does_not_have_are_found(
    kind: str, target: str, settings: dict[str, Any], message: str
) -> None:
    found = [*fault_findings(Fault(at=Duration(0), kind=kind, target=target, settings=settings), lab_of_runs(TREE))]
    if not message:
        assert not found
        return
    (finding,) = found
    assert message in finding.message
    assert finding.hint


def test_ethernet_has_no_credits_and_no_subnet_manager() -> None:
    lab = load_topology(TOPOLOGIES.parent / "demo.yml")
    leak = Fault(at=Duration(0), kind="credit-leak", target=UPLINK, settings={"vl": 0, "share": 1.0})
    (finding,) = fault_findings(leak, lab)
    assert "no credits of InfiniBand that could leak" in finding.message
    (finding,) = fault_findings(Fault(at=Duration(0), kind="manager-kill", target="p1-s1-h1"), lab)
    assert "has no subnet manager" in finding.message
