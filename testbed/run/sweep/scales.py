"""The time scale of a scenario's labs: as their topology says, or one at which this machine carries all its points.

All labs whose scale is chosen have the same one, that of the point that asks for most, so that points compare: what
is measured in seconds grows with it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from testbed.base.errors import ScenarioError
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.deploy.scale import NO_LOAD, ScaleResolution, machine_profile, resolve_scale
from testbed.lab.core.drivers.probing.machine_probe import clock
from testbed.lab.core.model import Lab
from testbed.lab.core.plan import plan_lab
from testbed.lab.core.plan.scale import MachineLoad, PacketDemand, largest_k
from testbed.run.machine.load import watch_machine
from testbed.run.schema.model import TopologyRef, Transport
from testbed.run.sweep.packet_cost import packet_cost
from testbed.run.sweep.packet_demand import packet_demand
from testbed.run.sweep.points import Point, topology_key
from testbed.run.sweep.scale_proof import SCALE_KEY
from testbed.run.transports.registry import transport_class

USABLE_LIMIT = 0.6
"""The share of its time limit that an ideal fabric may take: real ones take longer."""


class MachineWatch:
    """What else uses the machine, watched once and when it is first asked for. Virtual time has no others.

    `keep` as of `run.machine.load.watch_machine`.
    """

    def __init__(self, state: StateDirectory, *, keep: bool) -> None:
        self._state = state
        self._keep = keep

    @cached_property
    def others(self) -> MachineLoad:
        return NO_LOAD if clock() == "virtual" else watch_machine(self._state, keep=self._keep)


class ScenarioScales:
    """Of the labs of these points, by `topology_key`. `measure` as of `lab.core.deploy.scale.machine_profile`.

    Scenarios that are only looked at may share a `watch`: nothing of ours runs between them.
    """

    def __init__(
        self,
        points: Sequence[Point],
        labs: Mapping[str, Lab],
        state: StateDirectory,
        *,
        measure: bool = True,
        watch: MachineWatch | None = None,
    ) -> None:
        self._points = tuple(points)
        self._labs = labs
        self._state = state
        self._measure = measure
        self._watch = watch or MachineWatch(state, keep=measure)
        self._known: dict[str, ScaleResolution] = {}
        self._demanded: dict[str, Sequence[PacketDemand | None]] = {}
        """What is asked of the machine on each lab, by the key of its topology."""

    def __call__(self, topology: TopologyRef, lab: Lab) -> ScaleResolution:
        """Of the lab of a topology, `lab`. Raises `PlanError` where there can be no such lab."""
        if not self._known:
            self._resolve_all()
        key = topology_key(topology)
        if key not in self._known:  # of a point that was made later: its topology says which
            demands = self._demanded.get(_without_scale(topology), (None,))
            self._known[key] = self._resolve(lab, demands)
        return self._known[key]

    def watch_others(self) -> None:
        """Watch now what else uses the machine, if it has to be known: later it is our own processes that start."""
        if any(lab.scale.time is None for lab in self._labs.values()):
            _ = self._watch.others

    def largest_k(self, lab: Lab) -> float:
        """Return the time scale at which the slowest port of a lab is as slow as a port may be."""
        return largest_k(lab, machine_profile(self._state, measure=self._measure))

    def _resolve_all(self) -> None:
        chosen: list[str] = []
        for key in dict.fromkeys(topology_key(point.topology) for point in self._points):
            lab = self._labs[key]
            if lab.scale.time is None and not self._state.exists(lab.name):
                chosen.append(key)
            self._demanded[key] = self._demands(key, lab)
            self._known[key] = self._resolve(lab, self._demanded[key])
        if chosen:
            slowest = max((self._known[key] for key in chosen), key=lambda one: one.k)
            self._known.update(dict.fromkeys(chosen, slowest))

    def _resolve(self, lab: Lab, demands: Sequence[PacketDemand | None]) -> ScaleResolution:
        """Leaves room for others, unless the slower runs would then not end in their time limit."""
        found = resolve_scale(lab, self._state, measure=self._measure, demands=demands, others=self._watch.others)
        ideal_s = max((demand.ideal_s for demand in demands if demand is not None), default=0.0)
        limit_s = min(point.scenario.workload.time_limit.seconds for point in self._points)
        if found.k * ideal_s <= USABLE_LIMIT * limit_s:
            return found
        alone = resolve_scale(lab, self._state, measure=self._measure, demands=demands)
        if alone.k == found.k:
            return found
        reason = f"{alone.reason}; room for others would take the runs beyond their time limit"
        return replace(alone, reason=reason, others=self._watch.others)

    def _demands(self, key: str, lab: Lab) -> Sequence[PacketDemand | None]:
        scenarios = [point.scenario for point in self._points if topology_key(point.topology) == key]
        by_user = [scenario for scenario in scenarios if any(_by_user(one) for one in scenario.transports)]
        by_kernel = [scenario for scenario in scenarios if not any(_by_user(one) for one in scenario.transports)]
        found: list[PacketDemand | None] = []
        if by_user:
            # what is asked in the real fabric's time is the same at every scale: any will do for the plan
            plan = plan_lab(lab, k=resolve_scale(lab, self._state, measure=self._measure).k)
            for scenario in by_user:
                with contextlib.suppress(ScenarioError):  # who runs or foresees that point says what is wrong with it
                    carried = [one for one in scenario.transports if _by_user(one)]
                    costs = [packet_cost(one, self._state, measure=self._measure) for one in carried]
                    known_us = [cost.us for cost in costs if cost is not None]
                    dearest_s = max(known_us) / 1e6 if len(known_us) == len(costs) else None
                    found.append(packet_demand(scenario, lab, plan, dearest_s))
        if by_kernel or not found:
            found.append(None)
        return list(dict.fromkeys(found))


def _by_user(transport: Transport) -> bool:
    return transport_class(transport.kind).in_user_space


def _without_scale(topology: TopologyRef) -> str:
    """Return the key of a topology whose time scale is set, as it was before that."""
    rest = {key: value for key, value in topology.set.items() if key != SCALE_KEY}
    return topology_key(replace(topology, set=rest))
