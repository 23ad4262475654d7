"""A program that a worker starts for one run: it dies with the worker, and its last words are kept."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from testbed.base.program_errors import TrafficError

LISTEN_TIMEOUT_S = 15.0
_LOOK_MS = 5
"""The interval at which a server is looked at that is to listen soon."""
_STOP_TIMEOUT_S = 2.0


class Child:
    """A process of a group of its own, in the network namespace that this one is in. `pidfd` tells of its end."""

    def __init__(self, argv: Sequence[str], directory: Path, *, given: str = "") -> None:
        """`given` is its standard input. Raises `TrafficError` where the program is not there."""
        self.name = argv[0]
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child
        try:
            with tempfile.TemporaryFile() as told:
                told.write(given.encode())
                told.seek(0)
                self.process = subprocess.Popen(
                    ["setpriv", "--pdeathsig", "KILL", "--", *argv],
                    stdin=told,
                    stdout=self._said,
                    stderr=subprocess.STDOUT,
                    cwd=directory,
                    process_group=0,
                )
        except OSError as error:
            self._said.close()
            raise TrafficError(f"{argv[0]} cannot be started: {error.strerror or error}") from error
        self.pidfd = os.pidfd_open(self.process.pid)

    def said(self) -> str:
        """Return what it has printed so far."""
        self._said.seek(0)
        return self._said.read().decode(errors="replace")

    def last_words(self) -> str:
        """Return the last line that it printed, or how it ended."""
        lines = [line.strip() for line in self.said().splitlines() if line.strip()]
        return f"{self.name}: {lines[-1]}" if lines else f"{self.name} ended with status {self.process.poll()}"

    def await_listening(self, address: str, port: int) -> None:
        """Wait until it accepts connections. Raises `TrafficError` where it ends instead, or takes too long."""
        deadline = time.monotonic() + LISTEN_TIMEOUT_S
        poller = select.poll()
        poller.register(self.pidfd, select.POLLIN)
        while True:
            with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
                probe.settimeout(1.0)
                probe.connect((address, port))
                return
            if poller.poll(_LOOK_MS):
                raise TrafficError(self.last_words())
            if time.monotonic() > deadline:
                raise TrafficError(f"{self.name} does not listen after {LISTEN_TIMEOUT_S:.0f} s")

    def close(self) -> None:
        """End it, and what it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(_STOP_TIMEOUT_S)
        os.close(self.pidfd)
        self._said.close()
