"""The burst of a port's shaper."""

from __future__ import annotations

SHAPER_WINDOW_S = 500e-6
"""An HTB class is at most so far ahead of its rate: as long as a late timer costs no throughput, and no longer."""


def burst_bytes(rate_bps: int) -> int:
    """Return what the rate sends in the shaper's window, which may be less than a frame.

    HTB lets a class send while it owes nothing, and a frame more than it has tokens for (net/sched/sch_htb.c,
    htb_class_mode): an idle port passes its first frame on at once, and the n-th behind it no more than the window
    earlier than n frames take. A burst of whole frames would let two or three go at once, which at a slow port is a
    multiple of the window.
    """
    return round(rate_bps / 8 * SHAPER_WINDOW_S)
