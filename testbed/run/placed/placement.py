"""Decides which NIC of the lab is which rank of a workload. Pure; the same seed gives the same ranks everywhere."""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import zip_longest
from typing import TYPE_CHECKING, assert_never

from testbed.base.errors import ScenarioError
from testbed.base.names import all_names_hint, plane_letter
from testbed.lab.core.fabric.forwarding.links import planes_apart
from testbed.lab.core.model import BACKEND, Lab
from testbed.lab.core.plan.lab_plan import LabPlan, PortPlan
from testbed.run.scale_up.pool import region_ports
from testbed.run.schema.model import NO_TENANT, RankOrder, Ranks
from testbed.workload.draws import draw_order
from testbed.workload.kinds.kind import ranks_per_domain
from testbed.workload.steps import Transfer, Workload

if TYPE_CHECKING:
    from testbed.record.samples import FlowEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlacement:
    """The ranks of a workload on a lab.

    `nics[rank]` is the NIC of a rank. `ranks_per_domain` consecutive ranks share a scale-up domain; it is 0 where
    that number differs from domain to domain.
    """

    nics: tuple[PortPlan, ...]
    ranks_per_domain: int

    def leaf(self, rank: int) -> str:
        """The switch that the rank's NIC hangs off."""
        return _leaf(self.nics[rank])

    def host(self, rank: int) -> str:
        return self.nics[rank].node

    def over_fabric(self, workload: Workload) -> Iterator[tuple[Transfer, PortPlan, PortPlan]]:
        """The transfers that leave their host and scale-up domain, in order, with the NICs of both ends."""
        for step in workload.transfers:
            source, destination = self.nics[step.source], self.nics[step.destination]
            if not step.scale_up:
                yield step, source, destination

    def in_planes(self, planes: Mapping[str, int]) -> dict[int, tuple[int, ...]]:
        """The ranks of each plane, in order; `planes` has those of switches."""
        groups: dict[int, list[int]] = {}
        for rank in range(len(self.nics)):
            groups.setdefault(planes.get(self.leaf(rank), 0), []).append(rank)
        return {plane: tuple(groups[plane]) for plane in sorted(groups)}

    def nic_ports(self, planes: Mapping[str, int]) -> list[tuple[int, ...]]:
        """The ranks of the ports of each NIC, by plane; NICs in the order of their first ranks."""
        found: dict[tuple[str, int | str], dict[int, int]] = {}
        for rank, nic in enumerate(self.nics):
            ports = found.setdefault((nic.node, nic.rail or nic.name), {})
            ports[planes.get(self.leaf(rank), 0)] = rank
        return [tuple(ports[plane] for plane in sorted(ports)) for ports in found.values()]

    @property
    def rails(self) -> tuple[tuple[int, ...], ...]:
        """The ranks of each rail (and NIC name), in order."""
        groups: dict[tuple[int, str], list[int]] = {}
        for rank, nic in enumerate(self.nics):
            groups.setdefault(_rail(nic), []).append(rank)
        return tuple(tuple(group) for group in groups.values())


def flow_end(nic: PortPlan) -> FlowEnd:
    """A NIC as records name it."""
    from testbed.record.samples import FlowEnd

    return FlowEnd(node=nic.node, interface=nic.name, address=str(nic.address.ip) if nic.address else "")


def place_ranks(lab: Lab, plan: LabPlan, choice: Ranks, *, seed: int) -> RankPlacement:
    """Chooses the ranks that a scenario asks for. Raises `ScenarioError` where the lab does not have them."""
    targets = {node.name for node in lab.targets}
    planes = planes_apart(lab)
    chosen = [
        nic
        for host in plan.hosts
        if host.node not in targets and _is_chosen(host.node, choice.hosts)
        for nic in host.nics
        if nic.address is not None
        and (not choice.rails or nic.rail in choice.rails)
        and (not choice.planes or planes.get(_leaf(nic), 0) in choice.planes)
    ]
    chosen = _check(lab, plan, choice, chosen)
    ordered = [
        nic
        for network in choice.networks_in(lab)
        for tenant in choice.tenants_in(lab)
        for nic in _ordered(
            [nic for nic in chosen if nic.network == network and (nic.tenant or NO_TENANT) == tenant],
            choice.order,
            seed,
        )
    ]
    if choice.count is not None:
        ordered = ordered[: choice.count]
    ordered = [*_routers(lab, plan, choice.externals), *ordered, *_targets(plan, targets, choice, lab)]
    if choice.pool:
        ordered += region_ports(lab, plan, ordered)
    domains = lab.host_domains
    return RankPlacement(
        nics=tuple(ordered), ranks_per_domain=ranks_per_domain([domains.get(nic.node, nic.node) for nic in ordered])
    )


def _routers(lab: Lab, plan: LabPlan, names: Sequence[str]) -> Iterator[PortPlan]:
    """The ports of routers outside, each with the first address of its router, from which it sends."""
    externals = {} if lab.overlay is None else {tenant.name: tenant.external for tenant in lab.overlay.tenants}
    ports = {(port.node, port.name): port for port in plan.ports}
    for name in names:
        external = externals.get(name)
        port = None if external is None else ports.get((external.router.node, external.router.interface))
        if external is None or port is None:
            raise ScenarioError(
                f"the tenant {name} has no router outside in the networks of the ranks",
                hint=f"tenants.{name}.external in the topology",
            )
        yield replace(port, address=external.addresses[0])


def _targets(plan: LabPlan, targets: Container[str], choice: Ranks, lab: Lab) -> Iterator[PortPlan]:
    """The NICs of storage targets, in the order of the lab; on the back end those of the ranks' rails.

    Raises `ScenarioError` where one has none that is asked.
    """
    nics = [nic for host in plan.hosts if host.node in targets for nic in host.nics]
    nics = [
        nic
        for nic in nics
        if nic.address is not None
        and nic.network in choice.networks_in(lab)
        and (nic.network != BACKEND or not choice.rails or nic.rail in choice.rails)
    ]
    for pattern in choice.targets:
        if not any(fnmatchcase(nic.node, pattern) for nic in nics):
            raise ScenarioError(f"no storage target of {lab.name} in the networks of the ranks is called {pattern}")
    return (nic for nic in nics if choice.targets and _is_chosen(nic.node, choice.targets))


def _ordered(nics: Sequence[PortPlan], order: RankOrder, seed: int) -> list[PortPlan]:
    match order:
        case RankOrder.HOST:
            return list(nics)
        case RankOrder.RAIL:
            return [nic for group in _groups(nics, _rail) for nic in group]
        case RankOrder.SPREAD:
            turns = zip_longest(*_groups(nics, _leaf))
            return [nic for turn in turns for nic in turn if nic is not None]
        case RankOrder.SHUFFLED:
            return draw_order(random.Random(seed), nics)
        case _:
            assert_never(order)


def _groups(nics: Sequence[PortPlan], key: Callable[[PortPlan], Hashable]) -> list[list[PortPlan]]:
    groups: dict[Hashable, list[PortPlan]] = {}
    for nic in nics:
        groups.setdefault(key(nic), []).append(nic)
    return list(groups.values())


def _rail(nic: PortPlan) -> tuple[int, str]:
    return nic.rail, nic.name if nic.rail else ""


def _leaf(nic: PortPlan) -> str:
    return nic.peer.partition(":")[0]


def _is_chosen(host: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatchcase(host, pattern) for pattern in patterns)


def _check(lab: Lab, plan: LabPlan, choice: Ranks, chosen: Sequence[PortPlan]) -> list[PortPlan]:
    """Return the chosen NICs that may be ranks. Raises `ScenarioError` where the lab does not have what is asked."""
    names = [node.name for node in lab.hosts]
    for pattern in choice.hosts:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ScenarioError(f"no host of {lab.name} is called {pattern}", hint=all_names_hint(pattern, names))
    rails = {nic.rail for host in plan.hosts for nic in host.nics}
    for rail in choice.rails:
        if rail not in rails:
            raise ScenarioError(f"{lab.name} has no rail {rail}", hint=f"its rails are {min(rails)} to {max(rails)}")
    for plane in choice.planes:
        if plane > lab.planes:
            there = f"its planes are a to {plane_letter(lab.planes)}" if lab.planes > 1 else "fabric: {planes: 2}"
            raise ScenarioError(f"{lab.name} has no plane {plane_letter(plane)}", hint=there)
    taken = [nic for nic in chosen if choice.may_take(nic.tenant, lab)]
    if not choice.tenants and len(taken) < len(chosen):
        nic = next(nic for nic in chosen if nic.tenant)
        raise ScenarioError(
            f"{nic.node}:{nic.name} is in the tenant {nic.tenant}",
            hint=f"ranks: {{tenant: {nic.tenant}}}, or {{tenant: {NO_TENANT}}} for NICs that are in no tenant",
        )
    if not taken:
        raise ScenarioError("this lab has no NIC with an address to send from")
    if choice.count is not None and choice.count > len(taken):
        raise ScenarioError(f"{choice.count} ranks are asked for; the chosen hosts have {len(taken)} NICs")
    return taken
