"""Packets between NICs of tenants: within a tenant all must arrive, between tenants none may; and which were denied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing

from testbed.base.linux.nftables import NetfilterSocket
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.watch.check import CheckResult, judge
from testbed.lab.core.deploy.watch.probe import Probe, Prober
from testbed.lab.core.drivers.nodes.inside import ask_inside
from testbed.lab.core.model import Service
from testbed.lab.core.plan.lab_plan import LabPlan, PortPlan
from testbed.lab.core.plan.overlay_operations import SetBorder, SetPolicy
from testbed.lab.core.plan.overlay_plan import OverlayPlan
from testbed.lab.features.overlay.keeper import keeper_runs
from testbed.lab.features.overlay.policies_nft import DeniedCounter, read_denied
from testbed.lab.features.overlay.watch import missing_lines

Group = tuple[str, str]
"""A tenant ("": none) in a network: networks share hosts and nothing else, a tenant in two of them has two parts."""


def grouped_nics(plan: LabPlan) -> dict[Group, list[PortPlan]]:
    """The NICs of each tenant in each network, and those that are in none."""
    found: dict[Group, list[PortPlan]] = {}
    for host in plan.hosts:
        for nic in host.nics:
            if nic.address is not None:
                found.setdefault((nic.tenant, nic.network), []).append(nic)
    return found


def denied_counters(lab: RunningLab) -> Mapping[tuple[str, str], list[DeniedCounter]]:
    """Count what policies and borders have not let into VRFs since the deploy, by switch and tenant.

    Seen in some networks, those of the tenants that have NICs there.
    """
    tenants = {nic.tenant for host in lab.plan.hosts for nic in host.nics}
    overlay = lab.plan.overlay
    switches = {
        (vrf.place, vrf.tenant): vrf.switch
        for vrf in (() if overlay is None else overlay.vrfs)
        if vrf.tenant in tenants
    }
    filters = [
        item
        for item in lab.plan.operations
        if isinstance(item, SetPolicy | SetBorder) and (item.node, item.tenant) in switches
    ]

    def read(place: str, socket: NetfilterSocket) -> dict[tuple[str, str], list[DeniedCounter]]:
        return {
            (switches[place, item.tenant], item.tenant): read_denied(socket, item.tenant if item.shared else "")
            for item in filters
            if item.node == place
        }

    found = ask_inside(lab.name, dict.fromkeys(item.node for item in filters), NetfilterSocket, read)
    return {key: denied for here in found.values() for key, denied in here.items()}


def probe_tenants(plan: LabPlan) -> tuple[int, list[str]]:
    """Send from each NIC of a tenant to one NIC of each of its subnets: how many, and a line for each that was lost.

    Over IPv4, and over IPv6 where both subnets have some: such a pair counts twice. Networks that others carry are no
    part of it: they are checked as networks.

    To tenants that it talks to about everything goes one from each to each of their subnets.
    Each goes in two sizes, the larger as long as the tenants' MTU allows. Raises `DriverError`.
    """
    if plan.overlay is None:
        return 0, []
    reached = plan.overlay.reached()
    groups = grouped_nics(plan)
    tried: list[tuple[PortPlan, PortPlan]] = []
    for (tenant, network), nics in groups.items():
        if not tenant or network in plan.carriers:
            continue
        pairs = list(_pairs_within(nics))
        for other in (name for name, services in _passing_from(plan.overlay, tenant) if not services):
            pairs = [*pairs, *_pairs_to_each_subnet(nics, groups.get((other, network), ()))]
        tried += [(a, b) for a, b in pairs if _switch(b) in reached[_switch(a), b.tenant]]
    dual = [(a, b) for a, b in tried if a.address6 is not None and b.address6 is not None]
    failures = [*_lost_between(plan, tried, ipv6=False), *_lost_between(plan, dual, ipv6=True)]
    return len(tried) + len(dual), failures


def _lost_between(plan: LabPlan, pairs: Sequence[tuple[PortPlan, PortPlan]], *, ipv6: bool) -> Iterator[str]:
    """A line for each pair whose packets are lost, the small ones or those of the MTU."""
    if not pairs:
        return
    nics = {(nic.node, nic.name): nic for pair in pairs for nic in pair}
    over = " over IPv6" if ipv6 else ""
    with closing(Prober(plan.lab, list(nics.values()), ipv6=ipv6)) as prober:
        lost = prober.lost([Probe(source=a, target=b) for a, b in pairs], plan.most_loss)
        yield from (f"{line}{over} lost" for line in prober.paths_text(lost))
        broken = {(probe.source, probe.target) for probe in lost}
        large = [
            Probe(source=a, target=b, size_bytes=min(a.mtu_bytes, b.mtu_bytes))
            for a, b in pairs
            if (a, b) not in broken
        ]
        cut = prober.paths_text(prober.lost(large, plan.most_loss))
        yield from (f"{line}{over}: packets of the MTU did not pass" for line in cut)


def probe_isolation(plan: LabPlan) -> tuple[int, list[str]]:
    """Send from a NIC of each subnet to one of each subnet of others: how many, and a line for each that arrived.

    Others are other tenants, but those that everything passes between, NICs that no tenant has, and those of the tenant
    in another network. Addresses repeat between tenants, so what counts is what arrives at a NIC of the other one.
    Over IPv6, too, between subnets that both have some.
    Raises `DriverError`.
    """
    groups = grouped_nics(plan)
    count = 0
    failures: list[str] = []
    every = [nic for nics in groups.values() for nic in nics]
    dual = [nic for nic in every if nic.address6 is not None]
    for nics, ipv6, over in ((every, False, ""), (dual, True, " over IPv6")):
        probes = [
            Probe(source=a, target=b)
            for group in (groups if nics else ())
            for a, b in _pairs_between(groups, group)
            if (not ipv6 or (a.address6 is not None and b.address6 is not None))
            and not (a.network == b.network and _all_passes(plan, a.tenant, b.tenant))
        ]
        with closing(Prober(plan.lab, nics, ipv6=ipv6)) as prober:
            failures += [f"{line} arrived{over}" for line in prober.paths_text(prober.arrived(probes))]
        count += len(probes)
    return count, failures


def _all_passes(plan: LabPlan, tenant: str, other: str) -> bool:
    return plan.overlay is not None and plan.overlay.passes.get((tenant, other)) == ()


def _by_subnet(nics: Sequence[PortPlan]) -> dict[str, list[PortPlan]]:
    subnets: dict[str, list[PortPlan]] = {}
    for nic in nics:
        assert nic.address is not None
        subnets.setdefault(str(nic.address.network), []).append(nic)
    return subnets


def _pairs_within(nics: Sequence[PortPlan]) -> Iterator[tuple[PortPlan, PortPlan]]:
    """For each NIC of a tenant a partner on another host in each subnet, spread over the subnet's NICs."""
    for subnet in _by_subnet(nics).values():
        for index, nic in enumerate(nics):
            turned = (subnet[(index + 1 + step) % len(subnet)] for step in range(len(subnet)))
            partner = next((other for other in turned if other.node != nic.node), None)
            if partner is not None:
                yield nic, partner


def _passing_from(overlay: OverlayPlan, tenant: str) -> Iterator[tuple[str, tuple[Service, ...]]]:
    """The other tenants that one may ask for something, and for what."""
    return ((other, services) for (name, other), services in overlay.passes.items() if name == tenant)


def _pairs_to_each_subnet(nics: Sequence[PortPlan], targets: Sequence[PortPlan]) -> Iterator[tuple[PortPlan, PortPlan]]:
    """From each NIC to one of each subnet of others, on another host."""
    for subnet in _by_subnet(targets).values():
        for index, nic in enumerate(nics):
            turned = (subnet[(index + step) % len(subnet)] for step in range(len(subnet)))
            if (partner := next((other for other in turned if other.node != nic.node), None)) is not None:
                yield nic, partner


def _pairs_between(groups: Mapping[Group, Sequence[PortPlan]], target: Group) -> Iterator[tuple[PortPlan, PortPlan]]:
    """From each subnet of each other group to each subnet of `target`; routed NICs of two networks are no tenants'."""
    for other, sources in groups.items():
        if other == target or not (other[0] or target[0]):
            continue
        for members in _by_subnet(sources).values():
            for theirs in _by_subnet(groups[target]).values():
                pair = next(((a, b) for a in members for b in theirs if a.node != b.node), None)
                if pair is not None:
                    yield pair


def _switch(nic: PortPlan) -> str:
    return nic.peer.partition(":")[0]


def check_overlay(lab: RunningLab) -> CheckResult:
    """Kernel tables have what EVPN is to bring, and the keeper runs."""
    expected = {} if lab.plan.overlay is None else lab.plan.overlay.expected
    failures = missing_lines(lab.plan, lab.state.run_directory(lab.name))
    if not keeper_runs(lab.plan, lab.state):
        failures.append("its keeper does not run, and routers that zebra loses stay lost; `deploy` starts it again")
    return judge(sum(map(len, expected.values())), "entries of EVPN in kernel tables", failures)


def check_tenants(lab: RunningLab) -> CheckResult:
    """NICs of a tenant reach each other."""
    count, failures = probe_tenants(lab.plan)
    return judge(count, "NIC pairs within tenants", failures)


def check_isolation(lab: RunningLab) -> CheckResult:
    """NICs of different tenants do not."""
    count, failures = probe_isolation(lab.plan)
    return judge(count, "NIC pairs that must not reach each other", failures)
