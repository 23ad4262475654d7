"""The workers of a run on a lab over several machines: shared processes on each, reached over its connection."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import IO, BinaryIO

from testbed.api.pool.over.machines import PartMachine
from testbed.base.errors import TestbedError
from testbed.run.emulated.workers import SharedWorkers, WorkerProcess

MODULE = "testbed.endpoints.worker"
Sink = Callable[[bytes], object]
Run = Callable[[BinaryIO, Sink, Sink], int]


class RemoteProcess:
    """A process on another machine, by its pipes here (`PipedProcess`). `run` runs it, with its input, and where its
    output and its words go. It ends with its input, or with the connection."""

    def __init__(self, run: Run, errors: IO[bytes]) -> None:
        near, far = os.pipe()
        self.stdin: IO[bytes] | None = os.fdopen(far, "wb", buffering=0)
        output, self._output = os.pipe()
        self.stdout: IO[bytes] | None = os.fdopen(output, "rb", buffering=0)
        self.pid = 0
        self.returncode: int | None = None
        self._errors = errors
        self._ended = threading.Event()
        threading.Thread(target=self._run, args=(run, near), name="remote process", daemon=True).start()

    def _run(self, run: Run, near: int) -> None:
        with os.fdopen(near, "rb", buffering=0) as source:
            try:
                code = run(source, self._pass_on, self._hear)
            except TestbedError as error:
                self._hear(f"{error.message}\n".encode())
                code = 255
            except Exception as error:  # whatever it is, nothing comes from there any more
                self._hear(f"{type(error).__name__}: {error}\n".encode())
                code = 255
        if self.returncode is None:
            self.returncode = code if code < 128 or code == 255 else 128 - code
        self._ended.set()
        os.close(self._output)
        self._ended_now()

    def _ended_now(self) -> None:
        """Do what is to be done when it has ended: nothing more."""

    def _pass_on(self, content: bytes) -> None:
        waiting = memoryview(content)
        while waiting:
            waiting = waiting[os.write(self._output, waiting) :]

    def _hear(self, content: bytes) -> None:
        with contextlib.suppress(ValueError):  # it is closed: nobody wants to know
            self._errors.write(content)
            self._errors.flush()

    def poll(self) -> int | None:
        """Return how it ended, None while it runs."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises `subprocess.TimeoutExpired`."""
        if not self._ended.wait(timeout) or self.returncode is None:
            raise subprocess.TimeoutExpired([MODULE], timeout or 0.0)
        return self.returncode

    def kill(self) -> None:
        """Let go of it: what is left there ends with its input, or at the latest with the connection."""
        if self.stdin is not None:
            with contextlib.suppress(OSError):
                self.stdin.close()
        if self.returncode is None:
            self.returncode = -signal.SIGKILL
        self._ended.set()


class SpreadWorkers(SharedWorkers):
    """Shared processes on the machines of a lab, as many on each as it has processors, and hosts. A worker of a host
    is on the machine of that."""

    here = False

    def __init__(self, parts: Sequence[PartMachine], places: Mapping[str, str], counts: Mapping[str, int]) -> None:
        super().__init__(sum(counts.values()))
        self._parts = {part.name: part for part in parts}
        self._places = places
        self._counts = counts
        self._ahead_ns: dict[str, int] = {}
        self._of: dict[str, list[WorkerProcess]] = {name: [] for name in self._parts}

    def set_clock(self, machine: str, ahead_ns: int) -> None:
        """Say by how much the clock of a machine is ahead of ours."""
        self._ahead_ns[machine] = ahead_ns
        for worker in self._of[machine]:
            worker.ahead_ns = ahead_ns

    def start(self) -> None:
        """Starts the processes that are missing, and waits for none of them."""
        for machine, part in self._parts.items():
            alive = [worker for worker in self._of[machine] if worker.process.poll() is None]
            while len(alive) < self._counts[machine]:
                alive.append(self._started(part))
            self._of[machine] = alive
        self._processes = [worker for workers in self._of.values() for worker in workers]

    def _started(self, part: PartMachine) -> WorkerProcess:
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker

        def run(source: BinaryIO, output: Sink, words: Sink) -> int:
            return part.run_module(MODULE, ["--shared"], stdin=source, stdout=output, stderr=words)

        worker = WorkerProcess(None, RemoteProcess(run, errors), errors)
        worker.ahead_ns = self._ahead_ns.get(part.name, 0)
        return worker

    def next(self, host: str) -> WorkerProcess:
        """Returns the process on the machine of a host with the fewest others."""
        self.start()
        return min(self._of[self._places[host]], key=lambda process: len(process.hosts))
