"""Whether what transports count of packets out of order is a matter of trust."""

from pathlib import Path

import pytest
import run_rows

from testbed.base.linux.port_counters import PortCounters
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.schema.load import load_topology
from testbed.record.samples import Channel, RunEvent
from testbed.run.measuring.measured import Measured
from testbed.run.measuring.observation import Observation
from testbed.run.placed.lab import PlannedLab
from testbed.run.placed.placement import RankPlacement
from testbed.run.placed.traffic import RunTraffic
from testbed.run.schema.model import Scenario, TopologyRef, Transport, TransportKind
from testbed.run.schema.model import Workload as Asked
from testbed.run.trust.evidence import Evidence
from testbed.run.trust.registry import judge_run
from testbed.run.trust.traffic import channels_in_order, check_neighbours, check_order
from testbed.workload.patterns import generate_point_to_point

TOPOLOGY = Path(__file__).parents[3] / "topologies" / "dcqcn.yml"
ROCE = Transport(kind=TransportKind.ROCE)
TCP = Transport(kind=TransportKind.TCP)
SPRAYED = Transport(kind=TransportKind.UET)
SINGLE = Transport(kind=TransportKind.UET, paths="single")


@pytest.fixture(scope="module")
def lab() -> PlannedLab:
    return planned("flow")


def planned(mode: str) -> PlannedLab:
    model = load_topology(TOPOLOGY, overrides={"fabric.segments": 2, "qos.load_balancing.mode": mode})
    return PlannedLab(model=model, plan=plan_lab(model, k=10_000))


def asked(transport: Transport) -> Scenario:
    return Scenario(
        name="x", topology=TopologyRef(file=str(TOPOLOGY)), workload=Asked(kind="permutation"), transport=transport
    )


def channel(number: int, **counters: int) -> Channel:
    return run_rows.channel(f"h{number}:rail1", f"h{number}:rail2", counters=counters)


def judged(lab: PlannedLab, transport: Transport, *, lost: int = 0, **counters: int) -> bool:
    nics = tuple(host.nics[0] for host in lab.plan.hosts)
    traffic = RunTraffic(
        workload=generate_point_to_point(ranks=len(nics), size_bytes=1000, source=0, destination=1),
        placement=RankPlacement(nics=nics, ranks_per_domain=0),
        seed=1,
    )
    return bool(channels_in_order(asked(transport), lab, traffic, [channel(1, **counters)], lost=lost))


@pytest.mark.parametrize("transport", [ROCE, TCP, SINGLE])
def test_flows_of_one_path_are_judged(lab: PlannedLab, transport: Transport) -> None:
    assert judged(lab, transport, out_of_order=3)
    assert not judged(lab, transport, packets=3), "what counts nothing says nothing"


def test_what_sprays_is_not(lab: PlannedLab) -> None:
    assert not judged(lab, SPRAYED, out_of_order=3)


def test_what_follows_a_loss_is_no_disorder(lab: PlannedLab) -> None:
    assert not judged(lab, ROCE, lost=1, out_of_order=3) and not judged(lab, TCP, lost=1, out_of_order=3)
    assert not judged(lab, ROCE, out_of_order=3, not_ready=1)
    assert judged(lab, SINGLE, lost=1, out_of_order=3), "it counts what came late, and nothing else"


def test_losses_are_those_of_queues_and_wires() -> None:
    assert Observation().lost_packets == 0
    sent = {("a", "rail1"): PortCounters(tx_dropped=2)}
    seen = Observation(sent=sent, dropped={("b", "rail1"): 3}, guarded={("s", "p", "g"): 4})
    assert seen.lost_packets == 5


def test_the_flows_are_named_with_their_counts() -> None:
    (fine,) = check_order(None, [channel(1, out_of_order=0), channel(2, out_of_order=0)], [])
    assert fine.ok and fine.value == 0 and "all packets of 2 channels arrived in the order" in fine.message
    (broken,) = check_order(None, [channel(number, out_of_order=number) for number in range(6)], [])
    assert not broken.ok and broken.value == 15
    assert "15 packets out of order" in broken.message
    assert "5 of h5:rail1 -> h5:rail2, 4 of h4:rail1 -> h4:rail2, 3 of" in broken.message
    assert broken.message.endswith(", and 2 flows more")
    moved = RunEvent(at_s=2.0, kind="detected", target="p1-spine1")
    assert list(check_order(None, [channel(1, out_of_order=1)], [moved])) == []


@pytest.mark.parametrize(("mode", "expected"), [("flow", [False]), ("flowlet", []), ("spray", [])])
def test_a_run_whose_packets_were_overtaken_is_not_trusted(mode: str, expected: list[bool]) -> None:
    late = [channel(1, out_of_order=7)]
    run = Evidence(scenario=asked(ROCE), lab=planned(mode), measured=Measured(), in_order=late)
    assert [check.ok for check in judge_run(run) if check.name == "ordering"] == expected


def test_neighbours_that_do_not_answer_are_named() -> None:
    (fine,) = check_neighbours([])
    assert fine.ok
    (broken,) = check_neighbours([f"h{number}: the gateway" for number in range(5)])
    assert (
        not broken.ok
        and broken.value == 5
        and "h0: the gateway, h1: the gateway, h2: the gateway, ..." in broken.message
    )
