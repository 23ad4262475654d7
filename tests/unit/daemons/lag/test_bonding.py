"""How a bond of the kernel stands: read from netlink, and told in the words of our own LACP."""

import struct

from testbed.base.linux import rtnetlink
from testbed.base.linux.rtnetlink import attribute, attributes, text, u32
from testbed.daemons.lag.bonding import BondMember, BondState, bond_status, new_bond, parse_bonds
from testbed.daemons.lag.groups import CreateBond
from testbed.protocols.lacp.lacp import MemberStatus, Receive, State

PARTNER = "02:03:b6:ad:4e:be"
SERVING = 0x3F
"""The state octet of a member that works: both active, short time-out, aggregates, in sync, collects, distributes."""
NAMES = {11: "fe1", 12: "fe2"}
GOOD = BondMember(carrier=True, active=True, aggregator=1, actor=SERVING, partner=SERVING)


def _link(ifindex: int, info: bytes, master: int = 0) -> bytes:
    head = struct.pack("=BxHiII", 0, 1, ifindex, 0, 0) + text(rtnetlink.IFLA_IFNAME, f"x{ifindex}")
    return head + (u32(rtnetlink.IFLA_MASTER, master) if master else b"") + attribute(rtnetlink.IFLA_LINKINFO, info)


def _bond(ifindex: int, partner: str, aggregator: int = 1) -> bytes:
    info = attribute(1, struct.pack("=H", aggregator)) + attribute(5, rtnetlink.mac_bytes(partner))
    return _link(ifindex, text(1, "bond") + attribute(2, attribute(1, b"\4") + attribute(0x8000 | 23, info)))


def _slave(ifindex: int, master: int, *, mii: int = 0, state: int = 0, actor: int = SERVING) -> bytes:
    data = attribute(1, bytes([state])) + attribute(2, bytes([mii])) + attribute(6, struct.pack("=H", 1))
    data += attribute(7, bytes([actor])) + attribute(8, struct.pack("=H", SERVING))
    return _link(ifindex, text(1, "veth") + text(4, "bond") + attribute(5, data), master)


def test_bonds_are_read_with_their_members() -> None:
    links = [_slave(11, 10), _bond(10, PARTNER), _slave(12, 10, mii=2, state=1), _link(2, text(1, "bridge"))]
    assert parse_bonds(links) == {
        10: BondState(
            aggregator=1,
            partner=PARTNER,
            members={
                11: GOOD,
                12: BondMember(carrier=False, active=False, aggregator=1, actor=SERVING, partner=SERVING),
            },
        )
    }
    assert parse_bonds([_bond(10, "00:00:00:00:00:00")]) == {10: BondState(aggregator=1, partner="", members={})}


def test_a_new_bond_speaks_lacp_each_second_and_hashes_by_flow() -> None:
    operation = CreateBond(node="h", name="fe0", ifindex=10, mac=PARTNER, mtu_bytes=9000)
    fields = {kind: bytes(value) for kind, value in attributes(new_bond(operation), 16 + 16)}
    assert fields[rtnetlink.IFLA_IFNAME] == b"fe0\0"
    assert fields[rtnetlink.IFLA_ADDRESS].hex(":") == PARTNER
    info = dict(attributes(fields[rtnetlink.IFLA_LINKINFO]))
    data = {kind: int.from_bytes(value, "little") for kind, value in attributes(info[rtnetlink.IFLA_INFO_DATA])}
    assert data == {1: 4, 3: 50, 14: 1, 18: 1, 21: 1}


def _status(*members: BondMember | None, partner: str = PARTNER) -> list[MemberStatus]:
    found = {number: member for number, member in zip(NAMES, members, strict=True) if member is not None}
    return list(bond_status("fe0", BondState(aggregator=1, partner=partner, members=found), NAMES).members)


def _changed(**changes: object) -> BondMember:
    return BondMember(**{name: getattr(GOOD, name) for name in GOOD.__slots__} | changes)  # type: ignore[arg-type]


def test_members_with_the_partner_of_the_active_aggregator_are_in_sync() -> None:
    first, second = _status(GOOD, GOOD)
    assert (first.name, second.name) == ("fe1", "fe2")
    assert {(one.receive, one.in_sync, one.partner) for one in (first, second)} == {(Receive.CURRENT, True, PARTNER)}


def test_what_keeps_a_member_from_being_in_sync() -> None:
    cases: list[tuple[BondMember | None, Receive]] = [
        (None, Receive.DISABLED),
        (_changed(carrier=False), Receive.DISABLED),
        (_changed(actor=SERVING | State.EXPIRED), Receive.EXPIRED),
        (_changed(actor=SERVING | State.DEFAULTED), Receive.DEFAULTED),
        (_changed(actor=SERVING & ~State.DISTRIBUTING), Receive.CURRENT),
        (_changed(partner=SERVING & ~State.SYNCHRONIZATION), Receive.CURRENT),
        (_changed(active=False), Receive.CURRENT),
        (_changed(aggregator=2), Receive.CURRENT),
    ]
    for member, receive in cases:
        first, second = _status(GOOD, member)
        assert first.in_sync
        assert (second.receive, second.in_sync) == (receive, False), member
    assert [one.in_sync for one in _status(GOOD, GOOD, partner="")] == [False, False], "nobody is the partner"
