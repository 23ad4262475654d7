"""What a scenario asks of the machine's CPU where a transport in user space carries it, whatever the time scale."""

from __future__ import annotations

from collections.abc import Sequence

from testbed.lab.core.model import Lab
from testbed.lab.core.plan.operations import LabPlan, PortPlan
from testbed.lab.core.plan.scale import PacketDemand
from testbed.run.placed.traffic import make_traffic
from testbed.run.placed.traffic_parts import split_traffic
from testbed.run.schema.model import Scenario, Transport
from testbed.run.sweep.outlook import PlannedLab, ideal_s
from testbed.run.transports.lab_transport import LabTransport
from testbed.run.transports.registry import transport_class, transport_on
from testbed.workload.oracles.serialisation import Framing
from testbed.workload.steps import Workload, fabric_pairs


def packet_demand(scenario: Scenario, lab: Lab, plan: LabPlan, endpoint_s: float | None = None) -> PacketDemand | None:
    """Return the demand of the first run.

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
