"""The path of a flow through a lab, as the kernel and the hash of each node choose it now.

A packet is followed from node to node. Where it is routed, the node's kernel is asked for its route (`ip route get`).
Of several next hops it takes that of its hash: the kernel's own, which the kernel is asked for, too; or the one that
the ingress program of the port computes (`testbed.base.datapath.flow_hash`), with the seed that the port has now, which
a run may have changed. Within a subnet bridges pass it on, between the VTEPs of a tenant it is in a packet of the
underlay, and between tenants that talk it passes a wire from VRF to VRF.

A port without a carrier ends the way that leads over it: routes within a subnet stay when their link goes.

Not everything is known: balancing by flowlets, by packets or by queues takes all next hops, a link group chooses its
member by a hash of its host, and a VXLAN device draws the source port of what it wraps. From there on all ways are
followed. Packet filters are not asked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING, Any

from testbed.base.cleanup import Closing
from testbed.base.datapath.abi import BALANCING_CODES, HASH_BITS, BalancingMode, HashField
from testbed.base.datapath.flow_hash import FiveTuple, port_hash
from testbed.base.linux.route_lookup import RouteAnswer, RouteHop, chosen_route, hop_of_hash, matching_route
from testbed.base.linux.rtnetlink import RouteSocket
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.drivers.nodes.inside import ask_inside
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.lab.core.plan.operations import AddAddress, CreateBridge, CreateVeth
from testbed.lab.core.plan.overlay_plan import VniPlan, VrfPlan
from testbed.lab.core.plan.qos.path_tables import pinned_path

if TYPE_CHECKING:
    from testbed.base.datapath.maps import LabMaps

MOST_HOPS = 32
"""A packet that has passed so many nodes goes round in circles."""
UDP = 17
VXLAN_PORT = 4789
_MODES = {BALANCING_CODES[mode.name]: mode for mode in BalancingMode}
_EACH = {
    BalancingMode.FLOWLET: "flowlets",
    BalancingMode.SPRAY: "packet by packet",
    BalancingMode.ADAPTIVE: "least bytes queued",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowHop:
    """A port that the flow leaves a node by, so many nodes from its source on (the source itself is 1).

    `came_in` is the port ("node:interface") that it came in by, "" at its source. It is one of `ways` there, chosen as
    `by` says; `is_certain`: this one and no other.
    """

    number: int
    port: PortPlan
    came_in: str
    ways: int
    by: str
    is_certain: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowPath:
    """The ports that a flow passes, by their distance from its source. `arrives` is where it ends, "" where it does
    not; `lost` says of each node that does not pass it on why."""

    hops: tuple[FlowHop, ...]
    arrives: str
    lost: tuple[str, ...]

    @property
    def is_certain(self) -> bool:
        """Tell whether it is the one path of the flow, and no choice among several."""
        return all(hop.is_certain for hop in self.hops)


@dataclass(frozen=True, slots=True)
class _Tunnel:
    """The tunnel between VTEPs that a packet is in: its VNI and tenant, and the packet that it wraps."""

    vni: int
    tenant: str
    packet: FiveTuple


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of a packet: in the namespace `place` of `node`, having come in by `port` (None: it begins here).

    `target` is the neighbour that it was sent to, None for one that the link alone says. `has_ports`: its ports are
    known, and so is what they hash to.
    """

    node: str
    place: str
    port: PortPlan | None
    packet: FiveTuple
    target: IPv4Address | None = None
    has_ports: bool = True
    tunnel: _Tunnel | None = None
    crossed: int = 0
    """The wires between VRFs of this node that it has passed."""


@dataclass(frozen=True, slots=True)
class _Step:
    """A way that a packet goes on: the port that it leaves by, and what it is from there on."""

    port: PortPlan
    target: IPv4Address | None
    ways: int
    by: str
    is_certain: bool
    packet: FiveTuple
    has_ports: bool
    tunnel: _Tunnel | None


class FlowTracer(Closing):
    """Follows flows through one lab. A context: it holds the maps of the lab's data path open, where there is one."""

    def __init__(self, lab: RunningLab) -> None:
        plan = lab.whole.plan
        self._lab = lab.whole
        self._ports = {f"{port.node}:{port.name}": port for port in plan.ports}
        self._at = {(port.place, port.ifindex): port for port in plan.ports}
        self._numbers = plan.port_numbers
        self._tables = plan.tables
        self._maps: LabMaps | None = lab.whole.maps() if plan.tables is not None else None
        self._addresses: dict[str, set[IPv4Address]] = defaultdict(set)
        for item in plan.operations:
            if isinstance(item, AddAddress) and isinstance(item.address.ip, IPv4Address):
                self._addresses[item.node].add(item.address.ip)
        self._bridges = {(item.node, item.ifindex) for item in plan.operations if isinstance(item, CreateBridge)}
        ends = [end for item in plan.operations if isinstance(item, CreateVeth) for end in (item.a, item.b)]
        self._bridge_of = {
            (end.node, end.ifindex): end.master for end in ends if (end.node, end.master) in self._bridges
        }
        groups = () if plan.link_groups is None else plan.link_groups.hosts
        self._members = {
            (group.node, group.ifindex): [self._ports[f"{group.node}:{member.name}"] for member in group.members]
            for group in groups
        }
        vrfs = () if plan.overlay is None else plan.overlay.vrfs
        self._vrfs = vrfs
        places = {vrf.place for vrf in vrfs}
        self._wires = {
            (near.node, near.ifindex): (far.node, far.ifindex)
            for item in plan.operations
            if isinstance(item, CreateVeth) and {item.a.node, item.b.node} <= places
            for near, far in ((item.a, item.b), (item.b, item.a))
        }
        self._vnis: dict[tuple[str, int], tuple[VrfPlan, VniPlan]] = {
            (vrf.place, vni.bridge_ifindex): (vrf, vni) for vrf in vrfs for vni in (vrf.l3, *vrf.l2)
        }

    def close(self) -> None:
        if self._maps is not None:
            self._maps.close()
            self._maps = None

    def trace(self, node: str, place: str, destination: str, packet: FiveTuple) -> FlowPath:
        """Follow the flow of `packet`, which begins at `node` in the namespace `place`, to the node `destination`.

        Raises `DriverError` where a node is gone.
        """
        hops: list[FlowHop] = []
        lost: list[str] = []
        arrives = ""
        now = [_Place(node, place, None, packet)]
        seen = set(now)
        carriers: dict[str, Mapping[tuple[str, str], bool]] = {}
        for number in range(1, MOST_HOPS + 1):
            following: list[_Place] = []
            for at in now:
                if at.tunnel is None and at.node == destination and at.port is not None:
                    arrives = arrives or f"{at.port.node}:{at.port.name}"
                    continue
                steps, why = self._steps(at)
                if not steps:
                    lost.append(f"{at.node}: {why}")
                for step in steps:
                    hops.append(_hop(number, at, step))
                    if not self._passes(step.port, carriers):
                        lost.append(f"{step.port.node}: {step.port.name} has no carrier, or is not up")
                        continue
                    beyond = self._beyond(step)
                    if beyond not in seen:
                        seen.add(beyond)
                        following.append(beyond)
            if not following:
                break
            now = following
        else:
            lost.append(f"it is still on its way after {MOST_HOPS} nodes")
        return FlowPath(hops=tuple(dict.fromkeys(hops)), arrives=arrives, lost=tuple(dict.fromkeys(lost)))

    def _passes(self, port: PortPlan, carriers: dict[str, Mapping[tuple[str, str], bool]]) -> bool:
        """Tell whether a port is up and has a carrier. `carriers` keeps what the kernel of each node has said of it."""
        if port.node not in carriers:
            carriers[port.node] = self._lab.link_states(port.node)
        return carriers[port.node].get((port.node, port.name), False)

    def _beyond(self, step: _Step) -> _Place:
        """Return where a packet is once it has passed the link of the port that it left by."""
        port = self._ports[step.port.peer]
        return _Place(port.node, port.place, port, step.packet, step.target, step.has_ports, step.tunnel)

    def _steps(self, at: _Place) -> tuple[list[_Step], str]:
        """The ways that a packet goes on from where it is, or none and why."""
        if at.tunnel is not None and at.packet.destination in self._addresses[at.place]:
            return self._unwrapped(at, at.tunnel)
        bridge = 0 if at.port is None else self._bridge_of.get((at.place, at.port.ifindex), 0)
        if at.port is not None and at.target is not None and at.target not in self._addresses[at.place]:
            if not bridge:
                return [], f"it is for {at.target}, which is not here, and no bridge passes it on"
            return self._bridged(at, bridge, at.target, by="bridge", ways=1, certain=True)
        return self._routed(at, bridge or (0 if at.port is None else at.port.ifindex))

    # --- routing ------------------------------------------------------------------------------------------

    def _routed(self, at: _Place, arrives: int) -> tuple[list[_Step], str]:
        if at.port is not None and not any(switch.node == at.node for switch in self._lab.plan.speakers):
            return [], "it does not forward"
        route, chosen = self._ask(at, arrives)
        if route.is_local:
            return [], "it is for this node"
        if not route.hops:
            return [], route.refusal
        numbers, by, certain = self._choice(at, route, chosen)
        steps: list[_Step] = []
        why = ""
        for hop in (route.hops[number] for number in numbers):
            found, why = self._by_interface(at, hop, by=by, ways=len(route.hops), certain=certain)
            steps += found
        return steps, why

    def _ask(self, at: _Place, arrives: int) -> tuple[RouteAnswer, RouteAnswer]:
        """The route of a packet, and what the kernel would choose of its next hops by its own hash."""

        def ask(_: str, route: RouteSocket) -> tuple[RouteAnswer, RouteAnswer]:
            matching = matching_route(route, at.packet, arrives=arrives)
            several = len(matching.hops) > 1
            return matching, chosen_route(route, at.packet, arrives=arrives) if several else matching

        return ask_inside(self._lab.name, [at.place], RouteSocket, ask)[at.place]

    def _choice(self, at: _Place, route: RouteAnswer, chosen: RouteAnswer) -> tuple[list[int], str, bool]:
        """Which next hops the packet takes, from 0, by what they are chosen, and whether that is certain."""
        every = list(range(len(route.hops)))
        if len(every) == 1:
            return every, "only way", True
        mode, record = self._balancing(at.port)
        if mode in _EACH:
            return every, _EACH[mode], False
        if mode is BalancingMode.STATIC and self._tables is not None:
            buffer = self._tables.buffers[int(record["buffer"])]
            return [pinned_path(self._tables, buffer, at.packet.destination, len(every))], "its destination", True
        if not at.has_ports:
            return every, "hash of an unknown port", False
        if mode is BalancingMode.FLOW:
            fields = [field for field, bit in HASH_BITS.items() if int(record["hash_fields"]) & bit]
            if HashField.ROCE_QP in fields and at.packet.is_roce and not at.packet.queue_pair:
                return every, "hash of an unknown queue pair", False
            return (
                [hop_of_hash(route.hops, port_hash(at.packet, int(record["seed"]), fields))],
                "hash of the switch",
                True,
            )
        found = [number for number in every if _same(route.hops[number], chosen)]
        return (found, "hash of the kernel", True) if len(found) == 1 else (every, "hash of the kernel", False)

    def _balancing(self, port: PortPlan | None) -> tuple[BalancingMode | None, Any]:
        """Return the way in which the port that a packet came in by spreads packets, and its numbers; None: the kernel
        hashes."""
        number = None if port is None else self._numbers.get(f"{port.node}:{port.name}")
        if number is None or self._maps is None:
            return None, None
        record = self._maps.ports[number]
        return _MODES.get(int(record["balancing"])), record

    def _by_interface(self, at: _Place, hop: RouteHop, *, by: str, ways: int, certain: bool) -> tuple[list[_Step], str]:
        """The ways that lead on from an interface: a port, the bridge of a subnet or of a VNI, or a link group."""
        target = at.packet.destination if hop.gateway is None else _told(hop.gateway)
        key = (at.place, hop.ifindex)
        if key in self._vnis and self._vnis[key][1] == self._vnis[key][0].l3 and target is not None:
            return self._wrapped(at, *self._vnis[key], target)
        if key in self._bridges and target is not None:
            return self._bridged(at, hop.ifindex, target, by=by, ways=ways, certain=certain)
        if key in self._members:
            members = self._members[key]
            sure = certain and len(members) == 1
            return [_step(at, port, target, len(members), "link group", sure) for port in members], ""
        if key in self._wires:
            place, arrives = self._wires[key]
            if at.crossed > len(self._vrfs):
                return [], "it goes round between VRFs"
            return self._routed(replace(at, place=place, crossed=at.crossed + 1), arrives)
        if key not in self._at:
            return [], f"its route leads to interface {hop.ifindex}, which is no port of the lab"
        return [_step(at, self._at[key], target, ways, by, certain)], ""

    # --- bridges and tunnels ------------------------------------------------------------------------------

    def _bridged(
        self, at: _Place, bridge: int, target: IPv4Address, *, by: str, ways: int, certain: bool
    ) -> tuple[list[_Step], str]:
        """Return the ports of a bridge behind which a neighbour is, here or behind another VTEP."""
        local = [
            port
            for port in self._at_place(at.place)
            if self._bridge_of.get((at.place, port.ifindex)) == bridge and self._has(port.peer, target)
        ]
        if local:
            sure = certain and len(local) == 1
            return [_step(at, port, target, max(ways, len(local)), by, sure) for port in local], ""
        if (at.place, bridge) in self._vnis:
            vrf, vni = self._vnis[at.place, bridge]
            for other in self._vrfs:
                if other.tenant == vrf.tenant and other.vtep != vrf.vtep and self._serves(other, vni.vni, target):
                    return self._wrapped(at, vrf, vni, other.vtep)
        return [], f"nothing behind its bridge has {target}"

    def _at_place(self, place: str) -> Iterator[PortPlan]:
        return (port for port in self._at.values() if port.place == place)

    def _has(self, end: str, address: IPv4Address) -> bool:
        """Tell whether the port at the other end of a link has an address, or is a member of a group that has."""
        port = self._ports[end]
        if port.address is not None and port.address.ip == address:
            return True
        return any(port in members and address in self._addresses[node] for (node, _), members in self._members.items())

    def _serves(self, vrf: VrfPlan, vni: int, address: IPv4Address) -> bool:
        bridges = {item.bridge_ifindex for item in vrf.l2 if item.vni == vni}
        return any(
            self._bridge_of.get((vrf.place, port.ifindex)) in bridges and self._has(port.peer, address)
            for port in self._at_place(vrf.place)
        )

    def _wrapped(self, at: _Place, vrf: VrfPlan, vni: VniPlan, vtep: IPv4Address) -> tuple[list[_Step], str]:
        """The ways of a packet of a tenant to another VTEP, in one of the underlay, whose source port nobody knows."""
        outer = FiveTuple(source=vrf.vtep, destination=vtep, protocol=UDP, source_port=0, destination_port=VXLAN_PORT)
        tunnel = _Tunnel(vni.vni, vrf.tenant, at.packet)
        below = _Place(vrf.switch, vrf.switch, None, outer, has_ports=False, tunnel=tunnel)
        return self._routed(below, 0)

    def _unwrapped(self, at: _Place, tunnel: _Tunnel) -> tuple[list[_Step], str]:
        """The ways of a packet of a tenant that its VTEP has taken out of one of the underlay."""
        inner = replace(at, packet=tunnel.packet, tunnel=None)  # it has the hash of the outer one, here
        for vrf in self._vrfs:
            if vrf.switch != at.node or vrf.tenant != tunnel.tenant:
                continue
            inside = replace(inner, place=vrf.place)
            if vrf.l3.vni == tunnel.vni:
                return self._routed(inside, vrf.l3.bridge_ifindex)
            for vni in vrf.l2:
                if vni.vni == tunnel.vni:
                    target = tunnel.packet.destination
                    return self._bridged(inside, vni.bridge_ifindex, target, by="bridge", ways=1, certain=True)
        return [], f"it has no VNI {tunnel.vni} of {tunnel.tenant}"


def _step(
    at: _Place, port: PortPlan, target: IPv4Address | IPv6Address | None, ways: int, by: str, certain: bool
) -> _Step:
    known = target if isinstance(target, IPv4Address) else None
    return _Step(port, known, ways, by, certain, at.packet, at.has_ports, at.tunnel)


def _hop(number: int, at: _Place, step: _Step) -> FlowHop:
    came_in = "" if at.port is None else f"{at.port.node}:{at.port.name}"
    return FlowHop(
        number=number, port=step.port, came_in=came_in, ways=step.ways, by=step.by, is_certain=step.is_certain
    )


def _told(gateway: IPv4Address | IPv6Address) -> IPv4Address | None:
    """The neighbour that a packet is for, None where the link says it: FRR before 10 gives 169.254.0.1 for each."""
    return gateway if isinstance(gateway, IPv4Address) and not gateway.is_link_local else None


def _same(hop: RouteHop, chosen: RouteAnswer) -> bool:
    """Tell whether a next hop is the one that the kernel has chosen."""
    return any(hop.ifindex == one.ifindex and hop.gateway == one.gateway for one in chosen.hops)
