"""Rtnetlink messages as bytes, and a socket that sends them in batches.

It is our own for what is said in bulk: for 500 veth pairs pyroute2 takes 4 to 8 times the CPU, and 14 to 20 times for
reading them back (`tests/bench/test_netlink.py`); single conversations are had by it (`iproute`). Formats:
rtnetlink(7), linux/if_link.h, linux/pkt_sched.h.

Only the last message of a batch asks for an acknowledgement: the kernel handles messages in order and
reports an error for any of them, so one answer closes a batch.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from testbed.base.errors import DriverError
from testbed.base.linux.socket_options import attach_filter

RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK = 16, 17, 18
RTM_NEWADDR, RTM_DELADDR, RTM_GETADDR = 20, 21, 22
RTM_NEWROUTE, RTM_DELROUTE, RTM_GETROUTE = 24, 25, 26
RTM_NEWRULE, RTM_DELRULE, RTM_GETRULE = 32, 33, 34
RTM_NEWQDISC, RTM_DELQDISC, RTM_GETQDISC = 36, 37, 38
RTM_NEWTCLASS, RTM_GETTCLASS = 40, 42
RTM_NEWTFILTER = 44
RTM_GETSTATS = 94

NLMSG_ERROR, NLMSG_DONE = 2, 3
NLM_F_REQUEST, NLM_F_ACK = 0x001, 0x004
NLM_F_ROOT, NLM_F_MATCH = 0x100, 0x200
NLM_F_DUMP = NLM_F_ROOT | NLM_F_MATCH
NLM_F_REPLACE, NLM_F_EXCL, NLM_F_CREATE = 0x100, 0x200, 0x400

SOL_NETLINK = 270
NETLINK_EXT_ACK = 11
NETLINK_CAP_ACK = 10

IFF_UP, IFF_LOWER_UP = 1, 1 << 16
IFLA_ADDRESS, IFLA_IFNAME, IFLA_MTU, IFLA_LINK, IFLA_MASTER, IFLA_TXQLEN = 1, 3, 4, 5, 10, 13
IFLA_LINKINFO, IFLA_STATS64, IFLA_NET_NS_FD = 18, 23, 28
IFLA_NUM_TX_QUEUES, IFLA_NUM_RX_QUEUES, IFLA_GSO_MAX_SEGS = 31, 32, 40
IFLA_INFO_KIND, IFLA_INFO_DATA = 1, 2
IFLA_BR_FORWARD_DELAY, IFLA_BR_AGEING_TIME, IFLA_BR_STP_STATE, IFLA_BR_MCAST_SNOOPING = 1, 4, 5, 23
IFLA_BR_MULTI_BOOLOPT, _BR_NO_LL_LEARN = 46, 1
VETH_INFO_PEER = 1
IFA_ADDRESS, IFA_LOCAL, IFA_FLAGS = 1, 2, 8
RTA_DST, RTA_OIF, RTA_GATEWAY, RTA_PRIORITY, RTA_PREFSRC, RTA_MULTIPATH, RTA_TABLE = 1, 4, 5, 6, 7, 9, 15
RTA_VIA, RTA_NH_ID = 18, 30
FR_ACT_TO_TBL, FR_ACT_UNREACHABLE = 1, 7
FRA_DST, FRA_SRC, FRA_PRIORITY, FRA_SUPPRESS_PREFIXLEN, FRA_TABLE = 1, 2, 6, 14, 15
TCA_KIND, TCA_OPTIONS = 1, 2

RT_TABLE_MAIN, RT_TABLE_LOCAL = 254, 255
RTPROT_STATIC, RTPROT_BGP = 4, 186
RT_SCOPE_UNIVERSE, RT_SCOPE_LINK = 0, 253
RTN_UNICAST = 1
RTNH_F_ONLINK = 4
RTNLGRP_LINK, RTNLGRP_NEIGH, RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_ROUTE = 1, 3, 7, 11
TC_H_ROOT = 0xFFFFFFFF

_IFA_F_NODAD = 0x02

_NLMSGHDR = struct.Struct("=IHHII")
_NLATTR = struct.Struct("=HH")
IFINFOMSG = struct.Struct("=BxHiII")
_IFADDRMSG = struct.Struct("=BBBBI")
RTMSG = struct.Struct("=BBBBBBBBI")
TCMSG = struct.Struct("=BxxxiIII")
_RTNEXTHOP = struct.Struct("=HBBi")
_U32 = struct.Struct("=I")

RECEIVE_BYTES = 1 << 20
_FILTER = struct.Struct("=HBBI")
"""An instruction of classic BPF (struct sock_filter of linux/filter.h)."""
_BPF_LOAD_HALF, _BPF_JUMP_EQUAL, _BPF_RETURN = 0x28, 0x15, 0x06
_TYPE_OFFSET = 4
"""The offset of nlmsg_type in struct nlmsghdr."""


def attribute(kind: int, payload: bytes) -> bytes:
    """One netlink attribute, padded to four bytes."""
    length = 4 + len(payload)
    return _NLATTR.pack(length, kind) + payload + b"\0" * (-length % 4)


def u32(kind: int, value: int) -> bytes:
    return attribute(kind, _U32.pack(value))


def text(kind: int, value: str) -> bytes:
    return attribute(kind, value.encode() + b"\0")


def message(kind: int, flags: int, body: bytes) -> bytes:
    """A request; the sequence number is 0 until a `RouteSocket` numbers it."""
    return _NLMSGHDR.pack(16 + len(body), kind, flags | NLM_F_REQUEST, 0, 0) + body


def undone(request: bytes) -> bytes:
    """The request that takes back what a request made, of the kinds whose deletion names the same things: addresses,
    routes and rules. In rtnetlink the kind that deletes follows the one that makes."""
    length, kind, _, sequence, sender = _NLMSGHDR.unpack_from(request)
    return _NLMSGHDR.pack(length, kind + 1, NLM_F_REQUEST, sequence, sender) + request[_NLMSGHDR.size :]


def replacing(request: bytes) -> bytes:
    """The request that makes what a request makes, and takes the place of what is there under the same key: routes."""
    length, kind, flags, sequence, sender = _NLMSGHDR.unpack_from(request)
    flags = flags & ~NLM_F_EXCL | NLM_F_REPLACE
    return _NLMSGHDR.pack(length, kind, flags, sequence, sender) + request[_NLMSGHDR.size :]


def mac_bytes(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))


def family_of(address: bytes) -> int:
    """Return the family of a packed address."""
    return socket.AF_INET6 if len(address) == 16 else socket.AF_INET


def link_local_address(mac: str) -> bytes:
    """The IPv6 address that an interface makes of its MAC (RFC 4291, section 2.5.6 and appendix A)."""
    data = mac_bytes(mac)
    return bytes.fromhex("fe80000000000000") + bytes([data[0] ^ 2]) + data[1:3] + b"\xff\xfe" + data[3:]


def new_link(ifindex: int, name: str, kind: str, more: bytes = b"", data: bytes = b"") -> bytes:
    """`ip link add NAME index IFINDEX type KIND`, with `more` attributes of the link and `data` of its kind."""
    info = text(IFLA_INFO_KIND, kind) + (attribute(IFLA_INFO_DATA, data) if data else b"")
    body = IFINFOMSG.pack(0, 0, ifindex, 0, 0) + text(IFLA_IFNAME, name) + more + attribute(IFLA_LINKINFO, info)
    return message(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, body)


def new_bridge(name: str, ifindex: int, mac: str, mtu_bytes: int, ageing_s: int = 0, master: int = 0) -> bytes:
    """A bridge without STP and without multicast snooping; `ageing_s` 0 is the kernel's default of 300.

    `master` is the VRF device that routes for it, 0 for none. It does not learn from frames to the link-local group
    addresses, such as those of LACP: they are from ports.
    """
    options = u32(IFLA_BR_FORWARD_DELAY, 0) + u32(IFLA_BR_STP_STATE, 0) + attribute(IFLA_BR_MCAST_SNOOPING, b"\0")
    options += attribute(IFLA_BR_MULTI_BOOLOPT, struct.pack("=II", _BR_NO_LL_LEARN, _BR_NO_LL_LEARN))
    if ageing_s:
        options += u32(IFLA_BR_AGEING_TIME, ageing_s * 100)  # USER_HZ
    more = attribute(IFLA_ADDRESS, mac_bytes(mac)) + u32(IFLA_MTU, mtu_bytes)
    return new_link(ifindex, name, "bridge", more + (u32(IFLA_MASTER, master) if master else b""), options)


_ONE_QUEUE = u32(IFLA_NUM_TX_QUEUES, 1) + u32(IFLA_NUM_RX_QUEUES, 1) + u32(IFLA_GSO_MAX_SEGS, 1)
"""One segment a packet: TCP hands several at once to a queue even where the interface has no offloads."""


@dataclass(frozen=True, slots=True)
class LinkEnd:
    """One end of a veth pair for `new_veth`; `namespace` is an open descriptor of its network namespace."""

    namespace: int
    name: str
    ifindex: int
    mac: str
    master: int


def new_veth(a: LinkEnd, b: LinkEnd, mtu_bytes: int, queue_packets: int) -> bytes:
    """A veth pair made in place in both namespaces.

    Must be sent from a namespace that has no interface with index `a.ifindex`, else the kernel takes
    the request for a change of that interface. Only `a` can join a bridge (`master`) in the same
    message: the kernel reads IFLA_MASTER of the first end alone. One queue each way: veth would make one
    for every CPU, and a port has one queue. `queue_packets` becomes the limit of the queue under HTB.
    """
    if b.master:
        a, b = b, a
    peer = _link_end(b, mtu_bytes, queue_packets)
    info = text(IFLA_INFO_KIND, "veth") + attribute(IFLA_INFO_DATA, attribute(VETH_INFO_PEER, peer))
    body = (
        _link_end(a, mtu_bytes, queue_packets)
        + (u32(IFLA_MASTER, a.master) if a.master else b"")
        + attribute(IFLA_LINKINFO, info)
    )
    return message(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, body)


def _link_end(end: LinkEnd, mtu_bytes: int, queue_packets: int) -> bytes:
    return (
        IFINFOMSG.pack(0, 0, end.ifindex, 0, 0)
        + text(IFLA_IFNAME, end.name)
        + attribute(IFLA_ADDRESS, mac_bytes(end.mac))
        + u32(IFLA_MTU, mtu_bytes)
        + u32(IFLA_TXQLEN, queue_packets)
        + u32(IFLA_NET_NS_FD, end.namespace)
        + _ONE_QUEUE
    )


def has_carrier(flags: int) -> bool:
    """Tell from a link's flags whether it is up and has carrier, at this moment.

    Its operational state and IFF_RUNNING follow later: a worker of the kernel that needs the lock of all links sets
    them, up to a second after the carrier (`linkwatch_event` in net/core/link_watch.c).
    """
    return bool(flags & IFF_UP and flags & IFF_LOWER_UP)


def set_link_state(ifindex: int, up: bool) -> bytes:
    return message(RTM_NEWLINK, 0, IFINFOMSG.pack(0, 0, ifindex, IFF_UP if up else 0, IFF_UP))


def delete_link(ifindex: int) -> bytes:
    """`ip link del`; the other end of a veth pair goes with it."""
    return message(RTM_DELLINK, 0, IFINFOMSG.pack(0, 0, ifindex, 0, 0))


def set_mtu(ifindex: int, mtu_bytes: int) -> bytes:
    """`ip link set ... mtu`."""
    return message(RTM_NEWLINK, 0, IFINFOMSG.pack(0, 0, ifindex, 0, 0) + u32(IFLA_MTU, mtu_bytes))


def set_mac(ifindex: int, mac: str) -> bytes:
    return message(RTM_NEWLINK, 0, IFINFOMSG.pack(0, 0, ifindex, 0, 0) + attribute(IFLA_ADDRESS, mac_bytes(mac)))


def set_queue_length(ifindex: int, packets: int) -> bytes:
    """`ip link set ... txqueuelen`: of queues that are made from then on."""
    return message(RTM_NEWLINK, 0, IFINFOMSG.pack(0, 0, ifindex, 0, 0) + u32(IFLA_TXQLEN, packets))


def set_name(ifindex: int, name: str) -> bytes:
    """`ip link set ... name`. One that is up takes it since Linux 6.2."""
    return message(RTM_NEWLINK, 0, IFINFOMSG.pack(0, 0, ifindex, 0, 0) + text(IFLA_IFNAME, name))


def set_namespace(ifindex: int, namespace: int) -> bytes:
    """`ip link set ... netns`: into the network namespace that the descriptor `namespace` is of.

    It goes down, and loses its addresses, queues and master. Its name, MAC, MTU and counters stay, and so does its
    index where the namespace has none of that number; the other end of a veth pair loses its carrier and no more.
    """
    return message(RTM_NEWLINK, 0, IFINFOMSG.pack(0, 0, ifindex, 0, 0) + u32(IFLA_NET_NS_FD, namespace))


def set_master(ifindex: int, master: int) -> bytes:
    return message(RTM_NEWLINK, 0, IFINFOMSG.pack(0, 0, ifindex, 0, 0) + u32(IFLA_MASTER, master))


def new_address(ifindex: int, address: bytes, prefix_length: int) -> bytes:
    return message(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, _address(ifindex, address, prefix_length))


def delete_address(ifindex: int, address: bytes, prefix_length: int) -> bytes:
    return message(RTM_DELADDR, 0, _address(ifindex, address, prefix_length))


def _address(ifindex: int, address: bytes, prefix_length: int) -> bytes:
    """An address of IPv6 is usable at once, without duplicate address detection."""
    family = family_of(address)
    flags = _IFA_F_NODAD if family == socket.AF_INET6 else 0
    return (
        _IFADDRMSG.pack(family, prefix_length, flags, 0, ifindex)
        + attribute(IFA_LOCAL, address)
        + attribute(IFA_ADDRESS, address)
    )


def new_route(  # noqa: PLR0913  # what a route has
    destination: bytes,
    prefix_length: int,
    gateway: bytes | None,
    ifindex: int,
    *,
    table: int,
    source: bytes | None,
    metric: int = 0,
    onlink: bool = False,
) -> bytes:
    """`destination` has four bytes, or sixteen in IPv6; so has `gateway`, of IPv6 for either (RFC 8950)."""
    flags = RTNH_F_ONLINK if onlink else 0
    scope = RT_SCOPE_UNIVERSE if gateway else RT_SCOPE_LINK
    header_table = table if table < 256 else 0
    family = family_of(destination)
    body = RTMSG.pack(family, prefix_length, 0, 0, header_table, RTPROT_STATIC, scope, RTN_UNICAST, flags)
    body += u32(RTA_TABLE, table) + u32(RTA_OIF, ifindex)
    if prefix_length:
        body += attribute(RTA_DST, destination)
    if gateway and len(gateway) == len(destination):
        body += attribute(RTA_GATEWAY, gateway)
    elif gateway:
        body += attribute(RTA_VIA, family_of(gateway).to_bytes(2, sys.byteorder) + gateway)
    if source:
        body += attribute(RTA_PREFSRC, source)
    if metric:
        body += u32(RTA_PRIORITY, metric)
    return message(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, body)


def new_source_rule(source: bytes, table: int, priority: int, destination: tuple[bytes, int] | None = None) -> bytes:
    """`ip rule add from SOURCE lookup TABLE pref PRIORITY` (fib_rule_hdr has the layout of rtmsg).

    `destination`: `to PREFIX/LENGTH ... suppress_prefixlength 0` besides. Table 0: `unreachable` instead of `lookup`.
    """
    header_table = table if table < 256 else 0
    action = FR_ACT_TO_TBL if table else FR_ACT_UNREACHABLE
    prefix, length = destination or (b"", 0)
    body = RTMSG.pack(family_of(source), length, 8 * len(source), 0, header_table, 0, 0, action, 0)
    body += attribute(FRA_SRC, source) + u32(FRA_PRIORITY, priority)
    if table:
        body += u32(FRA_TABLE, table)
    if prefix:
        body += attribute(FRA_DST, prefix) + u32(FRA_SUPPRESS_PREFIXLEN, 0)
    return message(RTM_NEWRULE, NLM_F_CREATE | NLM_F_EXCL, body)


def new_table_rule(family: int, table: int, priority: int) -> bytes:
    """`ip rule add lookup TABLE pref PRIORITY`, for all packets of a family, as the kernel has three of its own."""
    body = RTMSG.pack(family, 0, 0, 0, table, 0, 0, FR_ACT_TO_TBL, 0) + u32(FRA_PRIORITY, priority)
    return message(RTM_NEWRULE, NLM_F_CREATE | NLM_F_EXCL, body)


def attributes(data: memoryview | bytes, offset: int = 0) -> Iterator[tuple[int, memoryview]]:
    """The attributes of a message body from `offset`; stops at anything malformed."""
    view = memoryview(data)
    end = len(view)
    while offset + 4 <= end:
        length, kind = _NLATTR.unpack_from(view, offset)
        if length < 4 or offset + length > end:
            return
        yield kind & 0x3FFF, view[offset + 4 : offset + length]
        offset += (length + 3) & ~3


def fields(body: memoryview | bytes, offset: int = 0) -> dict[int, bytes]:
    """The attributes of a message body from `offset`, by kind; of several of one kind the last."""
    return {kind: bytes(payload) for kind, payload in attributes(body, offset)}


def next_hops(data: memoryview | bytes) -> Iterator[tuple[int, memoryview]]:
    """Interface index and attributes of each next hop of an RTA_MULTIPATH; stops at anything malformed."""
    return ((ifindex, found) for ifindex, _, _, found in weighted_next_hops(data))


def weighted_next_hops(data: memoryview | bytes) -> Iterator[tuple[int, int, int, memoryview]]:
    """Interface index, flags, weight and attributes of each next hop of an RTA_MULTIPATH; stops at anything malformed.

    The weight is its share of flows, from 1 (struct rtnexthop of linux/rtnetlink.h).
    """
    view = memoryview(data)
    offset = 0
    while offset + _RTNEXTHOP.size <= len(view):
        length, flags, more, ifindex = _RTNEXTHOP.unpack_from(view, offset)
        if length < _RTNEXTHOP.size or offset + length > len(view):
            return
        yield ifindex, flags, more + 1, view[offset + _RTNEXTHOP.size : offset + length]
        offset += (length + 3) & ~3


def messages(data: bytes) -> Iterator[tuple[int, int, int, memoryview]]:
    """(type, flags, sequence, body) of each message in a datagram."""
    view = memoryview(data)
    offset = 0
    while offset + 16 <= len(view):
        length, kind, flags, sequence, _ = _NLMSGHDR.unpack_from(view, offset)
        if length < 16 or offset + length > len(view):
            return
        yield kind, flags, sequence, view[offset + 16 : offset + length]
        offset += (length + 3) & ~3


@dataclass(frozen=True, slots=True)
class Failure:
    """The kernel's answer to message `index` of a batch."""

    index: int
    errno: int
    reason: str


class RouteSocket:
    """A netlink socket of the network namespace that the creating thread was in."""

    CHUNK_BYTES = 200_000

    def __init__(self, groups: Sequence[int] = (), protocol: int = socket.NETLINK_ROUTE) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
        self._sequence = 1
        for option, size in ((socket.SO_SNDBUF, 1 << 20), (socket.SO_RCVBUF, 4 << 20)):
            force = 32 if option == socket.SO_SNDBUF else 33  # SO_SNDBUFFORCE, SO_RCVBUFFORCE
            try:
                self._socket.setsockopt(socket.SOL_SOCKET, force, size)
            except PermissionError:
                self._socket.setsockopt(socket.SOL_SOCKET, option, size)
        self._socket.setsockopt(SOL_NETLINK, NETLINK_EXT_ACK, 1)
        self._socket.setsockopt(SOL_NETLINK, NETLINK_CAP_ACK, 1)
        self._socket.bind((0, 0))
        for group in groups:
            self._socket.setsockopt(SOL_NETLINK, 1, group)  # NETLINK_ADD_MEMBERSHIP

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def hear_only(self, kinds: Collection[int]) -> None:
        """Let the kernel drop all messages but those of these kinds (RTM_...), before they wake anybody."""
        loaded = _FILTER.pack(_BPF_LOAD_HALF, 0, 0, _TYPE_OFFSET)
        compared = [
            _FILTER.pack(_BPF_JUMP_EQUAL, len(kinds) - number + 1, 0, socket.htons(kind))
            for number, kind in enumerate(kinds, 1)
        ]
        refused, passed = _FILTER.pack(_BPF_RETURN, 0, 0, 0), _FILTER.pack(_BPF_RETURN, 0, 0, 0xFFFF_FFFF)
        attach_filter(self._socket, b"".join([loaded, *compared, refused, passed]))

    def submit(self, batch: Sequence[bytes]) -> list[Failure]:
        """Send `batch` in order and wait until the kernel has handled all of it; the failures come back."""
        failures: list[Failure] = []
        start = 0
        while start < len(batch):
            size = 0
            end = start
            while end < len(batch) and (end == start or size + len(batch[end]) <= self.CHUNK_BYTES):
                size += len(batch[end])
                end += 1
            failures += self._submit_chunk(batch, start, end)
            start = end
        return failures

    def _submit_chunk(self, batch: Sequence[bytes], start: int, end: int) -> list[Failure]:
        first = self._sequence
        buffer = bytearray()
        for position in range(start, end):
            offset = len(buffer)
            buffer += batch[position]
            _U32.pack_into(buffer, offset + 8, first + position - start)
            if position == end - 1:
                flags = int.from_bytes(buffer[offset + 6 : offset + 8], "little") | NLM_F_ACK
                buffer[offset + 6 : offset + 8] = flags.to_bytes(2, "little")
            buffer += b"\0" * (-len(buffer) % 4)
        last = first + end - start - 1
        self._sequence = last + 1
        self._socket.sendto(buffer, (0, 0))
        failures: list[Failure] = []
        while True:
            for kind, flags, sequence, body in messages(self._socket.recv(RECEIVE_BYTES)):
                if kind != NLMSG_ERROR or not first <= sequence <= last:
                    continue
                code = -int.from_bytes(body[:4], "little", signed=True)
                if code:
                    failures.append(Failure(start + sequence - first, code, _reason(body, flags)))
                if sequence == last:
                    return failures

    def expect(self, batch: Sequence[bytes], what: Sequence[str], done: Collection[int] = ()) -> None:
        """`submit`, raising `DriverError` for the first failure; `what` describes each message. Errors that are among
        `done` say that it was so before."""
        failures = [one for one in self.submit(batch) if one.errno not in done]
        if failures:
            raise failure_error(failures, what)

    def dump(self, kind: int, body: bytes, flags: int = NLM_F_DUMP) -> Iterator[memoryview]:
        """The bodies of all answers to a dump request."""
        sequence = self._sequence
        self._sequence += 1
        request = _NLMSGHDR.pack(16 + len(body), kind, NLM_F_REQUEST | flags, sequence, 0) + body
        self._socket.sendto(request, (0, 0))
        while True:
            for answer, _, number, payload in messages(self._socket.recv(RECEIVE_BYTES)):
                if number != sequence:
                    continue
                if answer == NLMSG_DONE:
                    return
                if answer == NLMSG_ERROR:
                    code = -int.from_bytes(payload[:4], "little", signed=True)
                    raise DriverError(f"netlink dump {kind}: {os.strerror(code)}", errno=code)
                yield payload

    def dump_whole(self, kind: int, body: bytes) -> list[bytes]:
        """The datagrams of all answers to a dump request as they came: for who takes many alike answers apart at once.
        The last one ends with NLMSG_DONE."""
        sequence = self._sequence
        self._sequence += 1
        self._socket.sendto(
            _NLMSGHDR.pack(16 + len(body), kind, NLM_F_REQUEST | NLM_F_DUMP, sequence, 0) + body, (0, 0)
        )
        found = []
        while True:
            data = self._socket.recv(RECEIVE_BYTES)
            found.append(data)
            offset = 0
            while offset + 16 <= len(data):
                length, answer, _, _, _ = _NLMSGHDR.unpack_from(data, offset)
                if answer == NLMSG_DONE:
                    return found
                if answer == NLMSG_ERROR:
                    code = -int.from_bytes(data[offset + 16 : offset + 20], "little", signed=True)
                    raise DriverError(f"netlink dump {kind}: {os.strerror(code)}", errno=code)
                offset += (max(length, 16) + 3) & ~3

    def ask(self, kind: int, body: bytes) -> memoryview:
        """The body of the one answer to a request that is no dump. Raises `DriverError` with the kernel's errno."""
        sequence = self._sequence
        self._sequence += 1
        self._socket.sendto(_NLMSGHDR.pack(16 + len(body), kind, NLM_F_REQUEST, sequence, 0) + body, (0, 0))
        while True:
            for answer, flags, number, payload in messages(self._socket.recv(RECEIVE_BYTES)):
                if number != sequence:
                    continue
                if answer == NLMSG_ERROR:
                    code = -int.from_bytes(payload[:4], "little", signed=True)
                    said = _reason(payload, flags) or os.strerror(code)
                    raise DriverError(f"netlink request {kind}: {said}", errno=code)
                return payload

    def receive(self) -> bytes:
        """One datagram of notifications; raises `OSError` ENOBUFS when some were lost."""
        return self._socket.recv(RECEIVE_BYTES)

    def receive_now(self) -> bytes:
        """`receive`, raising `BlockingIOError` where nothing waits."""
        return self._socket.recv(RECEIVE_BYTES, socket.MSG_DONTWAIT)


def failure_error(failures: Sequence[Failure], what: Sequence[str]) -> DriverError:
    failure = failures[0]
    more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
    reason = f": {failure.reason}" if failure.reason else ""
    return DriverError(
        f"{what[failure.index]}: {os.strerror(failure.errno)}{reason}{more}",
        operation=what[failure.index],
        errno=failure.errno,
    )


def _reason(body: memoryview, flags: int) -> str:
    """The extended acknowledgement's text (NLMSGERR_ATTR_MSG), where the kernel gave one."""
    if not flags & 0x200:  # NLM_F_ACK_TLVS
        return ""
    for kind, payload in attributes(body, 20):
        if kind == 1:
            return bytes(payload).rstrip(b"\0").decode("utf-8", "replace")
    return ""
