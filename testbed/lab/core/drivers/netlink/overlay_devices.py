"""Netlink messages that make an overlay: VXLAN and VRF devices, the rules of VRFs, and how bridge ports behave.

Formats: linux/if_link.h (IFLA_VXLAN_..., IFLA_BRPORT_...).
"""

from __future__ import annotations

import socket
import struct

from testbed.base.linux import rtnetlink
from testbed.base.linux.rtnetlink import IFINFOMSG, RTMSG, attribute, message, new_link, text, u32
from testbed.lab.core.plan.operations import SetBridgePort
from testbed.lab.core.plan.overlay_operations import CreateVrfDevice, CreateVxlan

VXLAN_PORT = 4789
"""The UDP port that VTEPs listen at (RFC 7348 section 5)."""
_RTM_SETLINK = 19
_IFLA_PROTINFO = 12
_IFLA_BRPORT_LEARNING, _IFLA_BRPORT_NEIGH_SUPPRESS, _IFLA_BRPORT_ISOLATED = 8, 32, 33
_NESTED = 0x8000
_IFLA_VXLAN_ID, _IFLA_VXLAN_LOCAL, _IFLA_VXLAN_TOS, _IFLA_VXLAN_LEARNING, _IFLA_VXLAN_PORT = 1, 4, 6, 7, 15
_INHERIT = b"\1"
"""As TOS: the outer header has the DSCP of the inner one, and so the packet its class on the fabric (RFC 2983).

Another TOS is that of all packets; the ECN field is the inner one's in either case (RFC 6040).
"""
_IFLA_VRF_TABLE = 1
_RT_TABLE_LOCAL = 255
_RTN_UNREACHABLE = 7
_LAST_METRIC = 4278198272
"""The metric that zebra takes for a distance of 255, "unknown": the kernel tries all other routes first (vrf.rst)."""
LOCAL_PRIORITY = 32765
"""The priority of the rule of the local table in a node with VRF devices."""


def new_vxlan(operation: CreateVxlan, namespace: int) -> bytes:
    """A VXLAN device made in place in the network namespace that the descriptor `namespace` is of.

    Must be sent from the switch's namespace: the device's UDP socket stays there. (One that is made first and moved
    later costs an RCU grace period.)
    """
    options = (
        u32(_IFLA_VXLAN_ID, operation.vni)
        + attribute(_IFLA_VXLAN_LOCAL, operation.local.packed)
        + attribute(_IFLA_VXLAN_TOS, _tos(operation))
        + attribute(_IFLA_VXLAN_LEARNING, b"\0")
        + attribute(_IFLA_VXLAN_PORT, struct.pack("!H", VXLAN_PORT))
    )
    more = (
        attribute(rtnetlink.IFLA_ADDRESS, rtnetlink.mac_bytes(operation.mac))
        + u32(rtnetlink.IFLA_MTU, operation.mtu_bytes)
        + u32(rtnetlink.IFLA_NET_NS_FD, namespace)
        + u32(rtnetlink.IFLA_MASTER, operation.master)
    )
    return new_link(operation.ifindex, operation.name, "vxlan", more, options)


def change_vxlan(operation: CreateVxlan) -> tuple[bytes, ...]:
    """Another address of the VTEP, DSCP of outer headers or MTU for a VXLAN device that is there, in its namespace.

    What is not said stays as it is (vxlan_changelink of the kernel's vxlan_core.c).
    """
    options = attribute(_IFLA_VXLAN_LOCAL, operation.local.packed)
    options += attribute(_IFLA_VXLAN_TOS, _tos(operation))
    info = text(rtnetlink.IFLA_INFO_KIND, "vxlan") + attribute(rtnetlink.IFLA_INFO_DATA, options)
    body = IFINFOMSG.pack(0, 0, operation.ifindex, 0, 0) + attribute(rtnetlink.IFLA_LINKINFO, info)
    return (
        message(rtnetlink.RTM_NEWLINK, 0, body),
        rtnetlink.set_mtu(operation.ifindex, operation.mtu_bytes),
        rtnetlink.set_master(operation.ifindex, operation.master),
    )


def _tos(operation: CreateVxlan) -> bytes:
    return _INHERIT if operation.dscp is None else bytes([operation.dscp << 2])


def new_vrf(operation: CreateVrfDevice) -> tuple[bytes, ...]:
    """`ip link add NAME type vrf table TABLE`, and an unreachable default route that all others in it come before."""
    return (
        new_link(operation.ifindex, operation.name, "vrf", data=u32(_IFLA_VRF_TABLE, operation.table)),
        *(_unreachable(operation.table, family) for family in _families(operation.ipv6)),
    )


def change_vrf(old: CreateVrfDevice, new: CreateVrfDevice) -> tuple[bytes, ...]:
    """The table of a VRF device that is there, for IPv6 as well, or for IPv4 alone."""
    if old.ipv6 == new.ipv6:
        return ()
    route = _unreachable(new.table, socket.AF_INET6)
    return (route if new.ipv6 else rtnetlink.undone(route),)


def remove_vrf(operation: CreateVrfDevice) -> tuple[bytes, ...]:
    """`ip link del NAME`, once what its table ends in is gone: the kernel leaves a route without an interface."""
    routes = [rtnetlink.undone(_unreachable(operation.table, family)) for family in _families(operation.ipv6)]
    return (*routes, rtnetlink.delete_link(operation.ifindex))


def _unreachable(table: int, family: int) -> bytes:
    where = u32(rtnetlink.RTA_TABLE, table) + u32(rtnetlink.RTA_PRIORITY, _LAST_METRIC)
    body = RTMSG.pack(family, 0, 0, 0, 0, rtnetlink.RTPROT_STATIC, 0, _RTN_UNREACHABLE, 0)
    return message(rtnetlink.RTM_NEWROUTE, rtnetlink.NLM_F_CREATE | rtnetlink.NLM_F_EXCL, body + where)


def prefer_vrfs(*, ipv6: bool = False) -> tuple[bytes, ...]:
    """`ip rule add pref 32765 lookup local`, and `ip rule del pref 0`: the rule of VRF devices, 1000, is before it.

    `ipv6`: and the same of `ip -6`.
    """
    return tuple(item for family in _families(ipv6) for item in _later(family))


def prefer_vrfs_no_more(*, ipv6: bool = False) -> tuple[bytes, ...]:
    """Take back `prefer_vrfs`: at no moment there is no rule for the local table."""
    return tuple(item for family in _families(ipv6) for item in _sooner(family))


def change_preference(*, ipv6: bool) -> tuple[bytes, ...]:
    """`prefer_vrfs` for IPv6 beside IPv4, or for IPv4 alone again."""
    return _later(socket.AF_INET6) if ipv6 else _sooner(socket.AF_INET6)


def _later(family: int) -> tuple[bytes, ...]:
    return _local_rule(family, LOCAL_PRIORITY, there=True), _local_rule(family, 0, there=False)


def _sooner(family: int) -> tuple[bytes, ...]:
    return _local_rule(family, 0, there=True), _local_rule(family, LOCAL_PRIORITY, there=False)


def _local_rule(family: int, priority: int, *, there: bool) -> bytes:
    """The rule that looks the local table up, made or removed."""
    rule = RTMSG.pack(family, 0, 0, 0, _RT_TABLE_LOCAL, 0, 0, rtnetlink.FR_ACT_TO_TBL, 0)
    flags = rtnetlink.NLM_F_CREATE | rtnetlink.NLM_F_EXCL if there else 0
    return message(
        rtnetlink.RTM_NEWRULE if there else rtnetlink.RTM_DELRULE, flags, rule + u32(rtnetlink.FRA_PRIORITY, priority)
    )


def _families(ipv6: bool) -> tuple[int, ...]:
    return (socket.AF_INET, socket.AF_INET6) if ipv6 else (socket.AF_INET,)


def set_bridge_port(operation: SetBridgePort) -> bytes:
    """`bridge link set dev NAME learning ... neigh_suppress ... isolated ...`."""
    flags = attribute(_IFLA_BRPORT_LEARNING, bytes([operation.learning]))
    flags += attribute(_IFLA_BRPORT_NEIGH_SUPPRESS, bytes([operation.neighbour_suppression]))
    flags += attribute(_IFLA_BRPORT_ISOLATED, bytes([operation.isolated]))
    body = IFINFOMSG.pack(socket.AF_BRIDGE, 0, operation.ifindex, 0, 0)
    return message(_RTM_SETLINK, 0, body + attribute(_IFLA_PROTINFO | _NESTED, flags))
