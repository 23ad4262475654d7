"""Labels in a drawing: where one has room beside those that are there, and what of one fits into its room.

How wide a text is depends on the reader's font. The widths here are those of a wide one, and of the larger letters that
a phone gets, so that labels which do not meet here meet nowhere.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

CHARACTER = 7.6
"""Width of a character of a label on a screen, in units of the drawing."""
_LARGE_CHARACTER, _ABOVE, _BELOW = 9.6, 15.0, 5.0
"""Width of a character of a label on a phone, and how far its letters go above and below its base line."""

Box = tuple[float, float, float, float]
"""Left, top, right, bottom."""
Line = Sequence[tuple[float, float]]
"""The places of a drawing that a line leads over, in its order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """A place for a label: the end of its base line that `anchor` names (start, middle or end)."""

    x: float
    y: float
    anchor: str

    def box(self, label: str) -> Box:
        """Return the room that the label takes there."""
        width = _LARGE_CHARACTER * len(label)
        left = self.x - {"start": 0.0, "middle": 0.5, "end": 1.0}[self.anchor] * width
        return left, self.y - _ABOVE, left + width, self.y + _BELOW


@dataclass(slots=True)
class Labels:
    """The room that labels of one drawing have taken, within its edges."""

    edge: Box
    taken: list[Box] = field(default_factory=list)

    def take(self, box: Box) -> bool:
        """Take the room if it is free and within the drawing; tell whether it was."""
        left, top, right, bottom = self.edge
        inside = box[0] >= left and box[1] >= top and box[2] <= right and box[3] <= bottom
        if not inside or any(_overlap(box, other) for other in self.taken):
            return False
        self.taken.append(box)
        return True

    def place(self, label: str, spots: Iterable[Spot]) -> Spot | None:
        """Take the first of these places where the label has room; None where it has none."""
        return next((spot for spot in spots if self.take(spot.box(label))), None)


def shortened(label: str, room: float, *, character: float = CHARACTER) -> str:
    """The label, its middle left out where it is wider than `room`: both ends of a name tell things apart."""
    most = max(3, int(room / character))
    if len(label) <= most:
        return label
    tail = (most - 1) // 2
    return f"{label[: most - 1 - tail]}…{label[len(label) - tail :]}"


def is_crossed(box: Box, line: Line) -> bool:
    """Tell whether a line leads through a room."""
    left, top, right, bottom = box
    for (x, y), (other_x, other_y) in itertools.pairwise(line):
        enters, leaves = max(left, min(x, other_x)), min(right, max(x, other_x))
        if enters > leaves:
            continue
        slope = (other_y - y) / (other_x - x) if other_x != x else 0.0
        ends = (y, other_y) if other_x == x else (y + (enters - x) * slope, y + (leaves - x) * slope)
        if min(ends) < bottom and max(ends) > top:
            return True
    return False


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
