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
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan, PortPlan
from testbed.lab.core.plan.scale import MachineLoad, PacketDemand, largest_k
from testbed.run.ideals.point_ideals import ideal_s
from testbed.run.machine.load import watch_machine
from testbed.run.placed.lab import PlannedLab
from testbed.run.placed.traffic import make_traffic
from testbed.run.placed.traffic_parts import split_traffic
from testbed.run.schema.model import Scenario, TopologyRef, Transport
from testbed.run.sweep.points import SCALE_KEY, Point, topology_key
from testbed.run.transports.lab_transport import LabTransport
from testbed.run.transports.registry import transport_class, transport_on
from testbed.workload.oracles.serialisation import Framing
from testbed.workload.steps import Workload, fabric_pairs

USABLE_LIMIT = 0.6
"""The share of its time limit that an ideal fabric may take: real ones take longer."""


class MachineWatch:
    """The load of others on the machine, watched once and when it is first asked for. Virtual time has no others.

    `keep` as of `run.machine.load.watch_machine`.
    """

    def __init__(self, state: StateDirectory, *, keep: bool) -> None:
        self._state = state
        self._keep = keep

    @cached_property
    def others(self) -> MachineLoad:
        return NO_LOAD if clock() == "virtual" else watch_machine(self._state, keep=self._keep)


class ScenarioScales:
    """The time scales of these points' labs, by `topology_key`. `measure`: see `lab.core.deploy.scale.machine_profile`.

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
        """The demands on the machine on each lab, by the key of its topology."""

    def __call__(self, topology: TopologyRef, lab: Lab) -> ScaleResolution:
        """Return the scale of the lab of a topology. Raises `PlanError` where there can be no such lab."""
        if not self._known:
            self._resolve_all()
        key = topology_key(topology)
        if key not in self._known:  # of a point that was made later: its topology says which
            demands = self._demanded.get(without_scale(topology), (None,))
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
            from testbed.run.sweep.packet_cost import packet_cost

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


def packet_demand(scenario: Scenario, lab: Lab, plan: LabPlan, endpoint_s: float | None = None) -> PacketDemand | None:
    """Return what the first run of a scenario asks of the CPU by transports in user space, whatever the time scale.

    `plan` may be of any time scale; `endpoint_s` is the measured cost of a packet, if it is known. None: the kernel
    carries it, or it sends nothing. Of several transports all is added up: packets in user space in the mean and at the
    beginning, and beside them what the kernel may send for other tenants.

    Raises `ScenarioError` where this lab cannot carry it.
    """
    if scenario.workload.duration is not None or not any(_by_user(one) for one in scenario.transports):
        return None
    planned = PlannedLab(model=lab, plan=plan).of_network(*scenario.workload.ranks.networks_in(lab))
    traffic = make_traffic(scenario, planned, seed=scenario.repeat.seed)
    nics = traffic.placement.nics
    took_s = ideal_s(scenario, planned, traffic)
    packets, frames, base_rtts_s, by_kernel = 0, dict[int, Framing](), list[float](), 0.0
    for part in traffic.parts or split_traffic(planned, traffic.workload, nics, scenario.transport):
        transport = transport_on(part.view(planned), part.transport)
        if not _by_user(part.transport):
            by_kernel += _most_packets_per_s(transport, part.workload, nics)
            continue
        sent = [step for step in part.workload.transfers if not step.scale_up]
        mine = {rank: transport.framing(nics[rank]) for rank in {step.source for step in sent}}
        packets += sum(mine[step.source].packets(step.size_bytes) for step in sent)
        frames |= mine
        base_rtts_s.append(transport.base_rtt_ns / plan.k / 1e9)
    if not packets or not took_s:
        return None
    burst = sum(nics[rank].rate_bps / 8 / (one.payload_bytes + one.overhead_bytes) for rank, one in frames.items())
    return PacketDemand(
        packets_per_s=packets / took_s * plan.k,
        burst_packets_per_s=burst * plan.k,
        senders=len(frames),
        endpoint_s=endpoint_s,
        ideal_s=took_s / plan.k,
        base_rtt_s=min(base_rtts_s),
        kernel_packets_per_s=by_kernel * plan.k,
    )


def _most_packets_per_s(transport: LabTransport, workload: Workload, nics: Sequence[PortPlan]) -> float:
    """Return what all that send may send at once, as fast as those that receive may receive it, in lab time."""
    pairs = list(fabric_pairs(workload))
    pairs += [(request.server, request.client) for request in workload.requests]
    pairs = [(a, b) for a, b in pairs if nics[a].node != nics[b].node]  # a host's own stays inside of it
    senders, receivers = ({pair[end] for pair in pairs} for end in (0, 1))
    if not senders:
        return 0.0
    room = sum(nics[rank].nic_bps for rank in receivers) / sum(nics[rank].nic_bps for rank in senders)
    framings = {rank: transport.framing(nics[rank]) for rank in senders}
    sent = sum(nics[rank].nic_bps / 8 / (one.payload_bytes + one.overhead_bytes) for rank, one in framings.items())
    return sent * min(1.0, room)


def _by_user(transport: Transport) -> bool:
    return transport_class(transport.kind).in_user_space


def without_scale(topology: TopologyRef) -> str:
    """Return the key of a topology whose time scale is set, as it was before that."""
    rest = {key: value for key, value in topology.set.items() if key != SCALE_KEY}
    return topology_key(replace(topology, set=rest))
