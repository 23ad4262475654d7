"""What a scenario asks of the machine's CPU where a transport in user space carries it, whatever the time scale."""

from __future__ import annotations

from testbed.model import Lab
from testbed.model.scenario import Scenario
from testbed.plan.operations import LabPlan
from testbed.plan.scale import PacketDemand
from testbed.scenario.run.traffic import make_traffic
from testbed.scenario.sweep.outlook import PlannedLab, ideal_s
from testbed.scenario.transports.registry import transport_class, transport_on
from testbed.workload.steps import Transfer


def packet_demand(scenario: Scenario, lab: Lab, plan: LabPlan, endpoint_s: float | None = None) -> PacketDemand | None:
    """Return the demand of the first run.

    `plan` may be of any time scale; `endpoint_s` is the measured cost of a packet, if it is known. None: the kernel
    carries it, or it sends nothing.

    Raises `ScenarioError` where this lab cannot carry it.
    """
    if not transport_class(scenario.transport.kind).in_user_space or scenario.workload.duration is not None:
        return None
    planned = PlannedLab(model=lab, plan=plan).of_network(*scenario.workload.ranks.networks_in(lab))
    traffic = make_traffic(scenario, planned, seed=scenario.repeat.seed)
    nics = traffic.placement.nics
    sent = [
        step
        for step in traffic.workload.steps
        if isinstance(step, Transfer) and nics[step.source].node != nics[step.destination].node
    ]
    took_s = ideal_s(scenario, planned, traffic)
    if not sent or not took_s:
        return None
    transport = transport_on(planned, scenario.transport)
    framing = transport.framing
    frames = {rank: framing(nics[rank]) for rank in {step.source for step in sent}}
    packets = sum(frames[step.source].packets(step.size_bytes) for step in sent)
    burst = sum(nics[rank].rate_bps / 8 / (one.payload_bytes + one.overhead_bytes) for rank, one in frames.items())
    return PacketDemand(
        packets_per_s=packets / took_s * plan.k,
        burst_packets_per_s=burst * plan.k,
        senders=len(frames),
        endpoint_s=endpoint_s,
        ideal_s=took_s / plan.k,
        base_rtt_s=transport.base_rtt_ns / plan.k / 1e9,
    )
