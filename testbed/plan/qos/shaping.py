"""The burst of a port's shaper."""

from __future__ import annotations

from testbed.fabric.queue_depths import frame_bytes

SHAPER_WINDOW_S = 500e-6
"""An HTB class holds what its rate sends in this time, so that a late timer costs no throughput."""


def burst_bytes(rate_bps: int, mtu_bytes: int) -> int:
    """Two frames, or what the rate sends in the shaper's window where that is more."""
    return max(2 * frame_bytes(mtu_bytes), round(rate_bps / 8 * SHAPER_WINDOW_S))
