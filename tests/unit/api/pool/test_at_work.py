"""The machines of a pool together: what breaks on one keeps no other from its work, nor from its end."""

from __future__ import annotations

import threading
from importlib import import_module
from typing import BinaryIO

import pytest

from testbed.api.pool.about import about_this_machine
from testbed.api.pool.crew import PoolLost
from testbed.api.pool.file import PoolMachine
from testbed.api.pool.machines import MOST_AT_ONCE, MachineAtWork, StationOrder, with_each
from testbed.record.record import Backend
from testbed.vm.errors import ConnectionLost

pytestmark = pytest.mark.process
pytest.importorskip("distributed", reason="Dask distributed: pip install 'testbed[pool]'")
at_work = import_module("testbed.api.pool.at_work")


class StubMachine(MachineAtWork):
    """A machine that is not there. Its connection `breaks`, or not."""

    def __init__(self, name: str, *, breaks: bool = False) -> None:
        super().__init__(PoolMachine(name=name))
        self.seats = 1
        self.breaks = breaks
        self.has: list[str] = []
        self.ended = self.closed = False

    def _run(self, source: BinaryIO) -> int:
        return 0

    def put(self, archive: bytes, name: str) -> None:
        if self.breaks:
            raise ConnectionLost("it broke")
        self.has.append(name)

    def end(self) -> None:
        self.ended = True

    def close(self) -> None:
        self.closed = True


class StubEngine:
    """An engine that does nothing, and does not end well."""

    def __init__(self, _: object) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        raise RuntimeError("it does not end")


@pytest.fixture(autouse=True)
def stubbed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(at_work, "Engine", StubEngine)


def test_a_machine_whose_connection_breaks_is_left_out_and_the_others_go_on() -> None:
    machines = [StubMachine("a"), StubMachine("b", breaks=True), StubMachine("c")]
    about = about_this_machine(probed=False)
    for machine in machines:
        machine.about = about
    crew = at_work.MachinesAtWork(machines, Backend.SIMULATION)
    crew.begin(b"", "sweep")
    assert [machine.has for machine in machines] == [["sweep"], [], ["sweep"]]
    assert [machine.ended for machine in machines] == [False, True, False]


def test_a_pool_that_was_interrupted_takes_no_other_sweep() -> None:
    crew = at_work.MachinesAtWork([StubMachine("a")], Backend.SIMULATION)
    crew.halt()
    with pytest.raises(PoolLost, match="has been ended"):
        crew.begin(b"", "sweep")


def test_machines_are_let_go_however_the_engine_ends() -> None:
    machines = [StubMachine("a"), StubMachine("b")]
    crew = at_work.MachinesAtWork(machines, Backend.SIMULATION)
    with pytest.raises(RuntimeError, match="does not end"):
        crew.__exit__()
    assert all(machine.ended and machine.closed for machine in machines)


def test_machines_are_asked_at_once_and_answer_in_their_order() -> None:
    machines = [StubMachine(str(number)) for number in range(MOST_AT_ONCE + 3)]
    together = threading.Barrier(MOST_AT_ONCE)

    def name(machine: MachineAtWork) -> str:
        if int(machine.name) < MOST_AT_ONCE:
            together.wait(20)
        return machine.name

    assert with_each(machines, name) == [machine.name for machine in machines]
    assert with_each([], name) == []


def test_what_is_raised_for_a_machine_is_raised() -> None:
    def broken(machine: MachineAtWork) -> None:
        raise ConnectionLost(f"{machine.name} broke")

    with pytest.raises(ConnectionLost, match="a broke"):
        with_each([StubMachine("a"), StubMachine("b")], broken)


def test_a_key_is_in_no_text_of_an_order() -> None:
    order = StationOrder(name="a", port=1, certificate="public", key="secret", seats={})
    assert "secret" not in repr(order) and "public" in repr(order)
