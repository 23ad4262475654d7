"""The VLANs of peer links: how the bridges of tenants on one leaf of a pair are joined to those on the other.

An L2VNI that two leaves have together is a bridge on each, and a VLAN of the peer link, whose untagged frames are those
of the pair's own subnet. The kernel need not have 802.1Q devices: the bridge's port to the peer is a veth, whose other
end lies beside the peer link in the leaf's own namespace, and eBPF puts the tag on and takes it off
(`testbed.daemons.lag`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from testbed.base.names import vrf_node_name
from testbed.daemons.keeper.entries import BEYOND
from testbed.lab.core.model import Lab
from testbed.lab.core.plan.hosts import MAIN_TABLE
from testbed.lab.core.plan.operations import (
    AddRoute,
    CreateVeth,
    Operation,
    SetBridgePort,
    SetNeighbour,
    SetUp,
    VethEnd,
)
from testbed.lab.core.plan.overlay_plan import VrfPlan
from testbed.lab.core.plan.stable import probe_numbers

FIRST_PEER_PORT = 1 << 28
FIRST_TAIL = 1 << 29
"""Interface indexes of the two ends are these plus the VNI."""
_VLANS = 4094


@dataclass(frozen=True, slots=True, kw_only=True)
class Trunk:
    """An L2VNI on a leaf of a pair: `vlan` is its 802.1Q VLAN ID on the peer link, `vrf` the node of its VRF."""

    leaf: str
    vrf: str
    vni: int
    vlan: int
    bridge_ifindex: int
    vxlan_ifindex: int
    mtu_bytes: int

    @property
    def port(self) -> str:
        """The bridge's port to the peer."""
        return _port_name(self.vni)

    @property
    def ifindex(self) -> int:
        return FIRST_PEER_PORT + self.vni

    @property
    def tail(self) -> str:
        """The other end of that port, in the leaf's own namespace."""
        return _tail_name(self.vni)

    @property
    def tail_ifindex(self) -> int:
        return FIRST_TAIL + self.vni


def _port_name(vni: int) -> str:
    return f"peer{vni}"


def _tail_name(vni: int) -> str:
    return f"trunk{vni}"


def trunk_ends(lab: Lab) -> list[tuple[str, str]]:
    """The two ends of each trunk by node and interface."""
    paired = {leaf for pair in lab.leaf_pairs for leaf in pair}
    links = lab.tenant_links if paired else ()
    found: dict[tuple[str, str], None] = {}
    for tenant in () if lab.overlay is None else lab.overlay.tenants:
        for subnet in tenant.subnets:
            for leaf in dict.fromkeys(
                link.b.node for link in links if link.nic in subnet.nics and link.b.node in paired
            ):
                found[vrf_node_name(leaf, tenant.name), _port_name(subnet.vni)] = None
                found[leaf, _tail_name(subnet.vni)] = None
    return list(found)


def plan_trunks(lab: Lab, vrfs: Sequence[VrfPlan]) -> tuple[Trunk, ...]:
    """The trunks of all leaves in pairs. A VNI has one VLAN in the whole lab."""
    paired = {leaf for pair in lab.leaf_pairs for leaf in pair}
    here = [(vrf, vni) for vrf in vrfs if vrf.switch in paired for vni in vrf.l2]
    vlans = probe_numbers({f"vlan of {vni.vni}": vni.vni for _, vni in here}, size=_VLANS, what="VLAN of a peer link")
    return tuple(
        Trunk(
            leaf=vrf.switch,
            vrf=vrf.node,
            vni=vni.vni,
            vlan=1 + vlans[f"vlan of {vni.vni}"],
            bridge_ifindex=vni.bridge_ifindex,
            vxlan_ifindex=vni.vxlan_ifindex,
            mtu_bytes=vni.mtu_bytes,
        )
        for vrf, vni in here
    )


def make_trunks(trunks: Sequence[Trunk], macs: Mapping[tuple[str, str], str]) -> list[Operation]:
    """Make the veths, and ports of bridges of their inner ends."""
    made: list[Operation] = []
    for trunk in trunks:
        inner = VethEnd(
            node=trunk.vrf,
            name=trunk.port,
            ifindex=trunk.ifindex,
            mac=macs[trunk.vrf, trunk.port],
            master=trunk.bridge_ifindex,
        )
        outer = VethEnd(node=trunk.leaf, name=trunk.tail, ifindex=trunk.tail_ifindex, mac=macs[trunk.leaf, trunk.tail])
        made.append(CreateVeth(a=inner, b=outer, mtu_bytes=trunk.mtu_bytes))
    return made


def open_trunks(trunks: Sequence[Trunk]) -> list[Operation]:
    """Bring them up. What comes from the peer is not learned: the peer says where it is."""
    made: list[Operation] = []
    for trunk in trunks:
        made += (
            SetBridgePort(
                node=trunk.vrf, name=trunk.port, ifindex=trunk.ifindex, learning=False, neighbour_suppression=False
            ),
            SetUp(node=trunk.vrf, name=trunk.port, ifindex=trunk.ifindex),
            SetUp(node=trunk.leaf, name=trunk.tail, ifindex=trunk.tail_ifindex),
        )
    return made


def route_to_borders(lab: Lab, trunks: Sequence[Trunk], macs: Mapping[tuple[str, str], str]) -> list[Operation]:
    """Have the other leaf of a pair send to a tenant's router outside by way of the one that the router is on.

    All that is for the router comes to both, as one VTEP. The route leads out of the bridge's port to the peer itself,
    past the bridge, whose router has the same MAC on both leaves; the port at the other end takes what is for its own.
    """
    by_vrf = {trunk.vrf: trunk for trunk in reversed(trunks)}
    peers = {leaf: other for pair in lab.leaf_pairs for leaf, other in (pair, pair[::-1])}
    made: list[Operation] = []
    for tenant in () if lab.overlay is None else lab.overlay.tenants:
        if tenant.external is None or (peer := peers.get(tenant.external.port.node)) is None:
            continue
        border, here = (by_vrf[vrf_node_name(leaf, tenant.name)] for leaf in (tenant.external.port.node, peer))
        made.append(
            SetNeighbour(
                node=here.vrf, name=here.port, ifindex=here.ifindex, address=BEYOND, mac=macs[border.vrf, border.port]
            )
        )
        made += [
            AddRoute(
                node=here.vrf, destination=prefix, gateway=BEYOND, ifindex=here.ifindex, table=MAIN_TABLE, onlink=True
            )
            for prefix in tenant.external.prefixes
        ]
    return made
