"""The path of a flow, hop by hop: held against the oracles of scenarios, which know the hash from their own code."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv6Address
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from memory_maps import maps_in_memory

from testbed.base.datapath.abi import BALANCING_CODES, FIVE_TUPLE, HASH_BITS, BalancingMode
from testbed.base.datapath.flow_hash import FiveTuple
from testbed.base.linux.route_lookup import RouteAnswer, RouteHop, hop_of_hash
from testbed.base.linux.rtnetlink import link_local_address
from testbed.lab.core.deploy.live import NoSuchNode, RunningLab
from testbed.lab.core.model import Lab
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import AddAddress
from testbed.lab.core.schema.load import load_topology
from testbed.lab.observe import flow_path
from testbed.lab.observe.flow_ends import flow_ends
from testbed.lab.observe.flow_path import FlowPath, FlowTracer
from testbed.run.ideals.fabric_graph import fabric_graph
from testbed.run.ideals.switch_choices import lab_hash
from testbed.workload.oracles.ecmp import hashed_choice, place_flows
from testbed.workload.oracles.prediction import Flow

TOPOLOGIES = Path(__file__).parents[4] / "topologies"
RUN = 1


class FakeRunningLab:
    """A planned lab, and kernels that have exactly the planned routes, in zebra's order."""

    def __init__(self, name: str, mode: BalancingMode | None = BalancingMode.FLOW, **overrides: object) -> None:
        keys = {key.replace("__", "."): value for key, value in overrides.items()}
        self.model: Lab = load_topology(TOPOLOGIES / f"{name}.yml", overrides=keys)
        self.plan: LabPlan = plan_lab(self.model, k=1000)
        self.name = self.model.name
        self.down: set[str] = set()
        """Ports that no route goes over."""
        self.dark: set[str] = set()
        """Ports without a carrier."""
        self._ports = {f"{port.node}:{port.name}": port for port in self.plan.ports}
        if self.plan.tables is not None:
            self._maps = maps_in_memory(len(self.plan.ports))
            for item in self.plan.installs:
                record = self._maps.ports[item.port]
                record["balancing"] = BALANCING_CODES["KERNEL" if mode is None else mode.name]
                record["hash_fields"] = sum(HASH_BITS[field] for field in FIVE_TUPLE)
                record["buffer"] = item.buffer
                record["seed"] = self.plan.tables.buffers[item.buffer].seed_in(RUN)

    @property
    def whole(self) -> FakeRunningLab:
        return self

    def maps(self) -> Any:
        return self._maps

    def node(self, name: str) -> Any:
        return self.model.node(name)

    def link_states(self, only: str) -> dict[tuple[str, str], bool]:
        return {(port.node, port.name): key not in self.dark for key, port in self._ports.items() if port.node == only}

    def port(self, node: str, interface: str) -> Any:
        return self._ports[f"{node}:{interface}"]

    def route(self, place: str, packet: FiveTuple) -> RouteAnswer:
        """The route of a node's packet, or of one that it forwards."""
        host = next((host for host in self.plan.hosts if host.node == place), None)
        if host is not None:
            nic = next(nic for nic in host.nics if nic.address is not None and nic.address.ip == packet.source)
            assert nic.address is not None
            gateway = None if packet.destination in nic.address.network else nic.gateway
            return RouteAnswer(hops=(RouteHop(ifindex=nic.ifindex, gateway=gateway),))
        for item in self.plan.operations:
            if not isinstance(item, AddAddress) or item.node != place or item.address.network.prefixlen == 32:
                continue
            if packet.destination in item.address.network:
                return RouteAnswer(hops=(RouteHop(ifindex=item.ifindex),))
        found = [one for one in self.plan.expected_routes[place] if packet.destination in one.prefix]
        if not found:
            return RouteAnswer(refusal="Network is unreachable")
        best = max(found, key=lambda one: one.prefix.prefixlen)
        ports = [self._ports[f"{place}:{name}"] for name in best.interfaces if f"{place}:{name}" not in self.down]
        hops = [RouteHop(ifindex=port.ifindex, gateway=self._link_local(port.peer)) for port in ports]
        return RouteAnswer(hops=tuple(sorted(hops, key=lambda hop: str(hop.gateway))))

    def _link_local(self, end: str) -> IPv6Address:
        return IPv6Address(link_local_address(self._ports[end].mac))


@pytest.fixture
def tracing(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Kernels that answer for the lab that a test puts in."""
    asked: dict[str, Any] = {"arrives": []}

    def ask_inside(_lab: str, places: list[str], _new: object, ask: Any) -> dict[str, Any]:
        return {place: ask(place, SimpleNamespace(place=place)) for place in places}

    def matching(route: Any, packet: FiveTuple, *, arrives: int = 0) -> RouteAnswer:
        asked["arrives"].append((route.place, arrives))
        found: RouteAnswer = asked["lab"].route(route.place, packet)
        return found

    def chosen(route: Any, packet: FiveTuple, *, arrives: int = 0) -> RouteAnswer:
        return RouteAnswer(hops=matching(route, packet, arrives=arrives).hops[-1:])

    monkeypatch.setattr(flow_path, "ask_inside", ask_inside)
    monkeypatch.setattr(flow_path, "matching_route", matching)
    monkeypatch.setattr(flow_path, "chosen_route", chosen)
    yield asked


def trace(
    asked: dict[str, Any], lab: FakeRunningLab, a: str, b: str, ports: tuple[int, int] = (49152, 4791)
) -> FlowPath:
    asked["lab"] = lab
    running = cast(RunningLab, lab)
    near, far = flow_ends(running, a, b)
    five = FiveTuple(
        source=near.address, destination=far.address, protocol=17, source_port=ports[0], destination_port=ports[1]
    )
    with FlowTracer(running) as tracer:
        return tracer.trace(near.node, near.place, far.node, five)


def places(path: FlowPath) -> list[str]:
    return [f"{hop.port.node}:{hop.port.name}" for hop in path.hops]


@pytest.mark.parametrize("name", ["rail-qos", "six-by-four"])
def test_a_flow_takes_the_way_that_the_oracle_predicts(tracing: dict[str, Any], name: str) -> None:
    lab = FakeRunningLab(name, qos__load_balancing__mode="flow")
    graph = fabric_graph(lab.model, lab.plan)
    random = Random(1)
    hosts = lab.plan.hosts
    for _ in range(40):
        a, b = random.sample(hosts, 2)
        rail = random.randrange(len(a.nics))
        near, far, source_port = a.nics[rail], b.nics[rail], random.randrange(1024, 65536)
        assert near.address is not None and far.address is not None
        five = FiveTuple(
            source=near.address.ip, destination=far.address.ip, protocol=17, source_port=source_port,
            destination_port=4791,
        )  # fmt: skip
        ends = f"{near.node}:{near.name}", f"{far.node}:{far.name}"
        flow = Flow(source=ends[0], destination=ends[1])
        (route,) = place_flows(graph, [flow], hashed_choice(lab_hash(lab.plan, [five], run=RUN)))
        path = trace(tracing, lab, *ends, ports=(source_port, 4791))
        assert places(path) == [graph.links[number].name for number in route]
        assert path.arrives == ends[1] and path.is_certain and not path.lost


def test_a_packet_comes_in_by_the_bridge_of_its_port(tracing: dict[str, Any]) -> None:
    lab = FakeRunningLab("rail-qos", qos__load_balancing__mode="flow")
    path = trace(tracing, lab, "p1-s1-h1", "p1-s2-h1")
    assert [hop.number for hop in path.hops] == [1, 2, 3, 4]
    assert path.hops[0].came_in == "" and path.hops[1].came_in == path.hops[0].port.peer
    bridges = {item.ifindex for item in lab.plan.operations if type(item).__name__ == "CreateBridge"}
    arrived = dict(tracing["arrives"])
    assert arrived[path.hops[1].port.node] in bridges, "what a bridge takes in is routed as its own"
    assert arrived[path.hops[2].port.node] == lab.port(*path.hops[2].came_in.split(":")).ifindex
    assert path.hops[1].ways > 1 and path.hops[1].by == "hash of the switch"


def test_within_a_subnet_the_bridge_passes_it_on(tracing: dict[str, Any]) -> None:
    path = trace(tracing, FakeRunningLab("rail-qos"), "p1-s1-h1:rail1", "p1-s1-h2:rail1")
    assert [hop.port.node for hop in path.hops] == ["p1-s1-h1", "p1-s1-rail1"]
    assert path.hops[1].by == "bridge" and path.arrives == "p1-s1-h2:rail1"


@pytest.mark.parametrize("mode", [BalancingMode.SPRAY, BalancingMode.FLOWLET])
def test_what_is_no_flow_to_a_switch_takes_all_ways(tracing: dict[str, Any], mode: BalancingMode) -> None:
    lab = FakeRunningLab("rail-qos", mode)
    path = trace(tracing, lab, "p1-s1-h1", "p1-s2-h1")
    up = [hop for hop in path.hops if hop.number == 2]
    assert len(up) == up[0].ways > 1 and not path.is_certain
    assert {hop.number for hop in path.hops} == {1, 2, 3, 4}
    assert len([hop for hop in path.hops if hop.number == 3]) == len(up), "each spine passes it on"
    assert len([hop for hop in path.hops if hop.number == 4]) == len(up), "which came in by another port each"
    assert path.arrives == "p1-s2-h1:rail1"


def test_the_kernel_is_believed_where_it_hashes(tracing: dict[str, Any]) -> None:
    path = trace(tracing, FakeRunningLab("rail-qos", None), "p1-s1-h1", "p1-s2-h1")
    assert path.hops[1].by == "hash of the kernel" and path.is_certain
    plain = trace(tracing, FakeRunningLab("demo"), "p1-s1-h1", "p1-s2-h1")
    assert plain.hops[1].by == "hash of the kernel" and plain.is_certain


@pytest.mark.parametrize(("dark", "passed"), [("p1-s1-h1:rail1", 1), ("p1-s1-rail1:down2", 2)])
def test_within_a_subnet_nothing_arrives_over_a_link_that_is_down(
    tracing: dict[str, Any], dark: str, passed: int
) -> None:
    """A route within a subnet is the link's own, and stays when the link, or the switch behind it, has no power."""
    lab = FakeRunningLab("rail-qos")
    assert trace(tracing, lab, "p1-s1-h1:rail1", "p1-s1-h2:rail1").arrives
    lab.dark = {dark}
    path = trace(tracing, lab, "p1-s1-h1:rail1", "p1-s1-h2:rail1")
    node, port = dark.split(":")
    assert path.arrives == "" and len(path.hops) == passed
    assert path.lost == (f"{node}: {port} has no carrier, or is not up",)


def test_a_flow_that_does_not_arrive_says_where_and_why(tracing: dict[str, Any]) -> None:
    lab = FakeRunningLab("demo")
    far = {f"p1-spine{number}:{name}" for number in range(1, 5) for name in ("down3", "down4")}
    lab.down = far
    path = trace(tracing, lab, "p1-s1-h1", "p1-s2-h1")
    assert path.arrives == ""
    assert len(path.lost) == 1 and path.lost[0].startswith("p1-spine")


def test_a_way_that_is_gone_is_not_taken(tracing: dict[str, Any]) -> None:
    lab = FakeRunningLab("rail-qos", qos__load_balancing__mode="flow")
    before = trace(tracing, lab, "p1-s1-h1", "p1-s2-h1")
    lab.down = {places(before)[1]}
    after = trace(tracing, lab, "p1-s1-h1", "p1-s2-h1")
    assert places(after)[1] != places(before)[1] and after.arrives == before.arrives


def test_ends_are_nics_that_belong_together() -> None:
    lab = cast(RunningLab, FakeRunningLab("demo"))
    near, far = flow_ends(lab, "p1-s1-h1", "p1-s2-h2:rail2")
    assert (near.nic.name, far.nic.name) == ("rail2", "rail2")
    switch, _ = flow_ends(lab, "p1-spine1", "p1-s1-h1")
    assert switch.nic is None
    assert switch.address in [one.loopback.ip for one in lab.plan.switches if one.node == "p1-spine1"]
    by_address, _ = flow_ends(lab, str(far.address), "p1-s1-h1")
    assert by_address == far
    with pytest.raises(NoSuchNode, match="nothing in demo has the address"):
        flow_ends(lab, "192.0.2.1", "p1-s1-h1")
    with pytest.raises(NoSuchNode, match="are one node"):
        flow_ends(lab, "p1-s1-h1:rail1", "p1-s1-h1:rail2")
    with pytest.raises(NoSuchNode, match="has no IPv4 address"):
        flow_ends(lab, "p1-s1-rail1:uplink1", "p1-s1-h1")


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 64])
def test_hash_threshold_is_that_of_the_oracles(count: int) -> None:
    random = Random(count)
    hops = [RouteHop(ifindex=number) for number in range(count)]
    choose = hashed_choice(lambda flow, _node: flow)
    for value in (0, (1 << 32) - 1, *(random.getrandbits(32) for _ in range(2000))):
        assert hop_of_hash(hops, value) == choose(value, "", count)


def test_weights_divide_the_hash_space() -> None:
    hops = [RouteHop(ifindex=1, weight=3), RouteHop(ifindex=2, weight=1)]
    chosen = [hop_of_hash(hops, value << 20) for value in range(1 << 12)]
    assert chosen.count(0) == 3 * (1 << 10) and sorted(chosen) == chosen
