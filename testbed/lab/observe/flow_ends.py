"""The ends of a flow as people name them: a node, one of its NICs, or an address of the lab."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address

from testbed.base.names import known_names_hint
from testbed.lab.core.deploy.live import NoSuchNode, RunningLab
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.lab.core.plan.operations import AddAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceEnd:
    """An end of a flow: an address of a node, in the namespace `place`. `nic` is the NIC that has it, where one has."""

    node: str
    place: str
    address: IPv4Address
    nic: PortPlan | None = None

    def suits(self, other: TraceEnd) -> int:
        """Return the degree to which they belong together: in one network and tenant, and there on one rail."""
        if self.nic is None or other.nic is None:
            return 0
        together = (self.nic.network, self.nic.tenant) == (other.nic.network, other.nic.tenant)
        return together + (together and self.nic.rail == other.nic.rail)


def flow_ends(lab: RunningLab, source: str, destination: str) -> tuple[TraceEnd, TraceEnd]:
    """Return the ends that are meant, of nodes with several NICs two that belong together: the first of one rail.

    Raises `NoSuchNode` for what is no node, port or address of the lab, or has no IPv4 address.
    """
    pairs = [(a, b) for a in _ends(lab, source) for b in _ends(lab, destination) if a.node != b.node]
    if not pairs:
        raise NoSuchNode(f"{source} and {destination} are one node", hint="a flow goes from one node to another")
    return max(pairs, key=lambda pair: pair[0].suits(pair[1]))


def _ends(lab: RunningLab, text: str) -> Sequence[TraceEnd]:
    try:
        return [_of_address(lab, IPv4Address(text))]
    except AddressValueError:
        pass
    name, sign, interface = text.partition(":")
    node = lab.node(name).name
    nics = {nic.name: nic for host in lab.plan.hosts if host.node == node for nic in host.nics}
    nics |= {port.name: port for port in lab.plan.ports if port.node == node and port.name not in nics}
    with_address = {name: nic for name, nic in nics.items() if nic.address is not None}
    if not sign:
        routers = [
            TraceEnd(node=node, place=node, address=one.loopback.ip) for one in lab.plan.switches if one.node == node
        ]
        found = routers or [_of_nic(nic) for nic in with_address.values()]
        if not found:
            raise NoSuchNode(f"{node} has no IPv4 address")
        return found
    if interface not in with_address:
        lab.port(name, interface)
        raise NoSuchNode(f"{text} has no IPv4 address", hint=known_names_hint(interface, list(with_address)))
    return [_of_nic(with_address[interface])]


def _of_nic(nic: PortPlan) -> TraceEnd:
    if nic.address is None:
        raise ValueError(f"{nic.node}:{nic.name} has no address")
    return TraceEnd(node=nic.node, place=nic.place, address=nic.address.ip, nic=nic)


def _of_address(lab: RunningLab, address: IPv4Address) -> TraceEnd:
    for port in lab.plan.ports:
        if port.address is not None and port.address.ip == address:
            return _of_nic(port)
    for item in lab.plan.operations:
        if isinstance(item, AddAddress) and item.address.ip == address:
            return TraceEnd(node=item.node, place=item.node, address=address)
    raise NoSuchNode(f"nothing in {lab.name} has the address {address}", hint="name a node, or NODE:IF")
