"""Axes: where a value stands on a drawing, and the ticks and the unit that people read there."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

_LARGEST = 1e18
"""A larger value is drawn at the end: nothing that a fabric does is as large, and differences stay exact enough."""
_SMALLEST = 1e-12
"""A smaller value counts as 0."""
_WANTED_TICKS = 5
_MOST_LOG_TICKS = 7
_MOST_RANKS = 10
"""So many ranks are each a tick."""
_ONE_UNIT = 1e4
"""Ratio of the ends above which no single unit suits both."""
_LOG_FROM = 4.0
"""Ratio of the ends from which chosen numbers are spread by their ratios."""
_WHOLE = ("count", "packet")
"""Units of which there are no halves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """`low` and `high` are in the metric's own unit; `title` has the unit that the ticks' labels are in."""

    title: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    log: bool = False
    word: str = ""
    """The unit of the ticks' labels."""

    @property
    def heading(self) -> str:
        """Return the title as it stands at the axis; one whose values are spread by their ratios says so."""
        return f"{self.title} (log scale)".strip() if self.log else self.title

    def place(self, value: float) -> float:
        """0 at the low end, 1 at the high one; what lies outside is put at the end."""
        value = min(max(value, self.low), self.high)
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def linear_axis(
    title: str,
    unit: str,
    values: Iterable[float],
    *,
    from_zero: bool = True,
    least: float | None = None,
    tight: bool = False,
) -> Axis:
    """An axis that holds `values`. `least` is a value it reaches at least (an ideal, say).

    It ends at a tick, or, where `tight`, with the values.
    """
    known = [0.0 if abs(value) < _SMALLEST else value for value in values if abs(value) < _LARGEST]
    low, high = min(known, default=0.0), max(known, default=1.0)
    if least is not None:
        high = max(high, min(least if abs(least) >= _SMALLEST else 0.0, _LARGEST))
    if from_zero:
        low, high = min(0.0, low), max(0.0, high)
    if high - low <= max(abs(high), abs(low)) * 1e-9:
        spare = max(abs(high), abs(low)) * 0.5 or 0.5
        low, high = (low, high + 2 * spare) if from_zero else (low - spare, high + spare)
    factor, word = display_unit(unit, max(abs(low), abs(high)))
    span = (high - low) * factor
    step = _step(span / _WANTED_TICKS, whole=unit in _WHOLE and span >= 2)
    first, last = math.floor(low * factor / step + 1e-9), math.ceil(high * factor / step - 1e-9)
    places = max(0, -math.floor(math.log10(step) + 1e-9))
    if round(step * 10**places, 6) != round(step * 10**places):
        places += 1  # 2.5 needs one, 0.25 two
    ticks = tuple(
        (number * step / factor, f"{number * step:,.{min(places, 12)}f}") for number in range(first, last + 1)
    )
    if tight:
        ticks = tuple(tick for tick in ticks if low - step * 1e-6 / factor <= tick[0] <= high + step * 1e-6 / factor)
        return Axis(title=_titled(title, word), low=low, high=high, ticks=ticks, word=word)
    return Axis(title=_titled(title, word), low=ticks[0][0], high=ticks[-1][0], ticks=ticks, word=word)


def log_axis(title: str, unit: str, values: Iterable[float]) -> Axis:
    """A logarithmic axis that holds all `values` above 0. Bytes go by powers of two, everything else by ten."""
    known = [value for value in values if _SMALLEST < value < _LARGEST]
    low, high = min(known, default=1.0), max(known, default=10.0)
    if unit == "byte":
        return _binary(title, low, high)
    factor, word = display_unit(unit, high)
    first, last = math.floor(math.log10(low * factor) + 1e-9), math.ceil(math.log10(high * factor) - 1e-9)
    last = max(last, first + 1)
    stride = math.ceil((last - first) / (_MOST_LOG_TICKS - 1))
    within = (1, 2, 5) if last - first <= 2 else (1,)
    shown = [10.0**power * digit for power in range(first, last + 1, stride) for digit in within]
    lowest = max((value for value in shown if value <= low * factor * (1 + 1e-9)), default=10.0**first)
    highest = min((value for value in shown if value >= high * factor * (1 - 1e-9)), default=10.0**last)
    if highest <= lowest:
        lowest, highest = 10.0**first, 10.0**last
    kept = [value for value in shown if lowest <= value <= highest]
    low, high = lowest / factor, highest / factor
    if word and high / low > _ONE_UNIT:  # each tick in the unit that suits it
        named = tuple((value / factor, _in_its_unit(value / factor, unit)) for value in kept)
        return Axis(title=title, low=low, high=high, ticks=named, log=True)
    ticks = tuple((value / factor, f"{value:,g}") for value in kept)
    return Axis(title=_titled(title, word), low=low, high=high, ticks=ticks, log=True)


def numbered_axis(title: str, values: Iterable[float]) -> Axis:
    """An axis of a few numbers that were chosen: those are its ticks. Logarithmic where they are far apart."""
    known = sorted({value for value in values if abs(value) < _LARGEST}) or [0.0, 1.0]
    low, high = known[0], known[-1]
    log = low > _SMALLEST and high / low >= _LOG_FROM
    if high - low <= max(abs(high), abs(low)) * 1e-9:
        spare = max(1.0, abs(high) * 0.5)
        low, high, log = low - spare, high + spare, False
    return Axis(title=title, low=low, high=high, ticks=tuple((value, _plain(value)) for value in known), log=log)


def rank_axis(title: str, last: int) -> Axis:
    """An axis of the ranks from 1 to `last`: its ticks are whole numbers, the first and the last among them."""
    last = max(2, last)
    step = 1 if last <= _MOST_RANKS else round(_step((last - 1) / _WANTED_TICKS, whole=True))
    between = [rank for rank in range(step, last, step) if 1 + step * 0.6 < rank <= last - step * 0.6]
    ticks = tuple((float(rank), f"{rank:,}") for rank in (1, *between, last))
    return Axis(title=title, low=1.0, high=float(last), ticks=ticks)


def display_unit(unit: str, largest: float) -> tuple[float, str]:
    """(factor, word): by what a value is multiplied to be read in `word`."""
    match unit:
        case "share":
            return 100.0, "%"
        case "ratio" | "count" | "":
            return 1.0, ""
        case "s":
            return (1.0, "s") if largest >= 1 or largest == 0 else (1e3, "ms") if largest >= 1e-3 else (1e6, "µs")
        case "packet":
            return 1.0, "packets"
        case "bit/s" | "byte" | "byte/s":
            word = unit.replace("byte", "B")
            for size, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
                if largest >= size:
                    return 1 / size, prefix + word
            return 1.0, word
    return 1.0, unit


def _in_its_unit(value: float, unit: str) -> str:
    factor, word = display_unit(unit, value * (1 + 1e-9))
    return f"{value * factor:,g} {word}"


def binary_size(value: float) -> str:
    """4 KiB, 1 MiB, 3.5 GiB."""
    for power, prefix in ((40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")):
        if value >= 2**power:
            return f"{value / 2**power:.3g} {prefix}B"
    return f"{value:.3g} B"


def _binary(title: str, low: float, high: float) -> Axis:
    first, last = math.floor(math.log2(low) + 1e-9), math.ceil(math.log2(high) - 1e-9)
    last = max(last, first + 1)
    stride = math.ceil((last - first) / (_MOST_LOG_TICKS - 1))
    ticks = tuple((2.0**power, binary_size(2.0**power)) for power in range(first, last + 1, stride))
    return Axis(title=title, low=2.0**first, high=2.0**last, ticks=ticks, log=True)


def _step(rough: float, *, whole: bool = False) -> float:
    """1, 2, 2.5 or 5 times a power of ten, at least `rough`; `whole`: a whole number."""
    power = 10.0 ** math.floor(math.log10(rough))
    steps = (digit * power for digit in (1.0, 2.0, 2.5, 5.0, 10.0, 20.0, 50.0, 100.0))
    return next(step for step in steps if step >= rough * (1 - 1e-9) and (not whole or step in (1.0, 2.0) or step >= 5))


def _plain(value: float) -> str:
    """A chosen number as a person would write it: 1,000,000 and 0.05."""
    return f"{value:,.0f}" if value == round(value) else f"{value:g}"


def _titled(title: str, word: str) -> str:
    return f"{title}, {word}" if title and word else title or word
