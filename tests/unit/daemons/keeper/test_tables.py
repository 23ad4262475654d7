"""The tables of a VRF, read from what the kernel dumps."""

import socket
import struct
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Any, cast

import pytest

from testbed.base.linux import rtnetlink as nl
from testbed.base.linux.neighbours import RTM_GETNEIGH
from testbed.base.linux.rtnetlink import RouteSocket
from testbed.daemons.keeper.entries import ANY_MAC, BEYOND, EntryKind, ExpectedEntry
from testbed.daemons.keeper.tables import VrfTables, read_tables
from testbed.lab.features.overlay.plan.expectation import mapped

VTEP, OTHER = IPv4Address("172.18.0.2"), IPv4Address("172.18.0.3")
ADDRESS, MAC = IPv4Address("10.1.0.3"), "02:00:00:00:00:07"
BRIDGE, VXLAN = 70, 71


def _neighbour(family: int, ifindex: int, state: int, flags: int, **fields: bytes) -> bytes:
    kinds = {"dst": 1, "mac": 2}
    body = struct.pack("=BxxxiHBB", family, ifindex, state, flags, 0)
    return body + b"".join(nl.attribute(kinds[name], value) for name, value in fields.items())


def _route(prefix: IPv4Network, *hops: tuple[IPv4Address, int], protocol: int = nl.RTPROT_BGP) -> bytes:
    body = struct.pack("=BBBBBBBBI", socket.AF_INET, prefix.prefixlen, 0, 0, nl.RT_TABLE_MAIN, protocol, 0, 1, 0)
    body += nl.attribute(nl.RTA_DST, prefix.network_address.packed)
    if len(hops) == 1:
        return body + nl.attribute(nl.RTA_GATEWAY, hops[0][0].packed) + nl.u32(nl.RTA_OIF, hops[0][1])
    many = b""
    for gateway, ifindex in hops:
        attributes = nl.attribute(nl.RTA_GATEWAY, gateway.packed)
        many += struct.pack("=HBBi", 8 + len(attributes), 0, 0, ifindex) + attributes
    return body + nl.attribute(nl.RTA_MULTIPATH, many)


class Dumps:
    """A socket that answers each dump with scripted bodies: of neighbours by family, and of routes."""

    def __init__(self, arp: list[bytes], fdb: list[bytes], routes: list[bytes]) -> None:
        self._answers: dict[tuple[int, int], list[bytes]] = {
            (RTM_GETNEIGH, socket.AF_INET): arp,
            (RTM_GETNEIGH, socket.AF_BRIDGE): fdb,
        }
        self._routes = routes

    def dump(self, kind: int, body: bytes, flags: int = 0) -> Iterator[memoryview]:
        found = self._routes if kind == nl.RTM_GETROUTE else self._answers[kind, body[0]]
        return iter([memoryview(item) for item in found])


def _tables(**dumps: Any) -> VrfTables:
    return read_tables(cast(RouteSocket, Dumps(**({"arp": [], "fdb": [], "routes": []} | dumps))))


def _entry(kind: EntryKind, **values: Any) -> ExpectedEntry:
    defaults: dict[str, Any] = {"vni": 10101, "ifindex": BRIDGE, "of": "h1:rail1", "switch": "leaf2"}
    return ExpectedEntry(kind=kind, **(defaults | values))


@pytest.mark.parametrize(
    ("state", "flags", "heard", "neighbour"),
    [
        (0x04, 0, True, False),  # stale: heard, and not by EVPN
        (0x40, 0x10, True, True),  # NOARP, brought by a daemon
        (0x01, 0, False, False),  # incomplete
        (0x20, 0, False, False),  # failed
    ],
)
def test_a_neighbour_counts_when_its_mac_is_known(state: int, flags: int, heard: bool, neighbour: bool) -> None:
    body = _neighbour(socket.AF_INET, BRIDGE, state, flags, dst=ADDRESS.packed, mac=nl.mac_bytes(MAC))
    tables = _tables(arp=[body])
    assert tables.has(_entry(EntryKind.HEARD, address=ADDRESS, mac=MAC)) is heard
    assert tables.has(_entry(EntryKind.NEIGHBOUR, address=ADDRESS, mac=MAC)) is neighbour
    assert not tables.has(_entry(EntryKind.HEARD, address=ADDRESS, mac="02:00:00:00:00:08")), "another's address"


def test_fdb_entries_count_by_their_vtep() -> None:
    flood = _neighbour(socket.AF_BRIDGE, VXLAN, 0x80, 0x02, mac=bytes(6), dst=VTEP.packed)
    bridged = _neighbour(socket.AF_BRIDGE, VXLAN, 0x80, 0x02, mac=nl.mac_bytes(MAC))
    tables = _tables(fdb=[flood, bridged])
    entry = _entry(EntryKind.FLOOD, ifindex=VXLAN, mac=ANY_MAC, vteps=(VTEP,))
    assert tables.has(entry)
    assert not tables.has(_entry(EntryKind.FLOOD, ifindex=VXLAN, mac=ANY_MAC, vteps=(OTHER,)))
    assert not tables.has(_entry(EntryKind.MAC, ifindex=VXLAN, mac=MAC, vteps=(VTEP,))), "it is the bridge's own"


def test_a_route_counts_over_any_of_its_vteps_and_over_no_other() -> None:
    prefix = IPv4Network("10.1.1.0/24")
    entry = _entry(EntryKind.ROUTE, prefix=prefix, vteps=(VTEP, OTHER))
    assert _tables(routes=[_route(prefix, (VTEP, BRIDGE))]).has(entry)
    assert _tables(routes=[_route(prefix, (VTEP, BRIDGE), (OTHER, BRIDGE))]).has(entry)
    assert not _tables(routes=[_route(prefix, (IPv4Address("172.18.0.9"), BRIDGE))]).has(entry)
    assert not _tables(routes=[_route(prefix, (VTEP, BRIDGE + 1))]).has(entry)
    assert not _tables(routes=[_route(prefix, (VTEP, BRIDGE), protocol=nl.RTPROT_STATIC)]).has(entry)
    assert not _tables().has(entry)


def test_a_route_counts_in_the_table_of_its_vrf_alone() -> None:
    prefix = IPv4Network("10.1.1.0/24")
    body = _route(prefix, (VTEP, BRIDGE))
    in_table = body[:4] + b"\0" + body[5:] + nl.u32(nl.RTA_TABLE, 1 << 24 | 50001)
    entry = _entry(EntryKind.ROUTE, prefix=prefix, vteps=(VTEP,))
    tables = _tables(routes=[in_table])
    assert tables.has(entry, 1 << 24 | 50001)
    assert not tables.has(entry)
    assert not tables.has(entry, 1 << 24 | 50002)


@pytest.mark.parametrize("many", [False, True])
def test_a_link_local_next_hop_of_ipv6_is_the_one_that_stands_for_all(many: bool) -> None:
    prefix = IPv4Network("198.51.100.0/24")
    entry = _entry(EntryKind.ROUTE, prefix=prefix, vteps=(BEYOND,))

    def route(address: str) -> bytes:
        via = nl.attribute(18, struct.pack("=H", socket.AF_INET6) + IPv6Address(address).packed)
        body = struct.pack("=BBBBBBBBI", socket.AF_INET, 24, 0, 0, nl.RT_TABLE_MAIN, nl.RTPROT_BGP, 0, 1, 0)
        body += nl.attribute(nl.RTA_DST, prefix.network_address.packed)
        if many:
            return body + nl.attribute(nl.RTA_MULTIPATH, struct.pack("=HBBi", 8 + len(via), 0, 0, BRIDGE) + via)
        return body + via + nl.u32(nl.RTA_OIF, BRIDGE)

    assert _tables(routes=[route("fe80::1")]).has(entry)
    assert not _tables(routes=[route("2001:db8::1")]).has(entry)


def test_ipv6_of_tenants_is_read_where_it_is_asked_for_and_its_next_hops_are_vteps() -> None:
    address, prefix = IPv6Address("fd00:1::3"), IPv6Network("fd00:1:0:1::/64")
    heard = _neighbour(socket.AF_INET6, BRIDGE, 0x02, 0, dst=address.packed, mac=nl.mac_bytes(MAC))

    def route(gateway: IPv6Address) -> bytes:
        body = struct.pack("=BBBBBBBBI", socket.AF_INET6, 64, 0, 0, nl.RT_TABLE_MAIN, nl.RTPROT_BGP, 0, 1, 0)
        body += nl.attribute(nl.RTA_DST, prefix.network_address.packed)
        return body + nl.attribute(nl.RTA_GATEWAY, gateway.packed) + nl.u32(nl.RTA_OIF, BRIDGE)

    class DualDumps(Dumps):
        def dump(self, kind: int, body: bytes, flags: int = 0) -> Iterator[memoryview]:
            if body[0] != socket.AF_INET6:
                return super().dump(kind, body, flags)
            return iter([memoryview(heard if kind == RTM_GETNEIGH else route(mapped(VTEP)))])

    socket_ = cast(RouteSocket, DualDumps([], [], []))
    entries = [_entry(EntryKind.HEARD, address=address, mac=MAC), _entry(EntryKind.ROUTE, prefix=prefix, vteps=(VTEP,))]
    assert [read_tables(socket_, ipv6=True).has(entry) for entry in entries] == [True, True]
    assert not any(read_tables(socket_).has(entry) for entry in entries)
    assert not read_tables(socket_, ipv6=True).has(_entry(EntryKind.ROUTE, prefix=prefix, vteps=(OTHER,)))


def test_a_cut_multipath_route_has_the_hops_before_the_cut() -> None:
    prefix = IPv4Network("10.1.1.0/24")
    body = _route(prefix, (VTEP, BRIDGE), (OTHER, BRIDGE))
    cut = body.replace(
        struct.pack("=HBBi", 16, 0, 0, BRIDGE) + nl.attribute(nl.RTA_GATEWAY, OTHER.packed), b"\xff" * 16
    )
    assert _tables(routes=[cut]).routes[nl.RT_TABLE_MAIN, prefix] == {(VTEP, BRIDGE)}
