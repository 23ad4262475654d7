"""Decides which rank of a program starts on which host, and over which NIC it speaks. Pure.

Ranks are numbered host by host. On a host with several NICs the ranks take them in turn, as local ranks take the GPUs
they are beside. Where rails are isolated from each other (design rail-only) all ranks are on the first one, since the
ranks of a program must all reach each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from ipaddress import IPv4Address, IPv6Address
from itertools import groupby, zip_longest
from typing import TYPE_CHECKING

from testbed.base.names import all_names_hint
from testbed.lab.core.fabric.forwarding.links import planes_apart
from testbed.lab.core.model import BACKEND
from testbed.run.launch.options import LaunchOptions, LaunchOrder, LaunchRefused

if TYPE_CHECKING:
    from testbed.lab.core.model import Lab
    from testbed.lab.core.plan.lab_plan import HostPlan, LabPlan, PortPlan

MOST_RANKS = 4096
"""A slip of the keyboard is refused before it fills the machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlace:
    """A rank, and where it runs: `local` counts the ranks of its host, of which there are `hosts_ranks`.

    `nic` is the NIC that it speaks over, with the address `address`.
    """

    rank: int
    host: str
    local: int
    hosts_ranks: int
    nic: PortPlan
    address: IPv4Address | IPv6Address


def place_ranks(lab: Lab, plan: LabPlan, options: LaunchOptions) -> tuple[RankPlace, ...]:
    """Place the ranks of a launch on a lab. Raises `LaunchRefused`."""
    if options.nics:
        found = _given(options)
        _require_few(found)
        _require_one_network(lab, found)
        return found
    if options.ranks_per_host < 1:
        raise LaunchRefused(f"{options.ranks_per_host} ranks a host: expected 1 or more")
    hosts = _ordered(_chosen(plan, options), options.order)
    places: list[RankPlace] = []
    planes = planes_apart(lab)
    for host in hosts:
        nics = host.nics[:1] if lab.isolated_rails and not options.per_gpu else _of_one_plane(host.nics, planes)
        count = len(nics) if options.per_gpu else options.ranks_per_host
        for local in range(count):
            nic = nics[local % len(nics)]
            places.append(
                RankPlace(
                    rank=len(places),
                    host=host.node,
                    local=local,
                    hosts_ranks=count,
                    nic=nic,
                    address=_address(nic, ipv6=options.ipv6),
                )
            )
    _require_few(places)
    _require_one_network(lab, places)
    return tuple(places)


def _of_one_plane(nics: Sequence[PortPlan], planes: Mapping[str, int]) -> Sequence[PortPlan]:
    """Return the NICs of a host that are in the plane of its first one: those of other planes do not reach them."""
    first = planes.get(_switch(nics[0]), 0) if nics else 0
    return [nic for nic in nics if planes.get(_switch(nic), 0) == first]


def _given(options: LaunchOptions) -> tuple[RankPlace, ...]:
    """Return the ranks of NICs that somebody else has chosen; a host may come again later."""
    counts = Counter(nic.node for nic in options.nics)
    locals_: Counter[str] = Counter()
    places = []
    for rank, nic in enumerate(options.nics):
        places.append(
            RankPlace(
                rank=rank,
                host=nic.node,
                local=locals_[nic.node],
                hosts_ranks=counts[nic.node],
                nic=nic,
                address=_address(nic, ipv6=options.ipv6),
            )
        )
        locals_[nic.node] += 1
    return tuple(places)


def _require_few(places: Sequence[RankPlace]) -> None:
    if len(places) > MOST_RANKS:
        raise LaunchRefused(f"{len(places)} ranks are too many", hint=f"at most {MOST_RANKS} are started")


def process_mapping(places: Sequence[RankPlace]) -> str:
    """Return which ranks share a host, as MPI reads it from the key `PMI_process_mapping`.

    The format is a vector of blocks: (first host, number of hosts, ranks on each of these).
    """
    numbers: dict[str, int] = {}
    runs = [
        (numbers.setdefault(host, len(numbers)), len(list(ranks)))
        for host, ranks in groupby(place.host for place in places)
    ]
    blocks: list[list[int]] = []
    for number, count in runs:
        if blocks and blocks[-1][0] + blocks[-1][1] == number and blocks[-1][2] == count:
            blocks[-1][1] += 1
        else:
            blocks.append([number, 1, count])
    return f"(vector,{','.join(f'({first},{hosts},{ranks})' for first, hosts, ranks in blocks)})"


def _chosen(plan: LabPlan, options: LaunchOptions) -> list[HostPlan]:
    """Return the hosts with NICs in the back end that are asked for, each with these alone."""
    backend = plan.of_network(BACKEND)
    hosts = [host for host in backend.hosts if any(nic.address or nic.address6 for nic in host.nics)]
    if not hosts:
        raise LaunchRefused(f"{plan.lab} has no host with a NIC in its back end")
    if not options.hosts:
        if options.order is LaunchOrder.LIST:
            raise LaunchRefused("the order is that of a list of hosts, and there is none", hint="--hosts A,B,...")
        return hosts
    found: dict[str, HostPlan] = {}
    for pattern in options.hosts:
        meant = [host for host in hosts if fnmatchcase(host.node, pattern)]
        if not meant:
            names = [host.node for host in hosts]
            raise LaunchRefused(f"{plan.lab} has no host {pattern!r}", hint=all_names_hint(pattern, names))
        found |= {host.node: host for host in meant}
    if options.order is LaunchOrder.LIST:
        return list(found.values())
    return [host for host in hosts if host.node in found]


def _ordered(hosts: Sequence[HostPlan], order: LaunchOrder) -> list[HostPlan]:
    if order is not LaunchOrder.INTERLEAVE:
        return list(hosts)
    segments: dict[str, list[HostPlan]] = {}
    for host in hosts:
        segments.setdefault(_switch(host.nics[0]), []).append(host)
    turns = zip_longest(*segments.values())
    return [host for turn in turns for host in turn if host is not None]


def _switch(nic: PortPlan) -> str:
    return nic.peer.partition(":")[0]


def _address(nic: PortPlan, *, ipv6: bool) -> IPv4Address | IPv6Address:
    found = nic.address6 if ipv6 else nic.address or nic.address6
    if found is None:
        raise LaunchRefused(
            f"{nic.node}:{nic.name} has no {'IPv6 ' if ipv6 else ''}address",
            hint="subnets of tenants have them with `prefix6`" if ipv6 else None,
        )
    return found.ip


def _require_one_network(lab: Lab, places: Iterable[RankPlace]) -> None:
    """Raise `LaunchRefused` where two of the NICs are not to reach each other: the program would wait for ever."""
    nics = list({(place.nic.node, place.nic.name): place.nic for place in places}.values())
    first, planes = nics[0], planes_apart(lab)
    for nic in nics[1:]:
        if lab.isolated_rails and nic.rail != first.rail:
            raise LaunchRefused(
                f"rails of {lab.name} do not reach each other ({lab.design}): {first.node}:{first.name} and"
                f" {nic.node}:{nic.name} would be ranks of one program",
                hint="--ranks-per-host starts all ranks on the first rail; the real GPUs of a host pass on over NVLink"
                " what is for another rail",
            )
        if planes.get(_switch(nic), 0) != planes.get(_switch(first), 0):
            raise LaunchRefused(
                f"planes of {lab.name} do not reach each other: {first.node}:{first.name} and {nic.node}:{nic.name}"
                " would be ranks of one program",
                hint="ranks on NICs of one plane; the real GPUs of a host pass on over NVLink what is for another one",
            )
        if nic.tenant != first.tenant:
            raise LaunchRefused(
                f"{first.node}:{first.name} is in {_tenant(first)}, {nic.node}:{nic.name} in {_tenant(nic)}",
                hint="--hosts chooses hosts that reach each other",
            )


def _tenant(nic: PortPlan) -> str:
    return f"the tenant {nic.tenant}" if nic.tenant else "no tenant"
