"""The shapes of network that transports are judged on.

`overrides` replace the settings of single lines, by `from->to`: a degraded uplink, a dead one, a lossy one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from testbed.transport.simulation.errors import ConfigurationError
from testbed.transport.simulation.host import Endpoint
from testbed.transport.simulation.link import LinkSettings
from testbed.transport.simulation.network import Network
from testbed.transport.simulation.port import PortSettings

Overrides = Mapping[str, LinkSettings]
NO_OVERRIDES: Overrides = {}


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
    *,
    leaves: int,
    hosts_per_leaf: int,
    spines: int,
    host_link: LinkSettings,
    fabric_link: LinkSettings,
    port: PortSettings,
    last_hop: PortSettings | None = None,
    overrides: Overrides = NO_OVERRIDES,
    seed: int = 0,
) -> Network:
    """Two stages, `leaf0` .. and `spine0` ..; endpoint i is at leaf i // hosts_per_leaf. Leaves spread over all spines.

    `port` holds for every switch port, except that `last_hop`, if given, holds for those towards hosts (receiver-driven
    congestion control wants no ECN there).
    """
    if min(leaves, hosts_per_leaf, spines) < 1 or len(endpoints) != leaves * hosts_per_leaf:
        raise ConfigurationError(f"{leaves} leaves of {hosts_per_leaf} hosts do not hold {len(endpoints)} endpoints")
    network = Network(endpoints, seed=seed)
    cabling = _Cabling(network, overrides)
    uplinks = [f"spine{index}" for index in range(spines)]
    for name in (*(f"leaf{index}" for index in range(leaves)), *uplinks):
        network.add_switch(name)
    for index in range(leaves):
        for spine in uplinks:
            cabling.link(f"leaf{index}", spine, fabric_link, out=port, back=port)
    for index, address in enumerate(network.hosts):
        home = f"leaf{index // hosts_per_leaf}"
        cabling.link(address, home, host_link, back=last_hop or port)
        for other in range(leaves):
            leaf = f"leaf{other}"
            network.add_route(leaf, address, [address] if leaf == home else uplinks)
        for spine in uplinks:
            network.add_route(spine, address, [home])
    return cabling.finished()
