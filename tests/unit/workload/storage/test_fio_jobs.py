"""Jobs of fio as a workload: who runs them where, what is read and written, and which keys do not go together."""

from typing import Any

import pytest
from local_waits import check_local

from testbed.base.errors import WorkloadError
from testbed.base.units import ByteCount, Duration
from testbed.workload.steps import Workload
from testbed.workload.storage import FioJobs, generate_fio_jobs

KIB = 1024


def make(*jobs: dict[str, Any], ranks: int = 5, **choice: Any) -> Workload:
    return generate_fio_jobs(FioJobs(jobs=jobs, **({"storage": 2} | choice)), ranks=ranks)


def test_each_host_runs_each_job_at_each_target() -> None:
    size, block = ByteCount(100 * KIB), ByteCount(8 * KIB)
    workload = make({"rw": "randwrite", "bs": block, "size": size, "iodepth": 4, "numjobs": 2})
    check_local(workload)
    ends = [(step.source, step.destination) for step in workload.transfers]
    assert sorted(ends) == sorted([(host, target) for host in range(3) for target in (3, 4)] * 2)
    assert len({step.label for step in workload.transfers}) == len(ends)
    for step in workload.transfers:
        assert step.job is not None and not step.pulled
        assert step.size_bytes == step.job.area_bytes == 96 * KIB, "what is behind the last whole block is left out"
        assert (step.job.block_bytes, step.job.depth, step.job.at_random) == (8 * KIB, 4, True)


@pytest.mark.parametrize(("percent", "read"), [(None, 32), (70, 45), (1, 1), (99, 63)])
def test_a_job_that_reads_and_writes_is_a_transfer_each_way(percent: int | None, read: int) -> None:
    mix = {} if percent is None else {"rwmixread": percent}
    workload = make({"rw": "rw", "size": ByteCount(256 * KIB), **mix}, hosts=1, storage=(4,))
    written, pulled = workload.transfers
    assert (written.source, written.destination, written.pulled) == (0, 4, False)
    assert (pulled.source, pulled.destination, pulled.pulled) == (4, 0, True)
    assert (pulled.size_bytes, written.size_bytes) == (read * 4 * KIB, (64 - read) * 4 * KIB)
    assert pulled.job == written.job and pulled.label == written.label
    assert workload.notes and "not checked" in workload.notes[0]


def test_a_job_has_its_own_times_and_places() -> None:
    timed = {"rw": "read", "runtime": Duration(5000), "time_based": True, "startdelay": Duration(70), "storage": (3,)}
    workload = make(timed, {"rw": "write", "hosts": (1,)})
    first, *_, last = workload.transfers
    assert {step.source for step in workload.transfers if step.pulled} == {3}
    assert first.job is not None and (first.job.runtime_ns, first.job.repeats, first.start_ns) == (5000, True, 70)
    assert last.job is not None and (last.source, last.job.runtime_ns, last.start_ns) == (1, 0, 0)


@pytest.mark.parametrize(
    ("job", "field"),
    [
        ({"bs": ByteCount(1000)}, "bs"),
        ({"bs": ByteCount(8 << 20)}, "bs"),
        ({"size": ByteCount(4095)}, "size"),
        ({"rw": "randrw", "size": ByteCount(8191)}, "size"),
        ({"rwmixread": 40}, "rwmixread"),
        ({"time_based": True}, "time_based"),
        ({"storage": (0,)}, "storage"),
    ],
)
def test_what_does_not_go_together_names_its_key(job: dict[str, Any], field: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        make({}, job, hosts=(0, 1))
    assert caught.value.field == f"jobs.1.{field}"
