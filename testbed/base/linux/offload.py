"""Switching off a veth's offloads over ethtool netlink (linux/ethtool_netlink.h).

With segmentation offload a 64 kB super-packet is one packet to every queue, marker and counter of the
fabric; with checksum offload captures show wrong checksums. All features of a port go in one message.
"""

from __future__ import annotations

import contextlib
import os
import struct

from testbed.base.linux.rtnetlink import RouteSocket, attribute, attributes, message, text, u32

GENL_ID_CTRL, CTRL_CMD_GETFAMILY = 16, 3
CTRL_ATTR_FAMILY_ID, CTRL_ATTR_FAMILY_NAME = 1, 2
NETLINK_GENERIC = 16
ETHTOOL_MSG_FEATURES_SET = 12
ETHTOOL_A_FEATURES_HEADER, ETHTOOL_A_FEATURES_WANTED = 1, 3
ETHTOOL_A_HEADER_DEV_INDEX, ETHTOOL_A_HEADER_FLAGS = 1, 3
ETHTOOL_FLAG_OMIT_REPLY = 2
ETHTOOL_A_BITSET_BITS, ETHTOOL_A_BITSET_BITS_BIT, ETHTOOL_A_BITSET_BIT_NAME = 3, 1, 2
NLA_F_NESTED = 0x8000

FEATURES_OFF = (
    "tx-checksum-ip-generic",
    "tx-generic-segmentation",
    "tx-tcp-segmentation",
    "tx-tcp6-segmentation",
    "tx-tcp-ecn-segmentation",
    "tx-tcp-mangleid-segmentation",
    "tx-udp-segmentation",
    "tx-gso-list",
    "rx-gro",
    "rx-gro-list",
    "rx-udp-gro-forwarding",
)
"""Names of net/ethtool/common.c, all known since Linux 5.6."""


def ethtool_family() -> int | None:
    """The id of the "ethtool" generic-netlink family, None on a kernel without it (before 5.6)."""
    with contextlib.closing(RouteSocket(protocol=NETLINK_GENERIC)) as control:
        body = struct.pack("=BBH", CTRL_CMD_GETFAMILY, 1, 0) + text(CTRL_ATTR_FAMILY_NAME, "ethtool")
        os.write(control.fileno(), message(GENL_ID_CTRL, 0, body))
        answer = control.receive()
    if struct.unpack_from("=H", answer, 4)[0] != GENL_ID_CTRL:
        return None
    for kind, payload in attributes(answer, 20):
        if kind == CTRL_ATTR_FAMILY_ID:
            return int.from_bytes(payload, "little")
    return None


_WANTED = attribute(
    ETHTOOL_A_FEATURES_WANTED | NLA_F_NESTED,
    attribute(
        ETHTOOL_A_BITSET_BITS | NLA_F_NESTED,
        b"".join(
            attribute(ETHTOOL_A_BITSET_BITS_BIT | NLA_F_NESTED, text(ETHTOOL_A_BITSET_BIT_NAME, name))
            for name in FEATURES_OFF
        ),
    ),
)
"""A bit that is named in the bitset without a value flag is wanted off."""


def features_off(family: int, ifindex: int) -> bytes:
    """Turn `FEATURES_OFF` off on one interface."""
    header = u32(ETHTOOL_A_HEADER_DEV_INDEX, ifindex) + u32(ETHTOOL_A_HEADER_FLAGS, ETHTOOL_FLAG_OMIT_REPLY)
    body = struct.pack("=BBH", ETHTOOL_MSG_FEATURES_SET, 1, 0)
    return message(family, 0, body + attribute(ETHTOOL_A_FEATURES_HEADER | NLA_F_NESTED, header) + _WANTED)


def generic_socket() -> RouteSocket:
    """A generic-netlink socket of the calling thread's network namespace."""
    return RouteSocket(protocol=NETLINK_GENERIC)
