"""The workers of a lab's hosts as the runner sees them: processes that are told what to do and answer in lines.

All are talked to at once, and nobody is waited for without an end: a worker that dies, refuses or stays silent is
named.
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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

from testbed.errors import ScenarioError, TestbedError
from testbed.scenario.run.interrupt import Interrupt
from testbed.scenario.run.lab import LiveLab

HELLO_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 2.0
DEATH_GRACE_S = 0.3
"""How long a worker is looked for whose death is the reason why connections broke."""
_CHUNK = 1 << 20
Event = dict[str, Any]


class WorkerFailed(ScenarioError):
    """Traffic cannot go on. `host` says where; `reason` is what the worker says of itself, or how it ended."""

    def __init__(self, host: str, reason: str, *, is_death: bool = False) -> None:
        super().__init__(
            f"{host}: {reason}", hint="`testbed check` tells whether every NIC reaches every other of its rail"
        )
        self.host = host
        self.reason = reason
        self.is_death = is_death
        """Whether the worker's process has ended."""


class WorkerProcess:
    """The process of one worker. Its standard error is kept, so that its last words can be told."""

    def __init__(self, host: str, process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
        self.host = host
        self.process = process
        self.dead = ""
        """How it ended; "" while it lives."""
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

    def put(self, command: Mapping[str, Any]) -> None:
        """Tells the worker something; `flush` writes what does not fit now."""
        line = json.dumps(command, separators=(",", ":")).encode() + b"\n"
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

    def read(self) -> list[Event]:
        """Returns the events that have come; `dead` is set when there will be no more."""
        try:
            chunk = os.read(self.output, _CHUNK)
        except BlockingIOError:
            return []
        if not chunk:
            self._find_death()
            return []
        *lines, rest = chunk.split(b"\n")
        events: list[Event] = []
        for line in lines:
            try:
                event = json.loads(b"".join((*self._incoming, line)))
            except (ValueError, RecursionError):
                event = None
            self._incoming = []
            if not isinstance(event, dict):
                self.process.kill()  # whatever runs there is no worker; its end comes next
                return events
            events.append(event)
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
        words = self._errors.read().decode(errors="replace").strip().splitlines()
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


@dataclass(slots=True)
class Answers:
    """This is what waiting for workers brought: the events that were asked for, by host, and why not all of them are
    there.
    """

    events: dict[str, Event] = field(default_factory=dict)
    failure: WorkerFailed | None = None
    interrupted: bool = False
    late: tuple[str, ...] = ()
    """The hosts that had not answered at the deadline."""

    @property
    def complete(self) -> bool:
        return self.failure is None and not self.interrupted and not self.late


class Workers:
    """The workers of a lab by host; each is started when it is first needed, and again if it has died."""

    def __init__(self, lab: LiveLab, *, transport: str = "", own_sysfs: bool = False) -> None:
        """`transport` is what workers are to move data over, "" for any whose sockets wait like the kernel's.

        With `own_sysfs` they see only their host's devices in /sys, as RDMA's libraries need it.
        """
        self._lab = lab
        self._arguments = ["--transport", transport] if transport else []
        self._own_sysfs = own_sysfs
        self.workers: dict[str, WorkerProcess] = {}

    def start(self, hosts: Iterable[str], interrupt: Interrupt | None) -> Answers:
        """Starts a worker on each of these hosts that has none. A failure names the first host whose worker did not
        come.
        """
        missing = [host for host in hosts if host not in self.workers]
        for host in missing:
            try:
                self.workers[host] = self._spawn(host)
            except (OSError, TestbedError) as error:
                return Answers(failure=WorkerFailed(host, f"its worker cannot be started: {error}"))
        answers = self.wait(missing, "hello", time.monotonic() + HELLO_TIMEOUT_S, interrupt)
        if answers.late:
            answers.failure = WorkerFailed(answers.late[0], f"its worker is not there after {HELLO_TIMEOUT_S:.0f} s")
            self.discard(answers.late)
        return answers

    def _spawn(self, host: str) -> WorkerProcess:
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        try:
            process = self._lab.spawn(
                host,
                [sys.executable, "-m", "testbed.worker", *self._arguments],
                **({"own_sysfs": True} if self._own_sysfs else {}),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
                process_group=0,  # a terminal's Ctrl-C is ours to pass on
            )
        except BaseException:
            errors.close()
            raise
        return WorkerProcess(host, process, errors)

    def tell(self, commands: Mapping[str, Mapping[str, Any]]) -> None:
        """Tells workers what to do, by host; one that has died meanwhile is found by `wait`."""
        for host, command in commands.items():
            if host in self.workers:
                self.workers[host].put(command)

    def wait(
        self,
        hosts: Sequence[str],
        expected: str,
        deadline: float,
        interrupt: Interrupt | None,
        on_event: Callable[[str, Event], None] = lambda host, event: None,
        *,
        tolerant: bool = False,
    ) -> Answers:
        """Waits until each of these hosts has sent the event `expected`, one fails, an interrupt comes or the deadline
        passes.

        Other events go to `on_event`. With `tolerant` it goes on with those that are left when one fails; the first
        failure is in the answers all the same. Workers that have died are removed.
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
            for worker in self.workers.values():
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
                    if mask & selectors.EVENT_WRITE:
                        worker.flush()
                        if not worker.has_more:
                            selector.unregister(worker.input)
                        continue
                    for event in worker.read():
                        self._take(worker.host, event, expected, waiting, answers, on_event)
                    if worker.dead:
                        selector.unregister(worker.output)
                        if worker.has_more:
                            selector.unregister(worker.input)
                        waiting.pop(worker.host, None)
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
                answers.failure = answers.failure or WorkerFailed(host, str(event.get("reason")))
        else:
            on_event(host, event)

    def _bury(self, worker: WorkerProcess, answers: Answers) -> None:
        """Removes a worker that died: its death is the reason of whatever else broke."""
        answers.failure = WorkerFailed(worker.host, worker.dead, is_death=True)
        self.discard([worker.host])

    def _look_for_the_dead(self, answers: Answers) -> None:
        """Looks for a worker that died: connections break when one does, and the others may be heard first."""
        deadline = time.monotonic() + DEATH_GRACE_S
        with selectors.DefaultSelector() as selector:
            for worker in self.workers.values():
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
        """Ends these workers at once; they are started again when they are needed."""
        for host in hosts:
            worker = self.workers.pop(host, None)
            if worker is not None:
                worker.process.kill()
                worker.close(time.monotonic() + STOP_TIMEOUT_S)

    def close(self) -> None:
        """Ends all workers."""
        deadline = time.monotonic() + STOP_TIMEOUT_S
        for worker in self.workers.values():
            # all together, so that they end side by side
            assert worker.process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                worker.process.stdin.close()
        for worker in self.workers.values():
            worker.close(deadline)
        self.workers.clear()
