"""Jobs as fio has them: what hosts read and write at storage targets, in requests of which size, and how many at once.

The parameters have fio's names and meanings (fio's manual, "Job file parameters"), with the units of all files here:
`4KiB` is what fio calls `4k`, and times are those of the real fabric. Every host of a job runs it against every target
of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from testbed.base.errors import WorkloadError
from testbed.workload.builder import StepBuilder
from testbed.workload.parameters import (
    Parameter,
    ParameterType,
    Values,
    asked,
    choice,
    duration,
    flag,
    parameters_of,
    size,
    some_ranks,
    whole,
)
from testbed.workload.steps import IoJob, Workload
from testbed.workload.storage.places import STORAGE, storage_and_users

REQUEST_UNIT_BYTES = 512
"""Requests are multiples of this, a block of a disk."""
MOST_REQUEST_BYTES = 4 << 20


class ReadWrite(StrEnum):
    """fio's `rw`."""

    READ = "read"
    WRITE = "write"
    RANDREAD = "randread"
    RANDWRITE = "randwrite"
    RW = "rw"
    RANDRW = "randrw"

    @property
    def reads(self) -> bool:
        return self not in (ReadWrite.WRITE, ReadWrite.RANDWRITE)

    @property
    def writes(self) -> bool:
        return self not in (ReadWrite.READ, ReadWrite.RANDREAD)

    @property
    def at_random(self) -> bool:
        return self.value.startswith("rand")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """One entry of `jobs`."""

    rw: str = asked(
        choice("rw", "read", tuple(ReadWrite), "Says whether it reads, writes or both, and in which order.")
    )
    bs_bytes: int = asked(size("bs", "4KiB", "Gives the bytes of a request, a multiple of 512.", low=512))
    iodepth: int = asked(whole("iodepth", 1, "Says how many requests of a job are under way.", high=1024))
    numjobs: int = asked(whole("numjobs", 1, "Says how many jobs of the kind run side by side.", high=64))
    size_bytes: int = asked(
        size("size", "1MiB", "Gives the bytes that a job visits, each once; those behind its last whole block are not.")
    )
    rwmixread: int | None = asked(
        whole(
            "rwmixread",
            None,
            "Gives the percentage of reads of rw and randrw; the default is 50.",
            high=99,
            percent=True,
        )
    )
    runtime_ns: int | None = asked(duration("runtime", None, "Ends the job after this time, done or not.", low=1))
    time_based: bool = asked(
        flag("time_based", "Says whether a job that is done begins again, until its runtime is over.")
    )
    startdelay_ns: int = asked(duration("startdelay", "0ns", "Says when the job begins, after the workload does."))
    hosts: int | tuple[int, ...] | None = asked(
        some_ranks("hosts", None, "Says how many ranks run the job, or which; by default those of the workload.")
    )
    storage: int | tuple[int, ...] | None = asked(
        some_ranks("storage", None, "Says how many ranks (the last ones) it uses, or which; by default the workload's.")
    )


FIO_JOB_PARAMETERS = parameters_of(_Job)
"""The parameters of a job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FioJobs:
    """Jobs of fio: whose, which, and where."""

    jobs: tuple[Mapping[str, Any], ...] = asked(
        Parameter(
            name="jobs",
            type=ParameterType.LIST,
            description="Lists the jobs, which run side by side, with the parameters that fio has.",
            default=({"rw": "read"},),
            low=1,
            high=64,
            item=Parameter(
                name="job",
                type=ParameterType.SECTION,
                description="Describes a job as fio does.",
                fields=FIO_JOB_PARAMETERS,
            ),
        )
    )
    storage: int | tuple[int, ...] = asked(STORAGE)
    hosts: int | tuple[int, ...] | None = asked(
        some_ranks("hosts", None, "Says how many ranks run jobs, or which; by default all that are not storage.")
    )


def generate_fio_jobs(asked_for: FioJobs, *, ranks: int) -> Workload:
    """Each job runs at each host against each target, `numjobs` times, and waits for nothing but its `startdelay`.

    A job is a transfer, or two where it reads and writes: one of what is read and one of what is written, as far as
    `rwmixread` says. Raises `WorkloadError`, whose field is the key at fault (`jobs.0.bs`).
    """
    builder = StepBuilder(ranks)
    for index, written in enumerate(asked_for.jobs):
        try:
            _add(builder, _read(written), asked_for, index)
        except WorkloadError as error:
            raise WorkloadError(error.message, field=f"jobs.{index}.{error.field}", hint=error.hint) from error
    return builder.build("fio")


def check_fio_job(written: Mapping[str, Any]) -> None:
    """Raise `WorkloadError`, whose field is the parameter at fault, where those of a job do not go together."""
    _read(written)


def _read(written: Mapping[str, Any]) -> _Job:
    values = Values(parameters={one.name: one for one in FIO_JOB_PARAMETERS}, written=written, bdp_bytes=0)
    job = values.make(_Job)
    _check(job, ReadWrite(job.rw), job.size_bytes // job.bs_bytes)
    return job


def _add(builder: StepBuilder, job: _Job, whole_of: FioJobs, index: int) -> None:
    rw, blocks = ReadWrite(job.rw), job.size_bytes // job.bs_bytes
    targets, hosts = storage_and_users(
        whole_of.storage if job.storage is None else job.storage,
        whole_of.hosts if job.hosts is None else job.hosts,
        ranks=builder.ranks,
        name="hosts",
        what="fio",
    )
    mixed = rw.reads and rw.writes
    percent = (50 if job.rwmixread is None else job.rwmixread) if mixed else None
    read = blocks if percent is None else min(blocks - 1, max(1, round(blocks * percent / 100)))
    how = IoJob(
        area_bytes=blocks * job.bs_bytes,
        block_bytes=job.bs_bytes,
        depth=job.iodepth,
        at_random=rw.at_random,
        read_percent=percent,
        runtime_ns=job.runtime_ns or 0,
        repeats=job.time_based,
    )
    if mixed:
        builder.note("What a job of fio reads that writes, too, is not checked: fio does not.")
    elif rw.reads and job.time_based:
        builder.note("What a job of fio reads again and again is not checked: fio would check it once, and end.")
    for host in hosts:
        for target in targets:
            for clone in range(job.numjobs):
                label = f"fio[{index}].{host}.{target}.{clone}"
                if rw.writes:
                    size_bytes = (blocks - read if mixed else blocks) * job.bs_bytes
                    builder.transfer(host, target, size_bytes, start_ns=job.startdelay_ns, job=how, label=label)
                if rw.reads:
                    builder.transfer(
                        target,
                        host,
                        read * job.bs_bytes,
                        start_ns=job.startdelay_ns,
                        pulled=True,
                        job=how,
                        label=label,
                    )


def _check(job: _Job, rw: ReadWrite, blocks: int) -> None:
    if job.bs_bytes % REQUEST_UNIT_BYTES or job.bs_bytes > MOST_REQUEST_BYTES:
        raise WorkloadError(
            f"bs is a multiple of {REQUEST_UNIT_BYTES} bytes up to 4 MiB, not {job.bs_bytes}",
            field="bs",
            hint="bs: 4KiB, as fio's 4k",
        )
    mixed = rw.reads and rw.writes
    if blocks < 1 + mixed:
        raise WorkloadError(
            f"size has no {'two requests' if mixed else 'request'} of {job.bs_bytes} bytes", field="size"
        )
    if job.rwmixread is not None and not mixed:
        raise WorkloadError(f"{rw} does not mix reads with writes", field="rwmixread", hint="rw: randrw, or rw: rw")
    if job.time_based and not job.runtime_ns:
        raise WorkloadError("a job that begins again needs a time to end", field="time_based", hint="runtime: 100us")
