"""What a data packet over UET costs this machine, and how soon 16 workers are ready.

"All in" is all that the machine does while 16 NICs send over three switches: both ends, acknowledgements, every port,
the runner's readings. Where it is idle otherwise most of it is the kernel's work, a timer and a wake-up at each port.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from figures import FIGURES, Figure, judge

from testbed.api import Lab
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.protocols import is_compiled
from testbed.run.emulated.workers import SharedWorkers
from testbed.run.emulated.workload_runner import WorkloadRunner, WorkloadRunOptions
from testbed.run.machine.cpu import CpuTimes, read_cpu_times
from testbed.run.schema.model import Transport, TransportKind
from testbed.run.sweep.packet_cost import HOSTS, LINK_RATE, MTU_BYTES, K, measure_packet_us
from testbed.workload.steps import Transfer, Workload

pytestmark = [pytest.mark.bench, pytest.mark.netns, pytest.mark.frr, pytest.mark.timeout(300)]

TOPOLOGY = """
name: uetpackets
scale: {{time: {k}}}
fabric:
  {{design: rail-optimized, segments: 4, hosts: 4, gpus: 1, nic: {{per: gpu, rate: 400G}}, spines: 4,
    uplink: {{rate: 400G, count: 1}}, routing: {{bfd: "off"}}}}
qos: {{preset: uec, load_balancing: {{mode: flow}}, base_rtt: 12us}}
"""
BYTES = 8_000_000
"""Some 1,960 packets of each NIC."""
MOST_US = 80 if is_compiled() else 500
"""Of CPU time, for a data packet, where the machine is quick: without judgement, for the table."""
MOST_BARE = 1.6 if is_compiled() else 8
"""CPU time of a data packet, in that of a bare datagram and its answer."""
ROUNDS = 3
EXCHANGE = Path(__file__).with_name("paced_exchange.py")
PACKETS = 350
UET = Transport(kind=TransportKind.UET)


def bare_us() -> float:
    """CPU time of a datagram and its answer between as many processes at the same pace, with no transport (us)."""
    gap_us = MTU_BYTES * 8 * K / LINK_RATE.bps * 1e6
    argv = [sys.executable, str(EXCHANGE), str(HOSTS), str(PACKETS), f"{gap_us:.0f}", str(MTU_BYTES - 40)]
    return float(subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60).stdout)


def test_the_workers_share() -> None:
    """The floor is measured in the same rounds: how fast this machine wakes a process is not the transport's doing."""
    state = StateDirectory()
    rounds = [(measure_packet_us(UET, state), bare_us()) for _ in range(ROUNDS)]
    ours = statistics.median(us for us, _ in rounds)
    FIGURES.append(Figure("UET: CPU of the workers for a data packet, one switch", ours, at_most=MOST_US, unit="us"))
    judge(
        Figure(
            "UET: the same, in that of bare datagrams at this pace",
            statistics.median(us / bare for us, bare in rounds),
            at_most=MOST_BARE,
            ratio=True,
        )
    )


@pytest.mark.thorough  # an absolute figure: a slow host shows through
@pytest.mark.parametrize("k", [70_000, 20_000])
def test_all_in(tmp_path: Path, k: int) -> None:
    with SharedWorkers() as shared, Lab.deploy(TOPOLOGY.format(k=k), directory=tmp_path) as deployed:
        lab = RunningLab.open(deployed.name, StateDirectory())
        nics = [host.nics[0] for host in lab.plan.hosts]
        steps = tuple(
            Transfer(number=rank, source=rank, destination=(rank + 4) % len(nics), size_bytes=BYTES)
            for rank in range(len(nics))
        )
        begun = time.monotonic()
        with WorkloadRunner(lab, UET, hosts=[host.node for host in lab.plan.hosts], shared=shared) as runner:
            ready_s = time.monotonic() - begun
            read: list[CpuTimes] = []

            @contextlib.contextmanager
            def around() -> Iterator[None]:
                read.append(read_cpu_times())
                yield
                read.append(read_cpu_times())

            workload = Workload(name="permutation", steps=steps, ranks=len(nics))
            result = runner.run(workload, nics, WorkloadRunOptions(limit_s=120.0, around=around))
    assert result.failure is None
    packets = sum(channel.packets or 0 for channel in result.channels)
    busy = (read[1].total - read[0].total) - (read[1].idle - read[0].idle)
    each_us = busy / os.sysconf("SC_CLK_TCK") / packets * 1e6
    judge(
        Figure(f"UET: all in, a data packet over three switches, k = {k:,}", each_us, at_most=MOST_US, unit="us"),
        Figure(f"16 workers ready, from the lab's being up, k = {k:,}", ready_s, at_most=0.3, unit="s"),
    )
