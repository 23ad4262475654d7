"""Messages that make VXLAN devices, and the tables of a VRF read from what the kernel dumps."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Any, cast

import pytest

from testbed.base.linux import rtnetlink as nl
from testbed.base.linux.rtnetlink import RouteSocket
from testbed.daemons.keeper.overlay import (
    VrfTables,
    new_vrf,
    new_vxlan,
    prefer_vrfs,
    probe_neighbour,
    read_tables,
    set_bridge_port,
    use_neighbour,
)
from testbed.daemons.keeper.vrfs import ANY_MAC, BEYOND, EntryKind, ExpectedEntry
from testbed.lab.core.plan.operations import SetBridgePort
from testbed.lab.features.overlay.plan.device_operations import CreateVrfDevice, CreateVxlan
from testbed.lab.features.overlay.plan.expectation import mapped

VTEP, OTHER = IPv4Address("172.18.0.2"), IPv4Address("172.18.0.3")
ADDRESS, MAC = IPv4Address("10.1.0.3"), "02:00:00:00:00:07"
BRIDGE, VXLAN = 70, 71


def _fields(data: bytes, header: int) -> dict[int, bytes]:
    return {kind: bytes(value) for kind, value in nl.attributes(data[16 + header :])}


def _nested(data: bytes) -> dict[int, bytes]:
    return {kind: bytes(value) for kind, value in nl.attributes(data)}


def test_a_vxlan_device_learns_nothing_and_hands_on_the_dscp() -> None:
    operation = CreateVxlan(
        node="leaf-red",
        switch="leaf",
        name="vx10101",
        ifindex=VXLAN,
        mac=MAC,
        vni=10101,
        local=VTEP,
        master=BRIDGE,
        mtu_bytes=4450,
    )
    fields = _fields(new_vxlan(operation, 9), 16)
    assert fields[nl.IFLA_NET_NS_FD] == struct.pack("=I", 9)
    assert fields[nl.IFLA_MASTER] == struct.pack("=I", BRIDGE)
    assert fields[nl.IFLA_MTU] == struct.pack("=I", 4450)
    info = _nested(fields[nl.IFLA_LINKINFO])
    assert info[nl.IFLA_INFO_KIND] == b"vxlan\0"
    options = _nested(info[nl.IFLA_INFO_DATA])
    # linux/if_link.h: IFLA_VXLAN_ID, LOCAL, TOS (1: inherit), LEARNING, PORT
    assert options == {
        1: struct.pack("=I", 10101),
        4: VTEP.packed,
        6: b"\1",
        7: b"\0",
        15: (4789).to_bytes(2, "big"),
    }


def test_a_bridge_port_is_set_as_bridge_link_set_does() -> None:
    operation = SetBridgePort(
        node="leaf-red", name="vx10101", ifindex=VXLAN, learning=False, neighbour_suppression=True
    )
    data = set_bridge_port(operation)
    assert (data[16], int.from_bytes(data[20:24], "little")) == (socket.AF_BRIDGE, VXLAN)
    # IFLA_PROTINFO with IFLA_BRPORT_LEARNING and IFLA_BRPORT_NEIGH_SUPPRESS
    assert _nested(_fields(data, 16)[12]) == {8: b"\0", 32: b"\1"}
    isolated = set_bridge_port(SetBridgePort(node="mgmt-sw1", name="down1", ifindex=9, isolated=True))
    assert _nested(_fields(isolated, 16)[12]) == {8: b"\1", 32: b"\0", 33: b"\1"}, "IFLA_BRPORT_ISOLATED"


def test_neighbours_are_asked_for() -> None:
    use, probe = use_neighbour(BRIDGE, ADDRESS), probe_neighbour(BRIDGE, ADDRESS, MAC)
    # struct ndmsg: family, ifindex, state, flags (NTF_USE), type; state NUD_PROBE
    assert struct.unpack_from("=BxxxiHBB", use, 16) == (socket.AF_INET, BRIDGE, 0, 1, 0)
    assert struct.unpack_from("=BxxxiHBB", probe, 16) == (socket.AF_INET, BRIDGE, 0x10, 0, 0)
    assert _fields(probe, 12) == {1: ADDRESS.packed, 2: nl.mac_bytes(MAC)}


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
            (nl.RTM_GETNEIGH, socket.AF_INET): arp,
            (nl.RTM_GETNEIGH, socket.AF_BRIDGE): fdb,
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
            return iter([memoryview(heard if kind == nl.RTM_GETNEIGH else route(mapped(VTEP)))])

    socket_ = cast(RouteSocket, DualDumps([], [], []))
    entries = [
        _entry(EntryKind.HEARD, address=address, mac=MAC),
        _entry(EntryKind.ROUTE, prefix=prefix, vteps=(VTEP,)),
    ]
    assert [read_tables(socket_, ipv6=True).has(entry) for entry in entries] == [True, True]
    assert not any(read_tables(socket_).has(entry) for entry in entries)
    assert not read_tables(socket_, ipv6=True).has(_entry(EntryKind.ROUTE, prefix=prefix, vteps=(OTHER,)))


def test_a_vrf_device_with_ipv6_has_its_rules_and_the_end_of_its_table_in_both_families() -> None:
    _, *routes = new_vrf(CreateVrfDevice(node="leaf", name="red", ifindex=7, table=1 << 24 | 50001, ipv6=True))
    assert [(route[16], route[16 + 7]) for route in routes] == [(socket.AF_INET, 7), (socket.AF_INET6, 7)]
    assert [rule[16] for rule in prefer_vrfs(ipv6=True)] == [socket.AF_INET] * 2 + [socket.AF_INET6] * 2


def test_a_vrf_device_comes_with_the_end_of_its_table() -> None:
    link, route = new_vrf(CreateVrfDevice(node="leaf", name="red", ifindex=7, table=1 << 24 | 50001))
    info = _nested(_fields(link, 16)[nl.IFLA_LINKINFO])
    assert info[nl.IFLA_INFO_KIND] == b"vrf\0"
    assert _nested(info[nl.IFLA_INFO_DATA]) == {1: struct.pack("=I", 1 << 24 | 50001)}
    assert route[16 + 7] == 7, "unreachable"
    assert _fields(route, 12)[nl.RTA_TABLE] == struct.pack("=I", 1 << 24 | 50001)
    added, removed = (_fields(item, 12)[nl.FRA_PRIORITY] for item in prefer_vrfs())
    assert (added, removed) == (struct.pack("=I", 32765), bytes(4))


def test_a_cut_multipath_route_has_the_hops_before_the_cut() -> None:
    prefix = IPv4Network("10.1.1.0/24")
    body = _route(prefix, (VTEP, BRIDGE), (OTHER, BRIDGE))
    cut = body.replace(
        struct.pack("=HBBi", 16, 0, 0, BRIDGE) + nl.attribute(nl.RTA_GATEWAY, OTHER.packed), b"\xff" * 16
    )
    assert _tables(routes=[cut]).routes[nl.RT_TABLE_MAIN, prefix] == {(VTEP, BRIDGE)}
