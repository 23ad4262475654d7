"""Link layer retry (LLR): what a link loses or damages is sent again by the link, in order, within its own round trip.

The sender numbers its frames and keeps each until it is acknowledged. The receiver takes them in order alone. It
acknowledges the last one now and then (ACK, cumulative: one that is lost is made good by the next). When one is
missing or damaged it says once which was the last good one (NACK), and then drops everything, silently, until the one
after that arrives: go-back-N. A NACK may be lost, too, and so may the last frame: a timer replays everything that is
outstanding when nothing was acknowledged for long. A poisoned frame has arrived: its error is end to end.

| sender | |
|---|---|
| OFF | LLR is not used: frames are sent unnumbered |
| INIT | sends LLR_INIT until its echo comes back |
| ADVANCE | sends new frames, as far as the window allows |
| REPLAY | sends again what is outstanding; new frames wait |
| FLUSH | gave up: too many replays, the link (PCS) was down for too long, or data has become too old |

In INIT and FLUSH a new frame is discarded, held back, or sent unnumbered (`FrameAction`).

| receiver | |
|---|---|
| OFF | no LLR_INIT has come |
| SEND_ACKS | frames arrive in order |
| SEND_NACK | one is missing or damaged, and the NACK is yet to be sent |
| NACK_SENT | waits for the frame that was missing |

Both are sans-I/O: what arrives goes in with the time in ns; `poll` has the next control ordered set to send and lets
timers expire, `replay` the next frame to send again, `next_timer` when to ask.

Source: Ultra Ethernet Specification 1.0, section 5.1, after opencomputeproject/SAI doc/LLR (SAI 1.18), whose names
the counters have. Where that is silent: a replay counts as completed when its last frame is sent or everything is
acknowledged; progress sets the count of replays back to 0; the timer starts when the buffer gets its first frame, and
again with progress and at the end of a replay; LLR_INIT carries the number of the first frame and is repeated after
each time of the timer.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from testbed.protocols.errors import UsageError
from testbed.protocols.scale_up.credits import NEVER
from testbed.protocols.scale_up.cyclic import HALF_CYCLE

MOST_OUTSTANDING: Final = HALF_CYCLE
UNLIMITED_REPLAYS: Final = 255


class FrameAction(enum.IntEnum):
    """The fate of a new frame in INIT or FLUSH."""

    DISCARD = 0
    BLOCK = 1
    BEST_EFFORT = 2
    """It is sent unnumbered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryConfig:
    """A port's LLR profile. Raises `UsageError` for what is out of range."""

    outstanding_frames_max: int
    """1 to 2**19."""
    outstanding_bytes_max: int = (1 << 32) - 1
    """A single frame may be longer."""
    replay_timer_ns: int
    replay_count_max: int = 1
    """Replays in a row without progress, 0 to 254; 255: no limit."""
    pcs_lost_timeout_ns: int = 0
    """0: for ever."""
    data_age_timeout_ns: int = 0
    """From when a frame was sent first; 0: for ever."""
    init_action: FrameAction = FrameAction.BEST_EFFORT
    flush_action: FrameAction = FrameAction.BEST_EFFORT
    re_init_on_flush: bool = False
    ack_spacing_ns: int = 0
    """Least time between two ACKs: 2048 bytes (`credits.spacing_ns`) by default in SAI. A NACK does not wait."""

    def __post_init__(self) -> None:
        if not 1 <= self.outstanding_frames_max <= MOST_OUTSTANDING:
            raise UsageError(f"outstanding_frames_max {self.outstanding_frames_max}: from 1 to {MOST_OUTSTANDING}")
        if not 1 <= self.outstanding_bytes_max < 1 << 32:
            raise UsageError(f"outstanding_bytes_max {self.outstanding_bytes_max}: from 1 to 2**32 - 1")
        if not 1 <= self.replay_timer_ns < NEVER:
            raise UsageError(f"replay_timer_ns {self.replay_timer_ns}: at least 1")
        if not 0 <= self.replay_count_max <= UNLIMITED_REPLAYS:
            raise UsageError(f"replay_count_max {self.replay_count_max}: from 0 to {UNLIMITED_REPLAYS}")
        if min(self.pcs_lost_timeout_ns, self.data_age_timeout_ns, self.ack_spacing_ns) < 0:
            raise UsageError("a timeout or a spacing is negative")
