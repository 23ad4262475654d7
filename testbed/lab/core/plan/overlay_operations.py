"""The operations that make VRFs and VXLAN devices, and say what passes between tenants and from outside into one."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address

from testbed.lab.core.model import Service


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateVrf:
    """A network namespace for a tenant's VRF on a switch. `node` is what the operations within it call it."""

    node: str
    switch: str
    tenant: str
    cpu_slot: int

    def __str__(self) -> str:
        return f"create VRF {self.tenant} on {self.switch} as {self.node}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateVrfDevice:
    """The kernel's VRF device for a tenant's VRF on the switch `node`. What its `table` lacks is unreachable, with
    `ipv6` in both families."""

    node: str
    name: str
    ifindex: int
    table: int
    ipv6: bool = False

    def __str__(self) -> str:
        return f"create VRF device {self.node}:{self.name} table {self.table}{' with IPv6' if self.ipv6 else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferVrfs:
    """Have the tables of a node's VRF devices looked up before its local table, whose addresses are no tenant's, with
    `ipv6` in both families."""

    node: str
    ipv6: bool = False

    def __str__(self) -> str:
        too = ", in IPv6, too" if self.ipv6 else ""
        return f"look up tables of VRFs before the local one on {self.node}{too}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateVxlan:
    """A VXLAN device of a VRF, a port of its bridge `master`; its UDP socket is in the namespace of `switch`.

    It learns nothing from packets: EVPN says where they go. `dscp` is that of the outer header; None: the inner one's.
    """

    node: str
    switch: str
    name: str
    ifindex: int
    mac: str
    vni: int
    local: IPv4Address
    master: int
    mtu_bytes: int
    dscp: int | None = None

    def __str__(self) -> str:
        marked = "" if self.dscp is None else f" dscp {self.dscp}"
        what = f"vni {self.vni} local {self.local} mtu {self.mtu_bytes}{marked}"
        return f"create vxlan {self.node}:{self.name} {what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyPort:
    """A VRF's end of a wire between two tenants, and the packets that may come in there.

    From `sources` to `targets` alone: `everything`, or the services that the one at the other end may ask for and
    answers of those that it may be asked for. `wire` is what people know the wire by, whatever the interface is called.
    """

    wire: str
    name: str
    ifindex: int
    sources: tuple[IPv4Address | IPv6Address, ...]
    targets: tuple[IPv4Address | IPv6Address, ...]
    services: tuple[Service, ...]
    answers: tuple[Service, ...]
    everything: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPolicy:
    """Let into a VRF of `tenant` what may come from others, at all of its wires together.

    `node` is its place, and `shared` tells whether other VRFs have the same one.
    """

    node: str
    tenant: str
    shared: bool
    ports: tuple[PolicyPort, ...]

    def __str__(self) -> str:
        return f"let pass into {self.node} from {len(self.ports)} other tenants what they may ask for"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetBorder:
    """Let into a VRF of `tenant`, at its port to a router outside, IPv4 from `sources` to `targets` alone.

    Beside it there is IPv6 of the link itself, which BGP is spoken over. `node` and `shared` are as above.
    """

    node: str
    tenant: str
    shared: bool
    name: str
    sources: tuple[IPv4Network, ...]
    targets: tuple[IPv4Network, ...]

    def __str__(self) -> str:
        sources = ", ".join(map(str, self.sources))
        return f"let pass into {self.node}:{self.name} from {sources} what is to the tenant"
