"""Transfers by fio: a host's steps are jobs of one process, which wait until their step begins.

    prepare: the target's server listens, and what is to be read is there
    connect: the host's fio has connected all jobs, and a connection to the target tells of their ends
    step begins: a line in the job's pipe; its end: fio's mark -> (to the target) number and time of the step

Contents are checked: of what is read by fio, of what was written by the target's worker, in the file of the server. A
host's last steps have ended when fio has reported and no job of it failed.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from testbed.agent import namespace
from testbed.storage.fio import (
    MARKS,
    FioError,
    FioJob,
    FioResult,
    blocks_of,
    complaint,
    contents,
    fio_arguments,
    merged,
    parse_report,
    render_jobs,
)
from testbed.worker.curves import ChannelState
from testbed.worker.errors import TrafficError
from testbed.worker.fio.child import Child
from testbed.worker.fio.settings import FioSettings, StorageEnds
from testbed.worker.poll_loop import WatchingLoop
from testbed.worker.program import Channel, Program, Step
from testbed.worker.streams.tcp_socket import fit_accepted, open_socket
from testbed.worker.traffic import ChannelEnd, Listener

CONTROL_PORT = 10_810
"""Where the worker of a target hears of steps that have ended."""
_CHUNK = 1 << 16
_REPORT = "report.json"


class FioTraffic:
    """Raises `TrafficError` where something cannot be set up. `Traffic` says what the methods do."""

    def __init__(self, program: Program, loop: WatchingLoop, listener: Listener, ends: StorageEnds) -> None:
        settings = program.transport
        assert isinstance(settings, FioSettings)
        self.settings = settings
        self.protocol = ends
        self.listener = listener
        self.seed = program.seed
        self.steps = {step.number: step for step in program.steps if step.channel is not None}
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
        sent: defaultdict[int, int] = defaultdict(int)
        jobs: defaultdict[int, list[FioResult]] = defaultdict(list)
        told = self._host or self._target
        for number in () if told is None else told.ended:
            channel = self.steps[number].channel
            assert channel is not None
            sent[channel] += self.steps[number].size_bytes
        for number, result in ({} if self._host is None else self._host.results).items():
            channel = self.steps[number].channel
            assert channel is not None
            jobs[channel].append(result)
        return [
            ChannelEnd(
                channel=channel.index,
                sent_bytes=sent[channel.index] if channel.source in self._own else None,
                counters=merged(jobs[channel.index]).counters() if jobs[channel.index] else {},
            )
            for channel in self._channels
        ]

    def counters(self) -> Mapping[str, int]:
        return {"fio_jobs": 0 if self._host is None else len(self._host.results)}

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
    """fio at a host, with a job for each step; and connections that tell targets of their ends."""

    def __init__(self, traffic: FioTraffic) -> None:
        self.results: dict[int, FioResult] = {}
        self.ended: dict[int, int] = {}
        """When each step ended, by its number."""
        self._traffic = traffic
        self._ready: set[int] = set()
        self._untold: list[int] = []
        self._connected: set[str] = set()
        self._controls: dict[str, socket.socket] = {}
        self._partial = b""
        self._pipes: dict[str, int] = {}
        self._fio: Child | None = None
        self._directory = tempfile.TemporaryDirectory(prefix="testbed-fio-")
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    @property
    def ready(self) -> bool:
        return len(self._ready) == len(self._traffic.steps) and len(self._connected) == len(self._controls)

    def _start(self) -> None:
        traffic, directory = self._traffic, Path(self._directory.name)
        traffic.enter()
        for address in sorted({traffic.target_address(step) for step in traffic.steps.values()}):
            self._connect(address)
        jobs = [self._job(step) for step in traffic.steps.values()]
        for name in (MARKS, *(job.begin_pipe for job in jobs)):
            os.mkfifo(directory / name)
            # open for reading, too: nobody waits for the other end, and there is no end of it
            self._pipes[name] = os.open(directory / name, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        traffic.watch(self._pipes[MARKS], self._on_marks)
        given = render_jobs(traffic.protocol.engine, traffic.seed, jobs)
        self._fio = Child(fio_arguments(_REPORT), directory, given=given)
        traffic.watch(self._fio.pidfd, self._on_end)

    def _job(self, step: Step) -> FioJob:
        settings, protocol = self._traffic.settings, self._traffic.protocol
        blocks, block_bytes = blocks_of(step.size_bytes, settings.io_bytes)
        return FioJob(
            number=step.number,
            writes=not step.pulled,
            offset=protocol.offset(step.number),
            block_bytes=block_bytes,
            blocks=blocks,
            depth=settings.depth,
            place=protocol.place(self._traffic.target_address(step), step.number),
            at_random=settings.at_random,
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

    def begin(self, step: Step) -> None:
        os.write(self._pipes[f"begin.{step.number}"], b"\n")

    def _on_marks(self) -> None:
        now = time.monotonic_ns()
        *lines, self._partial = (self._partial + os.read(self._pipes[MARKS], _CHUNK)).split(b"\n")
        for line in lines:
            word, number = line.decode().split()
            if word == "ready":
                self._ready.add(int(number))
            else:
                self.ended[int(number)] = now
                self._untold.append(int(number))
        if len(self.ended) < len(self._traffic.steps):  # what is last, is so when no job has failed
            self._tell()

    def _on_end(self) -> None:
        assert self._fio is not None
        self._traffic.unwatch(self._fio.pidfd)
        self._on_marks_left()
        report = Path(self._directory.name) / _REPORT
        text = report.read_text(errors="replace") if report.exists() else ""
        status = self._fio.process.wait()
        if status:
            raise TrafficError(f"fio: {complaint(text + self._fio.said()) or self._fio.last_words()}")
        self.results = parse_report(text)
        if len(self.ended) < len(self._traffic.steps) or self.results.keys() != self._traffic.steps.keys():
            raise TrafficError(f"fio: {complaint(text + self._fio.said()) or 'it ended before its jobs did'}")
        for number, result in self.results.items():
            blocks, block_bytes = blocks_of(self._traffic.steps[number].size_bytes, self._traffic.settings.io_bytes)
            if (result.ios, result.bytes) != (blocks, blocks * block_bytes):
                raise TrafficError(f"step {number}: fio moved {result.bytes} bytes, not {blocks * block_bytes}")
        self._tell()

    def _on_marks_left(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._on_marks()

    def _tell(self) -> None:
        listener = self._traffic.listener
        for number in self._untold:
            step, now = self._traffic.steps[number], self.ended[number]
            control = self._controls[self._traffic.target_address(step)]
            control.setblocking(True)  # a line of some ten bytes: it has room in the socket
            control.sendall(b"%d %d\n" % (number, now))
            if step.pulled:
                listener.on_bytes(step.size_bytes)
                listener.on_arrived(step, now)
            else:
                listener.on_sent(step, now)
        self._untold.clear()

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
        self._traffic = traffic
        self._children: list[Child] = []
        self._sockets: list[socket.socket] = []
        self._directory = tempfile.TemporaryDirectory(prefix="testbed-storage-", dir=traffic.protocol.directory)
        try:
            self._start(addresses)
        except OSError as error:
            self.close()
            raise TrafficError(f"storage cannot be served: {error}") from error
        except BaseException:
            self.close()
            raise

    def _start(self, addresses: list[str]) -> None:
        traffic, directory = self._traffic, Path(self._directory.name)
        traffic.enter()
        traffic.protocol.prepare(directory)
        for step in traffic.steps.values():
            if step.pulled:
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

    def _blocks(self, step: Step) -> Iterable[tuple[int, bytes]]:
        """The blocks of a step: where each is in its file, and what belongs there."""
        traffic = self._traffic
        blocks, block_bytes = blocks_of(step.size_bytes, traffic.settings.io_bytes)
        begin = traffic.protocol.offset(step.number)
        for at in range(begin, begin + blocks * block_bytes, block_bytes):
            yield at, contents(traffic.seed, at, block_bytes)

    def _fill(self, step: Step) -> None:
        with self._file(step).open("r+b" if self._file(step).exists() else "wb", buffering=0) as file:
            for at, block in self._blocks(step):
                if os.pwrite(file.fileno(), block, at) < len(block):
                    raise OSError("there is no room for what is to be read")

    def _check(self, step: Step) -> None:
        with self._file(step).open("rb", buffering=0) as file:
            wrong = sum(os.pread(file.fileno(), len(block), at) != block for at, block in self._blocks(step))
        if wrong:
            raise TrafficError(f"step {step.number}: {wrong} blocks are not those that were written")

    def _file(self, step: Step) -> Path:
        return self._traffic.protocol.file(Path(self._directory.name), step.number)

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
                    number, now = line.decode().split()
                    self._on_ended(int(number), int(now))

            self._traffic.watch(control.fileno(), on_lines)

    def _on_ended(self, number: int, now: int) -> None:
        step, listener = self._traffic.steps.get(number), self._traffic.listener
        if step is None or number in self.ended:
            return
        if not step.pulled:
            self._check(step)
            listener.on_bytes(step.size_bytes)
        self.ended[number] = now
        (listener.on_sent if step.pulled else listener.on_arrived)(step, now)

    def close(self) -> None:
        for child in self._children:
            child.close()
        for item in self._sockets:
            item.close()
        self._directory.cleanup()
