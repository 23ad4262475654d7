"""Steps of a program, read from the lines that its ranks print. Pure.

A pattern says which lines tell that a step is done. With a group `seconds` or `ms` the line has the time that the step
took; of several ranks that say so, the slowest counts, since a step is done when its last rank is. Without, a step took
the time from the line before of the same rank, and the rank that has said so first is the one that counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

LONGEST_LINE = 2000
"""The characters of a line that are looked at."""
MOST_STEPS = 1_000_000
"""Steps beyond this number are not kept."""
GROUPS = ("step", "seconds", "ms")
_SECONDS = {"seconds": 1.0, "ms": 1e-3}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLine:
    """A line that tells of a step; None for what it does not tell."""

    number: int | None
    seconds: float | None


@dataclass(frozen=True, slots=True)
class StepPattern:
    """The form of a line by which a rank says that a step is done."""

    expression: re.Pattern[str]

    @classmethod
    def parse(cls, text: str) -> StepPattern:
        """Read a pattern. Raises `ValueError` with a sentence for the user where it is none."""
        try:
            expression = re.compile(text)
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(f"{text!r} is no regular expression: {error}") from error
        unknown = [name for name in expression.groupindex if name not in GROUPS]
        if unknown:
            raise ValueError(f"a pattern of steps has the groups {', '.join(GROUPS)}, and no {unknown[0]}")
        if {"seconds", "ms"} <= set(expression.groupindex):
            raise ValueError("a pattern of steps has the group seconds or ms, and not both")
        if expression.match(""):
            raise ValueError("the pattern matches an empty line, and so every line")
        return cls(expression)

    @property
    def has_time(self) -> bool:
        """Tell whether lines say how long a step took."""
        return any(name in self.expression.groupindex for name in _SECONDS)

    def match(self, line: str) -> StepLine | None:
        """Return what a line tells; None where it tells of no step, or what it has in a group is no number."""
        found = self.expression.search(line[:LONGEST_LINE])
        if found is None:
            return None
        groups = found.groupdict()
        number: int | None = None
        if groups.get("step") is not None:
            try:
                number = int(groups["step"])
            except ValueError:
                return None
            if not 0 <= number < MOST_STEPS:
                return None
        for name, factor in _SECONDS.items():
            if groups.get(name) is not None:
                try:
                    seconds = float(groups[name]) * factor
                except ValueError:
                    return None
                return StepLine(number=number, seconds=seconds) if 0 <= seconds < float("inf") else None
        return StepLine(number=number, seconds=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class DoneStep:
    """A step that is done: its number, when the last rank said so (CLOCK_MONOTONIC, s), and what it took.

    `seconds` is None where nobody knows: of the first step whose line has no time. `warm_up`: it is left out of the
    figures.
    """

    number: int
    at_s: float
    seconds: float | None
    warm_up: bool


@dataclass(slots=True)
class _Step:
    number: int
    at_s: float
    seconds: float | None


@dataclass(slots=True)
class StepReader:
    """Reads the lines of all ranks, in the order in which they came, and keeps what they tell of steps."""

    pattern: StepPattern
    warm_up: int = 1
    _steps: dict[int, _Step] = field(default_factory=dict)
    _counted: dict[int, int] = field(default_factory=dict)
    """The number of lines of each rank that told of a step."""
    _teller: int | None = None
    """The rank that counts where lines have no time."""
    _before_s: float | None = None

    def read(self, rank: int, line: str, at_s: float) -> int | None:
        """Take a line in. Return the number of the step that it is the first to call done; None for no such line."""
        told = self.pattern.match(line)
        if told is None:
            return None
        count = self._counted[rank] = self._counted.get(rank, 0) + 1
        number = count if told.number is None else told.number
        if self.pattern.has_time:
            seconds = told.seconds
        else:
            if self._teller is None:
                self._teller = rank
            if rank != self._teller:
                return None
            seconds = None if self._before_s is None else at_s - self._before_s
            self._before_s = at_s
        known = self._steps.get(number)
        if known is None:
            if len(self._steps) >= MOST_STEPS:
                return None
            self._steps[number] = _Step(number, at_s, seconds)
            return number
        known.at_s = at_s
        if seconds is not None and (known.seconds is None or seconds > known.seconds):
            known.seconds = seconds
        return None

    @property
    def count(self) -> int:
        """Return how many steps are done."""
        return len(self._steps)

    @property
    def is_warm(self) -> bool:
        """Tell whether the steps that are left out of the figures are done."""
        return len(self._steps) >= self.warm_up

    @property
    def steps(self) -> list[DoneStep]:
        """Return the steps in the order in which they were done."""
        return [
            DoneStep(number=one.number, at_s=one.at_s, seconds=one.seconds, warm_up=place < self.warm_up)
            for place, one in enumerate(self._steps.values())
        ]
