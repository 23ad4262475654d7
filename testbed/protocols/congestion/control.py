"""Control of how fast one flow may send: the base class of every controller of every transport, and of none.

A transport tells it what happened, by one call each; it answers with a window, a rate, or both. The base class itself
reacts to nothing. Times are in ns, sizes in bytes, rates in bit/s; all of the lab, not of the fabric that it models.
"""

from __future__ import annotations

import math

from testbed.protocols.open_classes import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class CongestionControl:
    """A flow without congestion control: it sends as fast as its NIC does."""

    def __init__(self, rate_bps: float) -> None:
        self.rate_bps: float = rate_bps
        """At which packets may leave."""
        self.window_bytes: float = math.inf
        """That may be unacknowledged."""
        self.notification_ns: int = -1
        """The receiver of such a flow sends a CNP for what arrives marked, but not more than one in so long; -1: none
        at all."""
        self.precise_marks: bool = False
        """The receiver of such a flow acknowledges at once where a packet is marked and the one before it was not, or
        the other way round, so that each acknowledgement is of marked packets or of others alone (RFC 8257, section
        3.2); else one says that some packet was marked among those that it is for."""
        self.path: int = 0
        """Another number than before asks for another path, where a transport keeps to one: RoCE's packets have another
        UDP source port from then on."""

    def update(self, now: int) -> None:
        """Take account of the time that has gone by, before `rate_bps` or `window_bytes` is looked at."""

    def on_send(self, now: int, size: int) -> None:
        """A packet was sent, the first time or again."""

    def on_ack(self, now: int, acked_bytes: int, marked: bool, rtt_ns: int) -> None:
        """An acknowledgement has come.

        `acked_bytes` are new; 0: it tells a round trip alone. `marked`: it says that a packet was marked. `rtt_ns` is
        -1 where it is not valid. RoCE's receivers say it in the BECN bit of what acknowledges a WRITE or a SEND.
        """

    def on_notification(self, now: int) -> None:
        """The receiver says that a packet of this flow was marked (a CNP)."""

    def on_loss(self, now: int, size: int) -> None:
        """A packet of `size` bytes is missing, as the receiver says or the sender infers."""

    def on_timeout(self, now: int) -> None:
        """The receiver has been silent for too long."""

    def state(self) -> dict[str, float]:
        """Return what it knows beside its rate and its window, by name, as curves of a run show it.

        A name ends in its unit where there is one: `target_bps`, `delay_ns`.
        """
        return {}
