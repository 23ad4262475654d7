"""A launch's end of a host's shim: starts it in its host, and exchanges frames with it without ever waiting for it."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from testbed.base.errors import DriverError
from testbed.base.linux.processes import clean_environment
from testbed.run.launch import host_shim
from testbed.run.launch.host_shim import FrameReader, frame

if TYPE_CHECKING:
    from testbed.lab.core.deploy.live import RunningLab

PROGRAM = Path(host_shim.__file__)
_CHUNK = 1 << 16
_MOST_WORDS = 4096
"""Bytes of what a shim says on its standard error that are kept: the end."""


class HostShim:
    """The shim of a host. All of its descriptors are non-blocking."""

    def __init__(self, host: str, ranks: Sequence[int], process: subprocess.Popen[bytes]) -> None:
        self.host = host
        self.ranks = tuple(ranks)
        self.process = process
        self._frames = FrameReader()
        self._unsent = bytearray()
        self._words = b""
        for stream in (process.stdin, process.stdout, process.stderr):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)

    @classmethod
    def start(cls, lab: RunningLab, host: str, ranks: Sequence[int]) -> HostShim:
        """Start the shim of a host, in the environment that programs have there. Raises `DriverError`."""
        options: dict[str, Any] = {"own_sysfs": True, "start_new_session": True, "bufsize": 0}
        if lab.runtime(host) is None:
            program = [str(PROGRAM)]
            options |= {"cwd": "/", "env": clean_environment(lab.environment(host))}
        else:
            program = ["-c", PROGRAM.read_text()]  # a container has files of its own, and not this one
        try:
            process = lab.spawn(
                host,
                [sys.executable, "-I", "-S", *program],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                **options,
            )
        except OSError as error:
            raise DriverError(f"{host}: ranks cannot be started: {error.strerror}", operation="launch") from error
        return cls(host, ranks, process)

    @property
    def input(self) -> IO[bytes]:
        assert self.process.stdin is not None
        return self.process.stdin

    @property
    def output(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout

    @property
    def errors(self) -> IO[bytes]:
        assert self.process.stderr is not None
        return self.process.stderr

    @property
    def words(self) -> str:
        """The last line that it, or who should have started it, said on standard error."""
        lines = self._words.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def send(self, kind: bytes, rank: int, data: bytes) -> None:
        """Have a frame sent. `flush` says whether there is more to be written."""
        self._unsent += frame(kind, rank, data)

    def flush(self) -> bool:
        """Write what may be written without waiting; True where some of it is left."""
        while self._unsent and not self.input.closed:
            try:
                written = os.write(self.input.fileno(), self._unsent[:_CHUNK])
            except BlockingIOError:
                return True
            except OSError:  # it is gone, which its output tells
                break
            del self._unsent[:written]
        self._unsent.clear()
        return False

    def receive(self) -> list[tuple[bytes, int, bytes]] | None:
        """Return the frames that have come; None at the end. Raises `ValueError` where they are none."""
        try:
            data = os.read(self.output.fileno(), _CHUNK)
        except BlockingIOError:
            return []
        return self._frames.feed(data) if data else None

    def hear_errors(self) -> bool:
        """Take in what it says on standard error; False at the end."""
        try:
            data = os.read(self.errors.fileno(), _CHUNK)
        except BlockingIOError:
            return True
        self._words = (self._words + data)[-_MOST_WORDS:]
        return bool(data)

    def release(self) -> None:
        """Tell it that the launch is done: it kills what is left, and ends."""
        self.input.close()

    def close(self, timeout_s: float) -> int:
        """Wait for its end, kill it where it takes longer, and return its status."""
        self.release()
        try:
            status = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        while not self.errors.closed and self.hear_errors():
            if not select.select([self.errors], [], [], 0)[0]:
                break
        self.output.close()
        self.errors.close()
        return status
