"""From a scenario and a lab to the traffic of one run: which ranks there are, what they do, how packets are marked."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from testbed.base.errors import ScenarioError, WorkloadError
from testbed.base.names import plane_letter
from testbed.base.units import ByteCount, parse_bdp
from testbed.lab.core.fabric import model_base_rtt
from testbed.lab.core.fabric.forwarding.links import planes_apart
from testbed.lab.core.model import BACKEND
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.run.placed.lab import LiveLab
from testbed.run.placed.placement import RankPlacement, place_ranks
from testbed.run.placed.program import check_program
from testbed.run.placed.traffic_parts import TrafficPart, split_traffic
from testbed.run.scale_up.domains import (
    check_in_switch,
    goes_by_packets,
    inside_domains,
    scale_up_domains,
    timeout_ms_of,
)
from testbed.run.scale_up.pool import check_regions
from testbed.run.schema.model import Parameter as Value
from testbed.run.schema.model import Scenario
from testbed.run.schema.transports import TRANSPORTS, TransportKind
from testbed.run.transports.lab_transport import LabTransport
from testbed.run.transports.registry import transport_on
from testbed.workload.admission import with_admission
from testbed.workload.kinds.kind import FabricView, ranks_per_domain
from testbed.workload.planes import over_planes
from testbed.workload.registry import build_workload, workload_kind
from testbed.workload.steps import Transfer, Workload, fabric_pairs, requests_last_ns, with_requests
from testbed.workload.tenants import Tenant, mix_tenants


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTraffic:
    """The traffic of one run, and the seed that it was drawn with."""

    workload: Workload
    placement: RankPlacement
    seed: int
    parts: tuple[TrafficPart, ...] = ()
    """The part that each of several transports carries; none where one carries all."""


def make_traffic(
    scenario: Scenario, lab: LiveLab, *, seed: int, folds: bool = False, folds_large: bool = False
) -> RunTraffic:
    """Makes the traffic of the run with this seed; a ring collective is one step with `folds`, and one of more than a
    million transfers with `folds_large`.

    Raises `ScenarioError` where the lab cannot carry it.
    """
    folded = {"folds": folds, "folds_large": folds_large}
    placement = place_ranks(lab.model, lab.plan, scenario.workload.ranks, seed=seed)
    kind = workload_kind(scenario.workload.kind)
    if scenario.workload.is_program:
        check_program(lab, scenario.workload, placement.nics, bdp_bytes=bdp_bytes(lab, placement))
    groups = _apart(scenario, lab, placement, knows_hosts=kind.knows_hosts)
    try:
        if scenario.workload.ranks.joined:
            workload = _joined(scenario, lab, placement, seed, folds_large=folds_large)
        elif len(groups) > 1:
            workload = _side_by_side(scenario, lab, placement, groups, seed, **folded)
        else:
            workload = _build(scenario, lab, placement, range(len(placement.nics)), seed, **folded)
            if kind.collective and _crosses_planes(lab, placement, workload):
                groups = _by_plane(lab, placement)
                workload = _side_by_side(scenario, lab, placement, groups, seed, **folded)
    except WorkloadError as error:
        raise ScenarioError(f"workload {scenario.workload.kind}: {error.message}", hint=error.hint) from error
    try:
        _check_reachable(lab, placement, workload)
    except WorkloadError as error:
        raise ScenarioError(error.message, hint=error.hint) from error
    domains = scale_up_domains(lab.model, lab.plan.k)
    nodes = [nic.node for nic in placement.nics]
    by_packets = goes_by_packets(lab.model, scenario.transport) and not scenario.tenant_transports
    workload = inside_domains(workload, [domains.of(node) for node in nodes] if by_packets else nodes)
    check_in_switch(lab.model, workload)
    check_regions(
        workload, lab.plan, placement.nics, by_packets=by_packets, timeout_ms=timeout_ms_of(scenario.transport)
    )
    workload = _admitted(scenario, workload)
    nics = placement.nics
    carriers: dict[int, LabTransport] = {}
    parts = split_traffic(lab, workload, nics, scenario.transport, scenario.tenant_transports)
    for part in parts:
        mine = [nic for rank, nic in enumerate(nics) if rank in part.ranks]
        outside = any(rank < len(scenario.workload.ranks.externals) for rank in part.ranks)
        _check_homing(part.transport.kind, mine, outside=outside)
        transport = transport_on(part.view(lab), part.transport)
        transport.check_ranks(mine)
        transport.check_paths(mine)
        carriers |= dict.fromkeys(part.ranks, transport)
        if part.workload.requests and not TRANSPORTS[part.transport.kind.value].carries_http:
            raise ScenarioError(f"requests go over HTTP, and {part.transport.kind} does not carry it")

    def pulls(step: Transfer) -> bool:
        if step.scale_up:
            return goes_by_packets(lab.model, carriers[step.source].transport)
        return carriers[step.source].pulls(step, nics)

    asking = with_requests(workload, pulls=pulls)
    _check_time(scenario, lab, asking)
    if not scenario.tenant_transports:
        return RunTraffic(workload=asking, placement=placement, seed=seed)
    if asking is not workload:
        parts = split_traffic(lab, asking, nics, scenario.transport, scenario.tenant_transports)
    return RunTraffic(workload=asking, placement=placement, seed=seed, parts=parts)


def _admitted(scenario: Scenario, workload: Workload) -> Workload:
    """Return the workload with the windows of receivers, where it has any. Raises `ScenarioError`."""
    if not scenario.workload.admission_bytes:
        return workload
    try:
        return with_admission(workload, scenario.workload.admission_bytes)
    except WorkloadError as error:
        raise ScenarioError(f"workload.{error.field}: {error.message}", hint=error.hint) from error


def lab_transports(scenario: Scenario, lab: LiveLab) -> list[LabTransport]:
    """Return the transports of a scenario on a lab that is seen in its networks, each in those that it is used in.

    Raises `ScenarioError` where the lab cannot carry it.
    """
    if not scenario.tenant_transports:
        return [transport_on(lab, scenario.transport)]
    traffic = make_traffic(scenario, lab, seed=scenario.repeat.seed)
    return [transport_on(part.view(lab), part.transport) for part in traffic.parts]


def _apart(
    scenario: Scenario, lab: LiveLab, placement: RankPlacement, *, knows_hosts: bool
) -> dict[str, tuple[int, ...]]:
    """Return the ranks that run the workload by themselves: those of each rail, or of each plane; {}: all together."""
    per_rail = scenario.workload.ranks.per_rail
    if per_rail is None:
        per_rail = lab.model.isolated_rails and not knows_hosts
    if per_rail:
        return {f"rail{number}": ranks for number, ranks in enumerate(placement.rails, start=1)}
    return {} if knows_hosts else _by_plane(lab, placement)


def _crosses_planes(lab: LiveLab, placement: RankPlacement, workload: Workload) -> bool:
    """Tell whether two ranks talk to each other that are in different planes."""
    planes = planes_apart(lab.model)
    of = [planes.get(placement.leaf(rank), 0) for rank in range(len(placement.nics))] if planes else []
    return bool(planes) and any(of[source] != of[destination] for source, destination in fabric_pairs(workload))


def _by_plane(lab: LiveLab, placement: RankPlacement) -> dict[str, tuple[int, ...]]:
    """Return the ranks of each plane; {} where there is one."""
    planes = planes_apart(lab.model)
    if not planes:
        return {}
    return {f"plane-{plane_letter(plane)}": ranks for plane, ranks in placement.in_planes(planes).items()}


def _side_by_side(
    scenario: Scenario,
    lab: LiveLab,
    placement: RankPlacement,
    groups: Mapping[str, tuple[int, ...]],
    seed: int,
    **folded: bool,
) -> Workload:
    """Builds the workload for every group by itself, each with another seed, and runs them side by side."""
    tenants = [
        Tenant(name=name, workload=_build(scenario, lab, placement, ranks, seed * 1009 + number, **folded), ranks=ranks)
        for number, (name, ranks) in enumerate(groups.items(), start=1)
    ]
    return mix_tenants(tenants, ranks=len(placement.nics), name=scenario.workload.kind)


def _joined(scenario: Scenario, lab: LiveLab, placement: RankPlacement, seed: int, *, folds_large: bool) -> Workload:
    """Builds the workload for NICs, whose ports in all planes are one rank. A collective has its share of the bytes in
    each plane. Raises `ScenarioError` where NICs have no ports in several planes."""
    ports = placement.nic_ports(planes_apart(lab.model))
    if len({len(one) for one in ports}) > 1 or len(ports[0]) < 2:
        raise ScenarioError(
            f"the NICs of {lab.model.name} that are chosen have no ports in several planes",
            hint="ranks without joined, or fabric: {nic: {ports: 2}, planes: 2}",
        )
    firsts = tuple(one[0] for one in ports)
    workload = _build(scenario, lab, placement, firsts, seed, folds_large=folds_large)
    if workload.collectives:
        shares = {"bytes": _share_of_bytes(scenario, len(ports[0]))}
        parameters = {**scenario.workload.parameters, **shares}
        shared = replace(scenario, workload=replace(scenario.workload, parameters=parameters))
        groups = _by_plane(lab, placement)
        return _side_by_side(shared, lab, placement, groups, seed, folds_large=folds_large)
    striped = TRANSPORTS[scenario.transport.kind.value].stripes_over_planes
    rng = random.Random(f"planes {seed}")
    return over_planes(workload, ports, ranks=len(placement.nics), striped=striped, rng=rng)


def _share_of_bytes(scenario: Scenario, planes: int) -> Value:
    """Return the bytes of one plane of several. Raises `ScenarioError` for a workload whose bytes are not written."""
    written = scenario.workload.parameters.get("bytes")
    if isinstance(written, ByteCount):
        return ByteCount(-(-written.bytes // planes))
    if isinstance(written, str) and (products := parse_bdp(written)) is not None:
        return f"{products / planes:g}bdp"
    raise ScenarioError(
        f"workload {scenario.workload.kind}: its bytes are divided among planes, and none are written",
        hint="workload: {bytes: 4MB}",
    )


def _build(
    scenario: Scenario,
    lab: LiveLab,
    placement: RankPlacement,
    ranks: tuple[int, ...] | range,
    seed: int,
    **folded: bool,
) -> Workload:
    nics = [placement.nics[rank] for rank in ranks]
    domains = scale_up_domains(lab.model, lab.plan.k)
    together = placement.ranks_per_domain
    if len(nics) < len(placement.nics):
        together = ranks_per_domain([domains.of(nic.node) for nic in nics]) if lab.model.planes > 1 else 0
    fabric = FabricView(
        ranks=len(nics),
        rate_bps=nics[0].line_rate_bps,
        bdp_bytes=bdp_bytes(lab, placement),
        rng=random.Random(seed),
        ranks_per_domain=together,
        leaf_of=lambda rank: nics[rank].peer.partition(":")[0],
        domain_of=lambda rank: domains.of(nics[rank].node),
        rate_of=lambda rank: nics[rank].line_rate_bps,
        **folded,
    )
    return build_workload(scenario.workload.kind, scenario.workload.parameters, fabric)


def bdp_bytes(lab: LiveLab, placement: RankPlacement) -> int:
    """The bandwidth-delay product of the lab's NICs in bytes, which is the same at every scale.

    It is that which `qos:` was planned with or, in a lab without, that of the modelled base RTT.
    """
    nic = placement.nics[0]
    if lab.plan.qos is not None:
        profiles = lab.plan.qos.profiles
        found = next((item for item in profiles if not item.switch and item.rate_bps == nic.rate_bps), profiles[0])
        return found.bdp_bytes
    return max(1, round(nic.line_rate_bps * model_base_rtt(lab.model).ns / 8e9))


def _check_time(scenario: Scenario, lab: LiveLab, workload: Workload) -> None:
    """Refuse requests that are not over before the time limit, however fast the network: most scales are no such."""
    needed_s = requests_last_ns(workload) * lab.plan.k / 1e9
    limit_s = scenario.workload.time_limit.seconds
    if needed_s > limit_s:
        raise ScenarioError(
            f"at k = {lab.plan.k:g} the last answer is computed {needed_s:.0f} s after the begin, and the time limit is"
            f" {limit_s:g} s",
            hint="a smaller scale.time, a shorter workload.span, prefill or tpot, or a higher workload.time_limit",
        )


def _check_homing(kind: TransportKind, nics: Sequence[PortPlan], *, outside: bool) -> None:
    """Refuse what sends by a port of its own choice where a NIC's address is behind several, or a port of a router
    `outside` is a rank."""
    if outside and not TRANSPORTS[kind.value].routed_by_kernel:
        raise ScenarioError(f"the port of a router outside has no address that {kind.value} could send from")
    homed = next((nic for nic in nics if nic.nic_ports > 1), None)
    if homed is not None and not TRANSPORTS[kind.value].routed_by_kernel:
        able = next(name for name, one in TRANSPORTS.items() if one.routed_by_kernel)
        subnets = "nic: {multihoming: subnets}" if homed.network == BACKEND else "homing: subnets"
        raise ScenarioError(
            f"{kind.value} sends by one port, and {homed.node} has one address behind {homed.nic_ports} ports of"
            f" network {homed.network}",
            hint=f"transport: {{kind: {able}}}, or {subnets} in the topology",
        )


def _check_reachable(lab: LiveLab, placement: RankPlacement, workload: Workload) -> None:
    """Raise `WorkloadError` for the first two ranks that talk to each other though nothing leads from one to the other.

    Ranks of different tenants do not talk, whatever services one may ask of the other (`talks_to`).
    """
    planes = planes_apart(lab.model)
    if not lab.model.isolated_rails and not planes and not lab.model.networks and lab.model.overlay is None:
        return
    for source, destination in fabric_pairs(workload):
        a, b = placement.nics[source], placement.nics[destination]
        ends = f"rank {source} ({a.node}:{a.name}) is in {{}}, and rank {destination} ({b.node}:{b.name}), which it"
        if a.network != b.network:
            raise WorkloadError(
                f"{ends.format(f'network {a.network}')} talks to, in {b.network}",
                field="ranks",
                hint="workload: {kind: tenants}, with the ranks of one network for each tenant",
            )
        if a.tenant != b.tenant:
            raise WorkloadError(
                f"{ends.format(_tenant_text(a))} talks to, in {_tenant_text(b)}",
                field="ranks",
                hint="workload: {kind: tenants}, with the ranks of one tenant of the topology for each of its own",
            )
        if lab.model.isolated_rails and a.network == BACKEND and a.rail != b.rail:
            raise WorkloadError(
                f"rank {source} ({a.node}:{a.name}) sends to rank {destination} ({b.node}:{b.name}), but the"
                f" rails of {lab.model.name} do not reach each other",
                field="ranks",
                hint="ranks: {per_rail: true}, {rails: [1]}, or a hierarchical algorithm",
            )
        if a.network == BACKEND and planes.get(placement.leaf(source), 0) != planes.get(placement.leaf(destination), 0):
            raise WorkloadError(
                f"rank {source} ({a.node}:{a.name}) sends to rank {destination} ({b.node}:{b.name}), which is in"
                f" another plane: the planes of {lab.model.name} share no switch",
                field="ranks",
                hint="ranks: {planes: [a]}, {per_rail: true}, or an algorithm that passes on inside of hosts",
            )


def _tenant_text(nic: PortPlan) -> str:
    return f"the tenant {nic.tenant}" if nic.tenant else "no tenant"
