"""The shapes of network that transports are judged on.

`overrides` replace the settings of single lines, by `from->to`: a degraded uplink, a dead one, a lossy one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from testbed.protocols.simulation.errors import ConfigurationError
from testbed.protocols.simulation.host import Endpoint
from testbed.protocols.simulation.link import LinkSettings
from testbed.protocols.simulation.network import Network
from testbed.protocols.simulation.port import PortSettings

Overrides = Mapping[str, LinkSettings]
NO_OVERRIDES: Final[Overrides] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """The links between two stages of a network, and the switch ports at their ends."""

    link: LinkSettings
    port: PortSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafSpineSize:
    """The numbers of switches and hosts of a network of two stages."""

    leaves: int
    hosts_per_leaf: int
    spines: int


class _Cabling:
    """Adds links in both directions, and sees to it that every override meets a line."""

    def __init__(self, network: Network, overrides: Overrides) -> None:
        self._network = network
        self._overrides = overrides

    def link(
        self,
        one: str,
        other: str,
        link: LinkSettings,
        *,
        out: PortSettings | None = None,
        back: PortSettings | None = None,
    ) -> None:
        """`out` is the port of `one` towards `other`, `back` the port of `other`; hosts have none."""
        for source, target, port in ((one, other, out), (other, one, back)):
            self._network.add_line(source, target, self._overrides.get(f"{source}->{target}", link), port)

    def finished(self) -> Network:
        unknown = sorted(set(self._overrides) - set(self._network.lines))
        if unknown:
            raise ConfigurationError(f"overrides name no line: {', '.join(unknown)}")
        return self._network


def point_to_point(
    one: Endpoint, other: Endpoint, *, link: LinkSettings, overrides: Overrides = NO_OVERRIDES, seed: int = 0
) -> Network:
    """Two hosts and a cable: `A->B` and `B->A`, by their addresses. There is no queue but the endpoints' own."""
    network = Network([one, other], seed=seed)
    cabling = _Cabling(network, overrides)
    cabling.link(one.address, other.address, link)
    return cabling.finished()


def star(
    endpoints: Sequence[Endpoint],
    *,
    link: LinkSettings,
    port: PortSettings,
    overrides: Overrides = NO_OVERRIDES,
    seed: int = 0,
) -> Network:
    """All hosts at one switch, `switch`: incast. Every port is a last hop."""
    network = Network(endpoints, seed=seed)
    cabling = _Cabling(network, overrides)
    network.add_switch("switch")
    for address in network.hosts:
        cabling.link(address, "switch", link, back=port)
        network.add_route("switch", address, [address])
    return cabling.finished()


def leaf_spine(
    endpoints: Sequence[Endpoint],
    size: LeafSpineSize,
    *,
    host_tier: Tier,
    fabric_tier: Tier,
    overrides: Overrides = NO_OVERRIDES,
    seed: int = 0,
) -> Network:
    """Two stages, `leaf0` .. and `spine0` ..; endpoint i is at leaf i // hosts_per_leaf. Leaves spread over all spines.

    `host_tier` is between hosts and leaves, `fabric_tier` between leaves and spines. Their ports may differ: congestion
    control by receivers wants no ECN at the ports towards hosts.
    """
    leaves = [f"leaf{index}" for index in range(size.leaves)]
    spines = [f"spine{index}" for index in range(size.spines)]
    if min(size.leaves, size.hosts_per_leaf, size.spines) < 1 or len(endpoints) != size.leaves * size.hosts_per_leaf:
        raise ConfigurationError(
            f"{size.leaves} leaves of {size.hosts_per_leaf} hosts do not hold {len(endpoints)} endpoints"
        )
    network = Network(endpoints, seed=seed)
    cabling = _Cabling(network, overrides)
    for name in (*leaves, *spines):
        network.add_switch(name)
    for leaf in leaves:
        for spine in spines:
            cabling.link(leaf, spine, fabric_tier.link, out=fabric_tier.port, back=fabric_tier.port)
    for index, address in enumerate(network.hosts):
        home = leaves[index // size.hosts_per_leaf]
        cabling.link(address, home, host_tier.link, back=host_tier.port)
        for leaf in leaves:
            network.add_route(leaf, address, [address] if leaf == home else spines)
        for spine in spines:
            network.add_route(spine, address, [home])
    return cabling.finished()
