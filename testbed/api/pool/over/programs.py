"""Programs in hosts of a lab over several machines: each is on the machine of its host, and had by its pipes here."""

from __future__ import annotations

import io
import os
import tempfile
import threading
from collections.abc import Mapping, Sequence
from typing import IO

from testbed.api.pool.over.machines import PartMachine
from testbed.api.pool.over.workers import RemoteProcess
from testbed.base.names import namespace_name
from testbed.vm.remote.ssh import InputInterrupted


class _Silence(io.BytesIO):
    """The input of a program that has none: it ends with the program, or interrupts it."""

    def __init__(self) -> None:
        super().__init__()
        self.over = threading.Event()
        self.interrupts = False

    def read1(self, _size: int | None = -1, /) -> bytes:
        """Wait. Raises `InputInterrupted`."""
        self.over.wait()
        if self.interrupts:
            raise InputInterrupted
        return b""


class RemoteProgram(RemoteProcess):
    """A program that is told to end as one of this machine is: by an interrupt, whatever signal is sent to it."""

    def __init__(self, part: PartMachine, argv: Sequence[str], output: IO[bytes] | int | None) -> None:
        """Its output goes to `output`, a file, or for `subprocess.PIPE` to its `stdout`."""
        self._silence = _Silence()
        self._changing = threading.Lock()
        self._over = False
        self._waiting: list[int] = []
        """The writing ends of those who wait for its end."""
        self._file = None if isinstance(output, int) else output
        super().__init__(
            lambda _, out, words: part.run_command(argv, stdin=self._silence, stdout=out, stderr=out),
            tempfile.TemporaryFile(),  # noqa: SIM115 - closed when this goes
        )
        assert self.stdin is not None and self.stdout is not None
        self.stdin.close()
        if self._file is not None:
            self.stdout.close()
            self.stdout = None

    def _pass_on(self, content: bytes) -> None:
        if self._file is None:
            super()._pass_on(content)
        else:
            self._file.write(content)
            self._file.flush()

    def _ended_now(self) -> None:
        self._silence.over.set()
        with self._changing:
            self._over, waiting = True, self._waiting
            self._waiting = []
        for descriptor in waiting:
            os.close(descriptor)

    def end_descriptor(self) -> int:
        """Return a descriptor that can be read once the program has ended; whoever asks closes it."""
        reader, writer = os.pipe()
        with self._changing:
            if not self._over:
                self._waiting.append(writer)
                return reader
        os.close(writer)
        return reader

    def send_signal(self, _number: int, /) -> None:
        """Have it interrupted; nothing happens to one that has ended."""
        self._silence.interrupts = True
        self._silence.over.set()

    def kill(self) -> None:
        """Have it interrupted, and wait for it no longer: its machine kills it where that does not help."""
        self.send_signal(0)
        super().kill()


class RemotePrograms:
    """Starts programs in the hosts of a lab, each on its machine."""

    def __init__(self, lab: str, parts: Sequence[PartMachine], places: Mapping[str, str]) -> None:
        self._lab = lab
        self._parts = {part.name: part for part in parts}
        self._places = places

    def start(self, node: str, argv: Sequence[str], output: IO[bytes] | int | None) -> RemoteProgram:
        """Start a program in the network of a host."""
        inside = ["ip", "netns", "exec", namespace_name(self._lab, node), *argv]
        return RemoteProgram(self._parts[self._places[node]], inside, output)
