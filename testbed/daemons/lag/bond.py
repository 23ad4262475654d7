"""The link group of a host's NIC that is a bond of the kernel: its state, in the words that processes of ours have."""

from __future__ import annotations

from collections.abc import Mapping

from testbed.daemons.lag.bonding import BondMember, BondState
from testbed.daemons.lag.node import GroupStatus
from testbed.protocols.lacp.lacp import MemberStatus, Receive, State

_SERVING = State.SYNCHRONIZATION | State.COLLECTING | State.DISTRIBUTING


def bond_status(nic: str, bond: BondState, members: Mapping[int, str]) -> GroupStatus:
    """The group of a NIC. `members` are the names of its ports by interface index; those that are no members of the
    bond are disabled."""
    found = (_status(name, bond, bond.members.get(ifindex)) for ifindex, name in members.items())
    return GroupStatus(name=nic, members=tuple(found))


def _status(name: str, bond: BondState, member: BondMember | None) -> MemberStatus:
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
