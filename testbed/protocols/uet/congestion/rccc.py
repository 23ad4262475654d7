"""RCCC, receiver-credited congestion control: sources that spend credit, a destination that grants it at line rate.

The specification's own pseudo-code (section 3.6.14, tables 3-79 and 3-80) was not at hand. The wire fields are the
specification's; the behaviour is that of the UEC simulator, which descends from EQDS (NSDI 2022). Whatever differs
from the text differs in this file alone. Known to be open: the credit timer of section 3.6.14.5, here
`CREDIT_TIMEOUT_RTTS`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from math import ceil
from typing import Final

from testbed.protocols.datagram import Incoming
from testbed.protocols.uet.congestion.context import CongestionContext
from testbed.protocols.uet.congestion.controller import ContextController
from testbed.protocols.uet.congestion.credit import (
    CREDIT_HALF,
    CREDIT_MASK,
    CREDIT_UNIT_BYTES,
    CreditGrants,
    SourceCredit,
)
from testbed.protocols.uet.congestion.grant_share import GrantShare
from testbed.protocols.uet.congestion.nscc_config import NsccConfig

MTUS_PER_GRANT: Final = 4
GRANT_RATE: Final = 0.99
"""Share of the link rate that is granted, so that no queue builds up before the last hop."""
MIN_GRANT_SPACING_BYTES: Final = 1024
"""A smaller grant takes the time of one of this size, or small demands would become a storm of control packets."""
MAX_BURST_GRANTS: Final = 8
"""Grants of one call, however late it comes."""
MAX_WNDS_AHEAD: Final = 8
"""A source asks for no more credit than its MaxWnd, which may be larger than the destination's."""
CREDIT_TIMEOUT_RTTS: Final = 5
"""A blocked source asks again after this many base RTTs without credit."""

MAX_DOUBLINGS: Final = 6
"""The most doublings of that time, while requests bring nothing."""


class CreditSource(SourceCredit):
    """The source: credit in bytes, spent by sending, refilled by a cumulative counter of the destination.

    A new source speculates: it may send one MaxWnd before it has heard anything. The first feedback of any kind ends
    that and voids what is left. The last packet may overdraw, hence credit may be negative, and the next demand
    includes the debt.
    """

    def __init__(self, max_wnd_bytes: int, mtu_bytes: int, base_rtt_ns: int, now: int) -> None:
        super().__init__(max_wnd_bytes)
        self.speculating: bool = True
        self._max_wnd: int = max_wnd_bytes
        self._mtu: int = mtu_bytes
        self._base_rtt_ns: int = base_rtt_ns
        self._last_counter: int = 0
        self._last_request: int = now - base_rtt_ns
        self._request_at: int = now + CREDIT_TIMEOUT_RTTS * base_rtt_ns
        self._unanswered: int = 0

    def on_feedback(self) -> None:
        if self.speculating:
            self.speculating = False
            self.credit = min(self.credit, 0)

    def on_credit(self, now: int, counter: int) -> None:
        """`counter` is the cumulative credit (24 bits) of a CREDIT packet or ACK_CC; an overtaken one is ignored."""
        self.on_feedback()
        granted = (counter - self._last_counter) & CREDIT_MASK
        if granted >= CREDIT_HALF:
            return
        self._last_counter = counter & CREDIT_MASK
        self._unanswered = 0
        self._request_at = now + CREDIT_TIMEOUT_RTTS * self._base_rtt_ns
        self.credit = min(self.credit + granted * CREDIT_UNIT_BYTES, self._max_wnd)

    def on_timeout(self, now: int) -> None:
        """An RTO fired: if there is no credit to retransmit with, ask for it at once.

        A destination that was never heard may not know us, and could not be asked: speculate with one packet more.
        """
        self._request_at = now
        self.on_refusal()

    def on_refusal(self) -> None:
        """The whole first window was lost, or trimmed, before the destination knew us: one packet more may try."""
        if self.speculating:
            self.credit = max(self.credit, self._mtu)

    def credit_target(self, backlog_bytes: int, retransmit_bytes: int, cwnd: float | None) -> int:
        """24-bit credit_target: how far the destination's counter should go for all that waits to be sent.

        `cwnd` is NSCC's window where that runs too: credit beyond it could not be used.
        """
        demand = backlog_bytes + retransmit_bytes
        if cwnd is not None:
            demand = min(demand, int(cwnd) + self._mtu)
        wanted = min(demand, self._max_wnd) - self.credit
        if self.speculating and backlog_bytes > 0:
            # What is left of speculative credit will be void by then: a short transfer would have to wait for its RTO.
            wanted = max(wanted, self._mtu)
        return (self._last_counter - (-wanted // CREDIT_UNIT_BYTES)) & CREDIT_MASK

    def next_request_time(self) -> int | None:
        """Return when a source that has something to send should ask with CREDIT_REQ; None while it has credit.

        At most once per base RTT.
        """
        if self.credit > 0:
            return None
        return max(self._request_at, self._last_request + self._base_rtt_ns)

    def on_request(self, now: int) -> None:
        """A CREDIT_REQ was sent. Each one that brings nothing doubles the time to the next."""
        self._last_request = now
        self._request_at = now + (CREDIT_TIMEOUT_RTTS * self._base_rtt_ns << min(self._unanswered, MAX_DOUBLINGS))
        self._unanswered += 1


class _Sender:
    """One source as the destination sees it; credit in units of 256 bytes since the beginning, without wrapping."""

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.target: int = 0
        self.granted: int = 0
        self.retransmit: int = 0


class CreditScheduler(CreditGrants):
    """The destination: one per FEP, granting in turn to all sources that ask, at a little less than its link rate.

    Order: sources whose packets were trimmed, then sources with demand, each group in turn, four MTUs at a time;
    never beyond what was asked for. With nobody left, sources that had asked get "slow pull" credit in advance, up to
    MaxWnd beyond their demand, so that they need not speculate when they have something again.

    Times in ns. `next_grant_time` is the timer; `grant` says what to send: one CREDIT (or ACK_CC) per source and call.
    """

    def __init__(
        self,
        link_rate_bps: int,
        mtu_bytes: int,
        max_wnd_bytes: int,
        slow_pull: bool = True,
        max_ahead_bytes: int = CREDIT_HALF * CREDIT_UNIT_BYTES,
        share: GrantShare | None = None,
    ) -> None:
        """A source is granted nothing beyond `max_ahead_bytes`: a forged target would take 2 GB of credit from the
        others. Without a `share`, all of the link's rate is granted whatever the fabric carries."""
        self._ns_per_byte: float = 8e9 / (GRANT_RATE * link_rate_bps)
        self._grant_units: int = -(-MTUS_PER_GRANT * mtu_bytes // CREDIT_UNIT_BYTES)
        self._most_ahead: int = max_ahead_bytes // CREDIT_UNIT_BYTES
        self._slow_units: int = max_wnd_bytes // CREDIT_UNIT_BYTES if slow_pull else 0
        self._max_burst_ns: float = (MAX_BURST_GRANTS - 0.5) * self._grant_units * CREDIT_UNIT_BYTES * self._ns_per_byte
        self._next_time: float = 0.0
        self._share = share
        self._senders: dict[Hashable, _Sender] = {}
        # Ordered dictionaries rather than deques: a source leaves the middle of one queue when it enters another.
        self._retransmitting: OrderedDict[Hashable, _Sender] = OrderedDict()
        self._active: OrderedDict[Hashable, _Sender] = OrderedDict()
        self._idle: OrderedDict[Hashable, _Sender] = OrderedDict()
        self._announce: dict[Hashable, int] = {}

    def on_target(self, sender: Hashable, credit_target: int, now: int) -> None:
        """A request with a credit_target (24 bits) arrived. An overtaken one changes nothing."""
        entry = self._entry(sender)
        advance = (credit_target - entry.target) & CREDIT_MASK
        if 0 < advance < CREDIT_HALF:
            entry.target = max(entry.target, min(entry.target + advance, entry.granted + self._most_ahead))
            self._queue(entry, now)

    def on_trimmed(self, sender: Hashable, size: int, now: int) -> None:
        """A packet of `size` bytes of this source was trimmed: it spent its credit, and will be sent again.

        The source may have none left to say so with, therefore the demand is raised here. Its next target counts the
        retransmission too, but as an absolute figure, so nothing is granted twice.
        """
        entry = self._entry(sender)
        units = -(-size // CREDIT_UNIT_BYTES)
        entry.target = max(entry.target, min(entry.target + units, entry.granted + self._most_ahead))
        entry.retransmit = min(entry.retransmit + units, self._most_ahead)
        self._queue(entry, now)

    def on_arrival(self, incoming: Incoming, now: int) -> None:
        share = self._share
        if share is not None:
            if not incoming.trimmed:
                share.on_packet(len(incoming.data), incoming.ce)
            elif not incoming.last_hop:
                share.on_trimmed()
            self._follow(now)

    def on_request(self, sender: Hashable, credit_target: int, now: int) -> None:
        """A CREDIT_REQ arrived: as a target, and the counter is sent again, for the last CREDIT may have been lost."""
        self.on_target(sender, credit_target, now)
        self._announce[sender] = self.credit_of(sender)

    def remove(self, sender: Hashable) -> None:
        for queue in (self._retransmitting, self._active, self._idle):
            queue.pop(sender, None)
        self._announce.pop(sender, None)
        self._senders.pop(sender, None)

    def credit_of(self, sender: Hashable) -> int:
        """The 24-bit cumulative counter of a source."""
        entry = self._senders.get(sender)
        return 0 if entry is None else entry.granted & CREDIT_MASK

    def next_grant_time(self) -> int | None:
        """Return when `grant` has something to say; None if nobody is to be granted anything."""
        if self._announce:
            return 0
        if self._retransmitting or self._active or self._idle:
            return ceil(self._next_time)
        return None

    def grant(self, now: int) -> list[tuple[Hashable, int]]:
        """Grants what is due: sources and their cumulative counters of 24 bits."""
        found = self._announce
        self._announce = {}
        self._follow(now)
        ns_per_byte = self._ns_per_byte
        if self._share is not None:
            ns_per_byte /= self._share.share
        self._next_time = max(self._next_time, now - self._max_burst_ns)
        while self._next_time <= now:
            if self._retransmitting:
                key, entry = self._retransmitting.popitem(last=False)
                limit = entry.target
            elif self._active:
                key, entry = self._active.popitem(last=False)
                limit = entry.target
            elif self._idle:
                key, entry = self._idle.popitem(last=False)
                limit = entry.target + self._slow_units
            else:
                break
            units = min(self._grant_units, limit - entry.granted)
            entry.granted += units
            entry.retransmit = max(entry.retransmit - units, 0)
            found[key] = entry.granted & CREDIT_MASK
            self._next_time += max(units * CREDIT_UNIT_BYTES, MIN_GRANT_SPACING_BYTES) * ns_per_byte
            self._enqueue(entry)
        return list(found.items())

    def _follow(self, now: int) -> None:
        """Take a change of the share: what is left of the time until the next grant gets longer or shorter by it."""
        if self._share is not None:
            before = self._share.share
            self._share.update(now)
            if self._next_time > now:
                self._next_time = now + (self._next_time - now) * before / self._share.share

    def _entry(self, sender: Hashable) -> _Sender:
        entry = self._senders.get(sender)
        if entry is None:
            entry = self._senders[sender] = _Sender(sender)
        return entry

    def _queue(self, entry: _Sender, now: int) -> None:
        """Puts a source whose demand has changed where it belongs; it keeps its turn if it is there already."""
        if not (self._retransmitting or self._active or self._idle):
            self._next_time = max(self._next_time, float(now))
        key = entry.key
        if entry.retransmit > 0 and entry.target > entry.granted:
            self._active.pop(key, None)
            self._idle.pop(key, None)
        elif entry.target > entry.granted:
            self._idle.pop(key, None)
        self._enqueue(entry)

    def _enqueue(self, entry: _Sender) -> None:
        if entry.target > entry.granted:
            (self._retransmitting if entry.retransmit > 0 else self._active).setdefault(entry.key, entry)
        else:
            entry.retransmit = 0
            if entry.granted - entry.target < self._slow_units:
                self._idle.setdefault(entry.key, entry)


def make_scheduler(config: NsccConfig, now: int, follows_fabric: bool) -> CreditScheduler:
    """Make the scheduler of a destination; `follows_fabric`: it grants what the fabric carries (`GrantShare`)."""
    window = int(config.max_wnd_bytes)
    share = GrantShare(config.link_rate_bps, config.base_rtt_ns, now) if follows_fabric else None
    return CreditScheduler(
        config.link_rate_bps, config.mtu_bytes, window, max_ahead_bytes=MAX_WNDS_AHEAD * window, share=share
    )


def make_credit(config: NsccConfig, now: int) -> CreditSource:
    """Make the credit of a source, which begins with one MaxWnd that it may speculate with."""
    return CreditSource(int(config.max_wnd_bytes), config.mtu_bytes, config.base_rtt_ns, now)


CONTROLLER: Final[ContextController] = ContextController(
    name="rccc",
    description="receiver-credited: the destination grants credit at its link's rate",
    make=lambda config, now: CongestionContext(None, make_credit(config, now)),
    make_grants=make_scheduler,
)
