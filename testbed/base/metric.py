"""A metric: one object that holds its name, unit, formula, source, direction and functions.

A module of `testbed.workload.metrics`, or `metrics` of a protocol, holds one family of metrics. It creates a
`MetricFamily` and declares each metric above the function that computes it, so that the words and the arithmetic of a
metric stand together and nowhere else:

    FLOWS = MetricFamily()

    @FLOWS.metric(
        title="Tail FCT",
        unit=MetricUnit.SECONDS,
        better=Better.LESS,
        formula="max over flows of the completion time",
        source="uet-htsim, validate.py",
        takes=lambda run: (run[FlowTimes].fct_s,),
    )
    def tail_fct(fct_s: Sequence[float]) -> float | None:
        return max(fct_s, default=None)

`testbed.record.catalogue` lists the families. The command `metrics`, the keys of `expect:`, records and reports take it
from there.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NotRequired, TypedDict, TypeVar, Unpack

Kind = TypeVar("Kind")


class NotMeasured(LookupError):
    """The run has no samples of this kind."""


def known(value: Kind | None) -> Kind:
    """Return a value that may not be known of a run. Raises `NotMeasured` where it is not."""
    if value is None:
        raise NotMeasured
    return value


class RunSamples:
    """The samples of one run, by their kind."""

    def __init__(self, *samples: object) -> None:
        self._by_kind = {type(sample): sample for sample in samples}

    def __getitem__(self, kind: type[Kind]) -> Kind:
        """Returns the run's samples of this kind. Raises `NotMeasured` where the run has none."""
        found = self._by_kind.get(kind)
        if not isinstance(found, kind):
            raise NotMeasured(kind.__name__)
        return found


Compute = Callable[..., float | None]
ComputeT = TypeVar("ComputeT", bound=Compute)
Takes = Callable[[RunSamples], tuple[Any, ...]]
"""From what a run has measured to the arguments of `compute`. Raises `NotMeasured` where the run lacks the samples."""


class MetricUnit(StrEnum):
    """The unit of a value: how it is to be read and printed."""

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
    """The direction in which a metric improves."""

    MORE = "more"
    LESS = "less"
    NEITHER = "neither"
    """It describes; or it must match a formula."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric. `formula` and `source` are text that one can print beside the number.

    `compute` is a pure function over plain samples. It returns None where the metric has no meaning (no flow ended,
    nothing was sent) and raises `ValueError` for samples that cannot be (a negative time).
    """

    name: str
    title: str
    unit: MetricUnit
    formula: str
    source: str
    better: Better
    compute: Compute
    takes: Takes | None = None
    """Gives the arguments of `compute` from a run; a metric without this function is never measured by a run."""
    ideal: float | None = None
    """The best value, where that is the same for every fabric and workload."""
    headline: bool = False
    """It stands in a report's first table, where a run has it."""
    emulation: bool = False
    """It is about the emulation itself and not about the fabric."""
    by_network: bool = False
    """It is of one network of the lab, and there is one for each (`testbed.record.catalogue.Selection`)."""
    proves_scale: bool = False
    """`run --prove-scale` compares it wherever it was measured: a share or ratio that carries over to the real fabric
    and is steady from run to run."""
    every_run: bool = False
    """An expectation is met by the worst of the runs, and not by their median: one that fails is enough."""

    def measure(self, run: RunSamples) -> float | None:
        """Return the metric of one run. Raises `NotMeasured` where the run lacks the samples."""
        if self.takes is None:
            raise NotMeasured(self.name)
        return self.compute(*self.takes(run))

    @property
    def needs(self) -> str:
        """Return the name of the class of samples that it asks a run for first; "" for one that no run measures."""
        try:
            self.measure(RunSamples())
        except NotMeasured as error:
            return "" if self.takes is None else str(error)
        return ""

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
            "measured": self.takes is not None,
        }


class MetricWords(TypedDict):
    """The fields of `Metric` beside its name and its function."""

    title: str
    unit: MetricUnit
    formula: str
    source: str
    better: Better
    takes: NotRequired[Takes]
    ideal: NotRequired[float | None]
    headline: NotRequired[bool]
    emulation: NotRequired[bool]
    by_network: NotRequired[bool]
    proves_scale: NotRequired[bool]
    every_run: NotRequired[bool]


class MetricFamily:
    """The metrics of one module, in the order in which they are declared and printed."""

    def __init__(self) -> None:
        self._metrics: dict[str, Metric] = {}

    def __iter__(self) -> Iterator[Metric]:
        return iter(self._metrics.values())

    def metric(self, name: str = "", **words: Unpack[MetricWords]) -> Callable[[ComputeT], ComputeT]:
        """Declare a metric of the family, of the name of its function unless `name` is another one.

        Raises `ValueError` where the family has one of that name.
        """

        def declare(compute: ComputeT) -> ComputeT:
            found = Metric(name=name or compute.__name__, compute=compute, **words)
            if found.name in self._metrics:
                raise ValueError(f"there are two metrics {found.name}")
            self._metrics[found.name] = found
            return compute

        return declare


def as_measured(value: float) -> float:
    """Return a value that the run has measured as it is."""
    return value
