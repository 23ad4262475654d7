"""The words between a worker and a transport: requests, and what the worker hears of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from testbed.endpoints.worker.curves import ChannelState
from testbed.endpoints.worker.program import Step


class Listener(Protocol):
    """Hears what becomes of transfers. None of these methods calls back into the transport."""

    def on_sent(self, step: Step, now: int) -> None:
        """A transfer has ended as far as its source must know: it is acknowledged where somebody waits for that."""

    def on_bytes(self, count: int) -> None:
        """Learn that so many more bytes of transfers have arrived here."""

    def on_arrived(self, step: Step, now: int) -> None:
        """The last byte of a transfer has arrived, and its data is where it belongs."""

    def on_failed(self, reason: str) -> None:
        """Traffic cannot go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelEnd:
    """One end of a channel, as this host knows it. A value of None is one that this end
    cannot tell.

    `counters` are the transport's own. `moved` has the bytes of transfers, by number, whose size was not known before.
    `not_safe` has the ranges that were being written to storage and of which nobody has said that they arrived: the
    number of the transfer, the first byte in it, and how many.
    """

    channel: int
    sent_bytes: int | None = None
    retransmits: int | None = None
    packets: int | None = None
    min_rtt_us: float | None = None
    counters: Mapping[str, int] = field(default_factory=dict)
    moved: Mapping[int, int] = field(default_factory=dict)
    not_safe: Sequence[tuple[int, int, int]] = ()


class Traffic(Protocol):
    """A transport for one program. Every method but `close` may raise `TrafficError`."""

    @property
    def ready(self) -> bool:
        """Tell whether every channel is there."""

    def listen(self) -> None:
        """Be reachable. Peers may connect from now on."""

    def connect(self) -> None:
        """Begin to set up what begins here."""

    def send(self, step: Step) -> None:
        """Begin a transfer."""

    def turn(self, now: int) -> None:
        """Look at what has ended: to be called after every turn of the loop."""

    def sample(self) -> Iterable[tuple[int, ChannelState]]:
        """The state of the first `MOST_CHANNELS` channels that begin here."""

    def ends(self) -> list[ChannelEnd]:
        """Return what is known of all channels."""

    def counters(self) -> Mapping[str, int]:
        """Return what else was counted, of all channels together."""

    def halt(self) -> None:
        """Move nothing any more, so that what is known stays as it is."""

    def close(self) -> None:
        """Leave nothing behind, whatever the state. Nothing is told any more."""
