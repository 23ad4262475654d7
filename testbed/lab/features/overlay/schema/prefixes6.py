"""The key `prefix6` of tenants' subnets, held against each other and against the networks that they are in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv6Network

from testbed.base.errors import Problem
from testbed.base.yaml.paths import Path
from testbed.lab.core.model import Tenant, TenantSubnet
from testbed.lab.features.overlay.schema.talks import ProblemAt

LEAST_MTU_BYTES = 1280
"""The least MTU of a link that IPv6 goes over (RFC 8200 section 5)."""


def check_prefixes6(tenants: Sequence[Tenant], mtus: Mapping[str, int], problem: ProblemAt) -> Iterator[Problem]:
    """Find prefixes of IPv6 that somebody could not tell apart, and networks that carry none.

    `mtus` are those of tenants in each network.
    """
    for tenant in tenants:
        for subnet in tenant.subnets:
            if subnet.prefix6 is None:
                continue
            path = _path(tenant, subnet)
            if (mtu := mtus[subnet.network]) < LEAST_MTU_BYTES:
                message = f"IPv6 needs an MTU of {LEAST_MTU_BYTES} (RFC 8200), and tenants have {mtu} here"
                yield problem("mtu-too-small", path, message, "a larger mtu of the network, or IPv4 alone")
    yield from _overlaps_within(tenants, problem)
    yield from _overlaps_of_talks(tenants, problem)
    yield from _overlaps_on_hosts(tenants, problem)


def _path(tenant: Tenant, subnet: TenantSubnet) -> Path:
    return ("tenants", tenant.name, "subnets", subnet.name, "prefix6")


def _dual(tenant: Tenant) -> list[tuple[TenantSubnet, IPv6Network]]:
    """The subnets of a tenant that have IPv6, with their prefixes."""
    return [(subnet, subnet.prefix6) for subnet in tenant.subnets if subnet.prefix6 is not None]


def _overlaps_within(tenants: Sequence[Tenant], problem: ProblemAt) -> Iterator[Problem]:
    for tenant in tenants:
        seen: list[tuple[TenantSubnet, IPv6Network]] = []
        for subnet, prefix in _dual(tenant):
            for other, taken in seen:
                if prefix.overlaps(taken):
                    message = f"{prefix} overlaps {taken}, the subnet {other.name} of the same tenant"
                    hint = "subnets of different tenants may overlap, those of one tenant not"
                    yield problem("overlap", _path(tenant, subnet), message, hint)
            seen.append((subnet, prefix))


def _overlaps_of_talks(tenants: Sequence[Tenant], problem: ProblemAt) -> Iterator[Problem]:
    by_name = {tenant.name: tenant for tenant in tenants}
    pairs = {frozenset((tenant.name, talk.tenant)): None for tenant in tenants for talk in tenant.talks_to}
    for pair in pairs:
        if len(pair) != 2 or not pair <= by_name.keys():
            continue  # has a problem of its own
        first, second = (by_name[name] for name in by_name if name in pair)
        for known, taken in _dual(first):
            for subnet, prefix in _dual(second):
                if known.network == subnet.network and prefix.overlaps(taken):
                    message = f"{prefix} overlaps {taken} of {first.name}.{known.name}"
                    hint = "tenants that talk to each other need prefixes of their own"
                    yield problem("overlap", _path(second, subnet), message, hint)


def _overlaps_on_hosts(tenants: Sequence[Tenant], problem: ProblemAt) -> Iterator[Problem]:
    """Find hosts whose subnets overlap: they could not tell their addresses apart."""
    seen: dict[str, list[tuple[str, IPv6Network]]] = {}
    for tenant in tenants:
        for subnet, prefix in _dual(tenant):
            here = f"{tenant.name}.{subnet.name}"
            for node in dict.fromkeys(end.node for end in subnet.nics):
                for where, taken in seen.setdefault(node, []):
                    if prefix.overlaps(taken) and where.partition(".")[0] != tenant.name:
                        message = f"{node} would be in {taken} of {where} and in {prefix} of {here}"
                        hint = "a host's NICs need prefixes that do not overlap, whatever their tenants"
                        yield problem("overlap", _path(tenant, subnet), message, hint)
                seen[node].append((here, prefix))
