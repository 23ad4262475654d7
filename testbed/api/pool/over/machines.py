"""The machines of a lab as they are asked: each over an SSH connection, by the process that runs there for us."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, TypeVar

from testbed.api.pool.machines import with_each
from testbed.api.pool.over.messages import ANSWERS, LARGEST_BYTES, PartLost, PartRefused, PartStep, line_of, read_line
from testbed.api.pool.over.records import SpreadMachine
from testbed.base.errors import TestbedError
from testbed.vm.remote.ssh import Sink, SshSession
from testbed.vm.remote.target import RemoteTarget, open_session, parse_target, prepare_there

MODULE = "testbed.api.pool.over.part_server"
ANSWER_S = 900.0
"""A machine that has not answered after this time is lost: a large lab takes minutes."""
SILENT_S = 20.0
"""A machine that does not acknowledge what it is sent for so long is lost."""
MOST_COMMANDS = 8
"""Commands at once over one connection: sshd allows ten sessions on each (MaxSessions, sshd_config(5)), unless told
otherwise, and some are short."""
_KEPT_WORDS = 20
_Done = TypeVar("_Done")


class PartMachine:
    """A machine of a lab, reached and asked. Its process there ends with the connection."""

    def __init__(self, machine: SpreadMachine) -> None:
        """Raises `TestbedError` for what names no machine."""
        self.machine = machine
        self.name = machine.name
        self.target: RemoteTarget = parse_target(f"ssh://{machine.ssh}")
        self._sessions: list[tuple[SshSession, threading.Semaphore]] = []
        """The connections, each with the number of commands that may begin over it."""
        self._connecting = threading.Lock()
        self._prefix: tuple[str, ...] = ()
        self._input: BinaryIO | None = None
        self._heard = b""
        self._answers: queue.Queue[Any] = queue.Queue()
        self._said: deque[str] = deque(maxlen=_KEPT_WORDS)
        self._thread: threading.Thread | None = None
        self.reached_at = ""
        """The address at which it was reached."""

    def connect(self) -> None:
        """Reach the machine and start the process there.

        Raises `NotConnected`, and `TestbedError` where it has no testbed.
        """
        session = self._opened()
        self._prefix = prepare_there(session, self.target)
        reader, writer = os.pipe()
        self._input = os.fdopen(writer, "wb", buffering=0)

        def run() -> None:
            with os.fdopen(reader, "rb", buffering=0) as source:
                try:
                    code = self.run_module(MODULE, [], stdin=source, stdout=self._take, stderr=self._hear)
                    why = f"its process there ended with {code}" + (f": {self._said[-1]}" if self._said else "")
                except TestbedError as error:
                    why = error.message
                except Exception as error:  # whatever it is, nothing comes from there any more
                    why = f"{type(error).__name__}: {error}"
            self._answers.put(PartLost(f"{self.name}: {why}"))

        self._thread = threading.Thread(target=run, name=f"part on {self.name}", daemon=True)
        self._thread.start()
        self.reached_at = session.far_address

    def _opened(self) -> SshSession:
        session = open_session(self.target)
        session.lose_after(SILENT_S)
        self._sessions.append((session, threading.Semaphore(MOST_COMMANDS)))
        return session

    def _free(self) -> tuple[SshSession, threading.Semaphore]:
        """Return a connection over which another command may begin, which is counted; where there is none it is made.

        Raises `PartLost` where there is no connection at all.
        """
        with self._connecting:
            if not self._sessions:
                raise PartLost(f"{self.name} is not connected")
            for found in self._sessions:
                if found[1].acquire(blocking=False):
                    return found
            self._opened()
            self._sessions[-1][1].acquire()
            return self._sessions[-1]

    def run_module(self, module: str, arguments: Sequence[str], *, stdin: BinaryIO, stdout: Sink, stderr: Sink) -> int:
        """Run a module of ours there, as `run_command` does."""
        python = f"{self.target.path}/.venv/bin/python"
        return self.run_command([python, "-m", module, *arguments], stdin=stdin, stdout=stdout, stderr=stderr)

    def run_command(self, argv: Sequence[str], *, stdin: BinaryIO, stdout: Sink, stderr: Sink) -> int:
        """Run a command there until it ends; its exit code. It ends with the connection, or is interrupted by its input
        (`SshSession.run`).

        Raises `ConnectionLost`, and `PartLost` where there is no connection.
        """
        session, commands = self._free()
        try:
            return session.run(
                argv,
                errand_path=self.target.errand_path,
                prefix=self._prefix,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
            )
        finally:
            commands.release()

    def _take(self, content: bytes) -> None:
        *lines, self._heard = (self._heard + content).split(b"\n")
        for line in lines:
            try:
                self._answers.put(read_line(line, ANSWERS))
            except ValueError as error:
                self._answers.put(PartLost(f"{self.name} does not say what it was asked: {error}"))
        if len(self._heard) > LARGEST_BYTES:
            raise ValueError("a line without an end")

    def _hear(self, content: bytes) -> None:
        self._said.extend(content.decode(errors="replace").splitlines())

    def tell(self, message: object) -> None:
        """Send a question without waiting for the answer."""
        if self._input is not None:
            with contextlib.suppress(OSError):  # it has ended, and `answer` says so
                self._input.write(line_of(message))

    def answer(
        self,
        kind: type[_Done],
        on_step: Callable[[PartStep], object] = lambda _: None,
        *,
        timeout_s: float = ANSWER_S,
    ) -> _Done:
        """Wait for an answer of this kind; steps that come before it are told on the way.

        Raises `PartLost`, also where nothing comes for `timeout_s`, and what the machine says went wrong.
        """
        while True:
            try:
                found = self._answers.get(timeout=timeout_s)
            except queue.Empty:
                raise PartLost(f"{self.name} has not answered within {timeout_s:.0f} s") from None
            match found:
                case PartLost():
                    self._answers.put(found)  # whoever asks again is told again
                    raise found
                case PartRefused():
                    raise found.error(self.name)
                case PartStep():
                    on_step(found)
                case _ if isinstance(found, kind):
                    return found
                case _:
                    raise PartLost(f"{self.name} says {type(found).__name__} where it was asked for {kind.__name__}")

    def ask(self, message: object, kind: type[_Done]) -> _Done:
        """Send a question and return its answer. Raises as `answer`."""
        self.tell(message)
        return self.answer(kind)

    def end(self) -> None:
        """Have the process there end, and undo what it is doing; returns at once."""
        ours, self._input = self._input, None  # several threads may end it at once
        if ours is not None:
            with contextlib.suppress(OSError):
                ours.close()

    def close(self, timeout_s: float = 30.0) -> None:
        """End the process there, wait for it, and let go of the machine."""
        self.end()
        if self._thread is not None:
            self._thread.join(timeout_s)
        with self._connecting:
            sessions, self._sessions = self._sessions, []
        for session, _ in sessions:
            session.__exit__(None, None, None)


@contextmanager
def reached(machines: Sequence[SpreadMachine]) -> Iterator[list[PartMachine]]:
    """All machines of a lab, connected for as long as the context lasts. Raises what is raised for the first that is
    not reached."""
    parts = [PartMachine(machine) for machine in machines]
    try:
        with_each(parts, lambda part: part.connect())
        yield parts
    finally:
        with_each(parts, lambda part: part.close())
