"""The parts of one run's traffic that different transports carry, put together: one placement, one set of workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from testbed.base.errors import ScenarioError
from testbed.endpoints.worker.program import Settings
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.run.measuring.reports import Ideals
from testbed.run.placed.channels import join_channels
from testbed.run.placed.placed_workload import PlacedWorkload
from testbed.run.placed.traffic_parts import TrafficPart
from testbed.run.transports.lab_transport import LabTransport
from testbed.workload.steps import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedPart:
    """A part of the traffic of one run, the transport that carries it, and where it is."""

    part: TrafficPart
    transport: LabTransport
    placement: PlacedWorkload


class MixedParts:
    """The parts of one run together: which transport each rank, worker and NIC has."""

    def __init__(self, workload: Workload, ranks: Sequence[PortPlan], carried: Sequence[CarriedPart]) -> None:
        self._carried = carried
        self._of_rank = {rank: one for one in carried for rank in one.part.ranks}
        first = carried[0].placement
        several = bool(carried[0].part.name)
        names = [self._of_rank[rank].part.name if rank in self._of_rank else "" for rank in range(len(ranks))]
        self.placement = first
        if len({one.placement.domains.packets is None for one in carried}) > 1:
            raise ScenarioError(
                "transfers of some tenants inside scale-up domains are packets, and those of others take time",
                hint="the same scale_up in the transports of all tenants",
            )
        if several:
            channels = join_channels([(one.placement.channels, one.part.steps) for one in carried])
            self.placement = replace(first, workload=workload, channels=channels, parts=tuple(names))

    def transport(self, rank: int) -> LabTransport:
        """Return the transport that carries what a rank sends."""
        return self._of_rank[rank].transport

    def workers(self) -> dict[str, tuple[str, CarriedPart]]:
        """Return the host of each worker, and what it works for, by the worker's name."""
        placement = self.placement
        return {placement.worker(rank): (placement.ranks[rank].node, one) for rank, one in self._of_rank.items()}

    def settings(self, settings_of: Callable[[CarriedPart], Callable[[str], Settings]]) -> Callable[[str], Settings]:
        """Return, for one run, what tells the settings of each worker by its name, from those of a part's hosts."""
        told = {one.part.name: settings_of(one) for one in self._carried}
        workers = self.workers()

        def of_worker(name: str) -> Settings:
            host, one = workers[name]
            return told[one.part.name](host)

        return of_worker

    def ideals(self) -> Ideals:
        """Return what an idle fabric would do, of each NIC for the transport that has it."""
        if len(self._carried) == 1:
            return self._carried[0].transport.ideals()
        by_part = {one.part.name: one.transport.ideals() for one in self._carried}
        of_nic = {
            (nic.node, nic.name): by_part[self._of_rank[rank].part.name]
            for rank, nic in enumerate(self.placement.ranks)
            if rank in self._of_rank
        }

        def of(nic: PortPlan) -> Ideals:
            return of_nic[nic.node, nic.name]

        return Ideals(
            framing=lambda nic: of(nic).framing(nic),
            goodput_bps=lambda a, b: of(a).goodput_bps(a, b),
            one_way_s=lambda a, b, size_bytes: of(a).one_way_s(a, b, size_bytes),
        )
