"""The operations that make VRFs and VXLAN devices on switches."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address


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
