"""CBFC once more in Python, held against the C that links run: its settings and both ends, without I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from testbed.protocols.errors import UsageError
from testbed.protocols.scale_up.credits import NEVER
from testbed.protocols.scale_up.ctlos import COUNT_MASK, VCS, CfUpdate
from testbed.protocols.scale_up.cyclic import CYCLE_MASK, advance, distance

UNITS: Final = (32, 64, 128, 256, 512, 1024, 2048)
"""Bytes that a credit may stand for."""
LEAST_OVERHEAD, MOST_OVERHEAD = -16, 127
MOST_CREDITS: Final = CYCLE_MASK


@dataclass(frozen=True, slots=True, kw_only=True)
class CreditConfig:
    """The settings that both ends of a direction agree on. Raises `UsageError` for what is out of range."""

    limits: tuple[int, ...]
    """Credits of each VC from 0 on, at most 32; 0: best effort, or not in use."""
    unit_bytes: int = 128
    overhead_bytes: int = 0
    """PktOvhd: what the receiver's buffer needs for a frame beyond its bytes, -16 to 127."""
    port_limit: int = 0
    """Credits of all VCs together; 0: no such limit."""
    cf_min_ns: int = 0
    """Least time between two CF_Updates: 6400 bytes (`spacing_ns`) by default in SAI."""
    cf_max_ns: int = 0
    """After that long a CF_Update of each VC is repeated; 0: never. 262,144 bytes by default in SAI."""
    cc_period_ns: int = 0
    """Time between two CC_Updates; 0: none are sent. 256 us by default in SAI."""

    def __post_init__(self) -> None:
        if len(self.limits) > VCS or any(not 0 <= limit <= MOST_CREDITS for limit in self.limits):
            raise UsageError(f"limits: at most {VCS} VCs of 0 to {MOST_CREDITS} credits")
        if self.unit_bytes not in UNITS:
            raise UsageError(f"unit_bytes {self.unit_bytes}: one of {', '.join(map(str, UNITS))}")
        if not LEAST_OVERHEAD <= self.overhead_bytes <= MOST_OVERHEAD:
            raise UsageError(f"overhead_bytes {self.overhead_bytes}: from {LEAST_OVERHEAD} to {MOST_OVERHEAD}")
        if not 0 <= self.port_limit <= MOST_CREDITS:
            raise UsageError(f"port_limit {self.port_limit}: from 0 to {MOST_CREDITS}")
        if min(self.cf_min_ns, self.cf_max_ns, self.cc_period_ns) < 0:
            raise UsageError("a spacing or a period is negative")

    def credits(self, frame_bytes: int) -> int:
        """Return the credits that a frame of this size takes, from its Ethernet header to its FCS."""
        return max(0, -(-(frame_bytes + self.overhead_bytes) // self.unit_bytes))

    def limit(self, vc: int) -> int:
        """Credits of a VC; 0: it is best effort."""
        return self.limits[vc] if vc < len(self.limits) else 0

    @property
    def lossless(self) -> tuple[int, ...]:
        """The VCs that have credits."""
        return tuple(vc for vc, limit in enumerate(self.limits) if limit)


@dataclass(slots=True)
class CreditSenderCounters:
    """Names are those of SAI: `CBFC_NUM_CC_UPDATE_MESSAGES_TX` and so on."""

    sender_credits_used_watermark: int = 0
    """The most that were in use at a time, all VCs together."""
    num_cc_update_messages_tx: int = 0
    """Once for all VCs, though more than ten of them take several frames."""
    num_cf_update_messages_rx: int = 0
    cf_update_errors: int = 0
    """CF_Updates that free more than is in use, or of a VC without credits: they change nothing. Not in SAI."""


@dataclass(slots=True)
class CreditReceiverCounters:
    """Names are those of SAI."""

    num_cc_update_messages_rx: int = 0
    num_cf_update_messages_tx: int = 0
    cc_update_errors: int = 0
    """Counts in CC_Updates that would fill more than the buffer, or of a VC without credits. Not in SAI."""
    leaked_credits: int = 0
    """Credits of lost frames that CC_Updates have brought back. Not in SAI."""
    over_limit_frames: int = 0
    """Frames for which there was no room: the sender does not keep to the limit. Not in SAI."""


@dataclass(slots=True)
class CreditSender:
    """The end of a link that sends frames."""

    config: CreditConfig
    consumed: list[int] = field(default_factory=lambda: [0] * VCS)
    """S_CC by VC."""
    freed: list[int] = field(default_factory=lambda: [0] * VCS)
    """S_CF by VC."""
    port_in_use: int = 0
    """S_CU of the port, as far as VCs have credits."""
    counters: CreditSenderCounters = field(default_factory=CreditSenderCounters)
    _cc_due_ns: int = 0

    def in_use(self, vc: int) -> int:
        """S_CU of a VC."""
        return distance(self.freed[vc], self.consumed[vc])

    def may_send(self, vc: int, frame_bytes: int) -> bool:
        """Tell whether the receiver has room for such a frame."""
        limit, needed = self.config.limit(vc), self.config.credits(frame_bytes)
        if not limit:
            return True
        if self.in_use(vc) + needed > limit:
            return False
        return not self.config.port_limit or self.port_in_use + needed <= self.config.port_limit

    def on_sent(self, vc: int, frame_bytes: int) -> None:
        """A frame leaves for the first time; call it for what `may_send` allows, and not for a replay."""
        if not self.config.limit(vc):
            return
        needed = self.config.credits(frame_bytes)
        self.consumed[vc] = advance(self.consumed[vc], needed)
        self.port_in_use += needed
        self.counters.sender_credits_used_watermark = max(self.counters.sender_credits_used_watermark, self.port_in_use)

    def on_cf_update(self, update: CfUpdate) -> None:
        """The receiver has said how much of two VCs it has freed."""
        self.counters.num_cf_update_messages_rx += 1
        sound = self._free(update.vc1, update.count1) & self._free(update.vc2, update.count2)
        self.counters.cf_update_errors += not sound

    def _free(self, vc: int, count: int) -> bool:
        newly = (count - self.freed[vc]) & COUNT_MASK
        if not self.config.limit(vc) or newly > self.in_use(vc):
            return False
        self.freed[vc] = advance(self.freed[vc], newly)
        self.port_in_use -= newly
        return True

    def poll(self, now: int) -> list[tuple[int, int]]:
        """The VCs and counters S_CC of a CC_Update, where one is due; empty: not yet."""
        if not self.config.cc_period_ns or now < self._cc_due_ns or not self.config.lossless:
            return []
        self._cc_due_ns = now + self.config.cc_period_ns
        self.counters.num_cc_update_messages_tx += 1
        return [(vc, self.consumed[vc]) for vc in self.config.lossless]

    def next_timer(self) -> int:
        """When `poll` will have something; `NEVER`: not by time alone."""
        return self._cc_due_ns if self.config.cc_period_ns and self.config.lossless else NEVER


@dataclass(slots=True)
class CreditReceiver:
    """The end of a link that stores frames."""

    config: CreditConfig
    consumed: list[int] = field(default_factory=lambda: [0] * VCS)
    """R_CC by VC."""
    freed: list[int] = field(default_factory=lambda: [0] * VCS)
    """R_CF by VC."""
    port_held: int = 0
    """Credits of the frames in the buffer, of all VCs that have credits."""
    counters: CreditReceiverCounters = field(default_factory=CreditReceiverCounters)
    _told: list[int] = field(default_factory=lambda: [0] * VCS)
    """R_CF in the last CF_Update, by VC."""
    _told_ns: list[int] = field(default_factory=lambda: [0] * VCS)
    """When that was sent."""
    _earliest_ns: int = 0
    """When the next CF_Update may be sent."""
    _next_vc: int = 0
    """The VC that the search for one to tell of begins with, so that each has its turn."""

    def held(self, vc: int) -> int:
        """Credits of the frames in the buffer."""
        return distance(self.freed[vc], self.consumed[vc])

    def on_stored(self, vc: int, frame_bytes: int) -> bool:
        """A frame has arrived. False: there is no room, which no sender that keeps to the limits brings about, and the
        frame is lost."""
        if not self.config.limit(vc):
            return True
        needed = self.config.credits(frame_bytes)
        if not self._has_room(vc, needed):
            self.counters.over_limit_frames += 1
            return False
        self.consumed[vc] = advance(self.consumed[vc], needed)
        self.port_held += needed
        return True

    def on_freed(self, vc: int, frame_bytes: int) -> None:
        """A frame that was stored has left the buffer."""
        if self.config.limit(vc):
            newly = min(self.config.credits(frame_bytes), self.held(vc))
            self.freed[vc] = advance(self.freed[vc], newly)
            self.port_held -= newly

    def on_cc_update(self, counts: tuple[tuple[int, int], ...]) -> None:
        """The sender has said how much it has consumed: what is missing here was lost, and is free."""
        self.counters.num_cc_update_messages_rx += 1
        for vc, count in counts:
            lost = distance(self.consumed[vc], count)
            if not self.config.limit(vc) or not self._has_room(vc, lost):
                self.counters.cc_update_errors += 1
                continue
            self.consumed[vc] = count
            self.freed[vc] = advance(self.freed[vc], lost)
            self.counters.leaked_credits += lost

    def poll(self, now: int) -> CfUpdate | None:
        """The CF_Update that is due: of VCs with something new, then of those that were silent for long."""
        if now < self._earliest_ns:
            return None
        vcs = self.config.lossless
        first = self._due(now, vcs, self._next_vc, None)
        if first is None:
            return None
        second = self._due(now, vcs, first + 1, first)
        if second is None:
            second = self._following(vcs, first)
        for vc in (first, second):
            self._told[vc], self._told_ns[vc] = self.freed[vc], now
        self._next_vc = second + 1
        self._earliest_ns = now + self.config.cf_min_ns
        self.counters.num_cf_update_messages_tx += 1
        return CfUpdate(first, self.freed[first] & COUNT_MASK, second, self.freed[second] & COUNT_MASK)

    def next_timer(self) -> int:
        """When `poll` will have something; `NEVER`: not by time alone."""
        vcs = self.config.lossless
        if any(self._told[vc] != self.freed[vc] for vc in vcs):
            return self._earliest_ns
        if not vcs or not self.config.cf_max_ns:
            return NEVER
        return max(self._earliest_ns, min(self._told_ns[vc] for vc in vcs) + self.config.cf_max_ns)

    def _has_room(self, vc: int, needed: int) -> bool:
        if self.held(vc) + needed > self.config.limit(vc):
            return False
        return not self.config.port_limit or self.port_held + needed <= self.config.port_limit

    def _due(self, now: int, vcs: tuple[int, ...], start: int, but: int | None) -> int | None:
        order = [vc for vc in vcs if vc >= start] + [vc for vc in vcs if vc < start]
        for vc in order:
            if vc != but and self._told[vc] != self.freed[vc]:
                return vc
        for vc in order:
            if vc != but and self.config.cf_max_ns and now >= self._told_ns[vc] + self.config.cf_max_ns:
                return vc
        return None

    @staticmethod
    def _following(vcs: tuple[int, ...], vc: int) -> int:
        """The VC whose turn is after `vc`: there is room for two, and a repetition does no harm."""
        return next((other for other in vcs if other > vc), vcs[0])
