"""A picture with its heading and the sentence below it, and which runs it is drawn from."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.record.record import Record, RunResult
from testbed.record.report.chart import Drawing
from testbed.record.report.scenario.figures import typical_run

MAX_SERIES = 12
"""Lines in one picture: more cannot be told apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    name: str
    title: str
    caption: str
    drawing: Drawing
    wide: bool = False
    """It takes a row of the page for itself, its words beside it."""
    whole: bool = False
    """A wide one is as wide as the page, its words below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One run in a picture that compares: of each point the typical one, or, with one point, all its runs."""

    label: str
    """The point; "" where there is one alone."""
    series: int
    typical: bool
    run: RunResult

    @property
    def weight(self) -> str:
        """Return how heavy a line is: with one point the typical run is drawn over the others."""
        return "" if self.label else "thick" if self.typical else "thin"

    @property
    def remark(self) -> str:
        return f"{self.label} run {self.run.index}".strip()


def curves(record: Record) -> list[Curve]:
    """Return what a comparing picture shows, the typical run of a single point last, so that it is on top."""
    if len(record.points) == 1:
        typical = typical_run(record.points[0])
        found = [
            Curve(label="", series=0, typical=run is typical, run=run) for run in record.points[0].runs[:MAX_SERIES]
        ]
        return sorted(found, key=lambda curve: curve.typical)
    return [
        Curve(label=point.name or f"point {number + 1}", series=number, typical=True, run=run)
        for number, point in enumerate(record.points[:MAX_SERIES])
        if (run := typical_run(point)) is not None
    ]


def which_runs(record: Record) -> str:
    """The end of a caption that says what the lines are."""
    if len(record.points) > 1:
        cut = f" The first {MAX_SERIES} of {len(record.points)} points." if len(record.points) > MAX_SERIES else ""
        return f" A line is the typical run of a point.{cut}"
    runs = len(record.points[0].runs) if record.points else 0
    return " Each line is a run; the strong one is the typical run." if runs > 1 else ""
