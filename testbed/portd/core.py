"""Priority-based flow control of a lab's ports, without I/O: what happened goes in, what to do comes out.

Two machines for each port and priority. An ingress account above XOFF asks the peer to pause: a frame of the
longest time, again at half of it while the account is still above, and a frame of 0 afterwards (IEEE 802.1Q clause
36, IEEE 802.3 annex 31B). An egress queue obeys the frames its port receives: its gate is closed until the time is
over, a 0 arrives, or the watchdog frees it.

Inputs only change states; `flush` turns the difference between what is wanted and what was done into actions, so
that all that was read in one go becomes one frame for each port. Times are CLOCK_MONOTONIC in ns, quanta are taken
at the lab rate. Queues are indexed `port * 8 + priority`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from testbed.portd.attachment import PortAttachment
from testbed.portd.histogram import Histogram
from testbed.portd.ledger import Ledger
from testbed.portd.pfc import MAX_QUANTA, PRIORITIES, pause_ns, priorities_of
from testbed.portd.timers import Timers


@dataclass(frozen=True, slots=True)
class SendPause:
    """Send a PFC frame out of `port`."""

    port: int
    vector: int
    quanta: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CloseGate:
    """Close the gates of the priorities in `vector`; say `closed` when it is done."""

    port: int
    vector: int


@dataclass(frozen=True, slots=True)
class OpenGate:
    """Open the gates of the priorities in `vector` and let the queue run; say `opened` when it is done."""

    port: int
    vector: int


class ReportKind(enum.StrEnum):
    WATCHDOG_FREED = "pfc-watchdog-freed"
    WATCHDOG_RESTORED = "pfc-watchdog-restored"
    STORM_BEGAN = "pfc-storm-began"
    STORM_ENDED = "pfc-storm-ended"


@dataclass(frozen=True, slots=True)
class Report:
    """Something for the lab's event log."""

    kind: ReportKind
    port: int
    priority: int
    detail: str = ""


Action = SendPause | CloseGate | OpenGate | Report


@dataclass(slots=True)
class Strays:
    """Inputs that had no effect, by reason."""

    unknown: int = 0
    """Events of a kind, port or priority that does not exist."""
    lossy: int = 0
    """Pause asked of a priority that is not lossless at the receiving port."""
    healed: int = 0
    """Accounts whose crossing was never told, found by looking."""


class _Account:
    """An ingress account. `over`: above XOFF. `asked`: the peer has been told to pause."""

    __slots__ = ("asked", "cause_ns", "over", "overdue", "storm")

    def __init__(self) -> None:
        self.over = False
        self.storm = False
        self.asked = False
        self.overdue = False  # the frame must go out again
        self.cause_ns = 0  # the crossing that no closed gate has answered yet


class _Queue:
    """An egress queue. `asked`: a pause is in force. `freed`: the watchdog does not let it count."""

    __slots__ = ("asked", "closed", "frame_ns", "freed")

    def __init__(self) -> None:
        self.asked = False
        self.freed = False
        self.closed = False
        self.frame_ns = 0  # the frame that no closed gate has answered yet


_REFRESH, _STORM, _EXPIRY, _WATCHDOG = range(4)


class PauseCore:
    """The ports of one lab."""

    def __init__(self, ports: Iterable[PortAttachment], ledger: Ledger) -> None:
        """Raises `ValueError` for ports that the maps do not have."""
        self._ports = {port.number: port for port in ports}
        self._ledger = ledger
        if self._ports and (max(self._ports) + 1) * PRIORITIES > ledger.queues:
            raise ValueError(f"port {max(self._ports)} is beyond the {ledger.queues // PRIORITIES - 1} of the maps")
        self._lossless = {number: sum(1 << p for p in set(port.lossless)) for number, port in self._ports.items()}
        self._accounts: dict[int, _Account] = {}
        self._queues: dict[int, _Queue] = {}
        self._changed_accounts: set[int] = set()
        self._changed_queues: set[int] = set()
        self._reports: list[Report] = []
        self._timers = Timers()
        self._suspects: set[int] = set()
        self._stopped = False
        self.strays = Strays()
        self.reset()

    def reset(self) -> None:
        """Forget the measured times."""
        self.event_to_frame = Histogram()
        self.frame_to_gate = Histogram()
        self.reactions: dict[int, Histogram] = {}
        """From the crossing of XOFF to the closed gate, by the egress queue that was paused."""

    # --- inputs --------------------------------------------------------------------------------------

    def on_xoff(self, port: int, priority: int, ns: int) -> None:
        """The account of ingress `port` crossed XOFF at `ns`."""
        account = self._crossed(port, priority)
        if account is not None and account.over and not account.asked:
            account.cause_ns = ns

    def on_xon(self, port: int, priority: int) -> None:
        """The account came down to XON."""
        account = self._crossed(port, priority)
        if account is not None and not account.over and not account.asked:
            account.cause_ns = 0

    def on_pfc(self, port: int, vector: int, quanta: Sequence[int], ns: int, now: int) -> None:
        """`port` received a PFC frame at `ns`."""
        lossless = self._lossless.get(port)
        if lossless is None:
            self.strays.unknown += 1
            return
        if self._stopped:
            return
        if vector & ~lossless:
            self.strays.lossy += 1
        for priority in priorities_of(vector & lossless):
            index = port * PRIORITIES + priority
            if quanta[priority]:
                self._ledger.xoff_received(index)
                self._pause(index, ns, ns + pause_ns(quanta[priority], self._ports[port].rate_bps), now)
            else:
                self._ledger.xon_received(index)
                self._resume(index, now)

    def on_timer(self, now: int) -> None:
        for key in self._timers.expired(now):
            index, kind = divmod(key, 4)
            if kind == _REFRESH:
                self._refresh(index)
            elif kind == _STORM:
                self._end_storm(index)
            elif kind == _EXPIRY:
                self._resume(index, now)
            else:
                self._watch(index, now)

    def storm(self, port: int, priority: int, duration_ns: int, now: int) -> None:
        """Ask the peer to pause as if the account were above XOFF, for `duration_ns`. A new storm replaces the old.

        Raises `LookupError` for a port or priority that there is not, or that the peer would not obey.
        """
        peer = self._ports[port].peer if port in self._ports else 0
        if not 0 <= priority < PRIORITIES or not self._lossless.get(peer, 0) >> priority & 1:
            raise LookupError(f"no port {port} whose peer obeys pause frames of priority {priority}")
        index = port * PRIORITIES + priority
        account = self._accounts.setdefault(index, _Account())
        account.storm = True
        self._ledger.storm(index, True)
        self._timers.set(index * 4 + _STORM, now + duration_ns)
        self._changed_accounts.add(index)
        self._reports.append(Report(ReportKind.STORM_BEGAN, port, priority, f"for {duration_ns / 1e9:g} s"))

    def compare(self, over: Iterable[int]) -> None:
        """Correct the accounts by those that really are above XOFF: an event may have been lost in a full ring."""
        if self._stopped:
            return
        real = {index for index in over if index // PRIORITIES in self._ports}
        believed = {index for index, account in self._accounts.items() if account.over}
        # An event may also be on its way: only what was wrong twice in a row is.
        wrong = real ^ believed
        for index in wrong & self._suspects:
            self._accounts.setdefault(index, _Account()).over = index in real
            self._changed_accounts.add(index)
            self.strays.healed += 1
        self._suspects = wrong

    def take_over(self, now: int) -> None:
        """Continue from the maps where another agent ended: what was closed opens, what was asked is settled."""
        ledger = self._ledger
        ledger.clear_states()
        for index in ledger.all_closed():
            self._queues.setdefault(index, _Queue()).closed = True
            self._changed_queues.add(index)
        for index in ledger.all_asking():
            account = self._accounts.setdefault(index, _Account())
            account.asked = account.overdue = True
            self._changed_accounts.add(index)
        for index in ledger.all_over():
            self._accounts.setdefault(index, _Account()).over = True
            self._changed_accounts.add(index)
        for index in [*self._queues, *self._accounts]:
            if index // PRIORITIES not in self._ports:  # a port that the lab no longer has
                self._queues.pop(index, None)
                self._accounts.pop(index, None)
                self._changed_queues.discard(index)
                self._changed_accounts.discard(index)
                ledger.xon_sent(index, now)
                ledger.gate_opened(index, now)

    def stop(self) -> None:
        """Let go of everything: peers are resumed, gates open; what comes in later has no effect."""
        self._stopped = True
        self._timers.clear()
        for index, account in self._accounts.items():
            account.over = False
            if account.storm:
                self._end_storm(index)
            self._changed_accounts.add(index)
        for index, queue in self._queues.items():
            queue.asked = False
            if queue.freed:
                self._restore(index, queue)
            self._changed_queues.add(index)

    # --- what the actions led to ---------------------------------------------------------------------

    def sent(self, action: SendPause, now: int) -> None:
        """The frame left at `now`."""
        for priority in priorities_of(action.vector):
            if action.quanta[priority]:
                account = self._accounts[action.port * PRIORITIES + priority]
                if account.cause_ns:
                    self.event_to_frame.record(now - account.cause_ns)

    def closed(self, action: CloseGate, now: int) -> None:
        """The gates are closed since `now`."""
        peer = self._ports[action.port].peer
        for priority in priorities_of(action.vector):
            index = action.port * PRIORITIES + priority
            queue = self._queues[index]
            if queue.frame_ns:
                self.frame_to_gate.record(now - queue.frame_ns)
            account = self._accounts.get(peer * PRIORITIES + priority)
            if account is not None and 0 < account.cause_ns <= queue.frame_ns:
                self.reactions.setdefault(index, Histogram()).record(now - account.cause_ns)
                account.cause_ns = 0
            queue.frame_ns = 0

    def opened(self, action: OpenGate, now: int) -> None:
        """The gates are open since `now`."""
        for priority in priorities_of(action.vector):
            self._ledger.gate_opened(action.port * PRIORITIES + priority, now)

    # --- outputs -------------------------------------------------------------------------------------

    def next_timer(self) -> int | None:
        """When `on_timer` should be called next; None: no need."""
        return self._timers.next_ns()

    def flush(self, now: int) -> list[Action]:
        """What to do now, the most urgent first: frames that pause, gates to close, frames that resume, gates to
        open, and what to report."""
        pauses: list[Action] = []
        resumes: list[Action] = []
        if self._changed_accounts:
            self._flush_accounts(now, pauses, resumes)
        if self._changed_queues:
            self._flush_queues(now, pauses, resumes)
        if self._reports:
            resumes += self._reports
            self._reports = []
        return pauses + resumes

    def _flush_accounts(self, now: int, pauses: list[Action], resumes: list[Action]) -> None:
        frames: dict[int, dict[int, int]] = {}
        for index in self._changed_accounts:
            account = self._accounts[index]
            wanted = account.over or account.storm
            port, priority = divmod(index, PRIORITIES)
            if wanted and (account.overdue or not account.asked):
                frames.setdefault(port, {})[priority] = MAX_QUANTA
                self._ledger.xoff_sent(index, now)
                self._timers.set(index * 4 + _REFRESH, now + self._refresh_ns(port))
            elif account.asked and not wanted:
                frames.setdefault(port, {})[priority] = 0
                self._ledger.xon_sent(index, now)
                self._timers.cancel(index * 4 + _REFRESH)
                account.cause_ns = 0
            account.asked = wanted
            account.overdue = False
        self._changed_accounts.clear()
        for port, times in frames.items():
            vector = sum(1 << priority for priority in times)
            frame = SendPause(port, vector, tuple(times.get(priority, 0) for priority in range(PRIORITIES)))
            (pauses if any(times.values()) else resumes).append(frame)

    def _flush_queues(self, now: int, pauses: list[Action], resumes: list[Action]) -> None:
        closing: dict[int, int] = {}
        opening: dict[int, int] = {}
        for index in self._changed_queues:
            queue = self._queues[index]
            wanted = queue.asked and not queue.freed
            port, priority = divmod(index, PRIORITIES)
            if wanted and not queue.closed:
                closing[port] = closing.get(port, 0) | 1 << priority
                self._ledger.gate_closes(index, now)
            elif queue.closed and not wanted:
                opening[port] = opening.get(port, 0) | 1 << priority
            queue.closed = wanted
        self._changed_queues.clear()
        pauses += [CloseGate(port, vector) for port, vector in closing.items()]
        resumes += [OpenGate(port, vector) for port, vector in opening.items()]

    # --- ingress accounts ----------------------------------------------------------------------------

    def _crossed(self, port: int, priority: int) -> _Account | None:
        """The account that an event is about, as it is by now.

        Two CPUs may tell of XOFF and XON in the wrong order, but the account in the map is always right.
        """
        if not self._lossless.get(port, 0) >> priority & 1:
            self.strays.unknown += 1
            return None
        if self._stopped:
            return None
        index = port * PRIORITIES + priority
        account = self._accounts.setdefault(index, _Account())
        account.over = self._ledger.is_over(index)
        self._changed_accounts.add(index)
        return account

    def _refresh_ns(self, port: int) -> int:
        """Half of the time that the peer will pause for, whichever end counts it."""
        rates = [self._ports[number].rate_bps for number in (port, self._ports[port].peer) if number in self._ports]
        return pause_ns(MAX_QUANTA, max(rates)) // 2

    def _refresh(self, index: int) -> None:
        account = self._accounts[index]
        account.over = self._ledger.is_over(index)
        account.overdue = True
        self._changed_accounts.add(index)

    def _end_storm(self, index: int) -> None:
        account = self._accounts[index]
        account.storm = False
        account.over = not self._stopped and self._ledger.is_over(index)
        self._ledger.storm(index, False)
        self._changed_accounts.add(index)
        self._reports.append(Report(ReportKind.STORM_ENDED, *divmod(index, PRIORITIES)))

    # --- egress queues -------------------------------------------------------------------------------

    def _pause(self, index: int, ns: int, until: int, now: int) -> None:
        if until <= now:
            self._resume(index, now)  # its time was over before we came to it
            return
        queue = self._queues.setdefault(index, _Queue())
        self._timers.set(index * 4 + _EXPIRY, until)
        if queue.asked:
            return
        queue.asked = True
        queue.frame_ns = ns
        if queue.freed:
            self._timers.cancel(index * 4 + _WATCHDOG)  # it is not unpaused for long enough
        elif detect := self._ports[index // PRIORITIES].watchdog_detect_ns:
            self._timers.set(index * 4 + _WATCHDOG, now + detect)
        self._changed_queues.add(index)

    def _resume(self, index: int, now: int) -> None:
        queue = self._queues.get(index)
        if queue is None or not queue.asked:
            return
        queue.asked = False
        self._timers.cancel(index * 4 + _EXPIRY)
        self._timers.cancel(index * 4 + _WATCHDOG)
        if queue.freed:
            self._timers.set(index * 4 + _WATCHDOG, now + self._ports[index // PRIORITIES].watchdog_restore_ns)
        self._changed_queues.add(index)

    def _watch(self, index: int, now: int) -> None:
        """The watchdog's time has come: a paused queue is freed, a freed one that is not paused is guarded again."""
        queue = self._queues[index]
        if queue.freed:
            self._restore(index, queue)
        elif queue.asked:
            queue.freed = True
            self._ledger.watchdog_frees(index)
            detect = self._ports[index // PRIORITIES].watchdog_detect_ns
            detail = f"paused for {detect / 1e6:g} ms"
            self._reports.append(Report(ReportKind.WATCHDOG_FREED, *divmod(index, PRIORITIES), detail))
        self._changed_queues.add(index)

    def _restore(self, index: int, queue: _Queue) -> None:
        queue.freed = False
        self._ledger.watchdog_restores(index)
        self._reports.append(Report(ReportKind.WATCHDOG_RESTORED, *divmod(index, PRIORITIES)))
