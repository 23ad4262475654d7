"""Storage targets on a real lab: hosts write to them and read from them by NVMe/TCP, through their medium."""

import random
import re
from collections.abc import Callable
from typing import Any

import pytest

from testbed.lab.core.deploy.links.changes import LinkChange, LinkControl
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.watch.check import CheckStatus, check_lab
from testbed.run.emulated.workload_runner import WorkloadRunner, WorkloadRunOptions
from testbed.run.measuring.measured import Measured
from testbed.run.placed.placement import place_ranks
from testbed.run.schema.model import Ranks, Transport, TransportKind
from testbed.workload.metrics.run_samples import BatchTimes
from testbed.workload.steps import Compute, Workload, with_requests
from testbed.workload.storage import Checkpoint, DatasetStreaming, generate_checkpoint, generate_dataset_streaming

pytestmark = [pytest.mark.netns, pytest.mark.frr]

TEXT = """name: {name}
scale: {{time: 2000}}
fabric: {{design: rail-optimized, hosts: 3, gpus: 1, segments: 1, spines: 1}}
networks:
  storage:
    leaves: 2
    nic: {{rate: 200G}}
    mtu: 9000
    targets:
      flash: {{count: 2, capacity: 6MB}}
      disk: {{medium: {{rate: 40G, latency: 50us, depth: 2}}}}
  dual: {{leaves: 2, nic: {{ports: 2, rate: 40G}}, targets: {{array: {{}}}}}}
"""
MB = 1_000_000
DISK_BYTES_PER_S = 40e9 / 2000 / 8
DISK_LATENCY_S = 50e-6 * 2000


def run(
    lab: RunningLab,
    workload: Workload,
    targets: str,
    *,
    network: str = "storage",
    hosts: int = 3,
    on_progress: Callable[[float], None] = lambda share: None,
    **options: Any,
) -> Measured:
    choice = Ranks(networks=(network,), targets=(targets,), count=hosts)
    ranks = place_ranks(lab.model, lab.plan, choice, seed=1).nics
    with WorkloadRunner(lab, Transport(kind=TransportKind.NVME_TCP, options=options)) as runner:
        return runner.run(workload, ranks, WorkloadRunOptions(seed=1, on_progress=on_progress))


def checkpoint(ranks: int, **choice: Any) -> Workload:
    return generate_checkpoint(Checkpoint(**choice), ranks=ranks)


def test_hosts_reach_targets(lab: RunningLab) -> None:
    found = {result.name: result.status for result in check_lab(lab).results}
    assert found["subnets, storage"] is CheckStatus.PASS


@pytest.mark.parametrize("choice", [{}, {"read_back": True}, {"restore": True}], ids=["write", "read", "restore"])
def test_all_is_written_or_read_and_right(lab: RunningLab, choice: dict[str, bool]) -> None:
    """Sizes are of no whole blocks; digests guard each PDU."""
    workload = checkpoint(5, size_bytes=2 * MB + 77, storage=2, stripes=4, **choice)
    result = run(lab, workload, "flash*", digests=True, io_bytes=65536)
    assert result.complete, result.failure
    assert None not in result.transfers.end_s
    passes = 2 if "restore" in choice else 1
    assert sum(channel.received_bytes or 0 for channel in result.channels) == passes * 3 * (2 * MB + 77)
    assert len(result.channels) == 6 * passes, "each host has an association with each target, one for each way"
    counters = result.counters
    assert counters["nvme_associations"] == 6 * passes and counters["nvme_commands_resent"] == 0


def test_a_target_that_is_killed_leaves_bytes_that_are_said_not_to_be_safe(lab: RunningLab) -> None:
    """Hosts have confirmed writes to both targets when one dies: only what is not confirmed is told, with its place."""
    ranks = place_ranks(lab.model, lab.plan, Ranks(networks=("storage",), targets=("flash*",), count=3), seed=1).nics
    transport = Transport(kind=TransportKind.NVME_TCP, options={"io_bytes": 65536, "depth": 2})
    workload = checkpoint(5, size_bytes=3 * MB, storage=2, stripes=2)
    with WorkloadRunner(lab, transport) as runner:
        killed: list[float] = []

        def kill(share: float) -> None:
            if share > 0.4 and not killed:
                killed.append(share)
                runner.kill("flash1")

        result = runner.run(workload, ranks, WorkloadRunOptions(seed=1, on_progress=kill))
    assert killed and result.failure is not None
    message = result.failure.message
    assert "flash1: its worker was killed by signal SIGKILL; not safe are " in message
    assert result.failure.hint is None, "nobody has to look for why"
    (told,) = re.findall(r"not safe are (\d+) bytes that were being written: (.*)", message)
    assert 0 < int(told[0]) < 3 * 3 * MB * (1 - killed[0]) + 3 * 2 * 2 * 65536, "what arrived before is safe"
    first, last = map(int, re.findall(r"(\d+) to (\d+) of the 1500000 of step", told[1])[0])
    assert 0 <= first < last < 1_500_000 and first % 65536 == 0
    assert run(lab, workload, "flash*", io_bytes=65536).complete, "the next run has a new worker"


@pytest.mark.parametrize("kind", [TransportKind.TCP, TransportKind.NVME_TCP])
def test_batches_are_read_while_hosts_compute(lab: RunningLab, kind: TransportKind) -> None:
    """A host asks for what it reads, by a command or by a message, and its batches begin when they are there."""
    ranks = place_ranks(lab.model, lab.plan, Ranks(networks=("storage",), targets=("flash*",), count=3), seed=1).nics
    streaming = DatasetStreaming(storage=2, batches=4, bytes_factor=1e-4)
    workload = generate_dataset_streaming(streaming, ranks=5, rng=random.Random(1))
    with WorkloadRunner(lab, Transport(kind=kind)) as runner:
        if kind is TransportKind.TCP:
            workload = with_requests(workload)
        result = runner.run(workload, ranks, WorkloadRunOptions(seed=1))
    assert result.complete, result.failure
    [batches] = result.storage
    assert isinstance(batches, BatchTimes)
    assert [len(row) for row in batches.start_s] == [4, 4, 4]
    ends = dict(zip(result.transfers.number, result.transfers.end_s, strict=True))
    for host, (starts, until) in enumerate(zip(batches.start_s, batches.end_s, strict=True)):
        computed = [step for step in workload.steps if isinstance(step, Compute) and step.rank == host]
        for step, start, end in zip(computed, starts, until, strict=True):
            assert start >= max(ends[number] or 0.0 for number in step.after if number in ends)
            assert end - start == pytest.approx(lab_s(step, lab))


def lab_s(step: Compute, lab: RunningLab) -> float:
    return step.duration_ns * lab.plan.k / 1e9


def test_a_target_that_does_not_answer_fails_the_run(lab: RunningLab) -> None:
    """Its medium takes longer than a command may; it answers Keep Alive, and so its path is reset, and lives again."""
    result = run(lab, checkpoint(2, size_bytes=1 << 20), "disk", hosts=1, io_timeout_ms=100)
    assert result.failure is not None and "not answered in time, 2 times" in str(result.failure)
    assert result.elapsed_s < 10
    assert result.counters["nvme_commands_timed_out"] == 2 and result.counters["nvme_associations"] >= 2


def test_the_medium_takes_its_time(lab: RunningLab) -> None:
    """A megabyte in commands of 64 KiB, two at once, waits for the latency; in one command, for the rate."""
    took = []
    for io_bytes in (65536, 1 << 20):
        result = run(lab, checkpoint(2, size_bytes=1 << 20), "disk", hosts=1, io_bytes=io_bytes)
        assert result.complete, result.failure
        took.append(result.transfers.end_s[0])
    assert took[0] >= 16 / 2 * DISK_LATENCY_S
    assert took[0] > took[1] >= DISK_LATENCY_S + (1 << 20) / DISK_BYTES_PER_S


def test_a_full_target_ends_the_run_with_what_was_not_written(lab: RunningLab) -> None:
    """One host writes 8 MB to a target of 6: commands that it refused are as little safe as those under way."""
    result = run(lab, checkpoint(2, size_bytes=8 * MB), "flash1", hosts=1, io_bytes=1 << 20)
    message = result.failure.message
    assert "Capacity Exceeded; not safe are " in message
    assert result.failure.hint == "a larger capacity of the target, or less to write"
    ranges = re.findall(r"(\d+) to (\d+) of the 8000000 of step 0", message)
    assert ranges == [(str(5 << 20), "7999999")], "5 MiB fit into 6 MB"


def test_a_path_that_dies_loses_nothing(lab: RunningLab) -> None:
    """A host writes to the first of two NICs of a target, whose link goes down: commands go by the second one.

    Without `multipath` nothing arrives any more, which ends the run.
    """
    workload = checkpoint(3, size_bytes=2 * MB, storage=(1, 2), writers=(0,))
    found = {}
    with LinkControl(lab) as control:
        for multipath in (True, False):
            cuts: list[float] = []

            def cut(share: float, cuts: list[float] = cuts) -> None:
                if share and not cuts:
                    cuts.append(share)
                    control.set("array:dual1", LinkChange(up=False), both=True)

            options = {"multipath": multipath, "keep_alive_ms": 500, "depth": 2, "io_bytes": 1 << 17}
            found[multipath] = run(lab, workload, "array", network="dual", hosts=1, on_progress=cut, **options)
            control.reset("array:dual1")
    assert found[True].complete, found[True].failure
    assert found[True].counters["nvme_commands_resent"] > 0
    assert not found[False].complete
    assert "no path is live" in str(found[False].failure)
