"""One direction of a link: serialisation at its rate, propagation, being down, impairments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from testbed.protocols.simulation.events import Actor, Events
from testbed.protocols.simulation.faults import Impairer, Impairments
from testbed.protocols.simulation.frame import Frame
from testbed.protocols.simulation.seeded import SeededRandom

if TYPE_CHECKING:
    from mypy_extensions import i64

BIT_NS_PER_BYTE: Final = 8_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    rate_bps: int
    delay_ns: int
    """Propagation, with whatever the receiving node takes to forward."""
    up: bool = True
    """False: a silent blackhole. The sender serialises as ever, nothing arrives, no route is withdrawn."""
    impairments: Impairments | None = None
    jitter_ns: int = 0
    """Each frame takes up to so much longer, at random, and stays behind those before it."""
    at_once: bool = False
    """A frame goes as a whole when its turn comes, and the line waits after it, as a shaper of the kernel has it; else
    it arrives when its last bit does."""


class Line:
    """A link from one node to the next, named `from->to`. Whoever sends waits for the serialisation itself."""

    def __init__(self, name: str, settings: LinkSettings, events: Events, sink: Actor, random: SeededRandom) -> None:
        self.name = name
        self.rate_bps: i64 = settings.rate_bps
        self.delay_ns: i64 = settings.delay_ns
        self._jitter_ns: i64 = settings.jitter_ns
        self._at_once = settings.at_once
        self._latest: i64 = 0
        """When the last frame arrives, where there is jitter."""
        self.up = settings.up
        self.frames: i64 = 0
        self.bytes: i64 = 0
        self.blackholed = 0
        self.blackholed_bytes: i64 = 0
        self.impairer: Impairer | None = None
        self.impairers: list[Impairer] = []
        self._events = events
        self._sink = sink
        self._random = random
        self.impair(settings.impairments)

    def impair(self, impairments: Impairments | None) -> None:
        """Change what goes wrong on the link from now on; the counts of what went before are kept."""
        self.impairer = None if impairments is None else Impairer(impairments, self._random.source)
        if self.impairer is not None:
            self.impairers.append(self.impairer)

    def send(self, now: i64, frame: Frame) -> i64:
        """Begin to serialise `frame`; the time at which the line is free again.

        Whether the line is up is decided here: a frame whose serialisation has begun arrives.
        """
        wire_bytes = frame.wire_bytes
        self.frames += 1
        self.bytes += wire_bytes
        # Rounded up to whole ns, so that a line never exceeds its rate.
        free = now - (-wire_bytes * BIT_NS_PER_BYTE // self.rate_bps)
        if not self.up:
            self.blackholed += 1
            self.blackholed_bytes += wire_bytes
            return free
        arrival = (now if self._at_once else free) + self.delay_ns
        jitter = self._jitter_ns
        if jitter:
            spread: i64 = int(self._random.source.random() * float(jitter))
            arrival += spread
            arrival = max(arrival, self._latest)
            self._latest = arrival
        if self.impairer is None:
            self._events.put(arrival, self._sink, frame)
            return free
        for late, copy in self.impairer.impair(frame):
            self._events.put(arrival + late, self._sink, copy)
        return free

    @property
    def lost_frames(self) -> int:
        """Frames that impairments have lost so far."""
        return sum(impairer.lost for impairer in self.impairers)

    @property
    def lost_bytes(self) -> int:
        """Bytes of those on the wire."""
        return sum(impairer.lost_bytes for impairer in self.impairers)
