"""A network namespace as the kernel has it now, read in a few dumps, to be compared with the operations of a plan.

Links, addresses, static routes, rules, queues with their classes and programs, neighbours that were told, ports of
bridges, settings below /proc/sys, and the rules and sets of nftables. What comes back keeps the bodies of
messages of addresses, routes and rules: rtnetlink deletes by the same words in which it tells of a thing.
"""

from __future__ import annotations

import socket
import struct
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
    ip_address,
    ip_interface,
    ip_network,
)
from pathlib import Path

from testbed.base.linux import nftables as nft
from testbed.base.linux import rtnetlink as rt
from testbed.base.linux import traffic_control as traffic
from testbed.base.linux.neighbours import NUD_PERMANENT, dump_neighbours
from testbed.base.linux.nftables import NetfilterSocket
from testbed.base.linux.rtnetlink import IFINFOMSG, RTMSG, TCMSG, RouteSocket, fields
from testbed.lab.core.drivers.netlink.netem import HtbClass, read_classes
from testbed.lab.core.plan.operations import STEERING_PRIORITIES

Address = IPv4Address | IPv6Address
Interface = IPv4Interface | IPv6Interface
Network = IPv4Network | IPv6Network

_IFADDRMSG = struct.Struct("=BBBBI")
_IFA_F_PERMANENT = 0x80
_IFLA_PROTINFO = 12
_BRPORT_LEARNING, _BRPORT_NEIGH_SUPPRESS, _BRPORT_ISOLATED = 8, 32, 33
_FRA_L3MDEV = 19
_RTPROT_BOOT = 3
_BY_HAND = (_RTPROT_BOOT, rt.RTPROT_STATIC)
"""The protocols of routes that ip(8) and plans make; all others are the kernel's and those of routing daemons."""
_KERNELS_RULES = (0, *STEERING_PRIORITIES, 1000, 32765, 32766, 32767)
"""Priorities of rules that name no source: the kernel's own, those of VRF devices (`overlay_devices`), and those that
lead TCP to a carrier, which takes them back itself."""
_RTM_GETTFILTER = 46
_NETEM_BYTES = 24
_NETEM_LATENCY64, _NETEM_JITTER64 = 10, 11
_FAMILIES = (socket.AF_INET, socket.AF_INET6)
_ALL = struct.pack("=BxHiII", 0, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenLink:
    """An interface. `master` is 0 for none."""

    name: str
    mac: str
    mtu_bytes: int
    master: int
    is_up: bool
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRoute:
    """A unicast route that ip(8) or a plan has made. `ifindex` is 0 for one over several next hops."""

    table: int
    destination: Network
    metric: int
    ifindex: int
    gateway: Address | None
    source: Address | None
    body: bytes = field(compare=False, default=b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRule:
    """A rule for packets from `source`. `table` is 0 where they are unreachable."""

    source: Address | None
    table: int
    priority: int
    destination: Network | None
    body: bytes = field(compare=False, default=b"")


Qdisc = tuple[int, str, int]
"""Handle, kind and parent."""
Filter = tuple[int, str, int]
"""Parent, name and class ID of a filter that is an eBPF program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenQueues:
    """The queues of an interface. `delay_ns` are delay and jitter of netem at its root, None without it."""

    qdiscs: frozenset[Qdisc] = frozenset()
    classes: tuple[HtbClass, ...] = ()
    filters: frozenset[Filter] = frozenset()
    delay_ns: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenTable:
    """A table of nftables: how many rules it has, and the keys of its sets, each with the name of the set."""

    rules: int
    elements: frozenset[tuple[str, bytes]] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenPlace:
    """A network namespace. Links, queues and ports of bridges are by interface index; of a port of a bridge: whether
    it learns, answers for neighbours, and is isolated. `filters` are the tables of nftables, by family and name."""

    links: Mapping[int, SeenLink]
    addresses: Mapping[tuple[int, Interface], bytes]
    routes: Collection[SeenRoute]
    rules: Collection[SeenRule]
    priorities: Collection[tuple[int, int]]
    """Family and priority of the rules that name no source."""
    queues: Mapping[int, SeenQueues]
    neighbours: Mapping[tuple[int, Address], str]
    bridge_ports: Mapping[int, tuple[bool, bool, bool]]
    settings: Mapping[str, str]
    filters: Mapping[tuple[int, str], SeenTable]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceQuestions:
    """The things in a namespace that are worth a question of their own: each port costs four dumps."""

    ports: Collection[int] = ()
    settings: Collection[str] = ()
    bridge_ports: bool = False
    filters: bool = False


def read_place(route: RouteSocket, wanted: PlaceQuestions) -> SeenPlace:
    """Read the namespace that the socket and the calling thread are in. Raises `DriverError`."""
    rules, priorities = _rules(route)
    return SeenPlace(
        links=dict(read_links(route)),
        addresses=dict(_addresses(route)),
        routes=tuple(_routes(route)),
        rules=rules,
        priorities=priorities,
        queues=_queues(route, wanted.ports),
        neighbours={
            (item.ifindex, item.address): item.mac
            for item in dump_neighbours(route, *_FAMILIES)
            if item.address is not None and item.state & NUD_PERMANENT
        },
        bridge_ports=dict(_bridge_ports(route)) if wanted.bridge_ports else {},
        settings={key: value for key in wanted.settings if (value := _setting(key)) is not None},
        filters=_filters() if wanted.filters else {},
    )


def read_links(route: RouteSocket) -> Iterator[tuple[int, SeenLink]]:
    """The interfaces of the socket's namespace, each with its index."""
    for body in route.dump(rt.RTM_GETLINK, _ALL):
        _, _, ifindex, flags, _ = IFINFOMSG.unpack_from(body)
        found = fields(body, IFINFOMSG.size)
        yield (
            ifindex,
            SeenLink(
                name=_text(found.get(rt.IFLA_IFNAME, b"")),
                mac=found.get(rt.IFLA_ADDRESS, b"").hex(":"),
                mtu_bytes=_number(found, rt.IFLA_MTU),
                master=_number(found, rt.IFLA_MASTER),
                is_up=bool(flags & rt.IFF_UP),
                kind=_text(fields(found.get(rt.IFLA_LINKINFO, b"")).get(rt.IFLA_INFO_KIND, b"")),
            ),
        )


def _addresses(route: RouteSocket) -> Iterator[tuple[tuple[int, Interface], bytes]]:
    """Yield the addresses that somebody gave: neither what a lease or an advertisement lent, nor what the kernel makes
    itself."""
    for body in route.dump(rt.RTM_GETADDR, _IFADDRMSG.pack(0, 0, 0, 0, 0)):
        _, length, _, _, ifindex = _IFADDRMSG.unpack_from(body)
        found = fields(body, _IFADDRMSG.size)
        packed = found.get(rt.IFA_LOCAL) or found.get(rt.IFA_ADDRESS, b"")
        if len(packed) in (4, 16) and int.from_bytes(found.get(rt.IFA_FLAGS, b"\xff"), "little") & _IFA_F_PERMANENT:
            yield (ifindex, ip_interface((packed, length))), bytes(body)


def _routes(route: RouteSocket) -> Iterator[SeenRoute]:
    for family in _FAMILIES:
        for body in route.dump(rt.RTM_GETROUTE, RTMSG.pack(family, 0, 0, 0, 0, 0, 0, 0, 0)):
            _, length, _, _, table, protocol, _, kind, _ = RTMSG.unpack_from(body)
            if protocol not in _BY_HAND or kind != rt.RTN_UNICAST:
                continue
            found = fields(body, RTMSG.size)
            yield SeenRoute(
                table=_number(found, rt.RTA_TABLE) or table,
                destination=_network(family, found.get(rt.RTA_DST), length),
                metric=_metric(family, _number(found, rt.RTA_PRIORITY)),
                ifindex=_number(found, rt.RTA_OIF),
                gateway=_address(found.get(rt.RTA_GATEWAY)),
                source=_address(found.get(rt.RTA_PREFSRC)),
                body=bytes(body),
            )


DEFAULT_METRIC6 = 1024
"""The metric of a route of IPv6 that is made without one (IP6_RT_PRIO_USER of include/uapi/linux/ipv6_route.h)."""


def _metric(family: int, metric: int) -> int:
    return 0 if family == socket.AF_INET6 and metric == DEFAULT_METRIC6 else metric


def _rules(route: RouteSocket) -> tuple[list[SeenRule], set[tuple[int, int]]]:
    """The rules that somebody made, and family and priority of those that name no source."""
    rules: list[SeenRule] = []
    priorities: set[tuple[int, int]] = set()
    for family in _FAMILIES:
        for body in route.dump(rt.RTM_GETRULE, RTMSG.pack(family, 0, 0, 0, 0, 0, 0, 0, 0)):
            found = fields(body, RTMSG.size)
            priority = _number(found, rt.FRA_PRIORITY)
            length, table, action = body[1], body[4], body[7]
            if rt.FRA_SRC not in found:
                priorities.add((family, priority))
                if priority in _KERNELS_RULES or _FRA_L3MDEV in found:
                    continue
            to = found.get(rt.FRA_DST)
            rules.append(
                SeenRule(
                    source=_address(found.get(rt.FRA_SRC)),
                    table=(_number(found, rt.FRA_TABLE) or table) if action == rt.FR_ACT_TO_TBL else 0,
                    priority=priority,
                    destination=None if to is None else _network(family, to, length),
                    body=bytes(body),
                )
            )
    return rules, priorities


def _queues(route: RouteSocket, ports: Collection[int]) -> dict[int, SeenQueues]:
    if not ports:
        return {}
    qdiscs: dict[int, set[Qdisc]] = {port: set() for port in ports}
    delays: dict[int, tuple[int, int]] = {}
    for body in route.dump(rt.RTM_GETQDISC, TCMSG.pack(0, 0, 0, 0, 0)):
        _, ifindex, handle, parent, _ = TCMSG.unpack_from(body)
        if ifindex not in qdiscs or not handle:  # those without a handle are the kernel's own
            continue
        found = fields(body, TCMSG.size)
        kind = _text(found.get(rt.TCA_KIND, b""))
        qdiscs[ifindex].add((handle, kind, parent))
        if kind == "netem" and parent == rt.TC_H_ROOT:
            options = fields(found.get(rt.TCA_OPTIONS, b""), _NETEM_BYTES)
            delays[ifindex] = _number(options, _NETEM_LATENCY64), _number(options, _NETEM_JITTER64)
    return {
        port: SeenQueues(
            qdiscs=frozenset(qdiscs[port]),
            classes=tuple(read_classes(route, port)),
            filters=frozenset(_programs(route, port)),
            delay_ns=delays.get(port),
        )
        for port in ports
    }


def _programs(route: RouteSocket, port: int) -> Iterator[Filter]:
    for parent in (traffic.HTB_ROOT_HANDLE, traffic.CLSACT_INGRESS, traffic.CLSACT_EGRESS):
        for body in route.dump(_RTM_GETTFILTER, TCMSG.pack(0, port, 0, parent, 0)):
            name, class_id = traffic.program_of(fields(body, TCMSG.size).get(rt.TCA_OPTIONS, b""))
            if name:
                yield parent, name, class_id


def _bridge_ports(route: RouteSocket) -> Iterator[tuple[int, tuple[bool, bool, bool]]]:
    for body in route.dump(rt.RTM_GETLINK, IFINFOMSG.pack(socket.AF_BRIDGE, 0, 0, 0, 0)):
        _, _, ifindex, _, _ = IFINFOMSG.unpack_from(body)
        port = fields(fields(body, IFINFOMSG.size).get(_IFLA_PROTINFO, b""))
        if port:
            learning, suppressing, isolated = (
                bool(_number(port, kind)) for kind in (_BRPORT_LEARNING, _BRPORT_NEIGH_SUPPRESS, _BRPORT_ISOLATED)
            )
            yield ifindex, (learning, suppressing, isolated)


def _setting(key: str) -> str | None:
    """The value of a setting of the calling thread's namespace, its words a space apart; None where it has none."""
    try:
        return " ".join(Path(f"/proc/sys/{key}").read_text().split())
    except OSError:
        return None


def _filters() -> dict[tuple[int, str], SeenTable]:
    with closing(NetfilterSocket()) as item:
        return _tables(item.rules(), item.elements())


def filter_tables(transaction: Collection[bytes]) -> dict[tuple[int, str], SeenTable]:
    """The tables that a transaction of nftables makes, by family and name, as they are seen later."""
    return _tables(nft.new_rules(transaction), nft.new_elements(transaction))


def _tables(rules: Iterable[tuple[int, str]], elements: Iterable[nft.SetElement]) -> dict[tuple[int, str], SeenTable]:
    counts = Counter(rules)
    keys: defaultdict[tuple[int, str], set[tuple[str, bytes]]] = defaultdict(set)
    for element in elements:
        keys[element.family, element.table].add((element.set, element.key))
    return {table: SeenTable(rules=count, elements=frozenset(keys[table])) for table, count in counts.items()}


def _network(family: int, packed: bytes | None, length: int) -> Network:
    """A prefix; without an address that of everything."""
    return ip_network((packed or bytes(4 if family == socket.AF_INET else 16), length))


def _address(packed: bytes | None) -> Address | None:
    return None if not packed else ip_address(packed)


def _number(found: Mapping[int, bytes], kind: int) -> int:
    return int.from_bytes(found.get(kind, b""), "little")


def _text(value: bytes) -> str:
    return value.rstrip(b"\0").decode(errors="replace")
