"""Transfers by fio: a host's steps are jobs of one process, which wait until their step begins.

    prepare: the target's server listens, and what is to be read is there
    connect: the host's fio has connected all jobs, and a connection to the target tells of their ends
    step begins: a line in the job's pipe; its end: fio's mark -> (to the target) number and time of the step, and I/Os

Contents are checked: of what is read by fio, of what was written by the target's worker, in the file of the server. A
host's last steps have ended when fio has reported and no job of it failed. What a job moves that the workload describes
is known from that report alone, and so targets hear of its steps then.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from testbed.base.cleanup import on_failure
from testbed.base.program_errors import TrafficError
from testbed.endpoints import namespace
from testbed.endpoints.storage.fio import (
    MARKS,
    FioError,
    FioJob,
    FioResult,
    JobReport,
    blocks_of,
    complaint,
    contents,
    fio_arguments,
    merged,
    parse_report,
    render_jobs,
)
from testbed.endpoints.worker.curves import ChannelState
from testbed.endpoints.worker.fio.child import Child
from testbed.endpoints.worker.fio.settings import FioSettings, JobSettings, StorageEnds
from testbed.endpoints.worker.poll_loop import WatchingLoop
from testbed.endpoints.worker.program import Channel, Program, Step
from testbed.endpoints.worker.streams.tcp_socket import fit_accepted, open_socket
from testbed.endpoints.worker.traffic import ChannelEnd, Listener

CONTROL_PORT = 10_810
"""The port at which the worker of a target hears of steps that have ended."""
_CHUNK = 1 << 16
_REPORT = "report.json"


class FioTraffic:
    """Raises `TrafficError` where something cannot be set up. `Traffic` says what the methods do."""

    def __init__(
        self, program: Program, loop: WatchingLoop, listener: Listener, make_ends: Callable[[FioSettings], StorageEnds]
    ) -> None:
        settings = program.transport
        assert isinstance(settings, FioSettings)
        self.settings = settings
        self.protocol = make_ends(settings)
        self.listener = listener
        self.seed = program.seed
        self.steps = {step.number: step for step in program.steps if step.channel is not None}
        self.described = {number: job for job in settings.jobs for number in job.steps if number in self.steps}
        """The jobs of steps of which the workload says how fio moves them."""
        self._loop = loop
        self._namespace = namespace.entered()
        self._endpoints = {endpoint.rank: endpoint for endpoint in program.endpoints}
        self._own = program.own
        self._channels = program.channels
        self._watched: list[int] = []
        self._host: _HostEnd | None = None
        self._target: _TargetEnd | None = None
        for channel in program.channels:
            if sum(self._address(rank) in settings.targets for rank in (channel.source, channel.destination)) != 1:
                raise TrafficError("storage leads from a host to a storage target, or back")

    def _address(self, rank: int) -> str:
        return self._endpoints[rank].address

    def target_address(self, step: Step | Channel) -> str:
        """Return the address of the end of a step or channel that is a storage target."""
        assert step.destination is not None
        source = self._address(step.source)
        return source if source in self.settings.targets else self._address(step.destination)

    def job(self, step: Step) -> JobSettings:
        """Return the job of a step: as the workload describes it, or one that moves all of it once."""
        if step.number in self.described:
            return self.described[step.number]
        settings = self.settings
        blocks, block_bytes = blocks_of(step.size_bytes, settings.io_bytes)
        return JobSettings(
            steps=(step.number,),
            block_bytes=block_bytes,
            blocks=blocks,
            depth=settings.depth,
            at_random=settings.at_random,
        )

    # --- setting up --------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        return self._host is None or self._host.ready

    def listen(self) -> None:
        served = [rank for rank in sorted(self._own) if self._address(rank) in self.settings.targets]
        if served and self.steps:
            self._target = _TargetEnd(self, [self._address(rank) for rank in served])

    def connect(self) -> None:
        if self._target is None and self.steps:
            self._host = _HostEnd(self)

    def enter(self) -> None:
        """Open sockets, and start programs, in the network of this host."""
        namespace.enter(self._namespace)

    def watch(self, fd: int, work: Callable[[], None], events: int = select.EPOLLIN) -> None:
        """Have `work` called, whose errors end the run, when there is something at `fd`."""

        def guarded(_: int) -> None:
            try:
                work()
            except TrafficError as error:
                self.listener.on_failed(error.message)
            except (FioError, OSError) as error:
                self.listener.on_failed(str(error))

        self._loop.watch(fd, guarded, events)
        self._watched.append(fd)

    def unwatch(self, fd: int) -> None:
        if fd in self._watched:
            self._watched.remove(fd)
            self._loop.unwatch(fd)

    # --- moving ------------------------------------------------------------------------------------------

    def send(self, step: Step) -> None:
        assert self._host is not None
        self._host.begin(step)

    def turn(self, now: int) -> None:
        """Everything happens when the loop tells."""

    # --- what is known -----------------------------------------------------------------------------------

    def sample(self) -> Iterable[tuple[int, ChannelState]]:
        """Nothing is known of a job before its end."""
        return ()

    def ends(self) -> list[ChannelEnd]:
        told = self._host or self._target
        moved: defaultdict[int, dict[int, int]] = defaultdict(dict)
        for number in () if told is None else told.ended:
            channel = self.steps[number].channel
            assert channel is not None
            moved[channel][number] = told.moved_bytes(self.steps[number]) if told is not None else 0
        return [
            ChannelEnd(
                channel=channel.index,
                sent_bytes=sum(moved[channel.index].values()) if channel.source in self._own else None,
                counters={} if self._host is None else self._host.counters(moved[channel.index]),
                moved={
                    number: size_bytes
                    for number, size_bytes in moved[channel.index].items()
                    if number in self.described and self._host is not None
                },
                not_safe=() if self._host is None else self._host.not_safe(channel.index),
            )
            for channel in self._channels
        ]

    def counters(self) -> Mapping[str, int]:
        return {"fio_jobs": 0 if self._host is None else self._host.reported}

    def halt(self) -> None:
        for fd in self._watched:
            self._loop.unwatch(fd)
        self._watched.clear()

    def close(self) -> None:
        self.halt()
        for end in (self._host, self._target):
            if end is not None:
                end.close()
        self._host = self._target = None


class _HostEnd:
    """fio at a host, with a job for each step, or two; and connections that tell targets of their ends."""

    def __init__(self, traffic: FioTraffic) -> None:
        self.results: dict[int, FioResult] = {}
        """The results that fio reports of each step, by its number."""
        self.ended: dict[int, int] = {}
        """When each step ended, by its number."""
        self._traffic = traffic
        self._jobs: defaultdict[int, list[Step]] = defaultdict(list)
        """The steps of each job, by the job's number."""
        for step in traffic.steps.values():
            self._jobs[traffic.job(step).number].append(step)
        self._begun: set[int] = set()
        self._ready: set[int] = set()
        self._untold: list[int] = []
        self._connected: set[str] = set()
        self._controls: dict[str, socket.socket] = {}
        self._partial = b""
        self._pipes: dict[str, int] = {}
        self._fio: Child | None = None
        self._directory = tempfile.TemporaryDirectory(prefix="testbed-fio-")
        with on_failure(self.close):
            self._start()

    @property
    def ready(self) -> bool:
        return len(self._ready) == len(self._jobs) and len(self._connected) == len(self._controls)

    @property
    def reported(self) -> int:
        """Return how many jobs fio has reported."""
        return len({self._traffic.job(self._traffic.steps[number]).number for number in self.results})

    def moved_bytes(self, step: Step) -> int:
        """Return what a step that has ended moved."""
        known = self.results.get(step.number) if step.number in self._traffic.described else None
        return step.size_bytes if known is None else known.bytes

    def counters(self, numbers: Iterable[int]) -> dict[str, int]:
        """Return what fio measured of some steps together."""
        found = {number: self.results[number] for number in numbers if number in self.results}
        if not found:
            return {}
        busy_ns, until_ns = 0, 0
        for end_ns, number in sorted((self.ended[number], number) for number in found):
            begin_ns = max(until_ns, end_ns - found[number].runtime_ms * 1_000_000)
            busy_ns, until_ns = busy_ns + end_ns - begin_ns, end_ns
        return merged(found.values(), max(1, round(busy_ns / 1e6))).counters()

    def _start(self) -> None:
        traffic, directory = self._traffic, Path(self._directory.name)
        traffic.enter()
        for address in sorted({traffic.target_address(step) for step in traffic.steps.values()}):
            self._connect(address)
        jobs = [self._job(steps[0]) for steps in self._jobs.values()]
        for name in (MARKS, *(job.begin_pipe for job in jobs)):
            os.mkfifo(directory / name)
            # open for reading, too: nobody waits for the other end, and there is no end of it
            self._pipes[name] = os.open(directory / name, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        traffic.watch(self._pipes[MARKS], self._on_marks)
        given = render_jobs(traffic.protocol.engine, traffic.seed, jobs)
        self._fio = Child(fio_arguments(_REPORT), directory, given=given)
        traffic.watch(self._fio.pidfd, self._on_end)

    def _job(self, step: Step) -> FioJob:
        traffic = self._traffic
        protocol, job = traffic.protocol, traffic.job(step)
        return FioJob(
            number=job.number,
            writes=not step.pulled,
            offset=protocol.offset(job.number),
            block_bytes=job.block_bytes,
            blocks=job.blocks,
            depth=job.depth,
            place=protocol.place(traffic.target_address(step), job.number),
            at_random=job.at_random,
            read_percent=job.read_percent,
            runtime_us=job.runtime_us,
            repeats=job.repeats,
        )

    def _connect(self, address: str) -> None:
        control = open_socket(None, 0, f"cannot connect to {address}")
        self._controls[address] = control
        with contextlib.suppress(BlockingIOError):
            control.connect((address, CONTROL_PORT))

        def on_connected() -> None:
            if reason := control.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise TrafficError(f"cannot connect to {address}: {os.strerror(reason)}")
            self._connected.add(address)
            self._traffic.unwatch(control.fileno())

        self._traffic.watch(control.fileno(), on_connected, select.EPOLLOUT)

    def not_safe(self, channel: int) -> list[tuple[int, int, int]]:
        """Return the writes over a channel, in whole transfers, until fio has come to its end without an error."""
        begun = (self._traffic.steps[number] for number in sorted(self._begun - self.results.keys()))
        return [(one.number, 0, one.size_bytes) for one in begun if one.channel == channel and not one.pulled]

    def begin(self, step: Step) -> None:
        self._begun.add(step.number)
        job = self._traffic.job(step).number
        if all(one.number in self._begun for one in self._jobs[job]):
            os.write(self._pipes[f"begin.{job}"], b"\n")

    def _on_marks(self) -> None:
        now = time.monotonic_ns()
        *lines, self._partial = (self._partial + os.read(self._pipes[MARKS], _CHUNK)).split(b"\n")
        for line in lines:
            word, number = line.decode().split()
            if word == "ready":
                self._ready.add(int(number))
            else:
                for step in self._jobs[int(number)]:
                    self.ended[step.number] = now
                    self._untold.append(step.number)
        if len(self.ended) < len(self._traffic.steps):  # what is last, is so when no job has failed
            self._tell([number for number in self._untold if number not in self._traffic.described])

    def _on_end(self) -> None:
        assert self._fio is not None
        self._traffic.unwatch(self._fio.pidfd)
        self._on_marks_left()
        report = Path(self._directory.name) / _REPORT
        text = report.read_text(errors="replace") if report.exists() else ""
        status = self._fio.process.wait()
        if status:
            raise TrafficError(f"fio: {complaint(text + self._fio.said()) or self._fio.last_words()}")
        reports = parse_report(text)
        if len(self.ended) < len(self._traffic.steps) or reports.keys() != self._jobs.keys():
            raise TrafficError(f"fio: {complaint(text + self._fio.said()) or 'it ended before its jobs did'}")
        for job, told in reports.items():
            self._take(job, told)
        self._tell(list(self._untold))

    def _take(self, job: int, report: JobReport) -> None:
        """Note what fio reports of a job. Raises `TrafficError` where that is not what it was to move."""
        steps = self._jobs[job]
        for step in steps:
            result = report.read if step.pulled else report.write
            if result is None:
                what = "read" if step.pulled else "written"
                raise TrafficError(f"step {step.number}: fio has {what} nothing: give its job more time or requests")
            self.results[step.number] = result
        plan = self._traffic.job(steps[0])
        moved = sum(result.bytes for result in report.results), sum(result.ios for result in report.results)
        if not plan.runtime_us and moved != (plan.size_bytes, plan.blocks):
            raise TrafficError(f"step {job}: fio moved {moved[0]} bytes, not {plan.size_bytes}")

    def _on_marks_left(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._on_marks()

    def _tell(self, numbers: Sequence[int]) -> None:
        listener = self._traffic.listener
        for number in numbers:
            step, now = self._traffic.steps[number], self.ended[number]
            ios = self.results[number].ios if number in self._traffic.described else 0
            control = self._controls[self._traffic.target_address(step)]
            control.setblocking(True)  # a line of some ten bytes: it has room in the socket
            control.sendall(b"%d %d %d\n" % (number, now, ios))
            if step.pulled:
                listener.on_bytes(self.moved_bytes(step))
                listener.on_arrived(step, now)
            else:
                listener.on_sent(step, now)
        told = set(numbers)
        self._untold = [number for number in self._untold if number not in told]

    def close(self) -> None:
        if self._fio is not None:
            self._fio.close()
        for control in self._controls.values():
            control.close()
        for fd in self._pipes.values():
            os.close(fd)
        self._directory.cleanup()


class _TargetEnd:
    """The servers of a target, one at each address, which serve the same files; and what hosts tell of their steps."""

    def __init__(self, traffic: FioTraffic, addresses: list[str]) -> None:
        self.ended: dict[int, int] = {}
        self._ios: dict[int, int] = {}
        """I/Os of each step of a job that the workload describes, as its host says."""
        self._traffic = traffic
        self._children: list[Child] = []
        self._sockets: list[socket.socket] = []
        self._directory = tempfile.TemporaryDirectory(prefix="testbed-storage-", dir=traffic.protocol.directory)
        try:
            with on_failure(self.close):
                self._start(addresses)
        except OSError as error:
            raise TrafficError(f"storage cannot be served: {error}") from error

    def _start(self, addresses: list[str]) -> None:
        traffic, directory = self._traffic, Path(self._directory.name)
        traffic.enter()
        traffic.protocol.prepare(directory)
        for step in traffic.steps.values():
            if step.pulled and not traffic.job(step).read_percent:
                self._fill(step)
        for address in addresses:
            argv = traffic.protocol.server(directory, address, traffic.settings.targets[address])
            self._children.append(Child(argv, directory))
        for child, address in zip(self._children, addresses, strict=True):
            child.await_listening(address, traffic.protocol.port)
            traffic.watch(child.pidfd, lambda child=child: self._on_server_end(child))  # type: ignore[misc]
            listener = open_socket(None, 0, "cannot listen")
            self._sockets.append(listener)
            listener.bind((address, CONTROL_PORT))
            listener.listen(1024)
            traffic.watch(listener.fileno(), lambda listener=listener: self._accept(listener))  # type: ignore[misc]

    def _on_server_end(self, child: Child) -> None:
        self._traffic.unwatch(child.pidfd)
        raise TrafficError(f"the server has ended: {child.last_words()}")

    def moved_bytes(self, step: Step) -> int:
        """Return what a step that has ended moved."""
        if step.number not in self._traffic.described:
            return step.size_bytes
        return self._ios[step.number] * self._traffic.job(step).block_bytes

    def _blocks(self, step: Step) -> Iterable[tuple[int, bytes]]:
        """The blocks of a step: where each is in its file, and what belongs there."""
        traffic, plan = self._traffic, self._traffic.job(step)
        begin = traffic.protocol.offset(plan.number)
        for at in range(begin, begin + plan.size_bytes, plan.block_bytes):
            yield at, contents(traffic.seed, at, plan.block_bytes)

    def _fill(self, step: Step) -> None:
        with self._file(step).open("r+b" if self._file(step).exists() else "wb", buffering=0) as file:
            for at, block in self._blocks(step):
                if os.pwrite(file.fileno(), block, at) < len(block):
                    raise OSError("there is no room for what is to be read")

    def _check(self, step: Step) -> None:
        """Raise `TrafficError` where a block is not what was written; it may have been left out where the workload says
        that the job ends before it, or reads it instead."""
        described = self._traffic.described.get(step.number)
        right = left_out = 0
        plan = self._traffic.job(step)
        with self._file(step).open("rb", buffering=0) as file:
            for at, block in self._blocks(step):
                found = os.pread(file.fileno(), len(block), at)
                right += found == block
                left_out += found != block and not any(found)
        wrong = plan.blocks - right - (0 if described is None else left_out)
        if wrong:
            raise TrafficError(f"step {step.number}: {wrong} blocks are not those that were written")
        if described is None:
            return
        written = self._ios[step.number]
        least = 1 if described.repeats and described.read_percent else min(written, plan.blocks)
        if not least <= right <= written:
            raise TrafficError(f"step {step.number}: of {written} writes {right} blocks are there")

    def _file(self, step: Step) -> Path:
        return self._traffic.protocol.file(Path(self._directory.name), self._traffic.job(step).number)

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            control, _ = listener.accept()
            fit_accepted(control)
            self._sockets.append(control)
            partial = [b""]

            def on_lines() -> None:
                chunk = control.recv(_CHUNK)
                if not chunk:
                    self._traffic.unwatch(control.fileno())
                *lines, partial[0] = (partial[0] + chunk).split(b"\n")
                for line in lines:
                    number, now, ios = line.decode().split()
                    self._on_ended(int(number), int(now), int(ios))

            self._traffic.watch(control.fileno(), on_lines)

    def _on_ended(self, number: int, now: int, ios: int) -> None:
        step, listener = self._traffic.steps.get(number), self._traffic.listener
        if step is None or number in self.ended:
            return
        self._ios[number] = ios
        if not step.pulled:
            self._check(step)
            listener.on_bytes(self.moved_bytes(step))
        self.ended[number] = now
        (listener.on_sent if step.pulled else listener.on_arrived)(step, now)

    def close(self) -> None:
        for child in self._children:
            child.close()
        for item in self._sockets:
            item.close()
        self._directory.cleanup()
