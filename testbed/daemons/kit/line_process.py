"""A process of ours that is driven by lines: its configuration first, then questions, each answered by a line of JSON.

It ends when its input does, and so with whoever started it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from testbed.base.cleanup import end_at_once
from testbed.base.errors import CapabilityError, DriverError
from testbed.base.linux.processes import last_line, package_environment

_CHUNK = 1 << 20


class LineProcess:
    """A Python module that runs as a process. `name` is what it is called in errors, `operation` theirs.

    What it says on standard error goes into `log`. `pass_fds` are descriptors that it has, too.
    """

    def __init__(self, module: str, name: str, *, operation: str, log: Path, pass_fds: Sequence[int] = ()) -> None:
        self.name = name
        self._operation = operation
        self._log = log
        self._heard = b""
        with log.open("ab") as stream:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
                bufsize=0,
                cwd="/",
                env=package_environment() | {"OPENBLAS_NUM_THREADS": "1"},
                pass_fds=pass_fds,
                process_group=0,  # a terminal's Ctrl-C is ours to pass on
            )
        assert self.process.stdin is not None and self.process.stdout is not None
        self._input, self._output = self.process.stdin, self.process.stdout
        self.pidfd = os.pidfd_open(self.process.pid)

    def tell(self, line: bytes) -> None:
        """Write a line to it; what it says of itself tells whether it has ended."""
        with contextlib.suppress(BrokenPipeError):
            self._input.write(line + b"\n")

    def hear(self, timeout_s: float) -> dict[str, Any]:
        """Return the next line that it says. Raises `DriverError` where there is none in time."""
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._heard:
            ready, _, _ = select.select([self._output], [], [], max(0.0, deadline - time.monotonic()))
            data = os.read(self._output.fileno(), _CHUNK) if ready else b""
            if not data:
                why = last_line(self._log) or "it has ended" if ready else f"no answer in {timeout_s:.0f} s"
                raise DriverError(f"the {self.name} does not work: {why}", operation=self._operation)
            self._heard += data
        line, _, self._heard = self._heard.partition(b"\n")
        return dict(json.loads(line))

    def await_ready(self, timeout_s: float, *, hint: str | None = None) -> None:
        """Wait until it is at work, as it says itself (`testbed.base.driven_by_lines`).

        Raises `CapabilityError` where the machine lacks something, and `DriverError` for all else; `hint` is for what
        it has none for.
        """
        answer = self.hear(timeout_s)
        if answer.get("ready"):
            return
        message, told = f"the {self.name} does not start: {answer.get('error')}", answer.get("hint")
        if missing := answer.get("missing"):
            raise CapabilityError(message, missing=str(missing), hint=told or hint)
        raise DriverError(message, operation=self._operation, hint=told or hint)

    def stop(self) -> None:
        """Have it end; it is not waited for."""
        with contextlib.suppress(OSError):
            self._input.close()

    def wait(self, deadline: float) -> None:
        """Wait for its end, and end it at the deadline (of `time.monotonic`)."""
        try:
            self.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            end_at_once(self.process)
        os.close(self.pidfd)
        self._output.close()


def stop_all(processes: Sequence[LineProcess], timeout_s: float) -> None:
    """Have processes end, all at the same time, and kill those that have not within `timeout_s`."""
    for process in processes:
        process.stop()
    deadline = time.monotonic() + timeout_s
    for process in processes:
        process.wait(deadline)
