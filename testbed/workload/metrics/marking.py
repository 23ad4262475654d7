"""Tells how well queues keep to their ECN curve: marks by the depth that decided, against the straight lines of WRED.

The curve is that of switches and of DCQCN (SIGCOMM 2015, figure 5): 0 up to Kmin, linear to Pmax at Kmax, 1 above.
"""

from __future__ import annotations

import itertools

LEAST_PACKETS = 300
"""Of a bin that is judged: three standard deviations of a share of 10 % are 5 percentage points then."""


def marking_probability(depth_bytes: float, kmin_bytes: float, kmax_bytes: float, pmax: float) -> float:
    """Return the probability at one depth. Kmin itself does not mark, Kmax marks everything."""
    if depth_bytes >= kmax_bytes and depth_bytes > kmin_bytes:
        return 1.0
    if depth_bytes <= kmin_bytes:
        return 0.0
    return pmax * (depth_bytes - kmin_bytes) / (kmax_bytes - kmin_bytes)


def ideal_share(
    low_bytes: float, high_bytes: float, *, kmin_bytes: float, kmax_bytes: float, pmax: float, slack_bytes: float
) -> float | None:
    """The curve's mean between two depths that are met equally often.

    None within `slack_bytes` of a step: there the packets that are just being sent decide on which side one is.
    """
    step = kmax_bytes if pmax < 1 or kmin_bytes >= kmax_bytes else None
    if step is not None and low_bytes - slack_bytes < step < high_bytes + slack_bytes:
        return None
    corners = sorted({low_bytes, high_bytes, *(k for k in (kmin_bytes, kmax_bytes) if low_bytes < k < high_bytes)})
    area = 0.0
    for left, right in itertools.pairwise(corners):
        # straight between corners, so its middle is its mean
        area += (right - left) * marking_probability((left + right) / 2, kmin_bytes, kmax_bytes, pmax)
    return area / (high_bytes - low_bytes)
