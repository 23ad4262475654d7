"""Rates, losses and times of links inside a scale-up domain, as formulas that runs in packets are compared with.

A link has the rate B, a round trip of its own RTT, and frames of L bytes. Shares are of B, 1 at most. None of them
knows of headers: they are about frames. Sources are those of each function; where none is named it is arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def frames_of_round_trip(*, rate_bps: float, round_trip_s: float, frame_bytes: int) -> float:
    """The frames that keep a link busy until the first is acknowledged: 1 + B RTT / (8 L)."""
    return 1 + rate_bps * round_trip_s / (8 * frame_bytes)


def credit_share(*, credits_bytes: float, rate_bps: float, loop_s: float) -> float:
    """The share that a limit of credits lets through: a credit loop's bytes, or as many as there are credits for.

    The loop is two propagations, the spacing of credit updates and the service of a frame. Source: the sizing of
    credits in opencomputeproject/SAI doc/CBFC.
    """
    return min(1.0, 8 * credits_bytes / (rate_bps * loop_s))


def window_share(*, window_frames: float, needed_frames: float) -> float:
    """The share that a replay window lets through, of which a round trip needs `needed_frames`."""
    return min(1.0, window_frames / needed_frames)


def retry_share(*, loss: float, window_frames: float) -> float:
    """The share of new frames where each loss costs a window (go-back-N): (1 - p) / (1 - p + p W).

    0.988 for p = 0.001 and W = 12 (a link's round trip), 0.893 for W = 120 (from end to end).
    """
    return (1 - loss) / (1 - loss + loss * window_frames)


def message_survival(*, loss: float, frames: int, hops: int) -> float:
    """The probability that none of a message's frames is lost on lossy hops without retry: (1 - p) ^ (h m)."""
    return (1 - loss) ** (frames * hops)


def incast_share(*, senders: int) -> float:
    """Each sender's share of the receiver's link, which all of them fill."""
    return 1 / senders


def open_loop_loss(*, senders: int, sent_bytes: float, buffer_bytes: float) -> float:
    """The share that an incast without flow control loses, each sender having sent `sent_bytes` at line rate.

    The receiver's link takes as much as one of them meanwhile, and the buffers of all inputs hold `buffer_bytes`.
    """
    return max(0.0, 1 - (sent_bytes + buffer_bytes) / (senders * sent_bytes))


def victim_share(*, senders: int, shares_queue: bool) -> float:
    """What a flow has that shares the first link with one of an incast's senders, and the receiver with none.

    In one queue with that sender's frames it is let through as often as they are, 1/N. In a queue of its own it has
    what they leave of the link, 1 - 1/N: credits and pauses are alike in that.
    """
    return 1 / senders if shares_queue else 1 - 1 / senders


def stalled_after_frames(*, limit_credits: int, frame_credits: int, loss: float) -> float:
    """The frames that a sender gets through until lost credits stop it, where no CC_Update makes them good.

    Each lost frame takes its credits with it, until fewer are left than a frame needs.
    """
    return math.floor(limit_credits / frame_credits) / loss


def flush_copies(*, replays: int, outstanding: int) -> int:
    """The frames that are sent of a window that nothing acknowledges, until the link gives up."""
    return (1 + replays) * outstanding


def planes_left_share(*, shares: Sequence[int], failed: Sequence[int]) -> float:
    """The share of a GPU's rate that is left when planes (from 1) have failed and the others take what they carried."""
    return 1 - sum(shares[plane - 1] for plane in failed) / sum(shares)


def slow_plane_share(*, planes: int, slow: float, weighted: bool) -> float:
    """The share of a GPU's rate over alike planes, one of which has the share `slow` of its rate.

    Sprayed evenly, all of them wait for the slowest. Sprayed by what each can carry, only its own part is missing.
    """
    return (planes - 1 + slow) / planes if weighted else slow
