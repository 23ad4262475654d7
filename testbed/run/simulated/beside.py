"""The things that happen beside the traffic of a simulated run: faults, and probes that time what they cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.run.measuring.measured import Measured
from testbed.run.placed.lab import LiveLab
from testbed.run.probes.planning import ProbePlan
from testbed.run.probes.traffic import THRESHOLD_S
from testbed.run.scale_up.simulated import SimulatedDomains
from testbed.run.schema.model import Fault
from testbed.run.simulated.convergence import Convergence
from testbed.run.simulated.fabric import SimulatedFabric
from testbed.run.simulated.faults import SimulatedFaults, SimulatedSite
from testbed.run.simulated.faulty_links import FaultyLinks
from testbed.run.simulated.probes import SimulatedProbes


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """The things that are to happen beside the traffic of a run."""

    faults: tuple[Fault, ...] = ()
    convergence_ns: Mapping[str, int] = field(default_factory=dict)
    """The times of `Convergence` that are not its own, by their names without `_ns`."""
    probes: ProbePlan | None = None
    unqueued_s: float = THRESHOLD_S
    """A probe that takes longer, and longer than queues explain, is lost."""


NOTHING_BESIDE: Final = Beside()


def convergence_of(plan: LabPlan, stated_ns: Mapping[str, int]) -> Convergence:
    """Return the times by which the switches of a lab that is seen in its networks notice a failure.

    `stated_ns` are those of the scenario, by their names without `_ns`.
    """
    bfd = next((switch.bfd for switch in plan.switches if switch.bfd is not None), None)
    found = Convergence(**{f"{name}_ns": value for name, value in stated_ns.items() if name != "subnet"})
    if bfd is None:
        return found
    return replace(found, bfd_interval_ns=bfd.interval.ns, bfd_multiplier=bfd.multiplier)


class Happening:
    """Faults and probes of one run, from its begin to its end."""

    def __init__(
        self,
        beside: Beside,
        fabric: SimulatedFabric,
        lab: LiveLab,
        domains: SimulatedDomains,
        *,
        seed: int,
        begin_ns: int,
    ) -> None:
        self._beside = beside
        self._network = fabric.network
        self._begin_ns = begin_ns
        self._ended_ns = begin_ns
        self._faults: SimulatedFaults | None = None
        if beside.faults:
            links = FaultyLinks(
                fabric, lab.whole.plan, convergence_of(lab.plan, beside.convergence_ns), seed=seed, begin_ns=begin_ns
            )
            self._faults = SimulatedFaults(beside.faults, SimulatedSite(fabric=fabric, links=links, domains=domains))
        self._probes = None if beside.probes is None else SimulatedProbes(beside.probes, fabric.network)

    @property
    def probes_sent(self) -> int:
        """Return how many probes were sent."""
        return 0 if self._probes is None else self._probes.sent

    def begin(self) -> None:
        """The traffic begins. What is due at once has happened when this returns."""
        if self._faults is not None:
            self._faults.begin(self._begin_ns)
        if self._probes is not None:
            self._probes.begin(self._begin_ns)

    def end(self) -> None:
        """The traffic has ended."""
        self._ended_ns = self._network.now
        if self._faults is not None:
            self._faults.end()
        if self._probes is not None:
            self._probes.end()

    def tell(self, measured: Measured) -> None:
        """Add what was done and seen to a run whose observation is complete."""
        if self._faults is not None:
            lasted_s = (self._ended_ns - self._begin_ns) / 1e9
            measured.events = [event for event in self._faults.events() if event.at_s <= lasted_s]
            measured.faults = self._faults.outcome(lasted_s)
        if self._probes is not None:
            measured.probes = self._probes.report(self._beside.unqueued_s + measured.observation.longest_wait_s())
