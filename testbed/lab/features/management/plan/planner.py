"""Plans the out-of-band network: the addresses of management ports, their switch, and what keeps data away from them.

The switch is one bridge. Nodes' ports on it are isolated, so that the server alone reaches them and they reach the
server alone (a private VLAN, RFC 5517); with the service `slurm`, hosts reach each other at its ports, too. They are
guarded, so that no node speaks in the name of the server or of another
one: each has its own MAC and its own address. On a node three things keep its management port and its other ports
apart: it forwards nothing that comes in by the management port, it drops what comes in for the other side
(`testbed.lab.core.plan.management_plan.GuardManagement`), and it answers ARP for the address of the port
that was asked alone. The port has no IPv6, and no routing daemon announces its prefix.

Rates of management are not scaled: what runs over it are real programs, whose clocks are this machine's.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Interface

from testbed.lab.core.model import NETNS, Guard, Guards, Lab, Link, LinkKind, Node, NodeKind
from testbed.lab.core.model.management import SLURM_PMI_PORTS, SLURMD_PORT
from testbed.lab.core.plan.addressing import Net
from testbed.lab.core.plan.interfaces import FIRST_BRIDGE
from testbed.lab.core.plan.management_plan import FormCommunity, GuardManagement, ManagementPlan
from testbed.lab.core.plan.operations import (
    CreateBridge,
    GuardedPort,
    GuardSwitch,
    Operation,
    SetBridgePort,
    SetSysctl,
    SetUp,
)
from testbed.lab.core.plan.sysctls import MANAGED, MANAGED_SWITCH, bridge_sysctls, server_sysctls, settings

BRIDGE = "br-mgmt"
PORT_GUARDS = Guards(kinds=(Guard.SOURCE, Guard.MAC, Guard.ARP, Guard.SERVERS, Guard.VLAN))
"""The guards of a node's port on the switch."""
_NO_ADDRESS_YET = IPv4Address("0.0.0.0")
"""The source of a node that asks for its address (RFC 2131)."""


class ManagementPlanner:
    """The part of a plan that is out of band; empty where nodes have no management ports."""

    def __init__(self, lab: Lab) -> None:
        self._links = [link for link in lab.links if link.kind is LinkKind.MANAGEMENT]
        self._network = lab.out_of_band if self._links else None
        self._in_band: list[Link] = []
        if (network := lab.management) is not None and not network.is_out_of_band:
            self._in_band = [link for link in lab.links if link.network == network.name]
        self._lab = lab
        self._servers = {node.name for node in lab.nodes if node.kind is NodeKind.SERVER}
        services = () if self._network is None else self._network.services
        self._community = {
            node.name
            for node in lab.nodes
            if node.kind is NodeKind.HOST and node.runtime == NETNS and any(item.name == "slurm" for item in services)
        }
        """The hosts that speak with each other: those of a job's ranks are started from its first host."""
        self.plan = self._plan()
        self.bridges = {link.b.node: BRIDGE for link in self._links}
        """The bridge of the switch, by the switch."""

    def _plan(self) -> ManagementPlan | None:
        network = self._network
        if network is None:
            return None
        base, length = int(network.prefix.network_address), network.prefix.prefixlen
        first = self._links[0]
        return ManagementPlan(
            network=network.name,
            switch=first.b.node,
            server=next(link.a.node for link in self._links if link.a.node in self._servers),
            port=first.a.interface,
            prefix=network.prefix,
            addresses={link.a.node: IPv4Interface((base + link.host_number, length)) for link in self._links},
        )

    def join(self, addresses: Mapping[tuple[str, str], tuple[IPv4Interface, IPv4Address | None]]) -> None:
        """Take the addresses of the ports of a management network that is in band, which an overlay has given them."""
        network = self._lab.management
        if not self._in_band or network is None:
            return
        first = self._in_band[0].a  # the server's
        self.plan = ManagementPlan(
            network=network.name,
            switch="",
            server=first.node,
            port=first.interface,
            prefix=network.prefix,
            addresses={link.a.node: addresses[link.a.node, link.a.interface][0] for link in self._in_band},
        )

    @property
    def nets(self) -> list[Net]:
        """The prefix of management, which no other link may have."""
        if self._network is None:
            return []
        prefix = self._network.prefix
        return [Net(int(prefix.network_address), prefix.prefixlen, f"the network {self._network.name}")]

    @property
    def addresses(self) -> dict[tuple[str, str], tuple[IPv4Interface, IPv4Address | None]]:
        """The address of each management port, and the gateway that it does not have."""
        found = {} if self.plan is None else self.plan.addresses
        return {(link.a.node, link.a.interface): (found[link.a.node], None) for link in self._links}

    def has(self, network: str) -> bool:
        """Tell whether a network is the one of management ports."""
        return self._network is not None and self._network.name == network

    def master(self, link: Link) -> int:
        """The interface index of the bridge that the switch's end of a link is a port of; 0: of none."""
        return FIRST_BRIDGE if link.kind is LinkKind.MANAGEMENT else 0

    def node_sysctls(self, node: Node) -> tuple[SetSysctl, ...]:
        """Return the settings that a node has because of the network; all settings of the network's own nodes."""
        match node.kind:
            case NodeKind.BRIDGE:
                return bridge_sysctls(node.name)
            case NodeKind.SERVER:
                return server_sysctls(node.name)
        if self.plan is None or node.name not in self.plan.addresses:
            return ()
        return settings(node.name, MANAGED_SWITCH if node.kind is NodeKind.SWITCH else MANAGED)

    def before_links(self, macs: Mapping[tuple[str, str], str]) -> list[Operation]:
        """Make the bridge."""
        return [
            CreateBridge(
                node=switch,
                name=name,
                ifindex=FIRST_BRIDGE,
                mac=macs[switch, name],
                mtu_bytes=min(link.mtu_bytes for link in self._links),
            )
            for switch, name in self.bridges.items()
        ]

    def port_sysctls(self) -> list[SetSysctl]:
        """The settings of management ports, once they are there."""
        links = (*self._links, *self._in_band)
        return [
            SetSysctl(node=link.a.node, key=f"net/ipv4/conf/{link.a.interface}/forwarding", value="0") for link in links
        ]

    def guards(self, indexes: Mapping[str, Mapping[str, int]], macs: Mapping[tuple[str, str], str]) -> list[Operation]:
        """Keep nodes from each other, and management from data; all links are there, and down. `macs` are of ports."""
        if self.plan is None:
            return []
        guards: list[Operation] = [
            GuardManagement(
                node=link.a.node,
                name=link.a.interface,
                ifindex=indexes[link.a.node][link.a.interface],
                prefix=self.plan.prefix,
            )
            for link in (*self._links, *self._in_band)
        ]
        if not self._links:
            return guards
        switch, managed = self.plan.switch, [link for link in self._links if link.a.node != self.plan.server]
        ends = [end for link in self._links for end in (link.a, link.b)]
        guards.append(
            GuardSwitch(
                node=switch,
                guards=PORT_GUARDS,
                ports=tuple(
                    GuardedPort(
                        name=link.b.interface,
                        ifindex=indexes[switch][link.b.interface],
                        mac=macs[link.a.node, link.a.interface],
                        addresses=(self.plan.addresses[link.a.node].ip, _NO_ADDRESS_YET),
                        gateway=None,
                    )
                    for link in managed
                ),
                switches=(),
                stations=tuple(sorted(macs[end.node, end.interface] for end in ends)),
            )
        )
        if self._community:
            guards.append(
                FormCommunity(
                    node=switch,
                    nodes=tuple(indexes[switch][link.b.interface] for link in managed),
                    hosts=tuple(
                        indexes[switch][link.b.interface] for link in managed if link.a.node in self._community
                    ),
                    tcp=(range(SLURMD_PORT, SLURMD_PORT + 1), SLURM_PMI_PORTS),
                )
            )
        return [
            *guards,
            *(
                SetBridgePort(
                    node=switch, name=link.b.interface, ifindex=indexes[switch][link.b.interface], isolated=True
                )
                for link in managed
                if link.a.node not in self._community
            ),
        ]

    def set_up(self) -> list[SetUp]:
        """Bring the bridge up."""
        return [SetUp(node=switch, name=name, ifindex=FIRST_BRIDGE) for switch, name in self.bridges.items()]
