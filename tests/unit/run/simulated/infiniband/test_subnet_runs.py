"""Scenarios over a subnet in virtual time, whose tables are those of shortest ways: no subnet manager is needed."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from routed_fabrics import routed

from testbed.api.sweeps import read_sweep
from testbed.base.errors import CapabilityError, ScenarioError, SpecError
from testbed.base.units import Duration
from testbed.lab.core.model import InfinibandFabric
from testbed.protocols.infiniband.subnet import Subnet
from testbed.record.record import RunResult
from testbed.run.schema.model import AtStep, Fault
from testbed.run.simulated.infiniband import subnets
from testbed.run.simulated.infiniband.faults import check_subnet_fault
from testbed.run.simulated.point import SimulatedPoint
from testbed.run.simulated.support import check_supported, simulated_approximations
from testbed.run.sweep.point_runs import RunOutcome
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
    assert result.subnet is not None
    assert result.subnet.stuck > 0
    assert result.subnet.deadlocked_s is not None


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


def test_a_link_of_another_network_goes_down_and_no_frame_is_lost_by_it() -> None:
    scenario = "faults: [{at: 1us, until: 3us, link: 'p1-s1-h1:fe1', down: true}]\nrepeat:"
    text = BESIDE.replace("kind: tcp", "kind: ib").replace("300kB, ranks: {network: frontend}", "2MB")
    sweep = read_sweep(text.replace("repeat:", f"convergence: {{subnet: 1us}}\n{scenario}"))
    outcome = SimulatedPoint(sweep.points[0], sweep.lab_of(sweep.points[0])).run(1, lambda share: False)
    assert outcome.failure is None and outcome.result is not None
    assert [event.kind for event in outcome.result.events] == ["link-down", "undone-link-down"]
    assert outcome.result.metrics["ib_lost"] == 0
    assert all(check.ok for check in outcome.result.checks)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (Fault(at=AtStep(step=3), kind="link-down", target="p1-s1-rail1:uplink1"), "waits for no step of a program"),
        (Fault(at=Duration(0), kind="plane-down", target="p1-s1-h1:plane1"), "plane-down of .* is something else"),
        (Fault(at=Duration(0), kind="pfc-storm", target="p1-s1-rail1:uplink1"), "pfc-storm of .* is something else"),
    ],
)
def test_what_a_subnet_does_not_have_is_refused(fault: Fault, message: str) -> None:
    with pytest.raises(ScenarioError, match=message) as caught:
        check_subnet_fault(fault)
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


def test_of_full_packets_99_percent_are_payload() -> None:
    sweep = read_sweep(f"name: t\ntopology: {{file: {TREE}}}\ntransport: {{kind: ib}}\n{SHIFT}\n")
    point = SimulatedPoint(sweep.points[0], sweep.lab_of(sweep.points[0]))
    nic = point.traffic[0].placement.nics[0]
    assert Ib(point.lab, point.scenario.transport).framing(nic).efficiency == pytest.approx(4096 / 4122)


def test_no_machine_has_wires_for_it() -> None:
    sweep = read_sweep(f"name: t\ntopology: {{file: {TREE}}}\ntransport: {{kind: ib}}\n{SHIFT}\n")
    with pytest.raises(CapabilityError, match="an emulated lab has none") as caught:
        Ib.check_machine(sweep.points[0].scenario.transport)
    assert caught.value.hint == "run it with --backend simulation"
