"""What a metric is: one object that holds its name, unit, formula, source, direction and functions.

A module of this package holds one family of metrics. It creates a `MetricFamily` and declares each metric below the
function that computes it, so that the words and the arithmetic of a metric stand together and nowhere else:

    FLOWS = MetricFamily()

    def tail_fct(fct_s: Sequence[float]) -> float | None:
        return max(fct_s, default=None)

    FLOWS.add(
        Metric(
            compute=tail_fct,
            title="Tail FCT",
            unit=MetricUnit.SECONDS,
            better=Better.LESS,
            formula="max over flows of the completion time",
            source="uet-htsim, validate.py",
            measure=lambda run: tail_fct(run[FlowTimes].fct_s),
        )
    )

`catalogue` lists the families. The command `metrics`, the keys of `expect:`, records and reports take it from there.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from testbed.workload.metrics.run_samples import RunSamples

Compute = Callable[..., float | None]
Measure = Callable[[RunSamples], float | None]


class MetricUnit(StrEnum):
    """This tells how a value is to be read and printed."""

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
class Metric:
    """One metric. `formula` and `source` are text that one can print beside the number.

    It has the name of the function `compute` unless `name` is another one.
    `compute` is a pure function over plain samples. It returns None where the metric has no meaning (no flow ended,
    nothing was sent) and raises `ValueError` for samples that cannot be (a negative time).
    """

    name: str = ""
    title: str
    unit: MetricUnit
    formula: str
    source: str
    better: Better
    compute: Compute
    measure: Measure | None = None
    """The metric of one run, from what the run has measured. It raises `NotMeasured` where the run lacks the samples;
    a metric without this function is never measured by a run."""
    ideal: float | None = None
    """The best value, where that is the same for every fabric and workload."""
    headline: bool = False
    """It stands in a report's first table, where a run has it."""
    emulation: bool = False
    """It is about the emulation itself and not about the fabric."""
    by_network: bool = False
    """It is of one network of the lab, and there is one for each (`selection`)."""
    proves_scale: bool = False
    """`run --prove-scale` compares it wherever it was measured: a share or ratio that carries over to the real fabric
    and is steady from run to run."""

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", str(getattr(self.compute, "__name__", "")))

    @property
    def samples(self) -> tuple[str, ...]:
        """Return what it is computed from: the parameters of `compute`, whose names carry their units."""
        return tuple(inspect.signature(self.compute).parameters)

    def as_json(self) -> dict[str, Any]:
        """The definition as `testbed metrics --format json` prints it."""
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


class MetricFamily:
    """The metrics of one module, in the order in which they are declared and printed."""

    def __init__(self) -> None:
        self._metrics: list[Metric] = []

    def __iter__(self) -> Iterator[Metric]:
        return iter(self._metrics)

    def add(self, metric: Metric) -> None:
        """Declare a metric of the family."""
        self._metrics.append(metric)
