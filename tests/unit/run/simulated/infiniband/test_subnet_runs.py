"""Scenarios over a subnet in virtual time, whose tables are those of shortest ways: no subnet manager is needed."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from itertools import count, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from routed_fabrics import routed

from testbed.base.errors import ScenarioError, SpecError
from testbed.base.units import Duration
from testbed.lab.core.model import BACKEND, InfinibandFabric
from testbed.protocols.infiniband.subnet import NO_PORT, Subnet
from testbed.record.record import RunResult
from testbed.run.emulated.sweep import run_recorded
from testbed.run.measuring.measured import TimeLimitReached
from testbed.run.placed.subnet import require_lids
from testbed.run.schema.model import AtStep, Fault
from testbed.run.simulated.infiniband import subnets
from testbed.run.simulated.infiniband.faults import SubnetHappening, check_subnet_fault
from testbed.run.simulated.point import SimulatedPoint
from testbed.run.simulated.support import check_supported, simulated_approximations
from testbed.run.sweep.point_runs import RunOutcome
from testbed.run.sweep.runner import RecordOptions
from testbed.run.sweeps import read_sweep
from testbed.run.transports.ib import Ib

ROOT = Path(__file__).parents[5]
TREE = ROOT / "topologies/infiniband/fat-tree-32.yml"
RING = ROOT / "topologies/infiniband/ring-minhop.yml"


@pytest.fixture(autouse=True)
def tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have subnets computed here."""
    if shutil.which("clang") is None:
        pytest.skip("clang is not installed")
    monkeypatch.setattr(subnets, "_computed", {})
    monkeypatch.setattr(
        "testbed.lab.features.infiniband.offline.compute_subnet", lambda fabric, down=(): routed(fabric, down)
    )


def outcome_of(scenario: str, topology: Path = TREE, **settings: Any) -> RunOutcome:
    text = f"name: t\ntopology: {{file: {topology}}}\n{scenario}\nrepeat: {{runs: 1, seed: 1}}\n"
    sweep = read_sweep(text, settings)
    point = sweep.points[0]
    return SimulatedPoint(point, sweep.lab_of(point)).run(1, lambda share: False)


def result_of(scenario: str, topology: Path = TREE, **settings: Any) -> RunResult:
    outcome = outcome_of(scenario, topology, **settings)
    assert outcome.failure is None
    assert outcome.result is not None
    return outcome.result


def fabric_of(topology: Path) -> InfinibandFabric:
    sweep = read_sweep(f"name: t\ntopology: {{file: {topology}}}\ntransport: {{kind: ib}}\n{SHIFT}\n")
    found = sweep.lab_of(sweep.points[0]).infiniband
    assert found is not None
    return found


def down(target: str, at_us: int, until_us: int) -> Fault:
    return Fault(at=Duration(at_us * 1000), until=Duration(until_us * 1000), kind="link-down", target=target)


class Clock:
    """What a fault needs of the network: actions at their time."""

    def __init__(self) -> None:
        self.now = 0
        self._due: list[tuple[int, int, Callable[[int], None]]] = []
        self._order = count()

    def at(self, when: int, action: Callable[[int], None]) -> None:
        heappush(self._due, (when, next(self._order), action))

    def run(self) -> None:
        while self._due:
            self.now, _, action = heappop(self._due)
            action(self.now)


def happening_of(
    fabric: InfinibandFabric, faults: Sequence[Fault], calls: list[tuple[str, int, bool]]
) -> tuple[SubnetHappening, Clock]:
    """Faults that put what they do to links into `calls`."""
    clock = Clock()
    path = SimpleNamespace(
        set_link=lambda node, port, up: calls.append((node, port, up)),
        set_forwarding=lambda switch, table: None,
        pass_time=lambda now: None,
    )
    carrier: Any = SimpleNamespace(
        subnet=routed(fabric), path=path, touch=lambda: None, change_subnet=lambda subnet: None, deadlock=()
    )
    network: Any = clock
    return SubnetHappening(faults, carrier, network, fabric, subnet_ns=1000, begin_ns=0), clock


SHIFT = "workload: {kind: tornado, shift: 4, bytes: 128kB}"


@pytest.mark.parametrize("keys", ["", ", connections: dc", ", service: ud", ", cc: ccti", ", qps: 2"])
def test_a_shift_has_the_line(keys: str) -> None:
    result = result_of(f"transport: {{kind: ib{keys}}}\n{SHIFT}")
    assert result.metrics["jct_ratio"] == pytest.approx(1.1, abs=0.06)
    assert result.metrics["ib_lost"] == 0
    assert result.metrics["ib_deadlocked"] == 0
    assert all(check.ok for check in result.checks)
    subnet = result.subnet
    assert subnet is not None
    hca = next(port for port in subnet.ports if port.node == "p1-s1-h1:rail1")
    assert hca.xmit_data * 4 > 128_000
    assert hca.rcv_pkts >= 32


@pytest.mark.parametrize("service", ["rc", "ud"])
def test_collectives_have_the_right_sums(service: str) -> None:
    workload = "workload: {kind: all-reduce, bytes: 64kB, ranks: {count: 8}}"
    result = result_of(f"transport: {{kind: ib, service: {service}}}\n{workload}")
    assert result.metrics["wrong"] == 0


def test_a_ring_on_one_lane_ends_in_a_deadlock_that_is_told() -> None:
    workload = "workload: {kind: tornado, shift: 4, bytes: 2MB}"
    result = result_of(f"transport: {{kind: ib}}\n{workload}", RING)
    assert result.metrics["ib_deadlocked"] == 1
    assert result.subnet.stuck > 0
    assert result.subnet.deadlocked_s is not None
    (event,) = result.events
    assert (event.kind, event.at_s) == ("deadlocked", pytest.approx(result.subnet.deadlocked_s))
    assert event.detail.startswith(f"{event.target}:")
    assert event.detail.count(" VL 0") == event.detail.count(" waits for ") + 1 == 6


@pytest.mark.parametrize(("share", "slower"), [("50%", False), ("100%", True)])
def test_credits_that_leak_make_a_lane_wait(share: str, slower: bool) -> None:
    """With half of its credits a link has its rate still: they are for more than is under way on it."""
    scenario = f"""transport: {{kind: ib, timeout: 14}}
workload: {{kind: tornado, shift: 4, bytes: 128kB}}
faults: [{{at: 2us, until: 30us, link: "p1-s1-h1:rail1", leak: {{share: {share}}}}}]"""
    result = result_of(scenario)
    assert result.complete
    assert [event.kind for event in result.events] == (
        ["credit-leak", "undone-credit-leak"] if slower else ["credit-leak"]
    )
    assert result.metrics["ib_lost"] == 0
    assert result.metrics["ib_deadlocked"] == 0
    assert result.subnet is not None
    port = next(one for one in result.subnet.ports if one.node == "p1-s1-h1:rail1")
    assert (port.xmit_wait_s > 25e-6) == slower
    assert result.metrics["jct_ratio"] is not None
    assert (result.metrics["jct_ratio"] > 5) == slower


def test_frames_are_lost_until_there_are_other_tables_and_not_after() -> None:
    scenario = """transport: {kind: ib, timeout: 4}
workload: {kind: tornado, shift: 4, bytes: 2MB}
convergence: {subnet: 20us}
faults: [{at: 10us, link: "p1-s1-rail1:uplink1", down: true}]"""
    result = result_of(scenario)
    assert result.complete
    assert [event.kind for event in result.events] == ["link-down", "rerouted"]
    assert result.events[1].at_s == pytest.approx(30e-6)
    discards = result.metrics["ib_discards"]
    assert discards is not None
    assert discards > 0
    assert result.metrics["retransmits"] is not None
    assert result.metrics["jct_ratio"] is not None
    assert result.metrics["jct_ratio"] > 1.3


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (Fault(at=AtStep(step=3), kind="link-down", target="p1-s1-rail1:uplink1"), "waits for no step of a program"),
        (Fault(at=Duration(0), kind="plane-down", target="p1-s1-h1:plane1"), "has no plane-down"),
        (Fault(at=Duration(0), kind="pfc-storm", target="p1-s1-rail1:uplink1"), "has no pfc-storm"),
        (Fault(at=Duration(0), kind="manager-kill", target="p1-s1-h1"), "none can be killed at p1-s1-h1"),
    ],
)
def test_what_a_subnet_does_not_have_is_refused(fault: Fault, message: str) -> None:
    with pytest.raises(ScenarioError, match=message) as caught:
        check_subnet_fault(fault, fabric_of(TREE))
    assert caught.value.hint


def test_marks_slow_senders_down() -> None:
    incast = "workload: {kind: incast, senders: 4, bytes: 1MB}"
    marks = {"fabric.infiniband.congestion_control.threshold": 15}
    without = result_of(f"transport: {{kind: ib}}\n{incast}", **marks)
    controlled = result_of(f"transport: {{kind: ib, cc: ccti}}\n{incast}", **marks)
    assert without.metrics["ib_marked"]
    assert controlled.metrics["ib_marked"]
    assert controlled.metrics["ib_marked"] < without.metrics["ib_marked"]
    assert sum(channel.counters.get("cnps", 0) for channel in controlled.channels) > 0
    assert controlled.metrics["jct_ratio"] == pytest.approx(1.1, abs=0.1)


def test_a_manager_without_a_link_routes_nothing() -> None:
    """The tables stay as they were while the HCA of the only subnet manager is cut off."""
    fabric = fabric_of(TREE)
    alone = replace(fabric, settings=replace(fabric.settings, sm_hosts=("p1-s1-h1",)))
    happening, clock = happening_of(alone, [down("p1-s1-h1:rail1", 5, 100)], [])
    happening.begin()
    clock.run()
    happening.end()
    seen: Any = SimpleNamespace()
    happening.tell(seen)
    assert [event.kind for event in seen.events] == ["link-down", "not-rerouted", "undone-link-down", "rerouted"]


def test_a_link_that_two_faults_took_down_comes_back_with_the_last_of_them() -> None:
    fabric = fabric_of(TREE)
    near, far = next((str(one.a), str(one.b)) for one in fabric.links if str(one.a) == "p1-s1-rail1:uplink1")
    faults = [down(near, 5, 10), down(far, 6, 30)]
    calls: list[tuple[str, int, bool]] = []
    happening, clock = happening_of(fabric, faults, calls)
    happening.begin()
    clock.run()
    assert len({call[:2] for call in calls}) == 1, "one link, whichever end was named"
    assert [up for _, _, up in calls] == [False, False, False, True]


def test_the_next_manager_routes_where_the_first_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    def compute(fabric: InfinibandFabric, down: Any = ()) -> Subnet:
        asked.append(fabric.settings.sm_hosts)
        return routed(fabric, down)

    monkeypatch.setattr("testbed.lab.features.infiniband.offline.compute_subnet", compute)
    happening, clock = happening_of(fabric_of(TREE), [down("p1-s1-h1:rail1", 5, 100)], [])
    happening.begin()
    clock.run()
    assert asked == [("p1-s2-h1",)]


def test_a_switch_that_the_manager_does_not_reach_keeps_its_table(monkeypatch: pytest.MonkeyPatch) -> None:
    fabric, apart = fabric_of(TREE), ("p1-s8-rail1", *(f"p1-s8-h{number}:rail1" for number in range(1, 5)))
    whole = routed(fabric)
    near, beside, far = (whole.nodes[f"{host}:rail1"].lid for host in ("p1-s1-h1", "p1-s1-h2", "p1-s8-h4"))
    whole = replace(whole, sls={(near, beside): 3, (near, far): 4})

    def compute(fabric: InfinibandFabric, down: Any = ()) -> Subnet:
        nodes = {name: replace(node, lid=0 if name in apart else node.lid + 100) for name, node in whole.nodes.items()}
        tables = {name: bytes(100) + table for name, table in whole.lfts.items()}
        return replace(whole, nodes=nodes, lfts=tables | {apart[0]: b""}, sls={(near + 100, beside + 100): 5})

    monkeypatch.setattr("testbed.lab.features.infiniband.offline.compute_subnet", compute)
    found = subnets.rerouted(whole, fabric, [(apart[0], 5)])
    assert found.lfts[apart[0]] == whole.lfts[apart[0]]
    assert found.lfts["p1-spine1"][near] == whole.lfts["p1-spine1"][near]
    assert found.lfts["p1-spine1"][far] == NO_PORT
    assert found.sls == {(near, beside): 5, (near, far): 4}


def test_faults_of_other_parts_than_the_subnet_are_refused() -> None:
    fabric = fabric_of(TREE)
    check_subnet_fault(down("p1-s1-rail1:uplink1", 5, 10), fabric)
    check_subnet_fault(Fault(at=Duration(0), kind="node-kill", target="p1-spine1"), fabric)
    for wrong in (down("p1-s1-h1:eth0", 5, 10), Fault(at=Duration(0), kind="node-kill", target="frontend-leaf1")):
        with pytest.raises(ScenarioError, match="is no part of the InfiniBand back end"):
            check_subnet_fault(wrong, fabric)


def test_hcas_that_no_manager_has_found_are_refused() -> None:
    subnet = routed(fabric_of(TREE))
    name = "p1-s1-h1:rail1"
    require_lids(subnet, [name])
    nodes = {**subnet.nodes, name: replace(subnet.nodes[name], lid=0)}
    for wrong in (replace(subnet, nodes=nodes), replace(subnet, nodes={})):
        with pytest.raises(ScenarioError, match="is no HCA of the subnet"):
            require_lids(wrong, [name])


def test_a_frame_that_tables_lead_round_ends_with_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two leaves and two spines lead all frames to an HCA in a circle, and no timer of a datagram's ends that."""

    def looped(fabric: InfinibandFabric, down: Any = ()) -> Subnet:
        subnet = routed(fabric, down)
        lid, round_trip = subnet.nodes["p1-s5-h1:rail1"].lid, ("p1-s1-rail1", "p1-spine1", "p1-s2-rail1", "p1-spine2")
        tables = {name: bytearray(table) for name, table in subnet.lfts.items()}
        for here, there in pairwise((*round_trip, round_trip[0])):
            ports = range(1, subnet.nodes[here].ports + 1)
            tables[here][lid] = next(port for port in ports if (subnet.peer(here, port) or ("", 0))[0] == there)
        return replace(subnet, lfts={name: bytes(table) for name, table in tables.items()})

    monkeypatch.setattr("testbed.lab.features.infiniband.offline.compute_subnet", looped)
    ranks = "ranks: {hosts: [p1-s1-h1, p1-s5-h1]}"
    outcome = outcome_of(
        f"transport: {{kind: ib, service: ud}}\nworkload: {{kind: tornado, bytes: 4kB, time_limit: 1ms, {ranks}}}"
    )
    assert isinstance(outcome.failure, TimeLimitReached)


def test_datagrams_want_their_order() -> None:
    with pytest.raises(ScenarioError, match="overtake each other"):
        outcome_of(f"transport: {{kind: ib, service: ud}}\n{SHIFT}", **{"fabric.infiniband.adaptive_routing": True})


def test_the_mtu_of_ethernet_is_none_of_infiniband() -> None:
    topology = "{inline: {name: short, fabric: {design: rail-optimized, mtu: 1500}}}"
    text = f"name: t\ntopology: {topology}\ntransport: {{kind: KIND, path_mtu: 4096}}\n{SHIFT}\n"
    assert len(read_sweep(text.replace("KIND", "ib"), {}).points) == 1
    with pytest.raises(SpecError, match="4096 bytes do not fit into the MTU"):
        read_sweep(text.replace("KIND", "roce"), {})


def test_a_run_in_a_network_beside_the_subnet_is_no_run_over_it() -> None:
    text = """name: t
topology:
  inline:
    name: beside
    scale: {time: 20000}
    fabric:
      {design: rail-optimized, segments: 2, hosts: 2, gpus: 1, spines: 2, nic: {rate: 400G}, link_layer: infiniband}
    networks: {frontend: {nic: {rate: 100G}}}
transport: {kind: tcp}
workload: {kind: permutation, bytes: 64kB, ranks: {network: frontend}}
"""
    sweep = read_sweep(text, {})
    lab = sweep.lab_of(sweep.points[0])
    assert lab.infiniband is not None
    assert lab.of_network(BACKEND).infiniband == lab.infiniband
    point = SimulatedPoint(sweep.points[0], lab)
    assert point.lab.model.infiniband is None
    assert point.lab.plan.k == 20_000


def test_an_ethernet_fabric_is_taken_for_a_subnet() -> None:
    result = result_of(f"transport: {{kind: ib}}\n{SHIFT}", ROOT / "topologies/demo.yml")
    assert result.subnet is not None
    assert result.metrics["ib_lost"] == 0


def test_a_nic_that_is_no_hca_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_one(fabric: InfinibandFabric) -> Subnet:
        found = routed(fabric)
        return replace(found, nodes={name: node for name, node in found.nodes.items() if name != "p1-s1-h1:rail1"})

    monkeypatch.setattr("testbed.run.simulated.infiniband.execution.subnet_of", without_one)
    with pytest.raises(ScenarioError, match="p1-s1-h1:rail1 is no HCA of the subnet") as caught:
        outcome_of(f"transport: {{kind: ib}}\n{SHIFT}")
    assert caught.value.hint


def test_ranks_of_no_common_partition_are_refused() -> None:
    topology = ROOT / "topologies/infiniband/partitions.yml"
    with pytest.raises(ScenarioError, match="in no partition together"):
        outcome_of("transport: {kind: ib}\nworkload: {kind: tornado, bytes: 64kB}", topology)
    red = 'ranks: {hosts: ["p1-s1-*", "p1-s2-*"]}'
    result = result_of(f"transport: {{kind: ib}}\nworkload: {{kind: tornado, bytes: 64kB, {red}}}", topology)
    assert result.metrics["ib_lost"] == 0


def test_other_transports_do_not_go_over_infiniband() -> None:
    with pytest.raises(SpecError, match="the back end of ib-fat-tree-32 is InfiniBand, which roce does not go over"):
        outcome_of(f"transport: {{kind: roce}}\n{SHIFT}")


BESIDE = """name: beside
topology:
  inline:
    name: beside
    scale: {time: 20000}
    fabric: {design: rail-optimized, segments: 2, hosts: 2, gpus: 1, spines: 1, link_layer: infiniband, infiniband: {}}
    networks:
      frontend: {design: leaf-spine, leaves: 2, spines: 1, nic: {per: host, ports: 1, rate: 50G}, routing: {bfd: off}}
transport: {kind: tcp}
workload: {kind: permutation, bytes: 300kB, ranks: {network: frontend}}
repeat: {runs: 1, seed: 1}
"""


def test_other_transports_go_by_the_networks_beside_it() -> None:
    sweep = read_sweep(BESIDE)
    check_supported(sweep)
    point = SimulatedPoint(sweep.points[0], sweep.lab_of(sweep.points[0]))
    assert point.lab.plan.k == 20_000, "TCP has the kernel's timers"
    assert not any("OpenSM" in said for said in simulated_approximations(point.lab, point.scenario))
    outcome = point.run(1, lambda share: False)
    assert outcome.failure is None
    assert outcome.result is not None and outcome.result.subnet is None
    assert all(check.ok for check in outcome.result.checks)
    assert all(end is not None for end in outcome.result.transfers.end_s)


@pytest.mark.parametrize("networks", ["frontend", "[backend, frontend]"])
def test_infiniband_does_not_go_by_the_networks_beside_it(networks: str) -> None:
    text = BESIDE.replace("kind: tcp", "kind: ib").replace("network: frontend", f"network: {networks}")
    with pytest.raises(SpecError, match="kind ib goes over the back end alone"):
        read_sweep(text)


def test_frames_take_the_least_loaded_way_up() -> None:
    """All of a leaf's flows by one uplink, unless its switch may choose."""
    ring = "fabric.infiniband.adaptive_routing"
    scenario = "transport: {kind: ib, ooo: true}\nworkload: {kind: tornado, shift: 4, bytes: 512kB}"
    text = f"name: t\ntopology: {{file: {TREE}}}\n{scenario}\nrepeat: {{runs: 1, seed: 1}}\n"
    sweep = read_sweep(text, {ring: True})
    fabric = sweep.lab_of(sweep.points[0]).infiniband
    assert fabric is not None
    subnet = routed(fabric)
    leaf = "p1-s1-rail1"
    assert list(subnets.up_ports(fabric, subnet, leaf)) == [5, 6, 7, 8]
    assert list(subnets.up_ports(fabric, subnet, "p1-spine1")) == []
    assert result_of(scenario, **{ring: True}).metrics["ib_lost"] == 0


@pytest.mark.parametrize(("keys", "headers"), [("", 26), (", ooo: true", 42), (", service: ud", 38)])
def test_of_full_packets_99_percent_are_payload(keys: str, headers: int) -> None:
    sweep = read_sweep(f"name: t\ntopology: {{file: {TREE}}}\ntransport: {{kind: ib{keys}}}\n{SHIFT}\n")
    point = SimulatedPoint(sweep.points[0], sweep.lab_of(sweep.points[0]))
    nic = point.traffic[0].placement.nics[0]
    assert Ib(point.lab, point.scenario.transport).framing(nic).efficiency == pytest.approx(4096 / (4096 + headers))


@pytest.mark.parametrize(
    ("file", "overrides", "why"),
    [("infiniband/fat-tree-32.yml", {"fabric.hosts": 16}, "has more than 64 HCAs"), ("demo.yml", {}, "is Ethernet")],
)
def test_no_lab_is_brought_up_for_what_has_no_wires(file: str, overrides: dict[str, object], why: str) -> None:
    text = f"name: t\ntopology: {{file: {ROOT / 'topologies' / file}}}\ntransport: {{kind: ib}}\n{SHIFT}\n"
    sweep = read_sweep(text, overrides)
    with pytest.raises(ScenarioError, match=why) as caught:
        run_recorded(sweep, lambda _: pytest.fail("a lab was asked for"), RecordOptions(directory=None))
    assert "--backend simulation" in str(caught.value.hint)
