"""What a scenario asks of the machine's CPU where a transport in user space carries it, whatever the time scale."""

from __future__ import annotations

from testbed.model import Lab
from testbed.model.scenario import Scenario, Transport
from testbed.plan.operations import LabPlan
from testbed.plan.scale import PacketDemand
from testbed.scenario.run.traffic import make_traffic
from testbed.scenario.run.traffic_parts import split_traffic
from testbed.scenario.sweep.outlook import PlannedLab, ideal_s
from testbed.scenario.transports.registry import transport_class, transport_on
from testbed.workload.oracles.serialisation import Framing


def packet_demand(scenario: Scenario, lab: Lab, plan: LabPlan, endpoint_s: float | None = None) -> PacketDemand | None:
    """Return the demand of the first run.

    `plan` may be of any time scale; `endpoint_s` is the measured cost of a packet, if it is known. None: the kernel
    carries it, or it sends nothing. What tenants send over the kernel is not counted.

    Raises `ScenarioError` where this lab cannot carry it.
    """
    if scenario.workload.duration is not None or not any(_by_user(one) for one in scenario.transports):
        return None
    planned = PlannedLab(model=lab, plan=plan).of_network(*scenario.workload.ranks.networks_in(lab))
    traffic = make_traffic(scenario, planned, seed=scenario.repeat.seed)
    nics = traffic.placement.nics
    took_s = ideal_s(scenario, planned, traffic)
    packets, frames, base_rtts_s = 0, dict[int, Framing](), list[float]()
    for part in traffic.parts or split_traffic(planned, traffic.workload, nics, scenario.transport):
        if not _by_user(part.transport):
            continue
        transport = transport_on(part.view(planned), part.transport)
        sent = [
            step
            for step in part.workload.transfers
            if not step.scale_up and nics[step.source].node != nics[step.destination].node
        ]
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
    )


def _by_user(transport: Transport) -> bool:
    return transport_class(transport.kind).in_user_space
