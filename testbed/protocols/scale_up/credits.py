"""Credit-based flow control (CBFC): a frame is sent when its receiver is known to have room for it.

The receiver's buffer is counted in credits of some bytes. Sender and receiver of a link each count, for each virtual
channel (VC), what has gone in and what has come out, in cyclic counters of 20 bits that only ever grow:

    S_CC  consumed: credits of all frames sent        R_CC  consumed: credits of all frames stored
    S_CF  freed, as the receiver last said            R_CF  freed: credits of all frames that have left the buffer

In use is S_CU = S_CC - S_CF. A frame may be sent while S_CU and its own credits are within the limit of its VC, and
the sum over all VCs within that of the port where there is one. The receiver says R_CF in CF_Update, absolute, so
that a lost one is made good by the next. The sender says S_CC in CC_Update: what it counts beyond R_CC are frames
lost on the wire, which the receiver then counts as stored and freed at once; their credits come back no other way.
For that, CC_Update must not pass the frames that it counts, nor be passed by them: it is numbered like them under
LLR.

A best-effort VC takes no credits and is never held back. CF_Update carries the lowest 15 bits of R_CF; with a limit
below 2**15 credits that is never ambiguous, for no more can be freed between two of them.

Source: Ultra Ethernet Specification 1.0, section 5.2, after opencomputeproject/SAI doc/CBFC (SAI 1.18); spacing of
CF_Update and the period of CC_Update are the defaults there. Times are in ns.
"""

from __future__ import annotations

from typing import Final

NEVER: Final = (1 << 64) - 1
"""A time that does not come."""


def spacing_ns(spacing_bytes: int, rate_bps: int) -> int:
    """Return the time that so many bytes take at the rate of the link: CBFC's spacings and LLR's are given in bytes."""
    return -(-spacing_bytes * 8 * 1_000_000_000 // rate_bps)
