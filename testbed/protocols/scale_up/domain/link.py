"""Settings of the links of a domain, in lab units, and the configurations of their ends."""

from __future__ import annotations

import dataclasses
import enum
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from testbed.protocols.errors import UsageError
from testbed.protocols.scale_up.credits import spacing_ns
from testbed.protocols.scale_up.domain.binding import (
    LINK_VCS,
    OVERHEAD_BYTES,
    REGION_BYTES,
    LineFormat,
    LinkConfig,
    WireErrors,
)
from testbed.protocols.scale_up.header_stacks import HEADER_STACKS, LAB
from testbed.protocols.scale_up.native import NativeRetryConfig
from testbed.protocols.scale_up.retry import RetryConfig

MOST_CAPACITY: Final = 0x7FFF
"""Credits: a CF_Update has 15 bits of the counter."""
MOST_COARSE: Final = 32
"""Transactions of a frame: a veth's MTU of 9,200 bytes has room for 8 kB."""
LEAST_RATE_BPS: Final = 1_000
_DEEPEST: Final = 64
_CONTROL_FRAMES: Final = 32
_LEAST_RING, _LARGEST_RING = 1024, 8192
"""Frames: those of 50 ms in which the kernel lets no real-time process run, at 150,000/s."""
_MODEL_UNIT: Final = 64


class FlowControl(enum.IntEnum):
    """`enum flow_control` (link_port.h)."""

    CREDITS = 0
    PFC = 1
    NONE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    """The links of a domain. Raises `UsageError` for what is out of range."""

    rate_bps: int
    """The rate of a link, that is of one plane, and direction."""
    delay_ns: int = 0
    """Propagation over one link, one way: a quarter of the round trip between two GPUs."""
    flow_control: FlowControl = FlowControl.CREDITS
    coarse: int = 16
    """Transactions of 256 bytes that a frame carries at most."""
    unit_bytes: int = 0
    """The bytes of a credit; 0: 64 bytes for each of the `coarse` transactions."""
    capacity: Sequence[int] = (256, 256)
    """Credits of each VC's input buffer: the buffer of all three kinds of flow control."""
    best_effort: Sequence[int] = ()
    """VCs that take no credits, and drop at a full buffer."""
    xoff: Sequence[int] = ()
    """PFC: credits above which a pause is asked for, by VC; (): half of the capacity."""
    xon: Sequence[int] = ()
    """PFC: credits at which it ends; (): a quarter."""
    cf_spacing_bytes: int = 0
    """Least distance of CF_Updates; 0: 6,400 bytes for each 16 transactions of a frame."""
    heartbeat_ns: int = 10_000_000
    """Most time between two control frames while data passes. It is real time, as are the next two."""
    idle_heartbeat_ns: int = 700_000_000
    """The longest time between heartbeats of a link that nothing passes; it doubles from `heartbeat_ns` up to this."""
    silence_ns: int = 2_500_000_000
    """An end that has heard nothing for so long takes the link for down; 0: never."""
    cc_period_ns: int = 0
    """Time between two CC_Updates; 0: none are sent, nor are they with LLR, under which no credit leaks."""
    headers: str = LAB
    """Whose headers a frame's payload stands behind, as far as the line is occupied: of `header_stacks`."""
    retry: RetryConfig | None = None
    """LLR of each link; None: without. While it is not ready frames are held back, and after a flush it begins anew."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.capacity) <= LINK_VCS or any(not 1 <= item <= MOST_CAPACITY for item in self.capacity):
            raise UsageError(f"capacity: 1 to {LINK_VCS} VCs of 1 to {MOST_CAPACITY} credits")
        if not 1 <= self.coarse <= MOST_COARSE:
            raise UsageError(f"coarse {self.coarse}: from 1 to {MOST_COARSE}")
        if not LEAST_RATE_BPS <= self.rate_bps <= 1 << 50:
            raise UsageError(f"rate_bps {self.rate_bps}: from {LEAST_RATE_BPS:,}")
        if not 32 <= self.unit <= 1 << 20:
            raise UsageError(f"unit_bytes {self.unit}: from 32 to {1 << 20}")
        if max(len(self.xoff), len(self.xon)) > self.vcs or max(self.best_effort, default=0) >= self.vcs:
            raise UsageError(f"xoff, xon or best_effort name more than the {self.vcs} VCs of capacity")
        if min(self.delay_ns, self.cf_spacing_bytes, self.silence_ns, self.cc_period_ns) < 0:
            raise UsageError("a time or a spacing is negative")
        if self.headers != LAB and self.headers not in HEADER_STACKS:
            raise UsageError(f"headers {self.headers}: {LAB}, {', '.join(HEADER_STACKS)}")
        if not 1 <= self.heartbeat_ns <= self.idle_heartbeat_ns:
            raise UsageError("heartbeat_ns: from 1 up to idle_heartbeat_ns")
        if any(self.credits(self.frame_bytes) > item for item in self.capacity):
            raise UsageError(f"capacity: a frame takes {self.credits(self.frame_bytes)} credits, more than a VC has")
        if any(on > off for off, on in zip(self._xoff, self._xon, strict=True)):
            raise UsageError("xon is above xoff")

    @property
    def vcs(self) -> int:
        return len(self.capacity)

    @property
    def unit(self) -> int:
        """Bytes of a credit."""
        return self.unit_bytes or _MODEL_UNIT * self.coarse

    @property
    def payload_bytes(self) -> int:
        """The payload of the longest frame."""
        return self.coarse * REGION_BYTES

    @property
    def frame_bytes(self) -> int:
        """The longest frame."""
        return self.coarse * REGION_BYTES + OVERHEAD_BYTES

    @property
    def _xoff(self) -> tuple[int, ...]:
        return tuple(self.xoff) or tuple(item // 2 for item in self.capacity)

    @property
    def _xon(self) -> tuple[int, ...]:
        return tuple(self.xon) or tuple(item // 4 for item in self.capacity)

    def line_bytes(self, payload: int) -> float:
        """Return the bytes of the line that a frame with a request and such a payload takes."""
        stack = HEADER_STACKS.get(self.headers)
        return payload + OVERHEAD_BYTES if stack is None else stack.line_bytes(payload)

    def credits(self, frame_bytes: int) -> int:
        """Return the credits that a frame takes, from its Ethernet header to its FCS."""
        return -(-frame_bytes // self.unit)

    def pool_frames(self, ports: int) -> int:
        """Frames that a process with so many ports needs at most, as long as its senders keep to the rate."""
        on_the_wire = self.rate_bps * self.delay_ns // (8_000_000_000 * min(self.frame_bytes, 1024)) + 1
        kept = self.retry.outstanding_frames_max if self.retry else 0
        return ports * (sum(self.capacity) + 2 * on_the_wire + 3 * _DEEPEST + kept)

    @property
    def ring_frames(self) -> int:
        """Frames that can wait for a process that comes late, where credits limit them, with some control frames; what
        LLR sends again meanwhile may be lost once more. 0: the sender is not limited."""
        limited = self.flow_control is FlowControl.CREDITS and not self.best_effort
        return sum(self.capacity) + _CONTROL_FRAMES if limited else 0

    def switch_ring_frames(self, ports: int) -> int:
        """Frames that can wait for a switch with so many ports, which never comes very late."""
        return max(_LEAST_RING, min(_LARGEST_RING, ports * (sum(self.capacity) + _CONTROL_FRAMES)))

    def at_rate(self, rate_bps: int) -> LinkSettings:
        """Return this link with another rate, as planes may have."""
        return self if rate_bps == self.rate_bps else dataclasses.replace(self, rate_bps=rate_bps)

    def native(self, mac: bytes, peer: bytes, *, epoch: int | None = None) -> LinkConfig:
        """Return the configuration of one end of a link. `epoch`: None draws one; 0 does without the greeting."""
        config = LinkConfig(
            rate_bps=self.rate_bps,
            delay_ns=self.delay_ns,
            cf_min_ns=spacing_ns(self.cf_spacing_bytes or 400 * self.coarse, self.rate_bps),
            cf_max_ns=self.heartbeat_ns,
            idle_ns=self.idle_heartbeat_ns,
            cc_ns=self.cc_period_ns,
            silence_ns=self.silence_ns,
            flow_control=self.flow_control,
            vcs=self.vcs,
            unit=self.unit,
            epoch=1 + secrets.randbelow(255) if epoch is None else epoch,
        )
        if (stack := HEADER_STACKS.get(self.headers)) is not None:
            config.line = LineFormat(stack.packet, stack.header, stack.grain, *stack.expansion)
        if self.retry is not None:
            config.retry = NativeRetryConfig.of(self.retry)
        config.mac[:], config.peer[:] = mac, peer
        for vc, capacity in enumerate(self.capacity):
            config.capacity[vc] = capacity
            config.granted[vc] = 0 if vc in self.best_effort else capacity
            config.xoff[vc], config.xon[vc] = self._xoff[vc], self._xon[vc]
        return config


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkErrors:
    """Errors of one link of a domain, in both directions. Raises `UsageError` for what is out of range.

    The switch does it, to frames that come in and to frames that it has sent, control frames among them. The same seed
    gives the same errors to the same frames.
    """

    loss: float = 0.0
    """The share of frames that are lost, from 0 to 1."""
    burst: float = 0.0
    """Mean frames of a burst of losses, of the Gilbert model: all are lost in one. Up to 1: each is lost by itself."""
    every: int = 0
    """The last of each so many frames is lost; 0: none."""
    corrupt: float = 0.0
    """The share of frames that arrive with a wrong bit."""
    silent: bool = False
    """Nothing arrives, and neither end is told: it takes a link's own timers to see it."""
    down: bool = False
    """There is no signal, which both ends see at once."""
    rate_bps: int = 0
    """The rate of the link in each direction from now on, known to both ends; 0, or above its own: its own rate."""
    seed: int = 0

    def __post_init__(self) -> None:
        if not (0 <= self.loss <= 1 and 0 <= self.corrupt <= 1):
            raise UsageError("loss and corrupt are shares, from 0 to 1")
        if not 0 <= self.burst <= 1e9:
            raise UsageError(f"burst {self.burst:g}: a mean number of frames")
        if not 0 <= self.every < 1 << 32:
            raise UsageError(f"every {self.every}: from 0 to {(1 << 32) - 1}")
        if self.rate_bps and not LEAST_RATE_BPS <= self.rate_bps < 1 << 63:
            raise UsageError(f"rate_bps {self.rate_bps}: from {LEAST_RATE_BPS:,}, or 0 for the link's own")
        if not 0 <= self.seed < 1 << 63:
            raise UsageError(f"seed {self.seed}: from 0 to 2**63 - 1")

    def native(self) -> WireErrors:
        return WireErrors(**dataclasses.asdict(self))


def plane_links(link: LinkSettings, planes: int, rates_bps: Sequence[int] = ()) -> tuple[LinkSettings, ...]:
    """The links of each plane. `rates_bps` are those of all planes; (): all have that of `link`.

    Raises `UsageError` where they are not as many as planes.
    """
    if rates_bps and len(rates_bps) != planes:
        raise UsageError(f"{len(rates_bps)} rates of {planes} planes")
    return tuple(link.at_rate(rate) for rate in rates_bps) or (link,) * planes
