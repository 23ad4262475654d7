"""Asking for a route: the request as `ip route get` makes it, and what answers say of next hops."""

import errno
import struct
from ipaddress import IPv4Address, IPv4Network, IPv6Address
from typing import Any, cast

import pytest

from testbed.base.datapath.flow_hash import FiveTuple
from testbed.base.errors import DriverError
from testbed.base.linux import rtnetlink as nl
from testbed.base.linux.route_lookup import RouteHop, chosen_route, matching_route
from testbed.base.linux.routes import table_routes
from testbed.base.linux.rtnetlink import RouteSocket, attribute, u32

PACKET = FiveTuple(
    source=IPv4Address("10.0.1.2"),
    destination=IPv4Address("10.0.33.2"),
    protocol=17,
    source_port=49152,
    destination_port=4791,
)
LINK_LOCAL = IPv6Address("fe80::1")


def header(kind: int = nl.RTN_UNICAST, length: int = 24, table: int = nl.RT_TABLE_MAIN, protocol: int = 186) -> bytes:
    return nl.RTMSG.pack(2, length, 0, 0, table, protocol, 0, kind, 0)


def hop(ifindex: int, flags: int = 0, weight: int = 1, gateway: bytes = b"") -> bytes:
    inner = attribute(nl.RTA_VIA, struct.pack("=H", 10) + LINK_LOCAL.packed) if not gateway else b""
    inner += attribute(nl.RTA_GATEWAY, gateway) if gateway else b""
    return struct.pack("=HBBi", 8 + len(inner), flags, weight - 1, ifindex) + inner


class FakeSocket:
    """Answers each request by what a test has put in, and keeps the request."""

    def __init__(self, answer: bytes | int = b"", dumps: dict[int, list[bytes]] | None = None) -> None:
        self.answer = answer
        self.dumps = dumps or {}
        self.asked: list[tuple[int, bytes]] = []

    def ask(self, kind: int, body: bytes) -> memoryview:
        self.asked.append((kind, body))
        if isinstance(self.answer, int):
            raise DriverError("netlink request 26: Network is unreachable", errno=self.answer)
        return memoryview(self.answer)

    def dump(self, kind: int, body: bytes) -> Any:
        return (memoryview(item) for item in self.dumps[kind])


def asking(answer: bytes | int) -> tuple[FakeSocket, RouteSocket]:
    fake = FakeSocket(answer)
    return fake, cast(RouteSocket, fake)


def test_the_request_has_the_flow_and_the_port_that_it_comes_in_by() -> None:
    fake, route = asking(header() + u32(nl.RTA_OIF, 7))
    matching_route(route, PACKET, arrives=65)
    kind, body = fake.asked[0]
    assert kind == nl.RTM_GETROUTE
    family, to, source, _, _, _, _, _, flags = nl.RTMSG.unpack_from(body)
    assert (family, to, source, flags) == (2, 32, 32, 0x2000)
    fields = nl.fields(body, nl.RTMSG.size)
    assert fields[nl.RTA_DST] == PACKET.destination.packed and fields[2] == PACKET.source.packed
    assert fields[3] == struct.pack("=I", 65)
    assert (fields[27], fields[28], fields[29]) == (b"\x11", b"\xc0\x00", b"\x12\xb7")
    chosen_route(route, PACKET)
    _, body = fake.asked[1]
    assert nl.RTMSG.unpack_from(body)[8] == 0 and 3 not in nl.fields(body, nl.RTMSG.size)


def test_next_hops_that_are_down_do_not_count() -> None:
    several = attribute(nl.RTA_MULTIPATH, hop(1025) + hop(1026, flags=16) + hop(1027, flags=1) + hop(1028, weight=3))
    _, route = asking(header() + several)
    assert matching_route(route, PACKET).hops == (
        RouteHop(ifindex=1025, gateway=LINK_LOCAL),
        RouteHop(ifindex=1028, gateway=LINK_LOCAL, weight=3),
    )


def test_one_next_hop_and_none() -> None:
    _, route = asking(header() + u32(nl.RTA_OIF, 7) + attribute(nl.RTA_GATEWAY, bytes([10, 0, 1, 1])))
    assert chosen_route(route, PACKET).hops == (RouteHop(ifindex=7, gateway=IPv4Address("10.0.1.1")),)
    _, route = asking(header(kind=2) + u32(nl.RTA_OIF, 1))
    assert matching_route(route, PACKET).is_local
    _, route = asking(errno.ENETUNREACH)
    answer = matching_route(route, PACKET)
    assert not answer.hops and answer.refusal == "Network is unreachable"


@pytest.mark.parametrize("length", range(40))
def test_an_answer_that_is_cut_short_raises_nothing(length: int) -> None:
    whole = header() + attribute(nl.RTA_MULTIPATH, hop(1025) + hop(1026))
    _, route = asking(whole[: nl.RTMSG.size + length])
    assert len(matching_route(route, PACKET).hops) <= 2


def test_tables_have_the_sources_that_rules_send_there() -> None:
    rules = [
        nl.RTMSG.pack(2, 0, 0, 0, 255, 0, 0, 1, 0),
        nl.RTMSG.pack(2, 0, 32, 0, 101, 0, 0, 1, 0)
        + attribute(nl.FRA_SRC, bytes([10, 0, 1, 2]))
        + u32(nl.FRA_TABLE, 101),
        nl.RTMSG.pack(2, 0, 32, 0, 0, 0, 0, 7, 0) + attribute(nl.FRA_SRC, bytes([10, 0, 1, 2])),
    ]
    routes = [
        header(table=101, length=0, protocol=4) + u32(nl.RTA_TABLE, 101) + u32(nl.RTA_OIF, 65)
        + attribute(nl.RTA_GATEWAY, bytes([10, 0, 1, 1])),
        header(table=254, length=24, protocol=2) + u32(nl.RTA_TABLE, 254) + u32(nl.RTA_OIF, 65)
        + attribute(nl.RTA_DST, bytes([10, 0, 1, 0])),
        header(kind=2, table=255) + u32(nl.RTA_TABLE, 255) + u32(nl.RTA_OIF, 1),
    ]  # fmt: skip
    fake = FakeSocket(dumps={nl.RTM_GETRULE: rules, nl.RTM_GETROUTE: routes})
    main, own = table_routes(cast(RouteSocket, fake))
    assert (main.table, main.sources, main.prefix, main.protocol) == (254, (), IPv4Network("10.0.1.0/24"), "kernel")
    assert (own.table, own.sources, own.gateways) == (101, (IPv4Address("10.0.1.2"),), ("10.0.1.1",))
    assert own.prefix == IPv4Network("0.0.0.0/0") and own.interfaces == (65,)
