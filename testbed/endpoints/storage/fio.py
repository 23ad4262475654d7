"""Jobs of fio: the file that describes them, what it reports of them, and the contents that they write and check.

Jobs of one process begin when they are told, each by a line in a pipe of its own, and say when they are ready and when
they have ended (`exec_prerun` and `exec_postrun`, fio's manual, "Job file parameters"). So fio's start, which takes
some tenths of a second, is no part of what is measured.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

BLOCK_BYTES = 512
"""Blocks of a job are multiples of this."""
MARKS = "marks"
"""The pipe in a job's directory in which it says `ready` or `done`, and its number."""


class FioError(Exception):
    """A report of fio that says nothing, or that a job failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FioJob:
    """One job: `blocks` of `block_bytes` from `offset` on are written, or read and checked.

    fio (3.33) checks nothing that a job reads which writes, too, and ends one that is to read again and again after
    its first pass if that is checked: such a job checks nothing.

    `place` are the options that say where, such as `uri` of an NBD server; `depth` is how many of its requests are
    under way.
    """

    number: int
    writes: bool
    offset: int
    block_bytes: int
    blocks: int
    depth: int
    place: Mapping[str, str]
    at_random: bool = False
    """Each block is visited once all the same."""
    read_percent: int = 0
    """A job that writes may read as well: so many of 100 requests are reads, and fio draws which."""
    runtime_us: int = 0
    """It ends after this time, done or not; 0: when it is done."""
    repeats: bool = False
    """It begins again with its first block, until its time is over."""

    @property
    def name(self) -> str:
        """Return what it is called in the job file and in the report."""
        return f"s{self.number}"

    @property
    def rw(self) -> str:
        """Return fio's word for what it does."""
        direction = "rw" if self.read_percent else "write" if self.writes else "read"
        return ("rand" if self.at_random else "") + direction

    @property
    def begin_pipe(self) -> str:
        """Return the name of the pipe that tells it to begin."""
        return f"begin.{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FioResult:
    """The measurements that fio made of a job, or of several together."""

    ios: int
    bytes: int
    runtime_ms: int
    """The time that it ran, by fio's clock of milliseconds."""
    latencies_ns: Mapping[int, int]
    """Completion latency: how often each one occurred, in fio's bins (within 1/64, `FIO_IO_U_PLAT_BITS`)."""

    def percentile_ns(self, share: float) -> int:
        """Return the smallest latency that this share of all I/Os do not exceed."""
        left = math.ceil(share * sum(self.latencies_ns.values()))
        for latency_ns, count in sorted(self.latencies_ns.items()):
            left -= count
            if left <= 0:
                return latency_ns
        raise FioError("a job without I/Os has no latency")

    def counters(self) -> dict[str, int]:
        """Return it in whole numbers, with the rates that it had while it ran."""
        seconds = max(self.runtime_ms, 1) / 1000
        return {
            "fio_ios": self.ios,
            "fio_bytes": self.bytes,
            "fio_runtime_ms": self.runtime_ms,
            "fio_iops": round(self.ios / seconds),
            "fio_bytes_per_s": round(self.bytes / seconds),
            "fio_clat_p50_ns": self.percentile_ns(0.5),
            "fio_clat_p99_ns": self.percentile_ns(0.99),
        }


def merged(results: Iterable[FioResult], runtime_ms: int) -> FioResult:
    """Return what several jobs are together, of which one at least ran for so long."""
    ios = size = 0
    latencies_ns: dict[int, int] = {}
    for one in results:
        ios, size = ios + one.ios, size + one.bytes
        for latency_ns, count in one.latencies_ns.items():
            latencies_ns[latency_ns] = latencies_ns.get(latency_ns, 0) + count
    return FioResult(ios=ios, bytes=size, runtime_ms=runtime_ms, latencies_ns=latencies_ns)


def blocks_of(size_bytes: int, io_bytes: int) -> tuple[int, int]:
    """Return into how many blocks a transfer is cut, none larger than `io_bytes`, and the bytes of each.

    All are alike, as fio leaves out a last one that is not whole; together they have less than 512 bytes each more than
    the transfer.
    """
    blocks = max(1, -(-size_bytes // io_bytes))
    return blocks, -(-size_bytes // (blocks * BLOCK_BYTES)) * BLOCK_BYTES


def contents(seed: int, offset: int, block_bytes: int) -> bytes:
    """Return what a job of `render_jobs` writes into the block at `offset`."""
    stamp = (seed & (1 << 64) - 1).to_bytes(8, "big") + offset.to_bytes(8, "little")
    return stamp * (block_bytes // len(stamp))


def render_jobs(engine: str, seed: int, jobs: Sequence[FioJob]) -> str:
    """Return the job file of one process. Its pipes lie in the directory that fio is started in."""
    lines = [
        "[global]",
        f"ioengine={engine}",
        "thread=1",
        "exitall_on_error=1",
        "verify=pattern",
        # 8 bytes of the seed and the block's offset, again and again
        f"verify_pattern=0x{seed & (1 << 64) - 1:016x}%o",
        "verify_fatal=1",
        "verify_state_save=0",
        "do_verify=0",
    ]
    for job in jobs:
        lines += [
            f"[{job.name}]",
            *(f"{name}={value}" for name, value in job.place.items()),
            f"rw={job.rw}",
            f"bs={job.block_bytes}",
            f"iodepth={job.depth}",
            f"offset={job.offset}",
            f"size={job.blocks * job.block_bytes}",
            *([f"rwmixread={job.read_percent}"] if job.read_percent else ()),
            *([f"runtime={job.runtime_us}us"] if job.runtime_us else ()),
            *(["time_based=1"] if job.repeats else ()),
            *(["verify=0"] if job.repeats and not job.writes else ()),
            # fio appends where the output goes, and takes ';' for the begin of a comment
            f"exec_prerun=echo ready {job.number} >{MARKS} && read begin <{job.begin_pipe}",
            f"exec_postrun=echo done {job.number} >{MARKS} && true",
        ]
    return "\n".join(lines) + "\n"


def fio_arguments(report: str) -> list[str]:
    """Return the command that runs a job file from standard input, and writes its report to a file."""
    return ["fio", "--output-format=json+", f"--output={report}", "-"]


LIST_OF_ENGINES = ("fio", "--enghelp")
"""Prints a line for each engine that fio was built with."""


def has_engine(listed: str, engine: str) -> bool:
    """Tell by the output of `LIST_OF_ENGINES` whether there is an engine of this name."""
    return engine in listed.split()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """A job's reads and its writes; None where there were none."""

    read: FioResult | None = None
    write: FioResult | None = None

    @property
    def results(self) -> tuple[FioResult, ...]:
        return tuple(one for one in (self.read, self.write) if one is not None)


def parse_report(text: str) -> dict[int, JobReport]:
    """Return what a process of `fio_arguments` reports of each job, by its number.

    Raises `FioError` with fio's own words where a job failed, and for a report that is none.
    """
    lines = text.splitlines(keepends=True)
    begin = next((at for at, line in enumerate(lines) if line.rstrip() == "{"), None)
    said = complaint(text)
    if begin is None:
        raise FioError(said or "fio reported nothing")
    try:
        document, _ = json.JSONDecoder().raw_decode("".join(lines[begin:]))
        found = {int(job["jobname"].removeprefix("s")): _report(job, said) for job in document["jobs"]}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FioError(f"fio's report is no such: {error!r}") from error
    return found


def _report(job: Mapping[str, Any], said: str) -> JobReport:
    if job["error"]:
        raise FioError(f"job {job['jobname']}: {said or 'error ' + str(job['error'])}")
    found = JobReport(read=_result(job["read"]), write=_result(job["write"]))
    if not found.results:
        raise FioError(f"job {job['jobname']} has moved nothing")
    return found


def _result(side: Mapping[str, Any]) -> FioResult | None:
    if not side["total_ios"]:
        return None
    return FioResult(
        ios=int(side["total_ios"]),
        bytes=int(side["io_bytes"]),
        runtime_ms=int(side["runtime"]),
        latencies_ns={int(ns): int(count) for ns, count in side["clat_ns"]["bins"].items()},
    )


def complaint(text: str) -> str:
    """Return the line of fio's output that says what went wrong; "" where there is none."""
    words = ("error=", "verify:", "failed", "cannot", "unable", "no such", "not found", "bad option")
    found = [line.strip() for line in text.splitlines() if any(word in line.lower() for word in words)]
    return next((line for line in found if not line.startswith('"')), "")
