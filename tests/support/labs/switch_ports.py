"""Labs for tests of switch ports: a topology from text, deployed for real, with senders, taps and counters at hand.

Senders and taps are sockets of the test inside the nodes. A sender waits until its NIC takes the next packet, so that
packets leave at the NIC's rate without a clock of ours, however busy the machine is.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from kernel_stamps import SO_TIMESTAMPNS, stamped_socket
from waiting import WAIT_S, until

from testbed.base.linux.namespaces import in_namespace
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.observe.port_table import tabulate_ports
from testbed.lab.observe.reconcile import Balance, reconcile
from testbed.lab.observe.telemetry import reset_maxima

_T = TypeVar("_T")
PORT = 9000
PAYLOAD = 1472
FRAME = PAYLOAD + 42
BULK, RDMA, OTHER, CONTROL = 0, 3, 4, 6
DSCP = {BULK: 0, RDMA: 26, OTHER: 34, CONTROL: 48}
BUFFER_BYTES = 1 << 26
_ETH_P_ALL = 0x0003
_SOL_PACKET, _PACKET_QDISC_BYPASS, _PACKET_IGNORE_OUTGOING = 263, 20, 23
_SO_SNDBUF_BYTES, _SO_RCVBUFFORCE = 150_000, 33


@dataclass(frozen=True, slots=True)
class Packet:
    """A captured frame with an IPv4 packet; `ns` is when it arrived (CLOCK_REALTIME)."""

    frame: bytes
    ns: int

    @property
    def ip(self) -> bytes:
        return self.frame[14:34]

    @property
    def tos(self) -> int:
        return self.frame[15]

    @property
    def dscp(self) -> int:
        return self.tos >> 2

    @property
    def ecn(self) -> int:
        return self.tos & 3

    @property
    def length(self) -> int:
        """Total length (RFC 791)."""
        return int.from_bytes(self.frame[16:18], "big")

    @property
    def checksum_is_valid(self) -> bool:
        """The ones' complement sum over the header with its checksum is all ones (RFC 1071)."""
        total = sum(struct.unpack("!10H", self.ip))
        while total >> 16:
            total = (total & 0xFFFF) + (total >> 16)
        return total == 0xFFFF

    @property
    def source_port(self) -> int:
        return int.from_bytes(self.frame[34:36], "big")

    @property
    def udp_length(self) -> int:
        return int.from_bytes(self.frame[38:40], "big")


class Sender(socket.socket):
    """A UDP socket that is not told of what an earlier one of the same port has sent, and came after its sink had gone:
    the next packet would not be sent (ECONNREFUSED)."""

    def send(self, data: Any, flags: int = 0, /) -> int:
        while True:
            with contextlib.suppress(ConnectionRefusedError):
                return super().send(data, flags)


class Tap:
    """Everything that an interface receives, kept by the kernel until it is read."""

    def __init__(self, item: socket.socket) -> None:
        self._item = item
        item.setblocking(False)

    def frames(self) -> list[Packet]:
        """All frames since the last call, whatever they are."""
        found = []
        with contextlib.suppress(BlockingIOError):
            while True:
                frame, control, _, _ = self._item.recvmsg(2048, 64)
                stamps = [data for level, kind, data in control if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS)]
                seconds, ns = struct.unpack("=qq", stamps[0])
                found.append(Packet(frame, seconds * 10**9 + ns))
        return found

    def udp(self) -> list[Packet]:
        """The UDP packets to our port since the last call."""
        return [item for item in self.frames() if _is_ours(item.frame)]

    def close(self) -> None:
        self._item.close()


def _is_ours(frame: bytes) -> bool:
    return frame[12:14] == b"\x08\x00" and frame[23] == 17 and int.from_bytes(frame[36:38], "big") == PORT


class PortLab:
    """A running lab with `qos:`."""

    def __init__(self, running: RunningLab) -> None:
        self.running = running
        self.name = running.name
        self.maps = running.maps(writable=True)
        self.queues = self.maps.by_port("queues")
        self.ingress = self.maps.by_port("ingress")
        self.pauses = self.maps.by_port("pauses")
        self.curves = self.maps.by_port("curves")
        self._numbers = running.plan.port_numbers
        self._stamped = stamped_socket()

    def close(self) -> None:
        """Let go of the maps' memory, which keeps them in the kernel; so do records taken from this object."""
        self._stamped.close()
        self.maps.close()
        del self.maps, self.queues, self.ingress, self.pauses, self.curves

    def number(self, node: str, interface: str) -> int:
        return self._numbers[f"{node}:{interface}"]

    def queue(self, node: str, interface: str, priority: int) -> Any:
        """The egress queue's counters: live memory."""
        return self.queues[self.number(node, interface), priority]

    def curve(self, node: str, interface: str, priority: int) -> Any:
        """The marks of a queue by the depth that decided, as they are; copy what must stay so."""
        return self.curves[self.number(node, interface), priority]

    def account(self, node: str, interface: str, priority: int) -> Any:
        return self.ingress[self.number(node, interface), priority]

    def gate(self, node: str, interface: str, priority: int) -> Any:
        return self.pauses[self.number(node, interface), priority]

    def address(self, node: str, interface: str = "eth1") -> str:
        port = self.running.port(node, interface)
        return str(port.address.ip)

    def inside(self, node: str, function: Callable[[], _T]) -> _T:
        """The result of `function` in the node's network namespace."""
        return in_namespace(self.running.namespace(node), function)

    def sender(
        self, node: str, destination: str, priority: int, *, ecn: int = 0, source_port: int = 0, dscp: int | None = None
    ) -> Sender:
        """A UDP socket that waits while the NIC's queue is full, which then takes turns with it at line rate."""
        code_point = DSCP[priority] if dscp is None else dscp

        def make() -> Sender:
            item = Sender(socket.AF_INET, socket.SOCK_DGRAM)
            item.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, code_point << 2 | ecn)
            item.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SO_SNDBUF_BYTES)
            item.bind(("", source_port))
            item.connect((self.address(destination), PORT))
            item.settimeout(WAIT_S)
            return item

        return self.inside(node, make)

    @contextlib.contextmanager
    def sink(self, node: str) -> Iterator[socket.socket]:
        """Where packets end, so that nobody answers them with ICMP; it keeps what arrives."""

        def make() -> socket.socket:
            item = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            item.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, BUFFER_BYTES)
            item.bind(("", PORT))
            item.setblocking(False)
            return item

        with self.inside(node, make) as item:
            yield item

    @contextlib.contextmanager
    def tap(self, node: str, interface: str) -> Iterator[Tap]:
        item = self.packet_socket(node, interface)
        item.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, BUFFER_BYTES)
        item.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        tap = Tap(item)
        try:
            yield tap
        finally:
            tap.close()

    def packet_socket(self, node: str, interface: str, *, bypass: bool = False) -> socket.socket:
        """A packet socket on an interface, for taps and for frames of our own; `bypass`: these pass by the queues."""

        def make() -> socket.socket:
            item = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            item.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
            item.setsockopt(_SOL_PACKET, _PACKET_QDISC_BYPASS, int(bypass))
            item.bind((interface, _ETH_P_ALL))
            return item

        return self.inside(node, make)

    def introduce(self, *hosts: str) -> None:
        """Let each host reach the next, so that ARP has found all of them and their switches.

        Linux keeps few packets for a neighbour that it looks for, and lets later ones overtake them.
        """
        for source, destination in zip(hosts, (*hosts[1:], hosts[0]), strict=True):
            with self.sink(destination) as sink, self.sender(source, destination, BULK) as item:
                send(item, 1)
                until(lambda: received(sink), f"{source} reaches {destination}")
        self.still()

    def still(self) -> None:
        """Wait until nothing is queued anywhere."""
        until(lambda: not self.maps.queues["bytes"].any(), "the queues run empty")

    def calm(self) -> None:
        """Wait until nobody is paused and nobody asks for it."""
        until(lambda: not self.pauses["closed"].any() and not self.pauses["asked_since"].any(), "all may send")

    def reset_maxima(self) -> None:
        reset_maxima(self.maps)

    def reconciles(self) -> None:
        """The counters of all ports must add up."""
        self.still()
        verdict = reconcile(self.maps, tabulate_ports(self.running.plan))
        assert verdict.balance is not Balance.BROKEN, str(verdict)

    def snmp(self, node: str, protocol: str, counter: str) -> int:
        """A counter of the node's /proc/net/snmp, such as Udp InCsumErrors."""
        lines = self.inside(node, Path("/proc/thread-self/net/snmp").read_text).splitlines()
        names, values = (line.split() for line in lines if line.startswith(f"{protocol}:"))
        return int(dict(zip(names, values, strict=True))[counter])

    def events(self) -> list[dict[str, str]]:
        """Return everything that the pause agent has told, from the beginning."""
        path = self.running.state_directory / "pause-events.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def send(item: socket.socket, packets: int, payload: int = PAYLOAD) -> int:
    """Send so many packets, numbered in their first four bytes; how many."""
    rest = bytes(payload - 4)
    for number in range(packets):
        item.send(number.to_bytes(4, "big") + rest)
    return packets


def send_until(item: socket.socket, condition: Callable[[], Any], what: str, payload: int = PAYLOAD) -> int:
    """Send as fast as the NIC takes it until `condition` holds; how many packets."""
    end = time.monotonic() + WAIT_S
    sent = 0
    while not condition():
        assert time.monotonic() < end, f"not within {WAIT_S:g} s of sending: {what}"
        sent += send(item, 20, payload)
    return sent


def received(sink: socket.socket) -> list[int]:
    """The numbers of the packets that a sink has, in the order of arrival."""
    found = []
    with contextlib.suppress(BlockingIOError):
        while True:
            found.append(int.from_bytes(sink.recv(2048)[:4], "big"))
    return found


def ports_topology(nodes: Iterable[str], links: Iterable[str], of_nodes: Iterable[str]) -> str:
    """The text of a topology with classes of RDMA, control and bulk: lines of its nodes, of its links, and of
    what single nodes have in `qos.nodes`."""
    return "\n".join(
        [
            "name: {name}",
            "scale: {time: 1}",
            "fabric: {mtu: 1500, routing: {bfd: off}}",
            "qos:",
            "  classes:",
            "    rdma: {dscp: [26], weight: 60, ecn: false}",
            "    control: {dscp: [48], strict: true}",
            "    bulk: {default: true, weight: 40}",
            "  watchdog: false",
            "  nodes:",
            *(f"    {line}" for line in of_nodes),
            "topology:",
            "  nodes:",
            *nodes,
            "  links:",
            *links,
            "",
        ]
    )


@contextlib.contextmanager
def port_lab(box: Any, text: str, suffix: str = "a", **options: Any) -> Iterator[PortLab]:
    """The lab of a topology text, in whose place of `{name}` goes a name of the sandbox."""
    model = load_topology_text(text.replace("{name}", box.name(suffix)), file="<test>", overrides={})
    lab = PortLab(box.deploy(model, k=1.0, **options).lab)
    try:
        lab.introduce(*lab.running.hosts)
        yield lab
    finally:
        lab.close()
        box.destroy(suffix)


def htb_bytes(lab: PortLab, node: str, interface: str) -> dict[str, int]:
    """Bytes that each HTB class of an interface sent, by its handle, as HTB charged them. (`tc -j` has no classes.)"""
    done = lab.running.run(node, ["tc", "-s", "class", "show", "dev", interface], timeout_s=30)
    return {handle: int(sent) for handle, sent in re.findall(r"class htb (\S+) .*\n Sent (\d+) bytes", done.stdout)}
