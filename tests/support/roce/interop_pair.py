"""Our RNIC and the kernel's soft RDMA (rxe) with a queue pair each, in the namespaces of `interop_fabric.sh`.

Ours is in this process; rxe is driven by `rxe_driver.py`, a process in the namespace of its device.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from rxe_process import RxeProcess

from testbed.endpoints.agent import Agent
from testbed.protocols.datagram import Incoming, Outgoing
from testbed.protocols.roce.config import RoceConfig
from testbed.protocols.roce.memory import ALL_ACCESS
from testbed.protocols.roce.packets.headers import BTH_BYTES, decode_aeth, decode_bth, decode_reth
from testbed.protocols.roce.packets.icrc import ICRC_BYTES
from testbed.protocols.roce.packets.opcodes import Opcode, Service
from testbed.protocols.roce.packets.syndrome import ACK, kind_of
from testbed.protocols.roce.qp import QueuePair
from testbed.protocols.roce.work import Completion, ReceiveRequest, RemoteBuffer, WorkRequest, WorkStatus

HALF = 3 << 20
"""Both buffers have data to be sent in their first half, and room for what arrives in the second."""
GUARD = 3
"""Bytes between two pieces, which nothing may touch; odd, so that the pieces begin at odd addresses."""
PATIENCE_S = 120.0
PATIENT = 22
"""Timeout of 17 s: what is sent again was lost, and not late on a busy machine."""
SLICE_NS = 20_000_000
QKEY = 0x1234_5678
"""The key of datagrams. The upper bit would make it one of a kernel's own."""
PSN_MASK = 0xFF_FFFF
READ_RESPONSES = {
    Opcode.RC_READ_RESPONSE_FIRST,
    Opcode.RC_READ_RESPONSE_MIDDLE,
    Opcode.RC_READ_RESPONSE_LAST,
    Opcode.RC_READ_RESPONSE_ONLY,
}
DATA = ("send", "send-immediate", "write", "write-immediate", "read")
TAKES_RECEIVE = ("send", "send-immediate", "write-immediate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where both ends are. `gid_index` is that of rxe's address at its port; 0 is that of the link-local one."""

    ours: str
    theirs: str
    device: str
    namespace: str
    """The namespace of the device."""
    gid_index: int = 1


class Rxe(RxeProcess):
    """The driver of rxe's side; while it is waited for, our side works on."""

    def __init__(self, agent: Agent, place: Place) -> None:
        super().__init__(place.device, place.namespace, 2 * HALF)
        self._agent = agent
        self._answers: list[dict[str, Any]] = []
        agent.loop.watch(self.output.fileno(), lambda events: self._answers.append(self.read()))
        self.start()

    def answer(self) -> dict[str, Any]:
        drive(self._agent, lambda: bool(self._answers), "rxe's driver does not answer")
        return self._answers.pop(0)

    def close(self) -> None:
        self._agent.loop.unwatch(self.output.fileno())
        super().close()


def drive(agent: Agent, until: Callable[[], bool], complaint: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not agent.drive(until, SLICE_NS):
        assert time.monotonic() < end, complaint


def content(seed: str, length: int) -> bytes:
    return hashlib.shake_128(seed.encode()).digest(length)


class Site:
    """Our RNIC, rxe's device, and the memory of both."""

    def __init__(self, place: Place, *, foreign_peers: bool = True, **settings: Any) -> None:
        self.place = place
        self.agent = Agent(seed=1)
        self.config = RoceConfig(**{"timeout": PATIENT} | settings)
        self.rnic = self.agent.open_rnic(place.ours, self.config, foreign_peers=foreign_peers)
        self.memory = bytearray(2 * HALF)
        self.region = self.rnic.register(self.memory, ALL_ACCESS)
        self.rxe = Rxe(self.agent, place)

    def put_wire(self, wire: Wire) -> None:
        """From now on our RNIC is behind this wire."""
        self.agent.loop.remove(self.rnic)
        self.agent.loop.add(wire, self.agent.sockets(self.rnic.address))

    def close(self) -> None:
        self.rxe.close()
        self.agent.close()

    def counted(self) -> dict[str, Any]:
        """Return the counters of both sides: datagrams, and events by the names that each has for them."""
        sockets = self.agent.sockets(self.rnic.address).counters
        return {
            "sent": sockets.sent,
            "received": sockets.received,
            "counters": dict(self.rnic.counters),
            "rxe": self.rxe.counted(),
        }


class RxeReadLost(Exception):
    """Rxe has ended a READ of its own without its data, though every response that we sent had the right ones."""


class Wire:
    """Our RNIC behind a wire of its own: the first packet that it sends with one of `lost` is lost, and what arrives is
    handed over `together` packets at a time.

    It looks at all that passes: a packet of a READ's response has what its PSN asked for, of memory that does not
    change meanwhile, and no acknowledgement has the PSN of one.
    """

    def __init__(self, site: Site, mtu: int, lost: Collection[int] = (), together: int = 1) -> None:
        rnic = site.rnic
        self._rnic = rnic
        self._site = site
        self._mtu = mtu
        self._asked: dict[int, tuple[int, int]] = {}
        """Where in our memory (start, stop) what a PSN asks for lies."""
        self.responses = 0
        """Packets of READs' responses that were looked at."""
        self.address = rnic.address
        self.lost = set(lost)
        """Opcodes of which one is still to be lost."""
        self.together = together
        self._held: list[Incoming] = []

    @property
    def urgent(self) -> int:
        return self._rnic.urgent

    def receive(self, datagrams: Sequence[Incoming], now: int) -> None:
        for item in datagrams:
            self._note(item.data)
        self._held += [item._replace(data=bytes(item.data)) for item in datagrams]
        if len(self._held) >= self.together:
            held, self._held = self._held, []
            self._rnic.receive(held, now)

    def transmit(self, now: int, limit: int = 64) -> list[Outgoing]:
        sent = self._rnic.transmit(now, limit)
        for item in sent:
            self._look_at(item)
        return [item for item in sent if not self._loses(item)]

    def _note(self, data: bytes | memoryview) -> None:
        """Remember what a READ asks for."""
        bth = decode_bth(data)
        if bth.opcode != Opcode.RC_READ_REQUEST:
            return
        reth = decode_reth(data, BTH_BYTES)
        start = reth.virtual_address - self._site.region.base
        for index in range(max(1, -(-reth.length // self._mtu))):
            stop = min(start + (index + 1) * self._mtu, start + reth.length)
            self._asked[bth.psn + index & PSN_MASK] = (start + index * self._mtu, stop)

    def _look_at(self, item: Outgoing) -> None:
        bth = decode_bth(item.header)
        if bth.opcode == Opcode.RC_ACKNOWLEDGE:
            refuses = kind_of(decode_aeth(item.header, BTH_BYTES).syndrome) != ACK
            assert refuses or bth.psn not in self._asked, f"an acknowledgement with PSN {bth.psn}, that of a READ"
        elif bth.opcode in READ_RESPONSES:
            start, stop = self._asked[bth.psn]
            carried = item.payload[: len(item.payload) - ICRC_BYTES - bth.pad_bytes]
            assert carried == self._site.memory[start:stop], f"PSN {bth.psn} has not bytes {start} to {stop}"
            self.responses += 1

    def forget(self) -> None:
        """Another connection begins, with PSNs of its own."""
        self._asked.clear()

    def _loses(self, item: Outgoing) -> bool:
        opcode = item.header[0]
        if opcode not in self.lost:
            return False
        self.lost.remove(opcode)
        return True

    def next_timer(self) -> int | None:
        return self._rnic.next_timer()

    def handle_timer(self, now: int) -> None:
        self._rnic.handle_timer(now)


class Pair:
    """A queue pair of ours and one of rxe's, connected."""

    def __init__(
        self,
        site: Site,
        mtu: int,
        *,
        service: Service = Service.RC,
        ours: int = 5,
        theirs: int = 77,
        **rxe_settings: Any,
    ) -> None:
        """`ours` and `theirs` are the PSNs of the first packets."""
        self.site = site
        self.mtu = mtu
        self.qp: QueuePair = site.rnic.create_qp(service)
        self.qpn: int = site.rxe.ask("create", service=service.name)["qpn"]
        site.rxe.ask(
            "connect",
            qpn=self.qpn,
            address=site.place.ours,
            gid_index=site.place.gid_index,
            remote_qpn=self.qp.number,
            send_psn=theirs,
            receive_psn=ours,
            mtu=mtu,
            qkey=QKEY,
            **{"timeout": site.config.timeout} | rxe_settings,
        )
        if service is Service.UD:
            self.qp.open_datagrams(QKEY)
            return
        self.qp.connect(site.place.theirs, self.qpn, send_psn=ours, receive_psn=theirs, mtu=mtu)

    def await_ours(self, count: int) -> list[Completion]:
        found = self.qp.completions
        drive(self.site.agent, lambda: len(found) >= count, f"{len(found)} of {count} requests of ours have ended")
        assert len(found) == count, [repr(item.status) for item in found]
        ended = list(found)
        found.clear()
        return ended

    def await_rxe(self, count: int) -> list[dict[str, Any]]:
        answer = self.site.rxe.ask("wait", qpn=self.qpn, count=count, timeout_s=PATIENCE_S)["completions"]
        assert len(answer) == count, f"{len(answer)} of {count} requests of rxe's have ended: {answer}"
        return sorted(answer, key=lambda item: item["number"])

    def post(self, operation: str, piece: Piece, immediate: int) -> WorkRequest:
        """Post a request of ours."""
        site = self.site
        now = time.monotonic_ns()
        near = memoryview(site.memory)[piece.source : piece.source + piece.size]
        if operation.startswith("send"):
            return self.qp.send(near, now, immediate=immediate if operation == "send-immediate" else None)
        if operation == "read":
            room = memoryview(site.memory)[piece.target : piece.target + piece.size]
            return self.qp.read(room, RemoteBuffer(site.rxe.address + piece.source, site.rxe.rkey), now)
        remote = RemoteBuffer(site.rxe.address + piece.target, site.rxe.rkey)
        return self.qp.write(near, remote, now, immediate=immediate if operation == "write-immediate" else None)

    def close(self) -> None:
        self.site.rxe.ask("destroy", qpn=self.qpn)
        self.site.rnic.destroy_qp(self.qp, time.monotonic_ns())


class Piece:
    """A message's place in both buffers: where it comes from in one, and goes to in the other."""

    def __init__(self, source: int, target: int, size: int) -> None:
        self.source, self.target, self.size = source, target, size


def lay_out(sizes: Sequence[int]) -> list[Piece]:
    pieces, at = [], GUARD
    for size in sizes:
        pieces.append(Piece(at, HALF + at, size))
        at += size + GUARD
    assert at <= HALF, "the buffers are too small"
    return pieces


class Transfer:
    """Messages of every operation and size in one direction, in one go; then all memory is looked at."""

    def __init__(self, pair: Pair, sizes: Sequence[int], operations: Sequence[str], seed: str) -> None:
        self.pair = pair
        self.site = pair.site
        self.operations = [operation for _ in sizes for operation in operations]
        self.pieces = lay_out([size for size in sizes for _ in operations])
        self.used = self.pieces[-1].source + self.pieces[-1].size + GUARD
        self.ours, self.theirs = content(f"{seed} ours", self.used), content(f"{seed} theirs", self.used)
        self.site.memory[: self.used] = self.ours
        self.site.memory[HALF : HALF + self.used] = bytes(self.used)
        self.site.rxe.ask("fill", seed=f"{seed} theirs", offset=0, length=self.used)
        self.site.rxe.ask("clear", offset=HALF, length=self.used)

    def check_memory(self, *, rxe_asked: bool) -> None:
        """Both targets have what was carried to them, and nothing else anywhere."""
        here, there = bytearray(self.used), bytearray(self.used)
        for operation, piece in zip(self.operations, self.pieces, strict=True):
            data_to_rxe = (operation == "read") is rxe_asked
            image, source = (there, self.ours) if data_to_rxe else (here, self.theirs)
            image[piece.source : piece.source + piece.size] = source[piece.source : piece.source + piece.size]
        assert self.site.memory[: self.used] == self.ours, "our source has changed"
        assert self.site.memory[HALF : HALF + self.used] == here, "our memory differs"
        digests = self.site.rxe.ask("digest", ranges=[(0, self.used), (HALF, self.used)])["digests"]
        assert digests[0] == hashlib.sha256(self.theirs).hexdigest(), "rxe's source has changed"
        if digests[1] != hashlib.sha256(there).hexdigest():
            found = bytes.fromhex(self.site.rxe.ask("get", offset=HALF, length=self.used)["data"])
            told, reads_alone = self.differences(found, there)
            error = RxeReadLost if rxe_asked and reads_alone else AssertionError
            raise error(f"rxe's memory differs: {'; '.join(told)}")

    def differences(self, found: bytes, wanted: bytes) -> tuple[list[str], bool]:
        """Which messages have arrived otherwise than they should: operation, length, and which bytes of it differ; and
        whether it is those of READs alone."""
        told = []
        reads_alone = True
        rest = bytearray(found)
        for number, (operation, piece) in enumerate(zip(self.operations, self.pieces, strict=True)):
            apart = [at for at in range(piece.source, piece.source + piece.size) if found[at] != wanted[at]]
            rest[piece.source : piece.source + piece.size] = bytes(piece.size)
            if apart:
                reads_alone = reads_alone and operation == "read"
                first, last = apart[0] - piece.source, apart[-1] - piece.source
                zero = all(found[at] == 0 for at in apart)
                told.append(
                    f"message {number}, {operation} of {piece.size} bytes: {len(apart)} of its bytes {first} to {last}"
                    + (" were never written" if zero else "")
                )
        if any(rest):
            told.append("between the messages")
        return told, reads_alone and not any(rest)

    def receives(self) -> list[tuple[int, Piece]]:
        """Requests that need a receive: the number of the request and its piece."""
        return [
            (number, piece)
            for number, (operation, piece) in enumerate(zip(self.operations, self.pieces, strict=True))
            if operation in TAKES_RECEIVE
        ]

    def check_receive(self, number: int, length: int, immediate: int | None) -> None:
        piece = self.pieces[number]
        assert length == piece.size, (self.operations[number], length, piece.size)
        assert immediate == (immediate_of(number) if "immediate" in self.operations[number] else None)

    def from_us(self) -> int:
        """We ask, rxe answers. Returns how many messages."""
        pair = self.pair
        takers = self.receives()
        buffers = [
            (piece.target, piece.size if self.operations[number] != "write-immediate" else 0)
            for number, piece in takers
        ]
        self.site.rxe.ask("receive", qpn=pair.qpn, buffers=buffers)
        for number, (operation, piece) in enumerate(zip(self.operations, self.pieces, strict=True)):
            pair.post(operation, piece, immediate_of(number))
        ended = pair.await_ours(len(self.pieces))
        assert all(item.ok for item in ended), [(item.status, item.error) for item in ended if not item.ok]
        for (number, _), item in zip(takers, pair.await_rxe(len(takers)), strict=True):
            assert item["status"] == 0, item
            self.check_receive(number, item["length"], item["immediate"])
        self.check_memory(rxe_asked=False)
        return len(self.pieces)

    def from_rxe(self) -> int:
        """Rxe asks, we answer. Returns how many messages."""
        pair, site = self.pair, self.site
        takers = self.receives()
        now = time.monotonic_ns()
        for number, piece in takers:
            size = piece.size if self.operations[number] != "write-immediate" else 0
            pair.qp.receive(memoryview(site.memory)[piece.target : piece.target + size], now)
        requests = []
        for number, (operation, piece) in enumerate(zip(self.operations, self.pieces, strict=True)):
            reads = operation == "read"
            requests.append(
                {
                    "operation": operation,
                    "offset": piece.target if reads else piece.source,
                    "length": piece.size,
                    "address": site.region.base + (piece.source if reads else piece.target),
                    "rkey": site.region.rkey,
                    "immediate": immediate_of(number),
                }
            )
        site.rxe.ask("post", qpn=pair.qpn, requests=requests)
        ended = pair.await_rxe(len(requests))
        failed = [item for item in ended if item["status"]]
        if failed and {item["status"] for item in failed} == {WorkStatus.FLUSHED}:
            # What ended the connection has no status: the kernel warns of it (rxe_comp.c, COMPST_ERROR).
            number = failed[0]["number"] - 1
            if number >= 0 and self.operations[number] == "read":
                raise RxeReadLost(f"message {number}, read: rxe ended it with success, and the connection with it")
        assert not failed, failed
        for (number, _), item in zip(takers, pair.await_ours(len(takers)), strict=True):
            assert isinstance(item, ReceiveRequest) and item.ok, (item.status, item.error)
            self.check_receive(number, item.length, item.immediate)
        self.check_memory(rxe_asked=True)
        return len(requests)


def immediate_of(number: int) -> int:
    return 0xC0DE_0000 + number
