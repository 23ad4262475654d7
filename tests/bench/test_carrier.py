"""TCP carried over UET against what was promised of it: iperf3 at the rate of a NIC of 20 Mbit/s, the bytes of the four
uplinks, the CPU time of a packet, with both ends and all that is between program and wire, and an all-reduce of gloo
against the ring of our own workers over UET."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import pytest
from figures import Figure, judge
from rank_programs import GLOO_STEPS
from waiting import until

from testbed.api import Lab
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.run.carrier.carrying import carry
from testbed.run.emulated.workload_runner import WorkloadRunner
from testbed.run.launch import LaunchOptions, LaunchOrder, RankLine, launch_ranks
from testbed.run.schema.model import Transport, TransportKind
from testbed.workload.collectives.algorithms import generate_collective
from testbed.workload.collectives.operation import CollectiveOperation

pytestmark = [pytest.mark.bench, pytest.mark.netns, pytest.mark.frr]

LAB = """
name: benchcarrier
scale: {time: 20000}
fabric:
  design: rail-optimized
  segments: 2
  hosts: 4
  gpus: 2
  nic: {per: gpu, ports: 1, rate: 400G}
  spines: 4
  uplink: {rate: 400G, count: 1}
  routing: {bfd: off}
qos: {preset: uec, load_balancing: {mode: flow}, base_rtt: 2us}
"""
"""A NIC has 20 Mbit/s of lab time, and the base RTT is 40 ms."""
SECONDS = 15
LEAST_MBIT_S = 18.5
MOST_CPU_US = 120.0
MOST_UNEVEN = 0.15
GRADIENTS, STEPS = 2_368_000, 9
"""Bytes of an all-reduce, a whole number for each of 8 ranks, and how many there are."""
MOST_OVER_OUR_RING = 1.25
TORCH = "/usr/bin/python3"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    with Lab.deploy(LAB, directory=tmp_path_factory.mktemp("carrier")) as deployed:
        yield RunningLab.open(deployed.name, StateDirectory())


@contextlib.contextmanager
def serving(lab: RunningLab, host: str) -> Iterator[None]:
    """iperf3 listens on a host."""
    process = lab.spawn(host, ["iperf3", "-s"], stdout=subprocess.DEVNULL)
    try:
        until(lambda: lab.run(host, ["ss", "-Hlnt", "sport = :5201"]).stdout, "iperf3 listens")
        yield
    finally:
        process.kill()
        process.wait()


def uplinks(lab: RunningLab, nic: PortPlan) -> list[int]:
    """The bytes that a NIC's switch has sent to each spine."""
    switch = nic.peer.partition(":")[0]
    hosts = set(lab.hosts)
    counters = lab.counters(switch)
    ports = [port for port in lab.plan.ports if port.node == switch and port.peer.partition(":")[0] not in hosts]
    return [counters[port.node, port.name].tx_bytes for port in ports]


def run_iperf3(lab: RunningLab, pairs: Sequence[tuple[PortPlan, PortPlan]]) -> list[float]:
    """Have each pair move bytes at a time; the rates at which they were received, in Mbit/s."""
    clients = []
    for near, far in pairs:
        argv = ["iperf3", "-J", "-t", str(SECONDS), "-c", str(far.address.ip)]
        clients.append(lab.spawn(near.node, argv, stdout=subprocess.PIPE))
    ends = [json.loads(client.communicate()[0])["end"] for client in clients]
    return [end["sum_received"]["bits_per_second"] / 1e6 for end in ends]


def pairs_of(lab: RunningLab, count: int) -> list[tuple[PortPlan, PortPlan]]:
    """The first NICs of so many hosts of the first segment, each with one of the second."""
    hosts = lab.plan.hosts
    return [(hosts[number].nics[0], hosts[number + 4].nics[0]) for number in range(count)]


def test_a_flow_has_the_rate_of_its_nic(lab: RunningLab) -> None:
    nics = [nic for host in lab.plan.hosts for nic in host.nics]
    pairs = pairs_of(lab, 1)
    with carry(lab, nics, "uet"), serving(lab, pairs[0][1].node):
        (rate,) = run_iperf3(lab, pairs)
    judge(Figure("carrier: iperf3 over UET, NIC of 20 Mbit/s", rate, at_least=LEAST_MBIT_S, unit="Mbit/s"))


def test_four_flows_use_four_uplinks_alike(lab: RunningLab) -> None:
    nics = [nic for host in lab.plan.hosts for nic in host.nics]
    pairs = pairs_of(lab, 4)
    with carry(lab, nics, "uet") as carrying, contextlib.ExitStack() as servers:
        for _, far in pairs:
            servers.enter_context(serving(lab, far.node))
        before, sent_before = carrying.counters(), uplinks(lab, pairs[0][0])
        run_iperf3(lab, pairs)
        after, sent_after = carrying.counters(), uplinks(lab, pairs[0][0])
    moved = [b - a for a, b in zip(sent_before, sent_after, strict=True)]
    packets = after["packets"] - before.get("packets", 0)
    judge(
        Figure(
            "carrier: busiest uplink over the idlest of four, minus 1",
            max(moved) / min(moved) - 1,
            at_most=MOST_UNEVEN,
            ratio=True,
        ),
        Figure(
            "carrier: CPU time of a packet, both ends",
            (after["cpu_us"] - before["cpu_us"]) / packets,
            at_most=MOST_CPU_US,
            unit="us",
        ),
    )


def ring_of_ours(lab: RunningLab) -> float:
    """The time of an all-reduce by our own workers' ring over UET, in s; neighbours are in different segments."""
    near, far = ([host.nics[0] for host in lab.plan.hosts[begin : begin + 4]] for begin in (0, 4))
    nics = [nic for pair in zip(near, far, strict=True) for nic in pair]
    operation = CollectiveOperation(kind="all_reduce", size_bytes=GRADIENTS, algorithm="ring")
    workload = generate_collective(operation, ranks=len(nics), iterations=STEPS)
    with WorkloadRunner(lab, Transport(kind=TransportKind.UET)) as runner:
        result = runner.run(workload, nics)
    assert result.complete and all(item.wrong == 0 for item in result.collectives), result.failure
    return max(end for end in result.transfers.end_s if end is not None) / STEPS


def steps_of_gloo(lab: RunningLab) -> list[float]:
    """The times of gloo's all-reduces of as many bytes, carried over UET, between the same neighbours."""
    lines: list[RankLine] = []
    options = LaunchOptions(order=LaunchOrder.INTERLEAVE, transport="uet", timeout_s=240.0)
    command = [TORCH, "-c", GLOO_STEPS, str(GRADIENTS), str(STEPS)]
    result = launch_ranks(lab, command, options, on_line=lines.append)
    assert result.exit_code == 0, (result.failure, lines)
    return [float(line.text.split()[2]) for line in lines if line.text.startswith("step ")]


@pytest.mark.skipif(
    not Path("/usr/lib/python3/dist-packages/torch").exists(),
    reason="PyTorch is not installed: apt-get install python3-torch",
)
@pytest.mark.timeout(600)
def test_gloo_takes_hardly_longer_than_our_own_ring(lab: RunningLab) -> None:
    """Both on the same eight hosts, their ranks interleaved over two segments; the first step makes connections."""
    ours, gloo = ring_of_ours(lab), steps_of_gloo(lab)
    ratio = median(gloo[1:]) / ours
    judge(
        Figure("carrier: gloo's step over our own ring's, both over UET", ratio, at_most=MOST_OVER_OUR_RING, ratio=True)
    )
