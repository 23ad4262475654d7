"""The limits of the flow level: what it would get wrong is refused before anything runs, what it leaves out is told."""

from __future__ import annotations

from ipaddress import IPv4Address

from testbed.base.datapath.abi import AdaptPer, BalancingMode
from testbed.base.datapath.flow_hash import FiveTuple
from testbed.base.errors import ScenarioError
from testbed.lab.core.model import Lab, LinkKind
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.run.flows.slowed_links import check_rate_fault
from testbed.run.ideals.switch_choices import lab_choice
from testbed.run.placed.lab import LiveLab, PlannedLab
from testbed.run.placed.traffic import RunTraffic
from testbed.run.scale_up.domains import goes_by_packets
from testbed.run.schema.model import NO_TENANT, Scenario
from testbed.run.simulated.fabric import planned_lab
from testbed.run.simulated.time_scale import time_scale
from testbed.run.sweep.points import Point, Sweep
from testbed.run.transports.lab_transport import LabTransport, PathChoice
from testbed.run.transports.registry import path_choice, transport_class, transport_on

PACKETS = "--backend simulation, or leave it out: emulation can"
SHORT_BDPS = 4
"""A message of less is over before its transport has found its rate: how long it takes is told by packets alone."""
MOST_PLANNED_LINKS = 4096
"""A lab of more is outlined: its routes are the shortest ways, and no plan of deploying it is made."""


def check_flows_supported(sweep: Sweep) -> None:
    """Raise `ScenarioError` for the first thing of these points that flows cannot tell."""
    for point in sweep.points:
        _check_scenario(point, sweep.lab_of(point))


def _check_scenario(point: Point, lab: Lab) -> None:
    scenario: Scenario = point.scenario
    if scenario.workload.is_program:
        raise refusal(
            point,
            "--backend flows has no hosts that a program could run on, and the workload is one",
            hint="a workload of the bytes that it sends, such as all-reduce; or leave --backend out",
        )
    if scenario.by_programs:
        raise refusal(
            point,
            "--backend flows moves workloads of a given size, and this one sends for a given time",
            hint="workload.bytes instead of workload.duration",
        )
    if scenario.tenant_transports:
        raise refusal(
            point, "--backend flows carries a workload over one transport, and its tenants have several", hint=PACKETS
        )
    if not transport_class(scenario.transport.kind).of_links_alone:
        raise refusal(
            point,
            f"--backend flows has links alone, and {scenario.transport.kind.value} is about what is behind them, too",
            hint="transport: {kind: uet}, roce or tcp; or leave --backend out",
        )
    ranks = scenario.workload.ranks
    if any(name != NO_TENANT for name in (*ranks.tenants_in(lab), *ranks.externals)):
        raise refusal(
            point,
            "--backend flows does not know the hash of VXLAN's outer packets, and the ranks are in tenants",
            hint=PACKETS,
        )
    if goes_by_packets(lab, scenario.transport):
        raise refusal(
            point,
            "--backend flows has no packets inside scale-up domains, whose links are capacities",
            hint="transport: {scale_up: time}",
        )
    for fault in scenario.faults:
        check_rate_fault(fault)


def checked_choice(point: Point, lab: LiveLab) -> tuple[LabTransport, PathChoice]:
    """Return the transport of a point on its lab, and how packets choose their paths.

    Raises `ScenarioError` where flows say nothing of either.
    """
    scenario = point.scenario
    transport = transport_on(lab, scenario.transport)
    choice = path_choice(scenario.transport, lab)
    if choice is None:
        raise refusal(
            point,
            f"--backend flows knows whole flows on one path and packets on all, and {_other_choice(lab)} neither",
            hint="qos.load_balancing.mode: flow, static or spray, without transport.cc_repath_rounds; or " + PACKETS,
        )
    chosen = transport.traffic_class
    if transport.goes_back and (chosen is None or not chosen.lossless):
        where = f"the class {chosen.name}, which is lossy" if chosen is not None else "no class, since there is no qos"
        raise refusal(
            point,
            f"--backend flows loses nothing, and packets are of {where}: each that is lost has all behind it sent"
            " again, and flows would be three times too fast",
            hint="a lossless class (qos: {preset: dcqcn}), another recovery; or " + PACKETS,
        )
    return transport, choice


def _other_choice(lab: LiveLab) -> str:
    """Say how paths are chosen in a way that flows do not know."""
    modes = {} if lab.plan.qos is None else {buffer.mode: buffer for buffer in lab.plan.qos.buffers if buffer.node}
    adaptive = modes.get(BalancingMode.ADAPTIVE)
    if modes.keys() <= {BalancingMode.FLOW}:
        return "a congestion control that leaves congested paths does"
    if adaptive is not None and len(modes) == 1:
        by = "flowlet" if adaptive.per is AdaptPer.FLOWLET else "packet with a hysteresis"
        return f"switches that adapt by {by} do"
    return f"switches that balance by {' and '.join(sorted(modes))} do"


def check_traffic(point: Point, traffic: RunTraffic) -> None:
    """Raise `ScenarioError` for requests and jobs, whose servers and media are no flows."""
    workload = traffic.workload
    if workload.requests or any(step.job is not None for step in workload.transfers):
        raise refusal(
            point, "--backend flows moves transfers, and these are requests to servers or jobs of fio", hint=PACKETS
        )


def refusal(point: Point, message: str, *, hint: str) -> ScenarioError:
    """Return the error that refuses a point."""
    return ScenarioError(f"{message} ({point.name})" if point.name else message, hint=hint)


def _is_hash_known(plan: LabPlan, transport: LabTransport) -> bool:
    """Tell whether switches choose paths by what is known of a transport's flows before they are sent."""
    some, port = IPv4Address(0), transport.channel_rules.destination_port
    flow = FiveTuple(source=some, destination=some, protocol=transport.protocol, source_port=0, destination_port=port)
    try:
        lab_choice(plan, [flow], run=1)
    except ScenarioError:
        return False
    return plan.qos is not None and any(buffer.node for buffer in plan.qos.buffers)


def flow_lab(model: Lab, scenario: Scenario) -> PlannedLab:
    """Plan a lab for flows, a large one in outline, at the time scale that its packets are simulated at.

    Raises `PlanError` where there can be no such lab, and `ScenarioError` where the shortest ways are not those of its
    routing.
    """
    k = time_scale(model, scenario)
    if len(model.links) <= MOST_PLANNED_LINKS:
        return planned_lab(model, k)
    if {link.kind for link in model.links} - {LinkKind.ACCESS, LinkKind.FABRIC} or model.overlay is not None:
        raise ScenarioError(
            f"{model.name} has {len(model.links):,} links, and more than a fabric of hosts and switches",
            hint=f"at most {MOST_PLANNED_LINKS:,} links, or a design without networks, pairs and tenants",
        )
    from testbed.lab.core.plan.lab import outline_lab

    return PlannedLab(model=model, plan=outline_lab(model, k=k))


def flow_approximations(lab: LiveLab, transport: LabTransport, choice: PathChoice, *, folds: bool) -> list[str]:
    """Say what a run of flows does not reproduce of the fabric that it models: a sentence each, most telling first."""
    found = [
        "Computed as flows: each has at once, and as long as nothing else changes, its max-min fair share of the links"
        " on its paths. There are no packets, so no queues, drops, marks and pauses, and no congestion control that has"
        " to find its rate. What that amounts to is told by packets of a twin, and is in the bands.",
    ]
    match choice:
        case PathChoice.OBLIVIOUS:
            found.append("Sprayed packets divide evenly over all equally short paths.")
        case PathChoice.ADAPTIVE:
            found.append(
                "Sprayed packets avoid congested paths as well as can be: only all links of a tier out of a switch, or"
                " into one, hold a flow back. How they divide is taken to be even."
            )
        case PathChoice.HASHED:
            drawn = "drawn for each run, since what the switches' hash makes of it is not known before"
            how = "that of the switches' own hash" if _is_hash_known(lab.plan, transport) else drawn
            found.append(f"A flow has one path, {how}.")
    if not lab.plan.operations:
        ways = "those that BGP would find" if any(lab.plan.expected_routes.values()) else "the shortest ways"
        found.append(f"Routes are {ways} in a fabric that was not planned to be deployed.")
    if folds:
        found.append("Each ring is one step: all its links carry as much as the slowest, and all ranks begin together.")
    found.append("Inside a scale-up domain, transfers share the links of GPUs fairly.")
    return [*found, *transport.approximations()]
