"""Programs on other machines, as flows have them: what they say is kept, their end is seen, and they can be ended."""

from __future__ import annotations

import os
import select
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO

import pytest

from testbed.api.pool.over.programs import RemotePrograms
from testbed.run.programs.timed_flows import children
from testbed.vm.remote.ssh import InputInterrupted

Sink = Callable[[bytes], object]


class Machine:
    """A machine whose programs say their words, and then run until they are interrupted, or not at all."""

    def __init__(self, name: str, *, runs: bool) -> None:
        self.name = name
        self.runs = runs
        self.argv: list[Sequence[str]] = []
        self.may_begin = threading.Event()
        self.may_begin.set()

    def run_command(self, argv: Sequence[str], *, stdin: IO[bytes], stdout: Sink, stderr: Sink) -> int:
        self.argv.append(argv)
        self.may_begin.wait(20)
        stdout(b"it listens\n")
        if not self.runs:
            return 0
        with suppress(InputInterrupted):
            return len(stdin.read1(1))  # type: ignore[attr-defined]
        return 1


def programs(machine: Machine) -> RemotePrograms:
    return RemotePrograms("lab", [machine], {"h1": machine.name})  # type: ignore[list-item]


def ends(descriptor: int) -> bool:
    ready, _, _ = select.select([descriptor], [], [], 10)
    os.close(descriptor)
    return bool(ready)


def test_a_program_runs_in_the_network_of_its_host_and_its_words_go_to_a_file_or_a_pipe() -> None:
    machine = Machine("a", runs=False)
    with tempfile.TemporaryFile() as file:
        program = programs(machine).start("h1", ["iperf3", "-s"], file)
        assert ends(program.end_descriptor()) and ends(program.end_descriptor()), "now, and when it has ended"
        assert program.wait() == 0
        file.seek(0)
        assert file.read() == b"it listens\n"
    piped = programs(machine).start("h1", ["iperf3", "-c"], subprocess.PIPE)
    assert piped.stdout is not None and piped.stdout.read() == b"it listens\n"
    assert machine.argv == [["ip", "netns", "exec", "lab-h1", "iperf3", word] for word in ("-s", "-c")]
    piped.stdout.close()


@pytest.mark.parametrize("begun", [True, False])
def test_a_program_is_interrupted_even_where_it_has_not_begun(begun: bool) -> None:
    machine = Machine("a", runs=True)
    if not begun:
        machine.may_begin.clear()
    with children() as found:
        program = programs(machine).start("h1", ["iperf3"], subprocess.PIPE)
        found.append(program)
        if begun:
            assert program.stdout is not None and os.read(program.stdout.fileno(), 100) == b"it listens\n"
        descriptor = program.end_descriptor()
        program.send_signal(2)
        machine.may_begin.set()
        assert ends(descriptor) and program.wait() == 1
        program.send_signal(2)  # nothing happens to one that has ended
