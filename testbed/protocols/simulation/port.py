"""An output port: its classes, who may wait in them, who is marked, cut or dropped, and who is sent next.

A packet leaves its queue's account as its serialisation begins. The rules are those of the emulated ports
(`testbed/base/datapath/programs/accounts.h`), so that the same plan does the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from testbed.base.datapath.abi import CURVE_BINS, CURVE_BINS_TO_KMAX
from testbed.base.datapath.markers import MarkAt
from testbed.base.datapath.traffic_class import ClassPlan
from testbed.protocols.simulation.events import Actor, Events
from testbed.protocols.simulation.frame import WIRE_OVERHEAD_BYTES, Frame
from testbed.protocols.simulation.link import Line
from testbed.protocols.simulation.seeded import SeededRandom
from testbed.protocols.simulation.settings import FabricPortSettings

if TYPE_CHECKING:
    from mypy_extensions import i64

    from testbed.protocols.simulation.nic import NicHost
    from testbed.protocols.simulation.switch import HeldAccount, InputPort, SwitchMemory

CONTROL: Final = 2
NOTIFICATION: Final = 3
TRIMMED: Final = 4
"""Some of `PacketKind`, as numbers that a compiler knows."""
NS_PER_BYTE_PER_S: Final = 8_000_000_000
"""Nanoseconds times bit/s that make a byte."""
OF_TRANSPORT: Final = 8
"""`settings.KINDS`."""
UNLIMITED_PACKETS: Final = 1 << 40
ADMIT: Final = 0
DROP_TAIL: Final = 1
DROP_BUFFER: Final = 2
DROP_HEADROOM: Final = 3
_NO_BINS: Final = [0] * CURVE_BINS
"""The bins of all queues that mark nothing."""


class PauseWatch:
    """The pauses that the peer of a queue asks for, as the PFC watchdog sees them."""

    def __init__(self) -> None:
        self.asked = False
        """Its peer asks for a pause, whether it is obeyed or not."""
        self.changes: i64 = 0
        """The number of times that it began or ceased: what the watchdog meant to do before the last is not done."""
        self.freed = False
        """The watchdog lets the queue send nevertheless."""
        self.frees: i64 = 0
        """The number of times that the watchdog freed it."""


class ClassQueue:
    """The queue of a class at a port, and what was counted of it. Amounts are packets and bytes on the wire."""

    def __init__(self, settings: ClassPlan, port: FabricPortSettings) -> None:
        self.priority: i64 = settings.priority
        self.strict = settings.strict
        self.quantum_bytes: i64 = max(1, settings.quantum_bytes)
        self.lossless = settings.lossless
        self.limit_bytes: i64 = settings.limit_bytes
        self.reserved_bytes: i64 = settings.reserved_bytes
        self.alpha = settings.alpha
        self.ecn = settings.kmin_bytes is not None
        self.kmin_bytes: i64 = settings.kmin_bytes or 0
        self.kmax_bytes: i64 = settings.kmax_bytes or 0
        self.pmax = settings.pmax
        self.drop_non_ect = settings.drop_non_ect
        self.mark_at_dequeue = settings.mark_at is not MarkAt.ENQUEUE
        self.trims = port.trimming and not settings.strict and not settings.lossless
        self._first: Frame | None = None
        self._last: Frame | None = None
        self.bytes: i64 = 0
        self.max_bytes: i64 = 0
        self.deficit: i64 = self.quantum_bytes
        self.paused = False
        """Its peer has asked for a pause."""
        self.paused_since: i64 = 0
        self.paused_ns: i64 = 0
        """The time of pauses that are over."""
        self.pauses: i64 = 0
        self.watched = PauseWatch()
        self.in_packets: i64 = 0
        self.in_bytes: i64 = 0
        self.enqueued_packets: i64 = 0
        self.enqueued_bytes: i64 = 0
        self.out_packets: i64 = 0
        self.out_bytes: i64 = 0
        self.forwarded_packets: i64 = 0
        self.forwarded_bytes: i64 = 0
        self.ce_packets: i64 = 0
        """Marked here."""
        self.ect_packets: i64 = 0
        self.trimmed_packets: i64 = 0
        self.trimmed_bytes: i64 = 0
        self.wred_packets: i64 = 0
        self.wred_bytes: i64 = 0
        self.drops_packets = [0, 0, 0, 0]
        """By cause: `DROP_TAIL`, `DROP_BUFFER`, `DROP_HEADROOM`."""
        self.drops_bytes = [0, 0, 0, 0]
        self.packets_by_bin = [0] * CURVE_BINS if self.ecn else _NO_BINS
        self.marked_by_bin = [0] * CURVE_BINS if self.ecn else _NO_BINS

    def put(self, frame: Frame) -> None:
        """Let a packet wait behind all others."""
        last = self._last
        if last is None:
            self._first = frame
        else:
            last.next = frame
        self._last = frame

    def take(self) -> Frame:
        """Take the packet that has waited longest; there must be one."""
        frame = self._first
        assert frame is not None
        self._first = behind = frame.next
        if behind is None:
            self._last = None
        else:
            frame.next = None
        return frame


class OutputPort(Actor):
    """The port in front of a line. A NIC's has a `host`, which is asked for more as the line becomes free."""

    def __init__(
        self,
        line: Line,
        settings: FabricPortSettings,
        events: Events,
        random: SeededRandom,
        buffer: SwitchMemory | None,
        *,
        overhead_bytes: int = WIRE_OVERHEAD_BYTES,
        last_hop: bool = False,
    ) -> None:
        self.name = line.name
        self.line = line
        self.buffer = buffer
        """The memory of its switch; None: it is a NIC's, or its switch has no bound."""
        self.last_hop = last_hop
        """A NIC is at the line's end."""
        self.host: NicHost | None = None
        self.tunnel_bytes: i64 = 0
        """The bytes that an outer packet adds to those that leave by this port of a VTEP; 0: it is none."""
        self.tenants: frozenset[int] = frozenset()
        """The hosts whose packets have one, by number."""
        self.queues = tuple(ClassQueue(item, settings) for item in settings.classes)
        self.trim_bytes: i64 = settings.trim_bytes
        self.limit_packets: i64 = settings.limit_packets or UNLIMITED_PACKETS
        self.overhead_bytes: i64 = overhead_bytes
        self.free: i64 = 0
        """When the line is free."""
        self.draining = False
        """An event to serve the queues is scheduled."""
        self.waiting: i64 = 0
        """Packets in all queues."""
        by_priority = {queue.priority: queue for queue in self.queues}
        self._by_kind = tuple(by_priority[priority] for priority in settings.priority_of)
        ranked = sorted(self.queues, key=lambda queue: -queue.priority)
        self._strict = tuple(queue for queue in ranked if queue.strict)
        self._weighted = tuple(queue for queue in ranked if not queue.strict)
        self._turn: i64 = 0
        """Which of the weighted classes is next."""
        self._detect_ns: i64 = 0
        self._restore_ns: i64 = 0
        self._last_bin: i64 = CURVE_BINS - 1
        self._bins_to_kmax: i64 = CURVE_BINS_TO_KMAX
        self._events = events
        self._random = random

    def queue_of(self, priority: int) -> ClassQueue:
        """Return the queue of a priority. Raises `KeyError` where the port has no such class."""
        for queue in self.queues:
            if queue.priority == priority:
                return queue
        raise KeyError(priority)

    def load_bytes(self, now: i64) -> i64:
        """Return the bytes that wait here, with what the line has yet to send of the packet that it sends."""
        held: i64 = 0
        for queue in self.queues:
            held += queue.bytes
        if self.free > now:
            held += (self.free - now) * self.line.rate_bps // NS_PER_BYTE_PER_S
        return held

    # --- packets come ------------------------------------------------------------------------------------

    def offer(self, now: i64, frame: Frame, source: InputPort | None) -> None:
        """Send, queue, mark, cut or drop a packet that came in at `source`; None: the host's own."""
        if self.tunnel_bytes:
            self._tunnel(frame)
        queue = self._by_kind[frame.kind]
        size = frame.wire_bytes
        if (  # UDP alone is trimmed, as in an emulated lab
            queue.trims
            and frame.entropy <= 0xFFFF
            and frame.size > self.trim_bytes
            and self._admission(queue, size, None) != ADMIT
        ):
            queue.trimmed_packets += 1
            frame.trim(self.trim_bytes, self.last_hop)
            frame.wire_bytes = self.trim_bytes + self.overhead_bytes
            frame.kind += TRIMMED - frame.kind % OF_TRANSPORT
            queue.trimmed_bytes += size - frame.wire_bytes
            size = frame.wire_bytes
            queue = self._by_kind[frame.kind]
        queue.in_packets += 1
        queue.in_bytes += size
        account: HeldAccount | None = None
        if source is not None:
            if queue.lossless or source.pauses:
                account = source.account_of(queue.priority)
            queue.forwarded_packets += 1
            queue.forwarded_bytes += size
        verdict = self._admission(queue, size, account)
        if verdict != ADMIT:
            queue.drops_packets[verdict] += 1
            queue.drops_bytes[verdict] += size
            return
        ect = not CONTROL <= frame.kind % OF_TRANSPORT <= NOTIFICATION
        frame.curve_bin = -1
        if queue.ecn and not self._mark_arrival(queue, frame, size, ect):
            return
        queue.enqueued_packets += 1
        queue.enqueued_bytes += size
        if ect:
            queue.ect_packets += 1
        held = queue.bytes + size
        queue.max_bytes = max(queue.max_bytes, held)
        if not self.draining and not self.waiting and now >= self.free and not queue.paused:
            self._send(now, queue, frame, size)
            return
        queue.bytes = held
        queue.put(frame)
        self.waiting += 1
        buffer = self.buffer
        if buffer is not None:
            buffer.used_bytes += size
            buffer.max_bytes = max(buffer.max_bytes, buffer.used_bytes)
        frame.account = account
        if account is not None:
            account.charge(now, size)
        if not self.draining and not queue.paused:
            self.draining = True
            self._events.put(self.free, self, None)

    def _tunnel(self, frame: Frame) -> None:
        """Put a tenant's packet into an outer one, or take it out where it is delivered (RFC 7348)."""
        if self.last_hop == frame.tunnelled and frame.source in self.tenants:
            frame.tunnelled = not self.last_hop
            frame.wire_bytes += self.tunnel_bytes if frame.tunnelled else -self.tunnel_bytes

    def _admission(self, queue: ClassQueue, size: i64, account: HeldAccount | None) -> i64:
        """Decide whether a packet may wait."""
        if queue.lossless and account is not None:
            return DROP_HEADROOM if account.bytes + size > account.hold_bytes else ADMIT
        held = queue.bytes + size
        if held <= queue.reserved_bytes:
            return ADMIT
        if held > queue.limit_bytes or self.waiting >= self.limit_packets:
            return DROP_TAIL
        buffer = self.buffer
        if queue.alpha > 0 and buffer is not None and buffer.size_bytes:
            available = buffer.size_bytes - buffer.used_bytes
            if size > available or float(held) > float(available) * queue.alpha:
                return DROP_BUFFER
        return ADMIT

    def _mark_arrival(self, queue: ClassQueue, frame: Frame, size: i64, ect: bool) -> bool:
        """Mark a packet as it comes, by what waits before it. False: it may not be marked and is dropped instead."""
        depth = queue.bytes
        if not ect:
            if queue.drop_non_ect and self._is_hit(queue, depth):
                queue.wred_packets += 1
                queue.wred_bytes += size
                return False
            return True
        if frame.ce:
            return True
        place = 0
        if depth:
            place = self._bin_of(queue, depth)
            if not queue.mark_at_dequeue and self._is_hit(queue, depth):
                frame.ce = True
                queue.ce_packets += 1
                queue.marked_by_bin[place] += 1
        if queue.mark_at_dequeue:
            frame.curve_bin = place
        else:
            queue.packets_by_bin[place] += 1
        return True

    def _is_hit(self, queue: ClassQueue, depth: i64) -> bool:
        if depth <= queue.kmin_bytes:
            return False
        if depth >= queue.kmax_bytes:
            return True
        share = queue.pmax * float(depth - queue.kmin_bytes) / float(queue.kmax_bytes - queue.kmin_bytes)
        return self._random.source.random() < share

    def _bin_of(self, queue: ClassQueue, depth: i64) -> i64:
        last = self._last_bin
        if not queue.kmax_bytes:
            return last
        place = depth * self._bins_to_kmax // queue.kmax_bytes
        return place if place < last else last

    # --- packets go --------------------------------------------------------------------------------------

    def act(self, now: i64, frame: Frame | None) -> None:
        """Serve the queues: the line is free, or a class that was paused may go on."""
        queue = self._next_queue() if self.waiting else None
        if queue is None:
            self.draining = False
            host = self.host
            if host is not None:
                host.ask(now)
            return
        frame = queue.take()
        size = frame.wire_bytes
        self.waiting -= 1
        queue.bytes -= size
        if not queue.strict:
            queue.deficit -= size
            if queue.deficit < 0:
                queue.deficit += queue.quantum_bytes
                self._next_turn()
        buffer = self.buffer
        if buffer is not None:
            buffer.used_bytes -= size
        account = frame.account
        if account is not None:
            frame.account = None
            account.discharge(now, size)
        self._send(now, queue, frame, size)
        host = self.host
        if host is not None and host.full:
            host.ask(now)

    def _send(self, now: i64, queue: ClassQueue, frame: Frame, size: i64) -> None:
        queue.out_packets += 1
        queue.out_bytes += size
        if frame.curve_bin >= 0 and not frame.ce:
            self._mark_departure(queue, frame)
        self.free = self.line.send(now, frame)
        self.draining = self.waiting > 0 or self.host is not None
        if self.draining:
            self._events.put(self.free, self, None)

    def _mark_departure(self, queue: ClassQueue, frame: Frame) -> None:
        """Mark a packet as it goes, by what stays behind it."""
        depth = queue.bytes
        place = self._bin_of(queue, depth)
        queue.packets_by_bin[place] += 1
        if self._is_hit(queue, depth):
            frame.ce = True
            queue.ce_packets += 1
            queue.marked_by_bin[place] += 1

    def _next_queue(self) -> ClassQueue | None:
        """Return whose turn it is: strict classes by their priority, then the others by deficit (Shreedhar 1996)."""
        for queue in self._strict:
            if queue.bytes and not queue.paused:
                return queue
        weighted = self._weighted
        for _ in range(len(weighted)):
            queue = weighted[self._turn]
            if queue.bytes and not queue.paused:
                return queue
            self._next_turn()
        return None

    def _next_turn(self) -> None:
        turn = self._turn + 1
        self._turn = turn if turn < len(self._weighted) else 0

    # --- pauses ------------------------------------------------------------------------------------------

    def guard(self, detect_ns: int, restore_ns: int) -> None:
        """Give its queues a PFC watchdog: one that was paused for `detect_ns` sends nevertheless, and obeys pauses
        again once its peer has asked for none for `restore_ns`, as the pause agent of an emulated lab has it."""
        self._detect_ns, self._restore_ns = detect_ns, restore_ns

    def pause(self, now: int, priority: int) -> None:
        """The peer's XOFF for a priority takes effect: what has begun is sent to its end."""
        queue = self.queue_of(priority)
        watched = queue.watched
        if watched.asked:
            return
        watched.asked = True
        watched.changes += 1
        if watched.freed:
            return
        queue.paused = True
        queue.pauses += 1
        queue.paused_since = now
        if self._detect_ns:
            self._events.schedule(now + self._detect_ns, self._free, (queue, watched.changes))

    def resume(self, now: int, priority: int) -> None:
        """The peer's XON for a priority takes effect."""
        queue = self.queue_of(priority)
        watched = queue.watched
        if not watched.asked:
            return
        watched.asked = False
        watched.changes += 1
        if watched.freed:
            self._events.schedule(now + self._restore_ns, self._restore, (queue, watched.changes))
        else:
            self._go_on(now, queue)

    def _go_on(self, now: int, queue: ClassQueue) -> None:
        queue.paused = False
        queue.paused_ns += now - queue.paused_since
        if not self.draining:
            self.draining = True
            self._events.put(self.free, self, None)

    def _free(self, now: int, guarded: tuple[ClassQueue, int]) -> None:
        """A queue has been paused for too long, if nothing has changed since."""
        queue, changes = guarded
        if queue.watched.changes == changes:
            queue.watched.freed = True
            queue.watched.frees += 1
            self._go_on(now, queue)

    def _restore(self, now: int, guarded: tuple[ClassQueue, int]) -> None:
        """A freed queue was not paused for long enough, if nothing has changed since."""
        queue, changes = guarded
        if queue.watched.changes == changes:
            queue.watched.freed = False

    def paused_ns(self, priority: int, now: int) -> int:
        """Return the time for which a priority has been paused, with a pause that lasts."""
        queue = self.queue_of(priority)
        return queue.paused_ns + (now - queue.paused_since if queue.paused else 0)
