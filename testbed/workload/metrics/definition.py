"""What a metric is: its name, unit, formula and source, which way is better, and the function that computes it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class MetricUnit(StrEnum):
    """How a value is to be read and printed."""

    BITS_PER_S = "bit/s"
    BYTES_PER_S = "byte/s"
    SECONDS = "s"
    BYTES = "byte"
    PACKETS = "packet"
    RATIO = "ratio"
    """A dimensionless factor such as max/mean; 1 is 1.000."""
    SHARE = "share"
    """0..1, printed as a percentage."""
    COUNT = "count"


class Better(StrEnum):
    """Which way a metric improves."""

    MORE = "more"
    LESS = "less"
    NEITHER = "neither"
    """It describes; or it must match a formula."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricDefinition:
    """One metric. `formula` and `source` are text one can print beside the number.

    `compute` is a pure function over plain samples; it returns None where the metric has no meaning (no flow ended,
    nothing was sent) and raises `ValueError` for samples that cannot be (a negative time).
    """

    name: str
    title: str
    unit: MetricUnit
    formula: str
    source: str
    better: Better
    compute: Callable[..., float | None]
    headline: bool = False
    """It stands in a report's first table, where a run has it."""
    emulation: bool = False
    """It is about the emulation itself and not about the fabric."""

    @property
    def samples(self) -> tuple[str, ...]:
        """What it is computed from: the parameters of `compute`, whose names carry their units."""
        return tuple(inspect.signature(self.compute).parameters)

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.title,
            "unit": self.unit.value,
            "better": self.better.value,
            "formula": self.formula,
            "source": self.source,
            "samples": list(self.samples),
            "emulation": self.emulation,
        }
