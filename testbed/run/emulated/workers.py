"""The workers of a lab's hosts as the runner sees them: processes that are told what to do and answer in lines.

A process works for one host and runs inside it, or is shared (`SharedWorkers`) by hosts that are network namespaces of
this machine: few processes, as many as CPUs, own the endpoints of all. All are talked to at once, and nobody is waited
for without an end: a worker that dies, refuses or stays silent is named.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import IO, Any, ClassVar, Protocol, Self

from testbed.base.cleanup import on_failure
from testbed.base.errors import ExitCode, ScenarioError, TestbedError
from testbed.base.interrupt import Interrupt
from testbed.protocols.nvme.codes import Status, status_name
from testbed.run.placed.lab import LiveLab

PATIENCE_S = 240.0
"""After so long without an answer a worker is taken to hang. One that dies is noticed at once; one that only begins
takes most of a minute where a busy machine emulates the one that it is on."""
HELLO_TIMEOUT_S = PATIENCE_S
STOP_TIMEOUT_S = 2.0
DEATH_GRACE_S = 0.3
"""The time for which a worker is looked for whose death is the reason why connections broke."""
_ON_LOSS = "`testbed check` tells whether every NIC reaches every other of its rail, and every GPU its planes"
_CHUNK = 1 << 20
_LEAVE = {"do": "leave"}
_TRACEBACK = "Traceback (most recent call last):"
Event = dict[str, Any]


class WorkerFailed(ScenarioError):
    """Traffic cannot go on. `host` says where; `reason` is what the worker says of itself, or how it ended."""

    exit_code = ExitCode.INVALID

    def __init__(
        self, host: str, reason: str, *, is_death: bool = False, trace: str = "", on_loss: str | None = _ON_LOSS
    ) -> None:
        """`on_loss` is what to do where it may be the lab that does not carry its packets."""
        full = status_name(Status.CAPACITY_EXCEEDED) in reason
        hint = "a larger capacity of the target, or less to write" if full else on_loss
        super().__init__(f"{host}: {reason}", hint=None if is_death else hint)
        self.trace = trace
        self.host = host
        self.reason = reason
        self.is_death = is_death
        """Says that the worker's process has ended."""


class PipedProcess(Protocol):
    """A process by its pipes, as `subprocess.Popen` has one."""

    @property
    def stdin(self) -> IO[bytes] | None:
        """Return what writes to it."""

    @property
    def stdout(self) -> IO[bytes] | None:
        """Return what reads from it."""

    @property
    def pid(self) -> int:
        """Return its number on its machine, 0 where nobody knows."""

    @property
    def returncode(self) -> int | None:
        """Return how it ended, None while it runs as far as was looked."""

    def poll(self) -> int | None:
        """Look whether it has ended, and how."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises `subprocess.TimeoutExpired`."""

    def kill(self) -> None:
        """End it at once."""


class HasFileno(Protocol):
    """A thing that is readable once something has happened."""

    def fileno(self) -> int:
        """Return its descriptor."""


class WorkerProcess:
    """A process that works for hosts: for one that it runs in, or for those that have joined it. Its standard error is
    kept, so that its last words can be told."""

    def __init__(self, host: str | None, process: PipedProcess, errors: IO[bytes]) -> None:
        """`host` is the one that it runs in; None: it is shared."""
        self.hosts = [] if host is None else [host]
        self.shared = host is None
        self.ahead_ns = 0
        """By how much CLOCK_MONOTONIC of its machine is ahead of ours: what it is told to do at a time, it does at its
        own."""
        self.killed = ""
        """The host whose worker was to be killed, and this process with it."""
        self.process = process
        self.dead = ""
        """Its end in words; "" while it lives."""
        self.trace = ""
        """The traceback that it ended with; "" where it had none."""
        assert process.stdin is not None and process.stdout is not None
        self.input = process.stdin.fileno()
        self.output = process.stdout.fileno()
        self._errors = errors
        self._outgoing = memoryview(b"")
        self._incoming: list[bytes] = []
        os.set_blocking(self.input, False)
        os.set_blocking(self.output, False)

    @property
    def has_more(self) -> bool:
        """Tell whether something waits to be written."""
        return bool(self._outgoing)

    def join(self, host: str, namespace: str) -> None:
        """Makes a shared process work for a host too, whose network namespace is at this path."""
        self.hosts.append(host)
        self.put(host, {"do": "join", "namespace": namespace})

    def put(self, host: str, command: Mapping[str, Any]) -> None:
        """Tells the worker of a host something; `flush` writes what does not fit now."""
        told = {"host": host, **command} if self.shared else dict(command)
        if "at_ns" in told:
            told["at_ns"] += self.ahead_ns
        line = json.dumps(told, separators=(",", ":")).encode() + b"\n"
        self._outgoing = memoryview(bytes(self._outgoing) + line)
        self.flush()

    def flush(self) -> None:
        try:
            while self._outgoing:
                self._outgoing = self._outgoing[os.write(self.input, self._outgoing) :]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self._outgoing = memoryview(b"")  # its end is found where it is read from

    def read(self) -> list[tuple[str, Event]]:
        """Returns the events that have come, with their hosts; `dead` is set when there will be no more."""
        try:
            chunk = os.read(self.output, _CHUNK)
        except BlockingIOError:
            return []
        if not chunk:
            self._find_death()
            return []
        *lines, rest = chunk.split(b"\n")
        events: list[tuple[str, Event]] = []
        for line in lines:
            try:
                event = json.loads(b"".join((*self._incoming, line)))
            except (ValueError, RecursionError):
                event = None
            self._incoming = []
            host = self.hosts[0] if self.hosts and not self.shared else ""
            if isinstance(event, dict) and self.shared:
                host = str(event.pop("host", ""))
            if not isinstance(event, dict):
                self.process.kill()  # whatever runs there is no worker; its end comes next
                return events
            events.append((host, event))
        if rest:
            self._incoming.append(rest)
        return events

    def _find_death(self) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_TIMEOUT_S)
        status = self.process.returncode
        if status is None:
            self.process.kill()
            status = self.process.wait()
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace")
        words = said.strip().splitlines()
        begin = said.find(_TRACEBACK)
        self.trace = "" if begin < 0 else said[begin:]
        how = f"was killed by signal {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        self.dead = f"its worker {how}" + (f": {words[-1]}" if words else "")

    def close(self, deadline: float) -> None:
        """Ends the worker: by the end of its input, and by force at the deadline (of `time.monotonic`)."""
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        try:
            self.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._errors.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSeat:
    """The host that a worker runs on, and the transport that it moves data over: "" for that of its `Workers`."""

    host: str
    transport: str = ""


@dataclass(slots=True)
class Answers:
    """The events that were asked for and came, by host, and why not all of them did."""

    events: dict[str, Event] = field(default_factory=dict)
    failure: WorkerFailed | None = None
    interrupted: bool = False
    late: tuple[str, ...] = ()
    """The hosts that had not answered at the deadline."""

    @property
    def complete(self) -> bool:
        return self.failure is None and not self.interrupted and not self.late


class Workers:
    """The workers of a lab by name; each is started when it is first needed, and again if it has died.

    A worker has the name of its host, unless it was started with a seat. Where hosts are said of here, it is by names
    of their workers.
    """

    def __init__(
        self,
        lab: LiveLab,
        *,
        transport: str = "",
        own_sysfs: bool = False,
        shared: SharedWorkers | None = None,
        alone: Collection[str] = (),
    ) -> None:
        """`transport` is what workers are to move data over, "" for any whose sockets wait like the kernel's.

        With `own_sysfs` they see only their host's devices in /sys, as RDMA's libraries need it. `shared` are
        processes for the hosts that can share one, all but those that are to be `alone`.
        """
        self._lab = lab
        self._shared = shared
        self._alone = frozenset(alone)
        self._transport = transport
        self._own_sysfs = own_sysfs
        self._seats: dict[str, WorkerSeat] = {}
        self._domain_of: dict[str, str] = {}
        self.workers: dict[str, WorkerProcess] = {}

    def start(
        self, hosts: Iterable[str], interrupt: Interrupt | None, seats: Mapping[str, WorkerSeat] | None = None
    ) -> Answers:
        """Starts a worker on each of these hosts that has none. A failure names the first host whose worker did not
        come. `seats` are those of workers that do not have the name of their host."""
        self._seats |= seats or {}
        missing = [host for host in hosts if host not in self.workers]
        for host in missing:
            try:
                self.workers[host] = self._place(host)
            except (OSError, TestbedError) as error:
                return Answers(failure=WorkerFailed(host, f"its worker cannot be started: {error}"))
        answers = self.wait(missing, "hello", time.monotonic() + HELLO_TIMEOUT_S, interrupt)
        if answers.late:
            answers.failure = WorkerFailed(answers.late[0], f"its worker is not there after {HELLO_TIMEOUT_S:.0f} s")
            self.discard(answers.late)
        return answers

    def join_domains(self, domain_of: Mapping[str, str], seats: Mapping[str, WorkerSeat]) -> None:
        """Say which workers, by name, are of one scale-up domain: they share a process from now on.

        Raises `ScenarioError` for the first that cannot.
        """
        self._seats |= seats
        for name in domain_of:
            host = self._seat(name).host
            if self._shared is None or host in self._alone or self._lab.namespace_file(host) is None:
                raise ScenarioError(
                    f"{name} is in the scale-up domain {domain_of[name]} with other hosts, and its worker cannot share"
                    " a process with theirs",
                    hint="transport: {kind: tcp}, uet or roce, hosts that are network namespaces and whose workers are"
                    " not killed; or fabric.scale_up.domain: host",
                )
        self._domain_of |= domain_of
        processes: dict[str, WorkerProcess] = {}
        for name, domain in domain_of.items():
            worker = self.workers.get(name)
            if worker is not None and processes.setdefault(domain, worker) is not worker:
                self._leave([name], time.monotonic() + STOP_TIMEOUT_S)  # it is placed anew when it starts

    def _seat(self, name: str) -> WorkerSeat:
        return self._seats.get(name) or WorkerSeat(host=name)

    def _place(self, name: str) -> WorkerProcess:
        """Returns the process that is the worker of this name from now on."""
        host = self._seat(name).host
        if self._shared is None or host in self._alone:
            return self._spawn(name)
        namespace = self._lab.namespace_file(host)
        if namespace is None:
            return self._spawn(name)
        domain = self._domain_of.get(name)
        mates = (
            self.workers[other] for other, its in self._domain_of.items() if its == domain and other in self.workers
        )
        process = (next(mates, None) if domain else None) or self._shared.next(host)
        process.join(name, namespace)
        return process

    def _spawn(self, name: str) -> WorkerProcess:
        seat = self._seat(name)
        options: dict[str, Any] = {"own_sysfs": True} if self._own_sysfs else {}
        transport = seat.transport or self._transport
        arguments = ["--transport", transport] if transport else []
        return _started(name, partial(self._lab.spawn, seat.host, **options), arguments)

    def tell(self, commands: Mapping[str, Mapping[str, Any]]) -> None:
        """Tells workers what to do, by host; one that has died meanwhile is found by `wait`."""
        for host, command in commands.items():
            if host in self.workers:
                self.workers[host].put(host, command)

    def wait(
        self,
        hosts: Sequence[str],
        expected: str,
        deadline: float,
        interrupt: Interrupt | None,
        on_event: Callable[[str, Event], None] = lambda host, event: None,
        *,
        tolerant: bool = False,
        over: HasFileno | None = None,
    ) -> Answers:
        """Waits until each of these hosts has sent the event `expected`, one fails, an interrupt comes or the deadline
        passes.

        Other events go to `on_event`. With `tolerant` it goes on with those that are left when one fails; the first
        failure is in the answers all the same. Workers that have died are removed. Once `over` is readable nothing more
        is waited for, as at the deadline.
        """
        answers = Answers()
        waiting = dict.fromkeys(hosts)
        for host in list(waiting):
            if host not in self.workers:
                del waiting[host]
                answers.failure = answers.failure or WorkerFailed(host, "it has no worker")
        with selectors.DefaultSelector() as selector:
            if interrupt is not None:
                selector.register(interrupt, selectors.EVENT_READ, None)
            if over is not None:
                selector.register(over, selectors.EVENT_READ, over)
            for worker in self._processes():
                selector.register(worker.output, selectors.EVENT_READ, worker)
                if worker.has_more:
                    selector.register(worker.input, selectors.EVENT_WRITE, worker)
            while waiting and (tolerant or answers.failure is None):
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                if not ready:
                    answers.late = tuple(waiting)
                    return answers
                for key, mask in ready:
                    worker = key.data
                    if worker is None:
                        answers.interrupted = True
                        return answers
                    if worker is over:
                        answers.late = tuple(waiting)
                        return answers
                    if mask & selectors.EVENT_WRITE:
                        worker.flush()
                        if not worker.has_more:
                            selector.unregister(worker.input)
                        continue
                    for host, event in worker.read():
                        self._take(host, event, expected, waiting, answers, on_event)
                    if worker.dead:
                        selector.unregister(worker.output)
                        if worker.has_more:
                            selector.unregister(worker.input)
                        for host in worker.hosts:
                            waiting.pop(host, None)
                        self._bury(worker, answers)
                if waiting and time.monotonic() >= deadline:  # there may always be something to be read
                    answers.late = tuple(waiting)
                    return answers
        if answers.failure is not None and not tolerant:
            self._look_for_the_dead(answers)
        return answers

    def _take(
        self,
        host: str,
        event: Event,
        expected: str,
        waiting: dict[str, None],
        answers: Answers,
        on_event: Callable[[str, Event], None],
    ) -> None:
        kind = event.get("event")
        if kind == expected and host in waiting:
            del waiting[host]
            answers.events[host] = event
        elif kind in ("failed", "refused"):
            if expected != "report" or kind == "refused":  # what fails while all are being stopped is no news
                waiting.pop(host, None)
                trace = str(event.get("trace", ""))
                answers.failure = answers.failure or WorkerFailed(host, str(event.get("reason")), trace=trace)
        else:
            on_event(host, event)

    def _bury(self, worker: WorkerProcess, answers: Answers) -> None:
        """Removes a worker that died: its death is the reason of whatever else broke."""
        own = [host for host in worker.hosts if self.workers.get(host) is worker]
        host = worker.killed or next(iter(own), "a shared process")
        answers.failure = WorkerFailed(host, worker.dead, is_death=True, trace=worker.trace)
        self.discard(own)

    def _look_for_the_dead(self, answers: Answers) -> None:
        """Looks for a worker that died: connections break when one does, and the others may be heard first."""
        deadline = time.monotonic() + DEATH_GRACE_S
        with selectors.DefaultSelector() as selector:
            for worker in self._processes():
                selector.register(worker.output, selectors.EVENT_READ, worker)
            while ready := selector.select(max(0.0, deadline - time.monotonic())):
                for key, _ in ready:
                    key.data.read()
                    if key.data.dead:
                        selector.unregister(key.fileobj)
                        self._bury(key.data, answers)
                        return
                if time.monotonic() >= deadline:
                    return

    def discard(self, hosts: Iterable[str]) -> None:
        """Ends these workers at once, and with them those of hosts that share their process; they are started again
        when they are needed."""
        for process in dict.fromkeys(self.workers[host] for host in hosts if host in self.workers):
            self.workers = {host: worker for host, worker in self.workers.items() if worker is not process}
            process.process.kill()
            process.close(time.monotonic() + STOP_TIMEOUT_S)

    def kill(self, host: str) -> None:
        """Sends SIGKILL to the processes that work for a host. Raises `ScenarioError` where none does any more."""
        found = [worker for name, worker in self.workers.items() if self._seat(name).host == host]
        if not found:
            raise ScenarioError(f"{host} has no worker: it takes no part in the workload")
        if all(worker.process.poll() is not None for worker in found):
            raise ScenarioError(f"the worker of {host} has ended already")
        for worker in found:
            worker.killed = host
            worker.process.kill()

    def _processes(self) -> list[WorkerProcess]:
        return list(dict.fromkeys(self.workers.values()))

    def close(self) -> None:
        """Ends all workers; shared processes stay, and let go of these hosts."""
        deadline = time.monotonic() + STOP_TIMEOUT_S
        leaving = [host for host, worker in self.workers.items() if worker.shared]
        own = [worker for worker in self._processes() if not worker.shared]
        for worker in own:
            # all together, so that they end side by side
            assert worker.process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                worker.process.stdin.close()
        self._leave(leaving, deadline)
        for worker in own:
            worker.close(deadline)
        self.workers.clear()

    def _leave(self, hosts: Sequence[str], deadline: float) -> None:
        """Have shared processes let go of these hosts; those that do not by the deadline are ended."""
        if not hosts:
            return
        self.tell(dict.fromkeys(hosts, _LEAVE))
        answers = self.wait(hosts, "left", deadline, None, tolerant=True)
        self.discard(answers.late)
        for host in hosts:
            if host in self.workers:
                self.workers.pop(host).hosts.remove(host)


def _started(
    host: str | None, spawn: Callable[..., subprocess.Popen[bytes]], arguments: Sequence[str]
) -> WorkerProcess:
    """Starts a process of workers by `spawn`, which takes what `subprocess.Popen` takes. It waits for nothing."""
    errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
    with on_failure(errors.close):
        process = spawn(
            [sys.executable, "-m", "testbed.endpoints.worker", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            bufsize=0,
            process_group=0,  # a terminal's Ctrl-C is ours to pass on
        )
    return WorkerProcess(host, process, errors)


class SharedWorkers:
    """Processes that work for many hosts each, as many as there are CPUs. A context: leaving it ends them.

    They need no lab: started before one is deployed, they have imported what they need by the time it is up.
    """

    here: ClassVar[bool] = True
    """They are on this machine, and have its kernel."""

    def __init__(self, count: int | None = None) -> None:
        self._count = count or len(os.sched_getaffinity(0))
        self._processes: list[WorkerProcess] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Starts the processes that are missing, and waits for none of them."""
        self._processes = [process for process in self._processes if process.process.poll() is None]
        while len(self._processes) < self._count:
            self._processes.append(_started(None, subprocess.Popen, ["--shared"]))

    def next(self, host: str) -> WorkerProcess:
        """Returns the process that is to work for a host, too: the one with the fewest."""
        self.start()
        return min(self._processes, key=lambda process: len(process.hosts))

    def close(self) -> None:
        deadline = time.monotonic() + STOP_TIMEOUT_S
        for process in self._processes:
            assert process.process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.process.stdin.close()
        for process in self._processes:
            process.close(deadline)
        self._processes.clear()
