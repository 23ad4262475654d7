"""The machines of a pool at work: jobs go to their seats, and the news of all comes by one queue."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from testbed.api.pool.about import AboutMachine
from testbed.api.pool.crew import JobNews, MachineLost, PoolLost
from testbed.api.pool.engine import Engine
from testbed.api.pool.machines import END_S, MachineAtWork, StationOrder, named, with_each
from testbed.lab.core.drivers.nodes.udp_prober import make_room
from testbed.record.record import Backend, MachinePart
from testbed.vm.errors import ConnectionLost

DESCRIPTORS = 16
"""Descriptors here for a seat: its worker has two connections or three, through SSH and to the scheduler."""


class MachinesAtWork:
    """The crew of a pool. A context: when it ends, nothing of ours runs on any of its machines."""

    def __init__(self, machines: Sequence[MachineAtWork], backend: Backend) -> None:
        """`machines` are being reached, and know their seats before they are started."""
        self._machines = {machine.name: machine for machine in machines}
        self._kind = backend.value
        self._queue: queue.Queue[JobNews | MachineLost | None] = queue.Queue()
        self._engine = Engine(self._queue)
        self._parts: dict[str, MachinePart] = {}
        self.warn: Callable[[str], None] = lambda _: None
        self._halted = False

    def start(self) -> None:
        """Have the stations of all machines begin; those that have no seats are let go."""
        with_each((machine for machine in self._machines.values() if not machine.seats), lambda one: one.close())
        self._machines = {machine.name: machine for machine in self._here()}
        make_room(DESCRIPTORS * sum(machine.seats for machine in self._machines.values()))
        for machine in self._machines.values():
            order = StationOrder(
                name=machine.name,
                port=self._engine.port,
                certificate=self._engine.certificate,
                key=self._engine.key,
                seats={self._kind: machine.seats},
            )
            machine.start(order, self._ended)

    def __enter__(self) -> MachinesAtWork:
        return self

    def __exit__(self, *_: object) -> None:
        self.halt()
        try:
            self._engine.__exit__()  # while they end what they do
            deadline = time.monotonic() + END_S  # of all together
            for machine in self._machines.values():
                machine.wait(max(0.0, deadline - time.monotonic()))
        finally:
            self._close_machines()

    def let_go(self) -> None:
        """End the engine, and let go of all machines."""
        try:
            self._engine.__exit__()
        finally:
            self._close_machines()

    def _close_machines(self) -> None:
        with_each(self._machines.values(), lambda machine: machine.close())

    @property
    def parts(self) -> Sequence[MachinePart]:
        return tuple(self._parts.values())

    def begin(self, archive: bytes, name: str) -> None:
        """Begin with another sweep: unpack the archive of its files on every machine.

        Raises `PoolLost` once all was ended, as by an interrupt of a sweep before it.
        """
        if self._halted:
            raise PoolLost("the pool has been ended, as by an interrupt", hint="open another one")
        self._parts = {machine.name: part_of(machine) for machine in self._machines.values()}

        def put(machine: MachineAtWork) -> None:
            try:
                machine.put(archive, name)
            except ConnectionLost:  # the others go on
                machine.end()

        with_each(self._here(), put)

    def machines(self) -> Mapping[str, AboutMachine]:
        return {machine.name: machine.about for machine in self._here() if machine.about is not None}

    def seats(self) -> int:
        seats = sum(machine.seats for machine in self._machines.values())
        if not seats and not self._halted:
            said = (f"{machine.name}: {machine.last_words}" for machine in self._machines.values())
            error = PoolLost(
                f"no machine of the pool is left: {named(list(self._machines))}",
                hint="--resume DIR goes on with what was measured",
            )
            error.trace = "\n".join(said)
            raise error
        return seats

    def workers(self) -> int:
        return self._engine.workers

    def submit(self, request: Mapping[str, Any], machine: str = "") -> str:
        return self._engine.submit(request, self._kind, machine)

    def forget(self, key: str) -> None:
        self._engine.forget(key)

    def news(self, timeout_s: float) -> JobNews | MachineLost | None:
        try:
            return self._queue.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def did(self, machine: str, point: str) -> None:
        part = self._parts.get(machine)
        if part is not None and point not in part.points[-1:] and point not in part.points:
            part.points.append(point)

    def halt(self) -> None:
        self._halted = True
        for machine in self._machines.values():
            machine.end()

    def _here(self) -> list[MachineAtWork]:
        return [machine for machine in self._machines.values() if machine.seats]

    def _ended(self, machine: MachineAtWork, why: str) -> None:
        """Hear in a thread of the machine's that its station has ended."""
        if not self._halted:
            words = f" ({machine.last_words.splitlines()[-1]})" if machine.last_words else ""
            self.warn(f"{machine.name} is lost: {why or 'its station ended'}{words}")
            self._queue.put(MachineLost(name=machine.name, why=why))


def part_of(machine: MachineAtWork) -> MachinePart:
    """Return what a record says of a machine that has done nothing yet."""
    assert machine.about is not None
    about = machine.about
    return MachinePart(name=machine.name, environment=about.environment, points=[], build=about.build)
