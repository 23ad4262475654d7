"""Impairments of a link: what the line does to frames beside delaying them. Seeded, hence repeatable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from testbed.protocols.datagram import Priority
from testbed.protocols.simulation.frame import Frame

ALL_PRIORITIES: Final = frozenset(Priority)


@dataclass(frozen=True, slots=True, kw_only=True)
class Impairments:
    """Probabilities are per frame, from 0 to 1, and independent of each other."""

    loss: float = 0.0
    loss_every: int = 0
    """Every N-th frame is lost; 0: none."""
    drop: Callable[[Frame], bool] | None = None
    """Loses the frames for which it is true: for scripted faults."""
    duplicate: float = 0.0
    """A frame arrives twice."""
    corrupt: float = 0.0
    """Bits of the UDP payload are flipped and the frame is delivered: damage in the memory of a switch, say, that
    checksums did not see. Damage that they do see is loss."""
    corrupt_bits: int = 1
    reorder: float = 0.0
    """A frame is held back by 1 to `reorder_delay_ns`, so that later ones overtake it."""
    reorder_delay_ns: int = 0
    priorities: frozenset[Priority] = ALL_PRIORITIES
    """Frames of other priorities pass untouched and are not counted by `loss_every`."""


class Impairer:
    """The impairments of one line, with its own random numbers and its counts."""

    def __init__(self, settings: Impairments, random: Random) -> None:
        self._settings = settings
        self._random = random
        self._passed = 0
        self.lost = 0
        self.lost_bytes = 0
        self.duplicated = 0
        self.corrupted = 0
        self.reordered = 0

    def impair(self, frame: Frame) -> list[tuple[int, Frame]]:
        """Return what arrives in the place of `frame`, each with the ns by which it arrives late."""
        settings = self._settings
        if frame.priority not in settings.priorities:
            return [(0, frame)]
        if self._is_lost(frame):
            self.lost += 1
            self.lost_bytes += frame.wire_bytes
            return []
        copies = [frame]
        if settings.duplicate and self._random.random() < settings.duplicate:
            self.duplicated += 1
            copies.append(frame.copy())
        return [(self._lateness(), self._damaged(copy)) for copy in copies]

    def _is_lost(self, frame: Frame) -> bool:
        settings = self._settings
        self._passed += 1
        if settings.loss_every and self._passed % settings.loss_every == 0:
            return True
        if settings.drop is not None and settings.drop(frame):
            return True
        return settings.loss > 0 and self._random.random() < settings.loss

    def _lateness(self) -> int:
        settings = self._settings
        if settings.reorder and self._random.random() < settings.reorder:
            self.reordered += 1
            return self._random.randint(1, settings.reorder_delay_ns)
        return 0

    def _damaged(self, frame: Frame) -> Frame:
        settings = self._settings
        if frame.size and settings.corrupt and self._random.random() < settings.corrupt:
            self.corrupted += 1
            data = bytearray(frame.data)
            bits = len(data) * 8
            for bit in self._random.sample(range(bits), min(settings.corrupt_bits, bits)):
                data[bit >> 3] ^= 1 << (bit & 7)
            frame.data = bytes(data)
        return frame
