"""TCP carried over UET against what was promised of it: iperf3 at the rate of a NIC of 20 Mbit/s, the bytes of the four
uplinks, and the CPU time of a packet, with both ends and all that is between program and wire."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator, Sequence

import pytest
from figures import Figure, judge
from waiting import until

from testbed.api import Lab
from testbed.carrier.carrying import carry
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.plan.lab_plan import PortPlan

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
        assert far.address is not None
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
