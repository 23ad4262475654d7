"""The lab VM in virtual time: a machine that starts, does one job and powers off, and whose clock counts instructions.

One instruction is one nanosecond, and time in which nothing is to be done is skipped; so what the guest measures
does not depend on this machine or on what else it does. For that to hold, nothing may reach the guest at a time of
the host's choosing. It has no network, no keyboard, and no disk that could interrupt it: its system and its job are
memory (NVDIMMs, which are read and written like any other). Its serial ports write to files. Seeds, addresses and
the date are fixed, and QEMU's threads take turns. Source: QEMU, docs/devel/tcg-icount.rst; docs/nvdimm.txt.

They take turns on one CPU, each until it waits, so that who comes first is never the host's choice: in virtual time
QEMU has a race. Its main loop skips idle time: if the virtual CPU is halted, it adds what is left
until the next timer to the clock. The CPU's thread says that it is halted before it has said how many instructions
it executed until then, and it does not hold a lock meanwhile; a main loop that looks in between takes the clock of
some hundred instructions ago, and the clock ends up ahead by them. Whether it looks depends on how the host schedules
two threads. Under the real-time policy "first in, first out" of one CPU, a thread runs until it waits for the other.
Source: QEMU 10.0, `rr_cpu_thread_fn`, `icount_start_warp_timer`, `icount_process_data`; sched(7).
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import shutil
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from testbed.base.cleanup import end_at_once
from testbed.base.files import cache_directory
from testbed.base.programs import captured
from testbed.vm import cache
from testbed.vm.emulator import Emulator, environment
from testbed.vm.errors import JobUnfinished, MachineError
from testbed.vm.image import checkout
from testbed.vm.image.build import VmImage
from testbed.vm.image.checkout import add
from testbed.vm.machine import kernel_line
from testbed.vm.remote import workplace
from testbed.vm.virtual.job import BASE, FILES, JOB, OUTCOME

MEMORY_MIB = 3072
JOB_DISK_BYTES = 512 << 20
_RESULTS = ".results"
RESULTS = f"{BASE}/{_RESULTS}"
"""Directory of results in there."""
DATE = "2026-01-01T00:00:00"
SEED = 1
_POLL_S = 0.2
PRIORITY = 1
"""The lowest of the real-time priorities: above everything else, below everything that is in a hurry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualJob:
    """A verb of ours with its arguments. `directory` is where it runs, and `variables` are those of its environment.

    What it writes to `RESULTS` comes to `results`, whose name it never learns: it must not matter to a figure.
    """

    arguments: Sequence[str]
    directory: Path
    results: Path
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    """The outcome of a job. `files` are those it wrote; `guest_s` is how far the guest's clock came, boot included."""

    status: int
    files: tuple[Path, ...]
    wall_s: float
    guest_s: float
    verb_s: float


def run_job(
    emulator: Emulator,
    image: VmImage,
    job: VirtualJob,
    *,
    stdout: Callable[[bytes], object],
    stderr: Callable[[bytes], object],
    timeout_s: float,
) -> JobOutcome:
    """Do a job in virtual time; the files that it writes come back to where they belong.

    Raises `MachineError` if the guest dies, is killed, or takes longer than `timeout_s` of wall-clock time.
    """
    began = time.monotonic()
    with cache.scratch("job") as scratch, taking_turns() as turns:
        if turns.lacks:
            stderr(f"virtual time: a run may differ from another by nanoseconds ({turns.lacks})\n".encode())
        disk = scratch / "job.tar"
        with cache.room_on(scratch):
            _write_job(disk, job)
        files = [scratch / "console", scratch / "stdout", scratch / "stderr"]
        process = subprocess.Popen(
            # It ends with us, however we end.
            [
                *("setpriv", "--pdeathsig", "KILL", "--", *turns.prefix),
                *(*emulator.program, *machine_options(image, disk, files)),
            ],
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=(scratch / "complaints").open("wb"),
            start_new_session=True,
        )
        try:
            with _following(files[1], stdout) as out, _following(files[2], stderr) as err:
                while process.poll() is None:
                    if time.monotonic() - began > timeout_s:
                        raise JobUnfinished(f"the lab VM did not finish within {timeout_s:.0f} s", console=_tail(files))
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(_POLL_S)
                    out()
                    err()
        finally:
            end_at_once(process)
        outcome, archive = _read_outcome(disk)
        if outcome is None:
            words = _tail([scratch / "complaints", *files[:1]])
            raise JobUnfinished("the lab VM ended before its job did", console=words)
        with cache.room_on(job.results):
            written = workplace.unpack(archive, job.results, prefix=f"{FILES}{_RESULTS}/")
        written += workplace.unpack(archive, prefix=FILES, but=f"{FILES}{_RESULTS}/")
    return JobOutcome(
        status=int(outcome["status"]),
        files=tuple(written),
        wall_s=time.monotonic() - began,
        guest_s=outcome["guest_s"],
        verb_s=outcome["verb_s"],
    )


def machine_options(image: VmImage, job: Path, serial: Sequence[Path]) -> list[str]:
    """QEMU's options of such a machine. `serial` are the files of console, standard output and standard error."""
    size = image.disk.stat().st_size
    line = kernel_line("/dev/pmem0", "/usr/lib/testbed/virtual-init")
    # tsc: the only clock that takes one instruction to read. Nothing of the kernel's own is to differ from run to run.
    line += " nokaslr norandmaps clocksource=tsc tsc=reliable no_timer_check nowatchdog"
    options = ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-nic", "none"]
    options += ["-machine", "q35,nvdimm=on", "-cpu", "max", "-smp", "1", "-seed", str(SEED)]
    options += ["-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off,align=off"]
    options += ["-rtc", f"base={DATE},clock=vm"]
    options += ["-m", f"{MEMORY_MIB}M,slots=4,maxmem={MEMORY_MIB + (size >> 20) + (JOB_DISK_BYTES >> 20) + 1024}M"]
    # A private mapping: what the guest writes is gone with it.
    options += [
        "-object",
        f"memory-backend-file,id=disk,mem-path={image.disk},size={size},share=off,readonly=on,rom=off",
    ]
    options += ["-device", "nvdimm,id=nvdimm0,memdev=disk,unarmed=off"]
    options += ["-object", f"memory-backend-file,id=job,mem-path={job},size={JOB_DISK_BYTES},share=on"]
    options += ["-device", "nvdimm,id=nvdimm1,memdev=job"]
    for file in serial:
        options += ["-serial", f"file:{file}"]
    return [*options, "-kernel", str(image.kernel), "-initrd", str(image.initramfs), "-append", line]


def _write_job(disk: Path, job: VirtualJob) -> None:
    buffer = io.BytesIO()
    told = {
        "arguments": workplace.far_arguments(job.arguments, BASE),
        "directory": BASE + str(job.directory),
        "environment": dict(job.variables),
    }
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        add(tar, JOB, json.dumps(told).encode())
    sent = workplace.files_to_send(job.arguments, job.directory)
    files = workplace.pack(sent, job.directory, workplace.directories_of(job.arguments), prefix=FILES)
    with disk.open("wb") as file:
        # Archives one after another are one archive if no end is left between them.
        for part in (buffer.getvalue(), files, checkout.archive(prefix="checkout/", folder="testbed")):
            file.write(_without_end(part))
        file.write(bytes(1024))
        if file.tell() > JOB_DISK_BYTES:
            raise MachineError(f"the job is larger than its disk of {JOB_DISK_BYTES >> 20} MiB")
        file.truncate(JOB_DISK_BYTES)
    if shutil.disk_usage(disk).free < JOB_DISK_BYTES:  # the guest writes to it as to memory: it would be killed
        raise cache.disk_full(disk.parent)


def _without_end(archive: bytes) -> bytes:
    """A tar archive without the blocks of zeros that end it."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        members = tar.getmembers()
        end = max(((member.offset_data + member.size + 511) // 512 * 512 for member in members), default=0)
    return archive[:end]


def _read_outcome(disk: Path) -> tuple[dict[str, float], bytes] | tuple[None, bytes]:
    """Return what the guest wrote over its job: the outcome, and the archive; None if it did not."""
    with disk.open("rb") as file:
        try:
            with tarfile.open(fileobj=file, mode="r:") as tar:
                member = tar.next()
                if member is None or member.name != OUTCOME:
                    return None, b""
                content = tar.extractfile(member)
                assert content is not None
                outcome = json.loads(content.read())
                last = max(m.offset_data + m.size for m in tar.getmembers())
        except (tarfile.TarError, ValueError):
            return None, b""
        file.seek(0)
        return outcome, file.read((last + 511) // 512 * 512) + bytes(1024)


@contextlib.contextmanager
def _following(path: Path, sink: Callable[[bytes], object]) -> Iterator[Callable[[], None]]:
    """Gives what calls `sink` with what has been added to a file; once more at the end."""
    path.touch()
    with path.open("rb") as file:

        def follow() -> None:
            if content := file.read():
                sink(content)

        yield follow
        follow()


def _tail(files: Sequence[Path]) -> str:
    lines = []
    for file in files:
        with contextlib.suppress(OSError):
            lines += file.read_text(errors="replace").splitlines()[-12:]
    return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """`prefix` begins the command line of who is to take turns; `lacks` is why that cannot be had, else ""."""

    prefix: tuple[str, ...]
    lacks: str = ""


@contextlib.contextmanager
def taking_turns() -> Iterator[Turns]:
    """A CPU for one machine, as long as the context lasts; who comes when all are taken shares the first."""
    policy = ("chrt", "--fifo", str(PRIORITY))
    if lacks := "this machine has one CPU" if len(os.sched_getaffinity(0)) == 1 else _refused(policy):
        yield Turns(prefix=(), lacks=lacks)
        return
    with _cpu() as number:
        yield Turns(prefix=(*policy, "taskset", "--cpu-list", str(number)))


def _refused(policy: tuple[str, ...]) -> str:
    """Why this machine does not schedule so: containers and users without CAP_SYS_NICE may not."""
    try:
        done = captured([*policy, "true"])
    except FileNotFoundError:
        return "chrt is not installed"
    return "" if done.returncode == 0 else done.stderr.strip() or f"chrt ended with status {done.returncode}"


@contextlib.contextmanager
def _cpu() -> Iterator[int]:
    """The last CPU of ours that no other machine has taken: the first ones have the interrupts."""
    directory = cache_directory()
    directory.mkdir(parents=True, exist_ok=True)
    numbers = sorted(os.sched_getaffinity(0))
    for number in reversed(numbers):
        with (directory / f"cpu-{number}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield number
            return
    yield numbers[0]
