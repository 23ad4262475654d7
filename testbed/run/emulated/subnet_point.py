"""The runs of a point over the InfiniBand back end of a lab that is up: frames of its HCAs over the lab's wires."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

from testbed.base.errors import ScenarioError
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.model import InfinibandFabric
from testbed.protocols.infiniband.data_path import circle_words
from testbed.record.samples import RunEvent
from testbed.run.emulated.deadlock_watch import DeadlockWatch
from testbed.run.emulated.point import EmulatedPoint
from testbed.run.faults.kills import NodeKill
from testbed.run.faults.links import LinkDown
from testbed.run.faults.registry import lab_fault
from testbed.run.faults.subnet import CreditLeak
from testbed.run.measuring.measured import Measured, TimeLimitReached
from testbed.run.measuring.subnet_loads import DEADLOCKED, subnet_load
from testbed.run.placed.subnet_lab import SubnetLab
from testbed.run.placed.traffic import RunTraffic, lab_transports
from testbed.run.schema.model import Scenario
from testbed.run.sweep.points import Point

APPROXIMATIONS: Final = (
    "Tables are those of the lab's OpenSM, which routes around a link that goes in its own time: that is k times longer"
    " for the fabric than it would be.",
    "Store and forward: a switch has a frame whole before it sends it on, where InfiniBand cuts through. Latencies of"
    " hops are not to be read off.",
    "All links are one process: HCAs hand frames to it and get them from it as soon as this machine wakes them, and up"
    " to twelve frames of a lane wait at an HCA, out of the reach of congestion control.",
    "Management packets go by ibsim, and not by the fabric: a fabric that is full does not delay them.",
    "Credits have the sizes of buffers that are ours, and a frame's room is free as it begins to leave.",
    "The head of a queue has no lifetime: what waits for a buffer waits for ever, where a switch discards it after a"
    " second or so.",
)
"""Says what a run over live wires does not reproduce."""


def check_subnet_faults(scenario: Scenario, fabric: InfinibandFabric) -> None:
    """Raise `ScenarioError` for the first fault that the subnet of a lab which is up does not have."""
    parts = {node.name for node in fabric.switches}
    for fault in scenario.faults:
        of_subnet = fault.target.partition(":")[0] in parts
        if of_subnet and not isinstance(lab_fault(fault), LinkDown | NodeKill | CreditLeak):
            raise ScenarioError(
                f"a subnet that is up has no {fault.kind}, which {fault.target} is to have",
                hint="link: with down, flap or leak; node: or manager: with kill",
            )


class SubnetPoint(EmulatedPoint):
    """Does the runs of one point over the subnet of a lab. Raises `ScenarioError` for a lab that has no wires."""

    _deadlocks: DeadlockWatch
    """The watch of the run that goes on."""

    def __init__(self, point: Point, running: RunningLab, **options: Any) -> None:
        self._lab = SubnetLab(running)
        super().__init__(point, self._lab, **options)
        self.running = running.whole

    @contextlib.contextmanager
    def watched(self, measured: Measured, traffic: RunTraffic) -> Iterator[None]:
        """Do as with any lab, and read what the ports of the subnet have counted."""
        wires = self._lab.wires
        before = wires.counters(anew=True)
        try:
            with self._deadlocks.watching(), super().watched(measured, traffic):
                yield
        finally:
            now = wires.counters()
            counted = now.since(before)
            lasted_s = (now.at_ns - before.at_ns) / 1e9
            measured.observation.subnet = subnet_load(
                counted.ports,
                engine=now.engine,
                vls=self._lab.fabric.settings.vls,
                frames=counted.frames,
                lost=counted.lost,
                deadlock=(now.stuck, max(0.0, lasted_s - now.still_ns / 1e9)) if now.stuck else None,
                elapsed_s=measured.observation.elapsed_s,
            )
            measured.wires_late = counted.late

    def _run_workers(self, index: int, traffic: RunTraffic, measured: Measured) -> None:
        """Do as with any lab, and end with a deadlock. Nothing is wrong with a run that it has ended: that is what the
        run shows."""
        with DeadlockWatch(self._lab.wires) as self._deadlocks:
            self.over = self._deadlocks
            super()._run_workers(index, traffic, measured)
        subnet = measured.observation.subnet
        if subnet is None or not subnet.stuck:
            return
        if isinstance(measured.failure, TimeLimitReached):
            measured.failure = None
        lanes = self._deadlocks.lanes
        event = RunEvent(
            at_s=round(subnet.deadlocked_s or 0.0, 6),
            kind=DEADLOCKED,
            target=lanes[0].partition(":")[0] if lanes else "",
            detail=circle_words(lanes),
        )
        measured.events = sorted((*measured.events, event), key=lambda one: one.at_s)

    def _approximations(self) -> list[str]:
        said = (line for one in lab_transports(self.scenario, self.lab) for line in one.approximations())
        return [f"Rates are divided by k = {self.lab.plan.k:g}; bytes are not scaled.", *APPROXIMATIONS, *said]
