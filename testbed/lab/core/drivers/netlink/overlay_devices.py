"""Netlink messages that make an overlay: VXLAN and VRF devices, the rules of VRFs, and how bridge ports behave.

Formats: linux/if_link.h (IFLA_VXLAN_..., IFLA_BRPORT_...).
"""

from __future__ import annotations

import socket
import struct

from testbed.base.linux import rtnetlink
from testbed.base.linux.rtnetlink import IFINFOMSG, RTMSG, attribute, message, new_link, u32
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
        + attribute(_IFLA_VXLAN_TOS, _INHERIT if operation.dscp is None else bytes([operation.dscp << 2]))
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


def new_vrf(operation: CreateVrfDevice) -> tuple[bytes, ...]:
    """`ip link add NAME type vrf table TABLE`, and an unreachable default route that all others in it come before."""
    where = u32(rtnetlink.RTA_TABLE, operation.table) + u32(rtnetlink.RTA_PRIORITY, _LAST_METRIC)
    flags = rtnetlink.NLM_F_CREATE | rtnetlink.NLM_F_EXCL
    return (
        new_link(operation.ifindex, operation.name, "vrf", data=u32(_IFLA_VRF_TABLE, operation.table)),
        *(
            message(
                rtnetlink.RTM_NEWROUTE,
                flags,
                RTMSG.pack(family, 0, 0, 0, 0, rtnetlink.RTPROT_STATIC, 0, _RTN_UNREACHABLE, 0) + where,
            )
            for family in _families(operation.ipv6)
        ),
    )


def prefer_vrfs(*, ipv6: bool = False) -> tuple[bytes, ...]:
    """`ip rule add pref 32765 lookup local`, and `ip rule del pref 0`: the rule of VRF devices, 1000, is before it.

    `ipv6`: and the same of `ip -6`.
    """
    flags = rtnetlink.NLM_F_CREATE | rtnetlink.NLM_F_EXCL
    found: list[bytes] = []
    for family in _families(ipv6):
        rule = RTMSG.pack(family, 0, 0, 0, _RT_TABLE_LOCAL, 0, 0, rtnetlink.FR_ACT_TO_TBL, 0)
        found.append(message(rtnetlink.RTM_NEWRULE, flags, rule + u32(rtnetlink.FRA_PRIORITY, LOCAL_PRIORITY)))
        found.append(message(rtnetlink.RTM_DELRULE, 0, rule + u32(rtnetlink.FRA_PRIORITY, 0)))
    return tuple(found)


def _families(ipv6: bool) -> tuple[int, ...]:
    return (socket.AF_INET, socket.AF_INET6) if ipv6 else (socket.AF_INET,)


def set_bridge_port(operation: SetBridgePort) -> bytes:
    """`bridge link set dev NAME learning ... neigh_suppress ... isolated ...`."""
    flags = attribute(_IFLA_BRPORT_LEARNING, bytes([operation.learning]))
    flags += attribute(_IFLA_BRPORT_NEIGH_SUPPRESS, bytes([operation.neighbour_suppression]))
    if operation.isolated:
        flags += attribute(_IFLA_BRPORT_ISOLATED, b"\1")
    body = IFINFOMSG.pack(socket.AF_BRIDGE, 0, operation.ifindex, 0, 0)
    return message(_RTM_SETLINK, 0, body + attribute(_IFLA_PROTINFO | _NESTED, flags))
