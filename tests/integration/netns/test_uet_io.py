"""The sockets and the loop of the UET agent on a real link: trimming, offloads on and off, a slow port, the MTU."""

import errno
import os
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import NamedTuple, TypeVar

import pytest

from testbed.base.linux.namespaces import in_namespace
from testbed.base.linux.offload import ethtool_family, features_off, generic_socket
from testbed.endpoints.loop import Loop
from testbed.endpoints.pacing import Pacer
from testbed.endpoints.sockets import HAS_MOVER, Marking, SocketConfig, SocketGroup
from testbed.lab.core.deploy.watch.loops import DEFAULT_TTL, TTL_KEY
from testbed.protocols.datagram import NIC_PACKETS, Incoming, Outgoing, Priority
from testbed.protocols.uet.packets.codes import UDP_PORT

pytestmark = pytest.mark.netns

_T = TypeVar("_T")
MTU = 4500
EV = 50_000
BURST_BYTES = 5_120
PATIENCE_NS = 10_000_000_000
TRIMMED_DSCP, LAST_HOP_DSCP = 45, 44
LAST_HOP = Marking(trimmed_last_hop=LAST_HOP_DSCP)
V4, V6 = ("10.77.0.1", "10.77.0.2"), ("fd77::1", "fd77::2")
SECOND = ("10.77.0.3", "10.77.0.4")
NO_MOVER = "the raw socket is the compiled mover's"


def run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True)


class Link(NamedTuple):
    """Two namespaces, a and b, joined by a veth."""

    a: str
    b: str

    def inside(self, name: str, function: Callable[[], _T]) -> _T:
        """What `function` returns inside namespace `name`; sockets that it opens stay there."""
        return in_namespace(name, function)

    def group(self, cleanup: ExitStack, address: str, config: SocketConfig | None = None) -> SocketGroup:
        name = self.a if address in (V4[0], V6[0], SECOND[0]) else self.b
        group = self.inside(name, lambda: SocketGroup(address, config))
        cleanup.callback(group.close)
        return group


def offloads_off(name: str) -> None:
    family = ethtool_family()
    assert family is not None
    item = generic_socket()
    os.write(item.fileno(), features_off(family, socket.if_nametoindex(name)))
    item.close()


@pytest.fixture(scope="module", params=["offloads on", "offloads off"])
def link(request: pytest.FixtureRequest) -> Iterator[Link]:
    """As a plain link, and as the testbed makes its links."""
    suffix = request.param[-1]
    link = Link(f"uio{os.getpid()}a{suffix}", f"uio{os.getpid()}b{suffix}")
    with ExitStack() as cleanup:
        for name in link:
            run("ip", "netns", "add", name)
            cleanup.callback(run, "ip", "netns", "del", name)
        peer = ("peer", "name", "eth0", "mtu", str(MTU), "netns", link.b)
        run("ip", "-n", link.a, "link", "add", "eth0", "mtu", str(MTU), "type", "veth", *peer)
        for name, side in ((link.a, 0), (link.b, 1)):
            for address in (f"{V4[side]}/24", f"{SECOND[side]}/24", f"{V6[side]}/64"):
                run("ip", "-n", name, "addr", "add", address, "dev", "eth0", *(("nodad",) if ":" in address else ()))
            run("ip", "-n", name, "link", "set", "eth0", "up")
            if request.param == "offloads off":
                link.inside(name, lambda: offloads_off("eth0"))
        yield link


@pytest.fixture
def cleanup() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


class Recorder:
    """An endpoint that sends what is in `outbox` and keeps what arrives."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.outbox: list[Outgoing] = []
        self.inbox: list[Incoming] = []

    def receive(self, datagrams: Sequence[Incoming], now: int) -> None:
        self.inbox += [item._replace(data=bytes(item.data)) for item in datagrams]

    def transmit(self, now: int, limit: int = 64) -> list[Outgoing]:
        chosen, self.outbox = self.outbox[:limit], self.outbox[limit:]
        return chosen

    def next_timer(self) -> int | None:
        return None

    def handle_timer(self, now: int) -> None:
        raise AssertionError("there is no timer")


class Pair:
    """Recorders on both ends of the link, in one loop. It runs in namespace a: there the sending sockets are opened."""

    def __init__(
        self, link: Link, cleanup: ExitStack, addresses: tuple[str, str], config: SocketConfig | None = None
    ) -> None:
        self.link = link
        self.loop = Loop()
        cleanup.callback(self.loop.close)
        self.groups = [link.group(cleanup, address, config) for address in addresses]
        self.ends = [Recorder(address) for address in addresses]
        for end, group in zip(self.ends, self.groups, strict=True):
            self.loop.add(end, group)

    def run_until(self, reached: Callable[[], bool]) -> None:
        def turns() -> None:
            end = time.monotonic_ns() + PATIENCE_NS
            while not reached():
                assert time.monotonic_ns() < end, f"{[group.counters for group in self.groups]}"
                self.loop.run_once(end)

        self.link.inside(self.link.a, turns)


def datagram(remote: str, number: int, size: int, entropy: int = EV) -> Outgoing:
    return Outgoing(remote, entropy, Priority.DATA, number.to_bytes(4), bytes(size - 4))


def numbers(datagrams: Sequence[Incoming]) -> list[int]:
    return [int.from_bytes(item.data[:4]) for item in datagrams]


@pytest.mark.parametrize("addresses", [V4, V6, SECOND], ids=["ipv4", "ipv6", "second address"])
@pytest.mark.parametrize("entropies", [1, 8])
def test_datagrams_cross_the_link_in_order(
    link: Link, cleanup: ExitStack, addresses: tuple[str, str], entropies: int
) -> None:
    pair = Pair(link, cleanup, addresses)
    near, far = pair.ends
    near.outbox = [datagram(far.address, number, 4160, EV + number % entropies) for number in range(400)]
    pair.run_until(lambda: len(far.inbox) == 400)
    for entropy in range(EV, EV + entropies):
        flow = [item for item in far.inbox if item.entropy == entropy]
        assert numbers(flow) == list(range(entropy - EV, 400, entropies))
    assert {(item.remote, len(item.data), item.trimmed) for item in far.inbox} == {(near.address, 4160, False)}
    assert pair.groups[0].counters.errors == {}


def test_several_addresses_behind_one_mac_are_several_endpoints(link: Link, cleanup: ExitStack) -> None:
    pair = Pair(link, cleanup, V4)
    far = Recorder(SECOND[1])
    pair.loop.add(far, link.group(cleanup, far.address))
    near, other = pair.ends
    near.outbox = [datagram((other.address, far.address)[number % 2], number, 1000) for number in range(100)]
    pair.run_until(lambda: len(other.inbox) + len(far.inbox) == 100)
    assert numbers(other.inbox) == list(range(0, 100, 2))
    assert numbers(far.inbox) == list(range(1, 100, 2))


def test_what_exceeds_the_mtu_is_not_sent_in_pieces(link: Link, cleanup: ExitStack) -> None:
    pair = Pair(link, cleanup, V4)
    near, far = pair.ends
    longest = MTU - 20 - 8
    near.outbox = [datagram(far.address, number, longest + (number % 10 < 5)) for number in range(40)]
    pair.run_until(lambda: len(far.inbox) == 20)
    assert numbers(far.inbox) == [number for number in range(40) if number % 10 >= 5]
    assert pair.groups[0].counters.errors == {errno.EMSGSIZE: 20}


@pytest.mark.skipif(not HAS_MOVER, reason=NO_MOVER)
@pytest.mark.parametrize("payload", [1_082, 2_106, 4_154])
def test_a_paused_nic_takes_so_many_full_packets_and_no_more(link: Link, cleanup: ExitStack, payload: int) -> None:
    """The kernel's account of what waits is what `Pacer.buffer_bytes` says it is."""
    shaper = ("rate", "8bit", "burst", f"{BURST_BYTES}b", "limit", "1m")
    run("tc", "-n", link.a, "qdisc", "add", "dev", "eth0", "root", "tbf", *shaper)
    cleanup.callback(run, "tc", "-n", link.a, "qdisc", "del", "dev", "eth0", "root")
    run("ip", "-n", link.a, "neigh", "replace", V4[1], "lladdr", "02:00:00:00:00:01", "dev", "eth0")
    cleanup.callback(run, "ip", "-n", link.a, "neigh", "del", V4[1], "dev", "eth0")
    config = SocketConfig(gso_segments=1, raw_buffer_bytes=Pacer.buffer_bytes(payload))
    group = link.group(cleanup, V4[0], config)
    packet = Outgoing(remote=V4[1], entropy=EV, priority=Priority.DATA, header=b"", payload=bytes(payload))
    group.send([packet] * (3 * NIC_PACKETS))
    burst = BURST_BYTES // (payload + 42)
    assert group.counters.sent - NIC_PACKETS in (burst - 1, burst), "the shaper's burst goes at once, others' with it"


@pytest.mark.parametrize("raw", [pytest.param(True, marks=pytest.mark.skipif(not HAS_MOVER, reason=NO_MOVER)), False])
def test_packets_have_the_time_to_live_of_their_host_as_it_is_now(link: Link, cleanup: ExitStack, raw: bool) -> None:
    """A routing loop that begins has it changed under way."""
    if not raw:
        patch = pytest.MonkeyPatch()
        cleanup.callback(patch.undo)
        patch.setattr(SocketGroup, "_open_raw", lambda group: None)
    sender = link.group(cleanup, V4[0], SocketConfig(gso_segments=1))
    cleanup.callback(in_namespace, link.a, lambda: TTL_KEY.write_text(str(DEFAULT_TTL)))
    for ttl in (DEFAULT_TTL, 16):
        in_namespace(link.a, partial(TTL_KEY.write_text, str(ttl)))
        heard = in_namespace(link.b, partial(socket.socket, socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP))
        with closing(heard):
            heard.settimeout(5)
            sender.send([datagram(V4[1], 0, 100)])
            assert heard.recv(1 << 12)[8] == ttl


def test_a_slow_port_holds_the_sender_back(link: Link, cleanup: ExitStack) -> None:
    shaper = ("root", "handle", "1:", "htb", "default", "1")
    run("ip", "netns", "exec", link.a, "tc", "qdisc", "add", "dev", "eth0", *shaper)
    cleanup.callback(run, "ip", "netns", "exec", link.a, "tc", "qdisc", "del", "dev", "eth0", "root")
    leaf = ("parent", "1:", "classid", "1:1", "htb", "rate", "100mbit", "burst", "10k", "cburst", "10k")
    run("ip", "netns", "exec", link.a, "tc", "class", "add", "dev", "eth0", *leaf)
    pair = Pair(link, cleanup, V4)
    near, far = pair.ends
    near.outbox = [datagram(far.address, number, 4160) for number in range(500)]
    begun = time.monotonic_ns()
    pair.run_until(lambda: len(far.inbox) == 500)
    took_s = (time.monotonic_ns() - begun) / 1e9
    assert numbers(far.inbox) == list(range(500))
    assert pair.groups[0].counters.blocked > 5
    assert took_s > 0.9 * 500 * 4202 * 8 / 100e6


def send_raw(link: Link, remote: str, tos: int, udp: bytes) -> None:
    """An IP packet from a to `remote` whose content is `udp`."""
    ipv6 = ":" in remote

    def send() -> None:
        family = socket.AF_INET6 if ipv6 else socket.AF_INET
        with socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_UDP) as item:
            if ipv6:
                item.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, tos)
            else:
                item.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
            item.sendto(udp, (remote, 0))

    link.inside(link.a, send)


def udp(length: int, *, source: int = EV, port: int = UDP_PORT, rest: bytes = b"PDS header 16 B and more") -> bytes:
    return struct.pack("!HHHH", source, port, length, 0) + rest


@pytest.mark.parametrize("addresses", [V4, V6], ids=["ipv4", "ipv6"])
def test_trimmed_packets_arrive_with_what_is_left_of_them(
    link: Link, cleanup: ExitStack, addresses: tuple[str, str]
) -> None:
    pair = Pair(link, cleanup, addresses, SocketConfig(marking=LAST_HOP))
    near, far = pair.ends
    assert pair.groups[1].sees_trimmed
    for dscp, ecn in ((TRIMMED_DSCP, 2), (TRIMMED_DSCP, 3), (LAST_HOP_DSCP, 2), (LAST_HOP_DSCP, 3)):
        send_raw(link, far.address, dscp << 2 | ecn, udp(4168))
    pair.run_until(lambda: len(far.inbox) == 4)
    found = [(item.ce, item.last_hop) for item in far.inbox]
    assert found == [(False, False), (True, False), (False, True), (True, True)]
    for item in far.inbox:
        assert item == Incoming(
            near.address, EV, b"PDS header 16 B and more", item.ce, length=4160, last_hop=item.last_hop
        )
        assert item.trimmed
    assert pair.groups[1].counters.trimmed == 4


@pytest.mark.parametrize("addresses", [V4, V6], ids=["ipv4", "ipv6"])
def test_the_raw_socket_sees_nothing_else(link: Link, cleanup: ExitStack, addresses: tuple[str, str]) -> None:
    pair = Pair(link, cleanup, addresses)
    near, far = pair.ends
    other = SECOND[1] if addresses == V4 else V6[1]
    send_raw(link, far.address, 0, udp(4168, port=UDP_PORT + 1))
    send_raw(link, far.address, 0, udp(4168, source=0))
    send_raw(link, far.address, 0, udp(4168)[:7])
    if addresses == V4:
        send_raw(link, other, 0, udp(4168))
    near.outbox = [datagram(far.address, number, 4160) for number in range(100)]
    pair.run_until(lambda: len(far.inbox) == 100)
    send_raw(link, far.address, 0, udp(4168, source=EV + 7))
    pair.run_until(lambda: len(far.inbox) > 100)
    assert [(item.entropy, item.trimmed) for item in far.inbox] == [(EV, False)] * 100 + [(EV + 7, True)]
    assert pair.groups[1].counters.trimmed == 1


def test_without_a_raw_socket_trimmed_packets_are_lost(link: Link, cleanup: ExitStack) -> None:
    pair = Pair(link, cleanup, V4, SocketConfig(trimmed=False))
    near, far = pair.ends
    assert not pair.groups[1].sees_trimmed
    send_raw(link, far.address, 0, udp(4168))
    near.outbox = [datagram(far.address, 1, 100)]
    pair.run_until(lambda: bool(far.inbox))
    assert numbers(far.inbox) == [1]
    assert pair.groups[1].counters.trimmed == 0
