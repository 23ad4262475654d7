"""An RNIC: the queue pairs of one address, the memory that they share, their timers, and whose turn it is to send.

Datagrams and `now` go in; datagrams, completions and the next timer come out. Time is in nanoseconds of any clock that
does not go back. Source: InfiniBand Architecture Specification, volume 1, release 1.4, section 9.6 (packet validation)
and annex A17 (RoCEv2).
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, deque
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Final

from testbed.protocols.datagram import Incoming, Outgoing
from testbed.protocols.errors import DecodeError, UsageError
from testbed.protocols.roce.config import RoceConfig
from testbed.protocols.roce.memory import MemoryRegion, RegionTable
from testbed.protocols.roce.packets.headers import (
    AETH_BYTES,
    ATOMIC_ACK_ETH_BYTES,
    BTH_BYTES,
    PSN_MASK,
    QPN_MASK,
    Bth,
    decode_aeth,
    decode_atomic_ack,
    decode_bth,
    unpack_bth,
)
from testbed.protocols.roce.packets.icrc import ICRC_BYTES, Icrc, LaterIcrc
from testbed.protocols.roce.packets.opcodes import LAYOUTS, REQUESTS, Layout, Opcode, Operation, Service
from testbed.protocols.roce.qp import QueuePair
from testbed.protocols.roce.states import QpState
from testbed.protocols.roce.work import Buffer, CompletionQueue

if TYPE_CHECKING:
    from testbed.protocols.roce.dynamic import DynamicConnections

LEAST_QPN: Final = 0x10
"""0 and 1 are those of management (section 10.2.4.3)."""
QPN_LIMIT: Final = 1 << 24
_SERVICE_MASK: Final = 0xE0
_PADDING_OR_VERSION: Final = 0x3F
PSN_HALF_WORD: Final = 0x7FFF_FFFF
"""The most of the word with the PSN, without the bit above that asks for an acknowledgement."""
_MOST_CONTROL: Final = 1 << 14
"""Answers that wait to be sent; who makes us want to send more loses them."""
_VOID_TIMERS: Final = 4
"""Entries of the heap of timers for each queue pair before those that have been made void are thrown out."""
_IS_REQUEST: Final = bytes(layout is not None and layout.operation in REQUESTS for layout in LAYOUTS)
"""By opcode."""
_MIDDLE: Final = (
    int(Opcode.RC_SEND_MIDDLE),
    int(Opcode.RC_WRITE_MIDDLE),
    int(Opcode.UC_SEND_MIDDLE),
    int(Opcode.UC_WRITE_MIDDLE),
)
_IS_MIDDLE: Final = bytes(opcode in _MIDDLE for opcode in range(256))
_CNP: Final[int] = int(Opcode.CNP)
_DC_CONNECT: Final[int] = int(Opcode.DC_CONNECT)
_SELECTIVE: Final[int] = int(Opcode.SELECTIVE_ACKNOWLEDGE)
_UD: Final = Service.UD
_READ_RESPONSE: Final = Operation.READ_RESPONSE
_ACKNOWLEDGE: Final = Operation.ACKNOWLEDGE
_ATOMIC_ACKNOWLEDGE: Final = Operation.ATOMIC_ACKNOWLEDGE


class Rnic:
    """Raises nothing for anything that arrives; what is wrong is dropped and counted in `counters`."""

    def __init__(self, address: str, config: RoceConfig, random: Random, now: int, *, later_icrc: bool = False) -> None:
        """`later_icrc`: its port makes and checks ICRCs."""
        self.address: str = address
        self.config: Final[RoceConfig] = config
        self.counters: Counter[str] = Counter()
        """Events, by name: `timeout`, `duplicate`, `malformed`, `cnp-sent`, ..."""
        self.unlimited_bps: float = math.inf
        """A queue pair of this rate needs no rate limiter, since the line of its NIC keeps to it."""
        self.room_at: int = 0
        """When its port, having been full, took packets again for the last time."""
        self.regions: Final[RegionTable] = RegionTable(random)
        self._random = random
        self.now = now
        """The latest time that was handed in."""
        self._qps: dict[int, QueuePair] = {}
        self._next_qpn: int = LEAST_QPN
        self._entropies_given: int = random.randrange(len(config.entropies))
        self._control: deque[Outgoing] = deque()
        self._ready: deque[QueuePair] = deque()
        self._answering: list[QueuePair] = []
        self._timers: list[tuple[int, int, QueuePair]] = []
        self._timer_number: int = 0
        self._sent: Final[Icrc] = LaterIcrc() if later_icrc else Icrc()
        self._arrived: Final[Icrc] = LaterIcrc() if later_icrc else Icrc()
        self.dynamic: DynamicConnections | None = None
        """Its dynamic connections, if it has any."""
        self.lanes: dict[str, int] = {}
        """The virtual lane to each address, where its port has several; 0 to one that is not named."""
        self.full_lanes: int = 0
        """The lanes that take no more data for now, a bit each: what is for one of them waits, and no other does."""
        self._waiting: dict[int, list[QueuePair]] = {}
        """By lane, the queue pairs that wait for it."""

    # --- local objects ------------------------------------------------------------------------------------

    def create_qp(
        self,
        service: Service = Service.RC,
        *,
        completions: CompletionQueue | None = None,
        domain: int = 0,
        number: int | None = None,
    ) -> QueuePair:
        """Make a queue pair, in RESET. `number`: its QPN; None: the next that is free. Raises `UsageError`."""
        number = self.free_number(number)
        qp = QueuePair(self, number, service, deque() if completions is None else completions, domain)
        self.add_qp(qp)
        return qp

    def free_number(self, number: int | None = None) -> int:
        """A QPN for a new queue pair: the one that is wanted, or the next that is free. Raises `UsageError`."""
        if number is None:
            while self._next_qpn in self._qps:
                self._next_qpn += 1
            number = self._next_qpn
        if not LEAST_QPN <= number < QPN_LIMIT or number in self._qps:
            raise UsageError(f"QPN {number:#x} is taken, or not {LEAST_QPN:#x} to {QPN_LIMIT - 1:#x}")
        return number

    def add_qp(self, qp: QueuePair) -> None:
        """Let packets reach a queue pair."""
        self._qps[qp.number] = qp

    def destroy_qp(self, qp: QueuePair, now: int) -> None:
        """Forget a queue pair; what it has not ended is flushed."""
        qp.modify(QpState.RESET, now=now)
        qp.timer_at = qp.later_timer_at = 0
        self._qps.pop(qp.number, None)

    @property
    def qps(self) -> Sequence[QueuePair]:
        return list(self._qps.values())

    def register(self, buffer: Buffer, access: int, domain: int = 0, base: int | None = None) -> MemoryRegion:
        """Let remote requests at this memory: see `RegionTable.register`."""
        return self.regions.register(buffer, access, domain, base=base)

    def next_entropy(self) -> int:
        """A UDP source port for a new queue pair."""
        entropies = self.config.entropies
        self._entropies_given += 1
        return entropies[self._entropies_given % len(entropies)]

    def draw_psn(self) -> int:
        """A PSN to begin with."""
        return self._random.randrange(1 << 24)

    # --- what queue pairs ask for -------------------------------------------------------------------------

    def emit(self, datagram: Outgoing) -> None:
        if len(self._control) >= _MOST_CONTROL:
            self.counters["control-overflow"] += 1
            return
        self._control.append(datagram)

    def wake(self, qp: QueuePair) -> None:
        if not qp.queued:
            qp.queued = True
            self._ready.append(qp)

    def schedule(self, qp: QueuePair, deadline: int) -> None:
        """Have the timer of a queue pair handled no later than this. What was asked for before and is later, is void;
        where it is earlier, `handle_timer` asks the queue pair anew."""
        if 0 < qp.timer_at <= deadline:
            return
        if not qp.later_timer_at:
            qp.later_timer_at = qp.timer_at
        qp.timer_at = deadline
        timed = len(self._qps) + (0 if self.dynamic is None else self.dynamic.responders_now)
        if len(self._timers) > _VOID_TIMERS * timed + _VOID_TIMERS:
            self._remove_void_timers()
        self._timer_number += 1
        heapq.heappush(self._timers, (deadline, self._timer_number, qp))

    def _remove_void_timers(self) -> None:
        valid: dict[tuple[int, int], tuple[int, int, QueuePair]] = {}
        for entry in self._timers:
            deadline, _, qp = entry
            if deadline in (qp.timer_at, qp.later_timer_at):
                valid[id(qp), deadline] = entry  # responders of a target share its number
        self._timers = list(valid.values())
        heapq.heapify(self._timers)

    def answer_soon(self, qp: QueuePair) -> None:
        if not qp.answering:
            qp.answering = True
            self._answering.append(qp)

    # --- what arrives -------------------------------------------------------------------------------------

    def receive(self, datagrams: Sequence[Incoming], now: int) -> None:
        """Take what arrived."""
        self.now = now
        for incoming in datagrams:
            try:
                if not self._receive_middle(incoming, now):
                    self._receive(incoming, now)
            except DecodeError:
                self.counters["malformed"] += 1
        if self._answering:
            self._answer(now)

    def _answer(self, now: int) -> None:
        answering = self._answering
        self._answering = []
        for qp in answering:
            qp.answering = False
            qp.responder.answer(now)

    def _receive_middle(self, incoming: Incoming, now: int) -> bool:
        """Take a packet of data in the middle of a message in order, as most are, with few words. False: it is not
        one, or there is something about it, and nothing has happened. Raises `DecodeError`."""
        data = incoming.data
        if not len(data) or not _IS_MIDDLE[data[0]]:
            return False
        opcode, flags, qp_word, psn_word = unpack_bth(data)
        if flags & _PADDING_OR_VERSION:
            return False
        qp = self._qps.get(qp_word & QPN_MASK)
        remote = incoming.remote
        if qp is None or qp.remote_ip != remote or opcode & _SERVICE_MASK != qp.opcode_base or not qp.receives:
            return False
        self._arrived.check(remote, self.address, incoming.entropy, data, incoming.fragment_word)
        responder = qp.responder
        if incoming.ce != responder.marking:
            responder.on_mark(incoming.ce)
        if not responder.on_middle(opcode, psn_word & PSN_MASK, psn_word > PSN_HALF_WORD, data):
            return False
        if incoming.ce:
            qp.on_marked(remote, qp.remote_qpn, now)
        return True

    def _receive(self, incoming: Incoming, now: int) -> None:
        data = incoming.data
        bth = decode_bth(data)
        qp = self._qps.get(bth.dest_qp)
        if qp is None or bth.opcode >= _DC_CONNECT:
            qp = self._find_dynamic(bth, incoming, now)
            if qp is None:
                return
        if qp.remote_ip != incoming.remote and qp.service is not _UD:
            self.counters["stray"] += 1
            return
        self.check(incoming)
        if bth.opcode == _CNP:
            self.counters["cnp-received"] += 1
            qp.on_notification(now)
            return
        layout = LAYOUTS[bth.opcode]
        assert layout is not None
        if bth.opcode != _SELECTIVE and bth.opcode & _SERVICE_MASK != qp.opcode_base:
            self.counters["wrong-service"] += 1
            return
        if not qp.receives:
            self.counters["not-ready-to-receive"] += 1
            return
        view = memoryview(data)[: len(data) - ICRC_BYTES]
        if len(view) < BTH_BYTES + bth.pad_bytes:
            raise DecodeError(len(view), "padding is missing")
        if _IS_REQUEST[bth.opcode]:
            if qp.datagrams is not None:
                source = qp.datagrams.on_packet(bth, layout, view, incoming.remote, now)
                if incoming.ce and source >= 0:
                    qp.on_marked(incoming.remote, source, now)
                return
            if incoming.ce:
                qp.on_marked(qp.remote_ip, qp.remote_qpn, now)
            qp.responder.on_mark(incoming.ce)
            qp.responder.on_request(bth, view, now)
            return
        if not qp.sends:
            self.counters["stray"] += 1
            return
        if layout.operation is _READ_RESPONSE and incoming.ce:
            qp.on_marked(qp.remote_ip, qp.remote_qpn, now)
        self._receive_answer(qp, bth, layout, view, now)

    def _receive_answer(self, qp: QueuePair, bth: Bth, layout: Layout, view: memoryview, now: int) -> None:
        """A response or an acknowledgement, BTH to padding. Raises `DecodeError`."""
        requester = qp.requester
        if layout.operation is _READ_RESPONSE:
            offset = BTH_BYTES + (AETH_BYTES if layout.aeth else 0)
            if layout.aeth:
                decode_aeth(view, BTH_BYTES)
            requester.on_read_response(
                bth.psn, layout.first, layout.last, view[offset : len(view) - bth.pad_bytes], now
            )
            return
        aeth = decode_aeth(view, BTH_BYTES)
        if layout.operation is _ACKNOWLEDGE:
            requester.on_acknowledge(bth.psn, aeth.syndrome, now, bth.becn)
        elif layout.operation is _ATOMIC_ACKNOWLEDGE:
            original = decode_atomic_ack(view, BTH_BYTES + AETH_BYTES)
            if len(view) != BTH_BYTES + AETH_BYTES + ATOMIC_ACK_ETH_BYTES:
                raise DecodeError(len(view), "data behind an atomic acknowledgement")
            requester.on_atomic_acknowledge(bth.psn, original, now)
        else:
            bitmap = int.from_bytes(view[BTH_BYTES + AETH_BYTES :], "little")
            requester.on_selective(bth.psn, aeth.syndrome, bitmap, now, bth.becn)

    def _find_dynamic(self, bth: Bth, incoming: Incoming, now: int) -> QueuePair | None:
        """Whose packet it is that is for no queue pair, or is about dynamic connections; None: it has been dealt with.

        Raises `DecodeError`.
        """
        dynamic = self.dynamic
        if dynamic is None:
            self.counters["unknown-qp"] += 1
            return None
        if bth.opcode >= Opcode.DC_CONNECT:
            self.check(incoming)
            dynamic.on_packet(bth, incoming, now)
            return None
        responder = dynamic.find_responder(bth, incoming, now)
        if responder is None:
            self.counters["unknown-qp"] += 1
        return responder

    def check(self, incoming: Incoming) -> None:
        """Raise `DecodeError` unless a packet arrived as it was sent."""
        self._arrived.check(incoming.remote, self.address, incoming.entropy, incoming.data, incoming.fragment_word)

    # --- what is sent -------------------------------------------------------------------------------------

    def seal(self, remote: str, entropy: int, header: bytes, payload: bytes | memoryview, padding: int) -> bytes:
        """Return what follows the header of a packet to `remote`: payload, padding and ICRC."""
        return self._sent.seal(self.address, remote, entropy, header, payload, padding)

    @property
    def urgent(self) -> int:
        """Answers that are there and go before all else."""
        return len(self._control)

    def on_room(self, now: int) -> None:
        """Its port was full, as while its class is paused, and takes packets again."""
        self.room_at = now

    def transmit(self, now: int, limit: int = 64) -> list[Outgoing]:
        """Return what is to be sent now, at most `limit` datagrams; answers first, then queue pairs in turn by the
        packet, as NICs arbitrate between them.

        One short message goes before the answers: somebody waits for it, and nobody for them so urgently as to notice a
        single small packet. Fewer than `limit`: there is nothing more for the time being.
        """
        self.now = now
        sent: list[Outgoing] = []
        control = self._control
        if control and self._ready and limit > 1 and self._ready[0].next_is_short:
            short = self._ready[0].pull(now)
            if short is not None:
                sent.append(short)
        while control and len(sent) < limit:
            sent.append(control.popleft())
        ready = self._ready
        if self._waiting:
            self._resume_lanes()
        while ready and len(sent) < limit:
            qp = ready.popleft()
            if self.full_lanes and self._waits_for_lane(qp):
                continue
            qp.queued = False
            datagram = qp.pull(now)
            while datagram is not None:
                sent.append(datagram)
                if ready or self._answering or len(sent) >= limit:
                    self.wake(qp)
                    break
                datagram = qp.pull(now)
            if self._answering:  # what waited for a response
                self._answer(now)
                while control and len(sent) < limit:
                    sent.append(control.popleft())
        return sent

    def _waits_for_lane(self, qp: QueuePair) -> bool:
        """Put a queue pair aside whose lane is full; it counts as one that is ready meanwhile."""
        lane = self.lanes.get(qp.remote_ip, 0)
        if not self.full_lanes >> lane & 1:
            return False
        self._waiting.setdefault(lane, []).append(qp)
        return True

    def _resume_lanes(self) -> None:
        for lane in list(self._waiting):
            if not self.full_lanes >> lane & 1:
                self._ready.extend(self._waiting.pop(lane))

    # --- time ---------------------------------------------------------------------------------------------

    def next_timer(self) -> int | None:
        timers = self._timers
        while timers:
            deadline, _, qp = timers[0]
            if qp.timer_at == deadline:
                return deadline
            heapq.heappop(timers)
        return None

    def handle_timer(self, now: int) -> None:
        self.now = now
        while self._timers and self._timers[0][0] <= now:
            due, _, qp = heapq.heappop(self._timers)
            if qp.timer_at != due:
                continue
            qp.timer_at = qp.later_timer_at
            qp.later_timer_at = 0
            qp.handle_timer(now)
            deadline = qp.next_timer()
            if deadline > now:
                self.schedule(qp, deadline)

    @property
    def idle(self) -> bool:
        """Tell whether nothing is to be sent and nothing is unacknowledged."""
        dynamic_idle = self.dynamic is None or self.dynamic.idle
        return not self._control and dynamic_idle and all(qp.idle for qp in self._qps.values())
