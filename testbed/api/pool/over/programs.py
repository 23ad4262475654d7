"""Programs in hosts of a lab over several machines: each runs on the machine of its host, and is had by its pipes here."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from testbed.api.pool.over.machines import PartMachine
from testbed.api.pool.over.workers import RemoteProcess
from testbed.base.names import namespace_name


class RemoteProgram(RemoteProcess):
    """A program that is told to end as one of this machine is: by an interrupt, whatever signal is sent to it."""

    def __init__(self, part: PartMachine, argv: Sequence[str], output: IO[bytes] | int | None) -> None:
        """What it says goes to `output`, a file, or for `subprocess.PIPE` to its `stdout`."""
        self._changing = threading.Lock()
        self._interrupt: Callable[[], object] | None = None
        self._stopping = self._over = False
        self._waiting: list[int] = []
        """The writing ends of those who wait for its end."""
        self._file = None if isinstance(output, int) else output
        super().__init__(
            lambda source, out, _: part.run_command(argv, stdin=source, stdout=out, stderr=out, on_begun=self._begun),
            tempfile.TemporaryFile(),  # noqa: SIM115 - closed when this goes
        )
        assert self.stdin is not None and self.stdout is not None
        self.stdin.close()  # it has no input
        if self._file is not None:
            self.stdout.close()
            self.stdout = None

    def _begun(self, interrupt: Callable[[], object]) -> None:
        with self._changing:
            self._interrupt = interrupt
            stopping = self._stopping
        if stopping:
            interrupt()

    def _pass_on(self, content: bytes) -> None:
        if self._file is None:
            super()._pass_on(content)
        else:
            self._file.write(content)
            self._file.flush()

    def _ended_now(self) -> None:
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
        with self._changing:
            interrupt, self._stopping = self._interrupt, True
        if interrupt is not None:
            interrupt()

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

