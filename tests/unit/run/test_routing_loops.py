"""A routing loop as a fault: how it is written, what a lab must have for it, and what it does to kernels and hosts."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from ipaddress import IPv4Network
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.base.errors import DriverError, SpecError
from testbed.base.linux import rtnetlink
from testbed.base.linux.rtnetlink import Failure, link_local_address
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.schema.load import load_topology_text
from testbed.run.faults import loops
from testbed.run.faults.lab_fault import FaultSite
from testbed.run.faults.loops import RoutingLoop
from testbed.run.faults.registry import fault_findings, lab_fault
from testbed.run.schema.file import load_scenario_text
from testbed.run.schema.model import Fault

LAB = load_topology_text(
    "name: looped\nscale: {time: 1000}\nfabric: {design: rail-optimized, segments: 2, hosts: 1, gpus: 1, spines: 2}\n",
    file="looped.yml",
)
PLAN = plan_lab(LAB, k=1000.0)
SCENARIO = """name: loop
topology: {file: looped.yml}
transport: {kind: roce}
workload: {kind: point-to-point, bytes: 1MB}
faults:
  - {at: 1s, until: 2s, node: p1-s1-rail1, loop: LOOP}
"""
LOOP = '{through: [p1-spine2], to: "p1-s2-h1:rail1", ttl: 16}'


def fault_of(loop: str = LOOP) -> Fault:
    (fault,) = load_scenario_text(SCENARIO.replace("LOOP", loop), file="loop.yml").scenario.faults
    return fault


def happening(loop: str = LOOP) -> RoutingLoop:
    found = lab_fault(fault_of(loop))
    assert isinstance(found, RoutingLoop)
    return found


def test_it_is_written_with_its_switches_its_destination_and_a_ttl() -> None:
    found = happening()
    assert (found.kind, found.switches, found.ttl) == ("routing-loop", ["p1-s1-rail1", "p1-spine2"], 16)
    assert happening("{through: [p1-spine2], to: 10.0.0.0/8}").ttl == 64
    assert found.may_lose and not found.keeps_order


@pytest.mark.parametrize(
    ("loop", "message"),
    [
        ("{through: [p1-spine2]}", "to"),
        ("{through: [], to: 10.0.0.0/8}", "through"),
        ("{through: [p1-spine2], to: 10.0.0.1/8}", "10.0.0.1/8"),
        ("{through: [p1-spine2], to: 10.0.0.0/8, ttl: 1}", "ttl"),
    ],
)
def test_what_cannot_be_one_is_refused_where_it_stands(loop: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        fault_of(loop)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("loop", "code"),
    [
        ('{through: [p1-spine3], to: "p1-s2-h1:rail1"}', "unknown-switch"),
        ('{through: [p1-s2-rail1], to: "p1-s2-h1:rail1"}', "no-such-link"),
        ('{through: [p1-spine1, p1-s1-rail1], to: "p1-s2-h1:rail1"}', "contradiction"),
        ('{through: [p1-spine1], to: "p1-s2-h1:rail7"}', "unknown-port"),
        ('{through: [p1-spine1], to: "p1-s2-rail1:uplink1"}', "nothing-to-lead"),
        ("{through: [p1-spine1], to: 10.0.0.0/8}", "nothing-to-lead"),
        ("{through: [p1-spine1], to: 192.0.2.0/24}", "nothing-to-lead"),
    ],
)
def test_what_the_lab_lacks_is_told_before(loop: str, code: str) -> None:
    assert [finding.code for finding in fault_findings(fault_of(loop), LAB)] == [code]
    assert not list(fault_findings(fault_of(), LAB))


def test_a_loop_may_pass_several_switches() -> None:
    found = happening('{through: [p1-spine1, p1-s2-rail1, p1-spine2], to: "p1-s2-h1:rail1"}')
    assert not list(found.check(LAB))
    ways = [f"{port.node}:{port.name}" for port in found.ways(PLAN.ports)]
    assert ways == ["p1-s1-rail1:uplink1", "p1-spine1:down2", "p1-s2-rail1:uplink2", "p1-spine2:down1"]
    disturbed = {f"{port.node}:{port.name}" for port in PLAN.ports if found.disturbs(port)}
    assert {*ways, "p1-s1-h1:rail1"} <= disturbed


def test_the_prefix_is_that_of_the_nic_or_the_one_that_is_written() -> None:
    nics = [nic for host in PLAN.hosts for nic in host.nics]
    (address,) = (nic.address for nic in nics if nic.node == "p1-s2-h1")
    assert happening().prefix(nics) == IPv4Network(address.ip)
    subnet = address.network
    assert happening(f"{{through: [p1-spine1], to: {subnet}}}").prefix(nics) == subnet
    with pytest.raises(DriverError, match="no address"):
        happening().prefix([])


@pytest.mark.parametrize(("to", "message"), [("10.0.0.0/8", "go before one to 10.0.0.0/8"), ("192.0.2.0/24", "is in")])
def test_a_prefix_by_which_nothing_would_go_round_is_refused_and_nothing_is_left_to_undo(
    kernel: Kernel, to: str, message: str
) -> None:
    found = happening(f"{{through: [p1-spine1], to: {to}}}")
    with pytest.raises(DriverError, match=message):
        found.do(site())
    found.undo(site())
    assert not kernel.sent and not kernel.ttls


class Kernel:
    """Stands for the route sockets of all nodes, and for the TTL of hosts."""

    def __init__(self, refuses: int = 0) -> None:
        self.sent: list[tuple[str, bytes]] = []
        self.refuses = refuses
        self.place = ""
        self.ttls: dict[str, str] = {}

    def ask(self, lab: str, places: Iterable[str], new: object, ask: Callable[[str, Any], object]) -> None:
        for self.place in places:
            ask(self.place, self)

    def expect(self, batch: list[bytes], what: list[str]) -> None:
        self.sent += [(self.place, one) for one in batch]

    def submit(self, batch: list[bytes]) -> list[Failure]:
        self.expect(batch, [])
        return [Failure(index=0, errno=self.refuses, reason="no")] if self.refuses else []

    def within(self, name: str, work: Callable[[], object]) -> None:
        self.place = name
        work()

    def write_text(self, text: str) -> int:
        self.ttls[self.place] = text
        return len(text)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    found = Kernel()
    monkeypatch.setattr(loops, "ask_inside", found.ask)
    monkeypatch.setattr(loops, "in_namespace", found.within)
    monkeypatch.setattr(loops, "TTL_KEY", found)
    return found


def site() -> FaultSite:
    lab: Any = SimpleNamespace(name="looped", whole=SimpleNamespace(model=LAB, plan=PLAN))
    return FaultSite(lab=lab, links=SimpleNamespace(), kill_worker=lambda host: None)  # type: ignore[arg-type]


def test_each_switch_gets_a_static_route_by_its_neighbour_and_loses_it_again(kernel: Kernel) -> None:
    found = happening()
    found.do(site())
    assert [place for place, _ in kernel.sent] == ["p1-s1-rail1", "p1-spine2"]
    ports = {f"{port.node}:{port.name}": port for port in PLAN.ports}
    for (_, message), out in zip(kernel.sent, ("p1-s1-rail1:uplink2", "p1-spine2:down1"), strict=True):
        ((kind, _, _, body),) = rtnetlink.messages(message)
        assert kind == rtnetlink.RTM_NEWROUTE and body[1] == 32
        fields = rtnetlink.fields(body, rtnetlink.RTMSG.size)
        assert int.from_bytes(fields[rtnetlink.RTA_OIF], "little") == ports[out].ifindex
        assert fields[rtnetlink.RTA_VIA] == socket.AF_INET6.to_bytes(2, "little") + link_local_address(
            ports[ports[out].peer].mac
        )
    assert len(kernel.ttls) == len(PLAN.hosts) and set(kernel.ttls.values()) == {"16"}
    found.undo(site())
    kinds = [rtnetlink_kind(message) for _, message in kernel.sent[2:]]
    assert kinds == [rtnetlink.RTM_NEWROUTE + 1] * 2
    assert set(kernel.ttls.values()) == {"64"}


def rtnetlink_kind(message: bytes) -> int:
    ((kind, _, _, _),) = rtnetlink.messages(message)
    return kind


@pytest.mark.parametrize("first_ends_first", [True, False])
def test_of_two_loops_at_once_the_one_that_is_left_keeps_its_routes_and_its_ttl(
    kernel: Kernel, first_ends_first: bool
) -> None:
    """The first leaf sends both to spine 2, so that this is one route; spine 2 sends each somewhere else."""
    through = ("[p1-spine2]", "[p1-spine2, p1-s2-rail1, p1-spine1]")
    first, second = (
        happening(f'{{through: {names}, to: "p1-s2-h1:rail1", ttl: {ttl}}}')
        for names, ttl in zip(through, (16, 32), strict=True)
    )
    where = site()
    first.do(where)
    second.do(where)
    added = [place for place, _ in kernel.sent]
    assert added == ["p1-s1-rail1", "p1-spine2", "p1-spine2", "p1-s2-rail1", "p1-spine1"]
    assert set(kernel.ttls.values()) == {"32"}
    ending, left, ttl = (first, second, "32") if first_ends_first else (second, first, "16")
    kernel.sent.clear()
    ending.undo(where)
    assert set(kernel.ttls.values()) == {ttl}
    assert "p1-s1-rail1" not in [place for place, _ in kernel.sent], "the other one has that route, too"
    left.undo(where)
    assert set(kernel.ttls.values()) == {"64"}
    assert sorted(place for place, _ in kernel.sent) == sorted(added)
    assert {rtnetlink_kind(message) for _, message in kernel.sent} == {rtnetlink.RTM_NEWROUTE + 1}


def test_a_host_that_is_gone_does_not_keep_the_others_from_their_ttl(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def within(name: str, work: Callable[[], object]) -> None:
        if name == "looped-p1-s1-h1":
            raise DriverError("it is gone")
        kernel.within(name, work)

    monkeypatch.setattr(loops, "in_namespace", within)
    with pytest.raises(DriverError, match="it is gone"):
        happening().undo(site())
    assert kernel.ttls == {"looped-p1-s2-h1": "64"}


def test_undoing_what_never_was_is_no_error_and_a_refusal_is(kernel: Kernel) -> None:
    kernel.refuses = 3  # ESRCH
    happening().undo(site())
    kernel.refuses = 1
    with pytest.raises(DriverError, match="keeps its static route"):
        happening().undo(site())
    assert set(kernel.ttls.values()) == {"64"}, "hosts have their TTL back in any case"
