"""An RNIC: the queue pairs of one address, the memory that they share, their timers, and whose turn it is to send.

Datagrams and `now` go in; datagrams, completions and the next timer come out. Time is in nanoseconds of any clock that
does not go back. Source: InfiniBand Architecture Specification, volume 1, release 1.4, section 9.6 (packet validation)
and annex A17 (RoCEv2).
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Sequence
from random import Random
from typing import Final

from testbed.transport.datagram import Incoming, Outgoing
from testbed.transport.errors import DecodeError, UsageError
from testbed.transport.roce.config import RoceConfig
from testbed.transport.roce.memory import MemoryRegion, RegionTable
from testbed.transport.roce.packets.headers import (
    AETH_BYTES,
    ATOMIC_ACK_ETH_BYTES,
    BTH_BYTES,
    decode_aeth,
    decode_atomic_ack,
    decode_bth,
)
from testbed.transport.roce.packets.icrc import ICRC_BYTES, check_icrc
from testbed.transport.roce.packets.opcodes import LAYOUTS, Opcode, Operation, Service
from testbed.transport.roce.qp import QueuePair
from testbed.transport.roce.states import QpState
from testbed.transport.roce.work import Buffer, CompletionQueue

LEAST_QPN: Final = 0x10
"""0 and 1 are those of management (section 10.2.4.3)."""
QPN_LIMIT: Final = 1 << 24
_SERVICE_MASK: Final = 0xE0
_MOST_CONTROL: Final = 1 << 14
"""Answers that wait to be sent; who makes us want to send more loses them."""
_VOID_TIMERS: Final = 4
"""Entries of the heap of timers for each queue pair before those that have been made void are thrown out."""
_BURST: Final = 16
"""Packets of one queue pair before the next one's turn."""
_REQUESTS: Final = frozenset(
    {Operation.SEND, Operation.WRITE, Operation.READ_REQUEST, Operation.COMPARE_SWAP, Operation.FETCH_ADD}
)
_SENDING: Final = frozenset({QpState.RTS, QpState.SQD, QpState.SQE})
_RECEIVING: Final = _SENDING | {QpState.RTR}


class Rnic:
    """Raises nothing for anything that arrives; what is wrong is dropped and counted in `counters`."""

    def __init__(self, address: str, config: RoceConfig, random: Random, now: int) -> None:
        self.address: str = address
        self.config: Final[RoceConfig] = config
        self.counters: Counter[str] = Counter()
        """What happened, by name: `timeout`, `duplicate`, `malformed`, `cnp-sent`, ..."""
        self.regions: Final[RegionTable] = RegionTable(random)
        self._random = random
        self._now = now
        self._qps: dict[int, QueuePair] = {}
        self._next_qpn: int = LEAST_QPN
        self._entropies_given: int = random.randrange(len(config.entropies))
        self._control: deque[Outgoing] = deque()
        self._ready: deque[QueuePair] = deque()
        self._answering: list[QueuePair] = []
        self._timers: list[tuple[int, int, QueuePair]] = []
        self._timer_number: int = 0

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
        if number is None:
            while self._next_qpn in self._qps:
                self._next_qpn += 1
            number = self._next_qpn
        if not LEAST_QPN <= number < QPN_LIMIT or number in self._qps:
            raise UsageError(f"QPN {number:#x} is taken, or not {LEAST_QPN:#x} to {QPN_LIMIT - 1:#x}")
        qp = QueuePair(self, number, service, deque() if completions is None else completions, domain)
        self._qps[number] = qp
        return qp

    def destroy_qp(self, qp: QueuePair, now: int) -> None:
        """Forget a queue pair; what it has not ended is flushed."""
        qp.modify(QpState.RESET, now=now)
        qp.timer_at = 0
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
        qp.timer_at = deadline
        timers = self._timers
        if len(timers) > _VOID_TIMERS * len(self._qps) + _VOID_TIMERS:
            self._timers = timers = [entry for entry in timers if entry[0] == entry[2].timer_at]
            heapq.heapify(timers)
        self._timer_number += 1
        heapq.heappush(timers, (deadline, self._timer_number, qp))

    def answer_soon(self, qp: QueuePair) -> None:
        if not qp.answering:
            qp.answering = True
            self._answering.append(qp)

    # --- what arrives -------------------------------------------------------------------------------------

    def receive(self, datagrams: Sequence[Incoming], now: int) -> None:
        """Take what arrived."""
        self._now = now
        for incoming in datagrams:
            try:
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

    def _receive(self, incoming: Incoming, now: int) -> None:
        data = incoming.data
        bth = decode_bth(data)
        qp = self._qps.get(bth.dest_qp)
        if qp is None:
            self.counters["unknown-qp"] += 1
            return
        if qp.remote_ip != incoming.remote and qp.service is not Service.UD:
            self.counters["stray"] += 1
            return
        word = incoming.fragment_word
        check_icrc(incoming.remote, self.address, incoming.entropy, data, word >> 16, word & 0xFFFF)
        if bth.opcode == Opcode.CNP:
            self.counters["cnp-received"] += 1
            qp.on_notification(now)
            return
        layout = LAYOUTS[bth.opcode]
        assert layout is not None
        if bth.opcode != Opcode.SELECTIVE_ACKNOWLEDGE and bth.opcode & _SERVICE_MASK != qp.opcode_base:
            self.counters["wrong-service"] += 1
            return
        if qp.state not in _RECEIVING:
            self.counters["not-ready-to-receive"] += 1
            return
        view = memoryview(data)[: len(data) - ICRC_BYTES]
        if len(view) < BTH_BYTES + bth.pad_bytes:
            raise DecodeError(len(view), "padding is missing")
        if layout.operation in _REQUESTS:
            if qp.datagrams is not None:
                source = qp.datagrams.on_packet(bth, layout, view, incoming.remote, now)
                if incoming.ce and source >= 0:
                    qp.on_marked(incoming.remote, source, now)
                return
            if incoming.ce:
                qp.on_marked(qp.remote_ip, qp.remote_qpn, now)
            qp.responder.on_request(bth, view, now)
            return
        if qp.state not in _SENDING:
            self.counters["stray"] += 1
            return
        requester = qp.requester
        if layout.operation is Operation.READ_RESPONSE:
            if incoming.ce:
                qp.on_marked(qp.remote_ip, qp.remote_qpn, now)
            offset = BTH_BYTES + (AETH_BYTES if layout.aeth else 0)
            if layout.aeth:
                decode_aeth(view, BTH_BYTES)
            requester.on_read_response(
                bth.psn, layout.first, layout.last, view[offset : len(view) - bth.pad_bytes], now
            )
            return
        aeth = decode_aeth(view, BTH_BYTES)
        if layout.operation is Operation.ACKNOWLEDGE:
            requester.on_acknowledge(bth.psn, aeth.syndrome, now)
        elif layout.operation is Operation.ATOMIC_ACKNOWLEDGE:
            original = decode_atomic_ack(view, BTH_BYTES + AETH_BYTES)
            if len(view) != BTH_BYTES + AETH_BYTES + ATOMIC_ACK_ETH_BYTES:
                raise DecodeError(len(view), "data behind an atomic acknowledgement")
            requester.on_atomic_acknowledge(bth.psn, original, now)
        else:
            bitmap = int.from_bytes(view[BTH_BYTES + AETH_BYTES :], "little")
            requester.on_selective(bth.psn, aeth.syndrome, bitmap, now)

    # --- what is sent -------------------------------------------------------------------------------------

    @property
    def urgent(self) -> int:
        """Answers that are there and go before all else."""
        return len(self._control)

    def transmit(self, now: int, limit: int = 64) -> list[Outgoing]:
        """Return what is to be sent now, at most `limit` datagrams; fewer: nothing more for the time being."""
        self._now = now
        sent: list[Outgoing] = []
        control = self._control
        while control and len(sent) < limit:
            sent.append(control.popleft())
        ready = self._ready
        while ready and len(sent) < limit:
            qp = ready.popleft()
            qp.queued = False
            for _ in range(min(_BURST, limit - len(sent))):
                datagram = qp.pull(now)
                if datagram is None:
                    break
                sent.append(datagram)
            else:
                self.wake(qp)
            if self._answering:  # what waited for a response
                self._answer(now)
                while control and len(sent) < limit:
                    sent.append(control.popleft())
        return sent

    # --- time ---------------------------------------------------------------------------------------------

    def next_timer(self) -> int | None:
        """Return when `handle_timer` is to be called, though nothing has arrived by then."""
        timers = self._timers
        while timers:
            deadline, _, qp = timers[0]
            if qp.timer_at == deadline:
                return deadline
            heapq.heappop(timers)
        return None

    def handle_timer(self, now: int) -> None:
        self._now = now
        while self._timers and self._timers[0][0] <= now:
            due, _, qp = heapq.heappop(self._timers)
            if qp.timer_at != due:
                continue
            qp.timer_at = 0
            qp.handle_timer(now)
            deadline = qp.next_timer()
            if deadline > now:
                self.schedule(qp, deadline)

    @property
    def now(self) -> int:
        """The latest time that was handed in."""
        return self._now

    @property
    def idle(self) -> bool:
        """Tell whether nothing is to be sent and nothing is unacknowledged."""
        return not self._control and all(qp.idle for qp in self._qps.values())
