"""Storage targets that real servers serve, with fio at the hosts: nothing of ours is at either end of a connection."""

import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from sandbox import Sandbox

from testbed.base.units import ByteCount, Duration
from testbed.endpoints.loop import Loop
from testbed.endpoints.storage.fio import LIST_OF_ENGINES, has_engine
from testbed.endpoints.worker.fio import traffic as fio_traffic
from testbed.endpoints.worker.fio.settings import JobSettings
from testbed.endpoints.worker.fio.traffic import FioTraffic
from testbed.endpoints.worker.program import Channel, Endpoint, Program, Step
from testbed.endpoints.worker.transports.nbd import NbdEnds, NbdSettings
from testbed.lab.core.deploy.live import RunningLab
from testbed.run.emulated.workload_runner import WorkloadRunner, WorkloadRunOptions
from testbed.run.measuring.measured import Measured
from testbed.run.measuring.measures import RunData, compute_metrics
from testbed.run.placed.placement import place_ranks
from testbed.run.schema.model import Ranks, Transport, TransportKind
from testbed.workload.steps import Workload
from testbed.workload.storage import Checkpoint, FioJobs, generate_checkpoint, generate_fio_jobs

pytestmark = [pytest.mark.netns, pytest.mark.frr]

TEXT = """name: {name}
scale: {{time: 2000}}
fabric: {{design: rail-optimized, hosts: 3, gpus: 1, segments: 1, spines: 1, routing: {{bfd: off}}}}
networks:
  storage:
    leaves: 2
    nic: {{rate: 200G}}
    mtu: 9000
    routing: {{bfd: off}}
    targets:
      flash: {{count: 2, protocol: nbd, capacity: 6MB}}
      files: {{count: 2, protocol: nfs}}
      wide: {{protocol: nbd}}
      disk: {{protocol: [nvme-tcp, nbd], medium: {{latency: 50us, depth: 2}}}}
"""
MB = 1_000_000
PORT_BPS = 200e9 / 2000
DISK_LATENCY_S = 50e-6 * 2000


def need(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")


def need_nfs() -> None:
    need("ganesha.nfsd")
    if not has_engine(subprocess.run(LIST_OF_ENGINES, capture_output=True, text=True, check=False).stdout, "nfs"):
        pytest.skip("this fio has no engine nfs")


@pytest.fixture(scope="module")
def lab(shared_sandbox: Sandbox) -> RunningLab:
    need("fio", "nbdkit")
    return shared_sandbox.lab(TEXT)


def run(
    lab: RunningLab, workload: Workload, targets: str, *, hosts: int = 3, kind: str = "nbd", **options: Any
) -> Measured:
    ranks = place_ranks(lab.model, lab.plan, Ranks(networks=("storage",), targets=(targets,), count=hosts), seed=1).nics
    with WorkloadRunner(lab, Transport(kind=TransportKind(kind), options=options)) as runner:
        return runner.run(workload, ranks, WorkloadRunOptions(seed=1))


def metrics_of(result: Measured) -> dict[str, float | None]:
    return compute_metrics(RunData(measured=result, nic_bps=PORT_BPS))


@pytest.mark.parametrize(
    ("kind", "targets"), [("nbd", "flash*"), pytest.param("nfs", "files*", marks=pytest.mark.may_skip)]
)
@pytest.mark.parametrize("read_back", [False, True])
def test_fio_moves_all_and_reports(lab: RunningLab, kind: str, targets: str, read_back: bool) -> None:
    """Three hosts and two targets: sizes are of no whole blocks, which NBD visits in random order."""
    if kind == "nfs":
        need_nfs()
    options = {"depth": 4, "order": "random"} if kind == "nbd" else {}
    choice = Checkpoint(size_bytes=2 * MB + 77, storage=2, stripes=4, read_back=read_back)
    result = run(lab, generate_checkpoint(choice, ranks=5), targets, kind=kind, io_bytes=65536, **options)
    assert result.complete, result.failure
    assert None not in result.transfers.end_s
    assert sum(channel.received_bytes or 0 for channel in result.channels) == 3 * (2 * MB + 77)
    assert result.counters["fio_jobs"] == 12 and len(result.channels) == 6
    blocks = 2 * -(-(2 * MB + 77) // 4 // 65536)
    assert [channel.counters["fio_ios"] for channel in result.channels] == [blocks] * 6
    measured = metrics_of(result)
    least_s = 3 * MB * 8 / PORT_BPS
    fct = [end - start for start, end in zip(result.transfers.start_s, result.transfers.end_s, strict=True)]  # type: ignore[operator]
    assert measured["io_bandwidth"] == pytest.approx(measured["iops"] * 65536, rel=0.1)  # type: ignore[operator]
    assert 0 < measured["io_bandwidth"] <= 6 * MB * 1.01 / least_s  # type: ignore[operator]
    assert 0 < measured["io_latency_p50"] <= measured["io_latency_p99"] <= max(fct)  # type: ignore[operator]


def test_the_medium_takes_its_time(lab: RunningLab) -> None:
    """A megabyte in requests of 64 KiB, two at once, waits for the latency of each."""
    workload = generate_checkpoint(Checkpoint(size_bytes=1 << 20), ranks=2)
    result = run(lab, workload, "disk", hosts=1, io_bytes=65536)
    assert result.complete, result.failure
    assert (result.transfers.end_s[0] or 0) - (result.transfers.start_s[0] or 0) >= 16 / 2 * DISK_LATENCY_S
    assert metrics_of(result)["io_latency_p50"] >= DISK_LATENCY_S  # type: ignore[operator]


def test_jobs_of_a_workload_run_as_described(lab: RunningLab) -> None:
    """Reads and writes of one job, a job that its time ends, and one that repeats: fio says what each moved, and the
    target finds as many blocks as fio has written."""
    jobs: tuple[dict[str, Any], ...] = (
        {"rw": "randrw", "rwmixread": 70, "iodepth": 4, "numjobs": 2, "size": ByteCount(256 << 10)},
        {"rw": "write", "bs": ByteCount(65536), "size": ByteCount(16 << 20), "runtime": Duration(150_000)},
        {"rw": "randread", "size": ByteCount(16 << 10), "runtime": Duration(200_000), "time_based": True},
    )
    workload = generate_fio_jobs(FioJobs(jobs=jobs), ranks=2)
    result = run(lab, workload, "wide", hosts=1)
    assert result.complete, result.failure
    moved = dict(zip(result.transfers.number, result.transfers.size_bytes, strict=True))
    took = [end - start for start, end in zip(result.transfers.start_s, result.transfers.end_s, strict=True)]  # type: ignore[operator]
    for write, read in ((0, 1), (2, 3)):
        assert moved[write] + moved[read] == 256 << 10
        assert moved[read] == pytest.approx(0.7 * (256 << 10), rel=0.2)
        assert took[write] == took[read]
    assert 65536 <= moved[4] < 16 << 20
    assert took[4] == pytest.approx(150e-6 * lab.plan.k, rel=0.2)
    assert moved[5] > 4 * (16 << 10), "it began again"
    assert took[5] == pytest.approx(200e-6 * lab.plan.k, rel=0.2)
    assert result.counters["fio_jobs"] == 4
    assert [channel.received_bytes for channel in result.channels] == [
        moved[0] + moved[2] + moved[4],
        moved[1] + moved[3] + moved[5],
    ]
    assert [channel.counters["fio_bytes"] for channel in result.channels] == [
        channel.received_bytes for channel in result.channels
    ]


@pytest.mark.may_skip
def test_jobs_of_a_workload_over_nfs(lab: RunningLab) -> None:
    """Jobs that read and write a file each, and one that its time ends."""
    need_nfs()
    jobs: tuple[dict[str, Any], ...] = (
        {"rw": "write", "bs": ByteCount(65536), "numjobs": 2, "size": ByteCount(256 << 10)},
        {"rw": "read", "bs": ByteCount(4096), "size": ByteCount(64 << 10)},
        {"rw": "write", "bs": ByteCount(65536), "size": ByteCount(16 << 20), "runtime": Duration(150_000)},
    )
    result = run(lab, generate_fio_jobs(FioJobs(jobs=jobs), ranks=2), "files1", hosts=1, kind="nfs")
    assert result.complete, result.failure
    assert result.transfers.size_bytes[:3] == [256 << 10, 256 << 10, 64 << 10]
    assert 65536 <= result.transfers.size_bytes[3] < 16 << 20


class Heard:
    """What a worker is told of transfers."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.arrived: list[int] = []
        self.failed: list[str] = []

    def on_sent(self, step: Step, now: int) -> None:
        self.sent.append(step.number)

    def on_bytes(self, count: int) -> None:
        pass

    def on_arrived(self, step: Step, now: int) -> None:
        self.arrived.append(step.number)

    def on_failed(self, reason: str) -> None:
        self.failed.append(reason)


def until(loop: Loop, over: Callable[[], bool]) -> None:
    deadline = time.monotonic_ns() + 20_000_000_000
    while not over():
        assert time.monotonic_ns() < deadline, "nothing has happened for 20 s"
        loop.run_once(time.monotonic_ns() + 100_000_000)


def move(loop: Loop, sides: Sequence[FioTraffic], heard: Heard, step: Step) -> None:
    """Carries out a step: the target is the first side, the host the second."""
    target, host = sides
    try:
        target.listen()
        host.connect()
        until(loop, lambda: bool(host.ready or heard.failed))
        if not heard.failed:
            host.send(step)
        until(loop, lambda: bool(heard.failed or (heard.sent and heard.arrived)))
    finally:
        host.close()
        target.close()


@pytest.mark.parametrize("pulled", [False, True])
@pytest.mark.parametrize("described", [False, True])
@pytest.mark.parametrize("tampered", [False, True])
def test_wrong_contents_end_a_run(
    monkeypatch: pytest.MonkeyPatch, pulled: bool, described: bool, tampered: bool
) -> None:
    """The target's idea of what belongs there differs in one bit: who reads says so, fio or the target."""
    need("fio", "nbdkit")
    job = JobSettings(
        steps=(1,), block_bytes=4096, blocks=10, depth=2, at_random=True, read_percent=0, runtime_us=0, repeats=False
    )
    settings = NbdSettings(
        targets={"127.0.0.2": {"rate": 0, "latency_us": 0, "depth": 8}},
        io_bytes=4096,
        steps=2,
        jobs=(job,) if described else (),
    )
    ends = (
        Endpoint(rank=0, host="h", interface="lo", address="127.0.0.1"),
        Endpoint(rank=1, host="t", interface="lo", address="127.0.0.2"),
    )
    source, destination = (1, 0) if pulled else (0, 1)
    step = Step(number=1, source=source, destination=destination, size_bytes=40_000, channel=0, pulled=pulled)
    channel = Channel(index=0, source=source, destination=destination, source_port=0, destination_port=10809)
    loop, heard = Loop(), Heard()
    programs = [
        Program(transport=settings, endpoints=ends, own=frozenset({own}), channels=(channel,), steps=(step,), seed=2026)
        for own in (1, 0)
    ]
    real = fio_traffic.contents

    def other(seed: int, offset: int, block_bytes: int) -> bytes:
        block = bytearray(real(seed, offset, block_bytes))
        block[100] ^= 1
        return bytes(block)

    if tampered:
        monkeypatch.setattr(fio_traffic, "contents", other)
    try:
        move(loop, [FioTraffic(one, loop, heard, NbdEnds) for one in programs], heard, step)
    finally:
        loop.close()
    if not tampered:
        assert (heard.failed, heard.sent, heard.arrived) == ([], [1], [1])
    else:
        assert heard.failed and ("verify" in heard.failed[0] or "blocks are not those" in heard.failed[0])
        assert not (heard.sent and heard.arrived)
