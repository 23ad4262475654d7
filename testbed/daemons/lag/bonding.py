"""Netlink messages of bonds of the kernel (drivers/net/bonding of Linux) that speak LACP, and how such a bond stands.

Formats: linux/if_link.h (IFLA_BOND_..., IFLA_BOND_SLAVE_...). The state octets are those of LACP (IEEE 802.1AX-2020,
6.4.2.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from testbed.base.linux import rtnetlink
from testbed.base.linux.modules import ModuleState, load_module, module_state
from testbed.base.linux.rtnetlink import IFINFOMSG, RouteSocket, attribute, fields, u32
from testbed.daemons.lag.groups import CreateBond
from testbed.daemons.lag.node import GroupStatus
from testbed.protocols.lacp.lacp import MemberStatus, Receive, State

MODULE = "bonding"
_MODE, _MIIMON, _XMIT_HASH_POLICY, _MIN_LINKS, _AD_LACP_RATE, _AD_INFO = 1, 3, 14, 18, 21, 23
_INFO_AGGREGATOR, _INFO_PARTNER_MAC = 1, 5
_SLAVE_STATE, _SLAVE_MII_STATUS, _SLAVE_AGGREGATOR, _SLAVE_ACTOR, _SLAVE_PARTNER = 1, 2, 6, 7, 8
_IFLA_INFO_SLAVE_KIND, _IFLA_INFO_SLAVE_DATA = 4, 5
_MODE_8023AD, _LAYER34, _FAST = 4, 1, 1
_LINK_UP, _STATE_ACTIVE = 0, 0
MIIMON_MS = 50
"""The interval at which the kernel looks whether members have carrier."""
_NO_MAC = bytes(6)
_SERVING = State.SYNCHRONIZATION | State.COLLECTING | State.DISTRIBUTING


@dataclass(frozen=True, slots=True, kw_only=True)
class BondMember:
    """A port of a bond. `actor` and `partner` are the state octets of LACP that it says and has heard."""

    carrier: bool
    active: bool
    aggregator: int
    actor: int
    partner: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BondState:
    """The state of a bond: its active aggregator, the partner that has, "" for none, and its members by ifindex."""

    aggregator: int
    partner: str
    members: Mapping[int, BondMember]


def load_bonding() -> None:
    """Load the kernel's bonding, without the bond that it makes by default. Raises `CapabilityError`."""
    if module_state(MODULE) is ModuleState.AVAILABLE:
        load_module(MODULE, "max_bonds=0", hint="lag_by: ebpf needs no module")


def new_bond(operation: CreateBond) -> bytes:
    """`ip link add NAME type bond mode 802.3ad miimon 50 xmit_hash_policy layer3+4 min_links 1 lacp_rate fast`."""
    options = (
        attribute(_MODE, bytes([_MODE_8023AD]))
        + u32(_MIIMON, MIIMON_MS)
        + attribute(_XMIT_HASH_POLICY, bytes([_LAYER34]))
        + u32(_MIN_LINKS, 1)
        + attribute(_AD_LACP_RATE, bytes([_FAST]))
    )
    more = attribute(rtnetlink.IFLA_ADDRESS, rtnetlink.mac_bytes(operation.mac))
    more += u32(rtnetlink.IFLA_MTU, operation.mtu_bytes)
    more += u32(rtnetlink.IFLA_GSO_MAX_SEGS, 1)  # as its members have it, and TCP asks the bond
    return rtnetlink.new_link(operation.ifindex, operation.name, "bond", more, options)


def bond_states(route: RouteSocket) -> dict[int, BondState]:
    """Return the state of the bonds of a network namespace, by their ifindex."""
    return parse_bonds([bytes(body) for body in route.dump(rtnetlink.RTM_GETLINK, IFINFOMSG.pack(0, 0, 0, 0, 0))])


def parse_bonds(links: list[bytes]) -> dict[int, BondState]:
    """The bonds among links, which are bodies of RTM_NEWLINK."""
    found: dict[int, tuple[int, str]] = {}
    members: dict[int, dict[int, BondMember]] = {}
    for body in links:
        _, _, ifindex, _, _ = IFINFOMSG.unpack_from(body)
        link = fields(body, IFINFOMSG.size)
        info = fields(link.get(rtnetlink.IFLA_LINKINFO, b""))
        if info.get(rtnetlink.IFLA_INFO_KIND) == b"bond\0":
            state = fields(fields(info.get(rtnetlink.IFLA_INFO_DATA, b"")).get(_AD_INFO, b""))
            partner = state.get(_INFO_PARTNER_MAC, _NO_MAC)
            found[ifindex] = _number(state, _INFO_AGGREGATOR), "" if partner == _NO_MAC else partner.hex(":")
        if info.get(_IFLA_INFO_SLAVE_KIND) == b"bond\0":
            master = _number(link, rtnetlink.IFLA_MASTER)
            members.setdefault(master, {})[ifindex] = _member(fields(info.get(_IFLA_INFO_SLAVE_DATA, b"")))
    return {
        ifindex: BondState(aggregator=aggregator, partner=partner, members=members.get(ifindex, {}))
        for ifindex, (aggregator, partner) in found.items()
    }


def _member(slave: Mapping[int, bytes]) -> BondMember:
    return BondMember(
        carrier=_number(slave, _SLAVE_MII_STATUS) == _LINK_UP,
        active=_number(slave, _SLAVE_STATE) == _STATE_ACTIVE,
        aggregator=_number(slave, _SLAVE_AGGREGATOR),
        actor=_number(slave, _SLAVE_ACTOR),
        partner=_number(slave, _SLAVE_PARTNER),
    )


def _number(found: Mapping[int, bytes], kind: int) -> int:
    return int.from_bytes(found.get(kind, b""), "little")


def bond_status(nic: str, bond: BondState, members: Mapping[int, str]) -> GroupStatus:
    """The group of a NIC. `members` are the names of its ports by interface index; those that are no members of the
    bond are disabled."""
    found = (_member_status(name, bond, bond.members.get(ifindex)) for ifindex, name in members.items())
    return GroupStatus(name=nic, members=tuple(found))


def _member_status(name: str, bond: BondState, member: BondMember | None) -> MemberStatus:
    receive = _receive(member)
    ours = member is not None and member.aggregator == bond.aggregator and bool(bond.partner)
    serves = (
        member is not None
        and member.active
        and member.actor & _SERVING == _SERVING
        and bool(member.partner & State.SYNCHRONIZATION)
    )
    return MemberStatus(
        name=name,
        receive=receive,
        in_sync=ours and serves and receive is Receive.CURRENT,
        partner=bond.partner if ours and receive is Receive.CURRENT else "",
        partner_port=0,
    )


def _receive(member: BondMember | None) -> Receive:
    """The state of the receive machine, which the kernel tells by the state octets alone."""
    if member is None or not member.carrier:
        return Receive.DISABLED
    if member.actor & State.EXPIRED:
        return Receive.EXPIRED
    return Receive.DEFAULTED if member.actor & State.DEFAULTED else Receive.CURRENT
