"""Daemons that are a module of their own, say when they are at work, and are asked things afterwards."""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from testbed.base.cleanup import closed_at_end
from testbed.base.descriptors import wait_readable
from testbed.base.errors import TestbedError
from testbed.base.linux.processes import last_line
from testbed.daemons.kit.client import ask
from testbed.daemons.kit.process import say_ready, start_module, start_ready

START_TIMEOUT_S = 60.0
ANSWER_TIMEOUT_S = 10.0
END_TIMEOUT_S = 10.0
"""One that was told to end and has not in this time is killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyDaemon:
    """A kind of daemon, each of which has a run directory of its own: how it is started and asked.

    Methods raise `error`, and `missing` where none runs; both are called with a message and a `hint`.
    """

    module: str
    socket_name: str
    log_name: str
    error: type[TestbedError]
    missing: type[TestbedError]
    name: str
    """Messages call it so, with its article."""
    absent: str
    """Messages say so where none answers."""
    many: bool = False
    """The name is a plural."""

    def start(self, run_directory: Path, namespace: str) -> int:
        """Start it in a published namespace from what its run directory has, and wait until it is at work; its process
        id comes back."""

        def spawn(ready: int) -> subprocess.Popen[bytes]:
            arguments = ["--ready-fd", str(ready)]
            return start_module(self.module, run_directory, self.log_name, arguments, [ready], namespace=namespace)

        try:
            pid, ended = start_ready(spawn, START_TIMEOUT_S)
        except TimeoutError:
            message = f"{self.name} {self._does} not start within {START_TIMEOUT_S:g} s"
            raise self.error(message, hint=self.log(run_directory)) from None
        if ended is not None:
            reason = last_line(run_directory / self.log_name)
            message = f"{self.name} ended at {'their' if self.many else 'its'} start: {reason}".rstrip(": ")
            raise self.missing(message, hint=self.log(run_directory))
        return pid

    def ask(self, run_directory: Path, command: str, **fields: Any) -> dict[str, Any]:
        """Return its answer to a command; a refusal is raised as the error it is."""
        hint = self.log(run_directory)
        try:
            answer = ask(run_directory, self.socket_name, {"command": command, **fields}, ANSWER_TIMEOUT_S)
        except EOFError as error:
            they_were = "they were" if self.many else "it was"
            raise self.missing(f"{self.name} ended while {they_were} asked", hint=hint) from error
        except TimeoutError as error:
            raise self.error(f"{self.name} {self._does} not answer {command}", hint=hint) from error
        except OSError as error:
            raise self.missing(f"{self.absent}: {error.strerror}", hint=hint) from error
        if not answer.pop("ok"):
            raise self.error(answer["error"], hint=answer["hint"])
        return answer

    def stop(self, run_directory: Path) -> None:
        """Have it end by its commands `status` and `shutdown`, and wait for its end. Fine where there is none."""
        with (
            contextlib.suppress(self.missing, ProcessLookupError),
            closed_at_end(os.pidfd_open(self.ask(run_directory, "status")["pid"])) as descriptor,
        ):
            with contextlib.suppress(self.missing):
                self.ask(run_directory, "shutdown")
            if not wait_readable(descriptor, END_TIMEOUT_S):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                select.select([descriptor], [], [], END_TIMEOUT_S)

    def log(self, run_directory: Path) -> str:
        """Return the hint that leads to what it has written."""
        return f"see {run_directory / self.log_name}"

    @property
    def _does(self) -> str:
        return "do" if self.many else "does"


class _Process(Protocol):
    """Serves until its end."""

    def run(self) -> None: ...


def serve_ready(module: str, description: str | None, process_name: str, make: Callable[[Path], _Process]) -> None:
    """Be the process of a daemon, by the command line that `ReadyDaemon.start` gives it: `make` it from its run
    directory, say that it is at work, and serve. `process_name` is what `ps` shows."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("--run-directory", type=Path, required=True)
    parser.add_argument("--ready-fd", type=int, default=-1, help="where to say that it is at work")
    options = parser.parse_args()
    Path("/proc/self/comm").write_text(process_name)
    process = make(options.run_directory)
    if options.ready_fd >= 0:
        say_ready(options.ready_fd)
    process.run()
