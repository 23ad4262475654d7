"""The charts of a report as files, one each, for a paper: SVG, PDF or PNG, in the looks of a `FigureStyle`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from testbed.base.errors import disk_error
from testbed.base.rows import for_programs
from testbed.record.record import Record
from testbed.record.report.chart.figure import FigureStyle, draw_figure
from testbed.record.report.chart.sheet import render
from testbed.record.report.scenario.figures import point_label, typical_run
from testbed.record.report.scenario.plots import Plot, draw_overview, draw_run
from testbed.record.store import write_result

FORMATS = ("svg", "pdf", "png")
_UNITS_PER_INCH = 96
_LONGEST_NAME = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureFile:
    """A chart that was written. `point` is the one that it is of, "" where it compares all."""

    file: str
    title: str
    point: str
    caption: str = for_programs()


def write_figures(record: Record, directory: Path, form: str, style: FigureStyle) -> list[FigureFile]:
    """Write each chart of a report into `directory`, in one of `FORMATS`; return what was written.

    Raises `RecordError` for text that has no room and where the disk does not take a file, and `CapabilityError` where
    Cairo, which draws PDF and PNG, is missing.
    """
    with disk_error(f"create {directory}"):
        directory.mkdir(parents=True, exist_ok=True)
    written: list[FigureFile] = []
    taken: set[str] = set()
    for point, plot in _plots(record):
        name = _free(_slug(f"{point} {plot.name}" if point and len(record.points) > 1 else plot.name), taken)
        svg = draw_figure(plot.title, plot.drawing, style, halo=form == "svg")
        content = svg.encode() if form == "svg" else render(svg, f".{form}", scale=style.dpi / _UNITS_PER_INCH)
        write_result(content, directory / f"{name}.{form}")
        written.append(FigureFile(file=f"{name}.{form}", title=plot.title, point=point, caption=plot.caption))
    return written


def _plots(record: Record) -> Iterator[tuple[str, Plot]]:
    """Yield the charts in the order of the report, each with the point that it is of."""
    for plot in draw_overview(record):
        yield "", plot
    for point in record.points:
        run = typical_run(point)
        for plot in draw_run(run) if run is not None else ():
            yield point_label(point), plot


def _slug(words: str) -> str:
    """A name of a file: `mode=spray queue` becomes `mode-spray-queue`. A record may come from a stranger."""
    plain = "".join(char.lower() if char.isascii() and char.isalnum() else "-" for char in words)
    return "-".join(part for part in plain.split("-") if part)[:_LONGEST_NAME] or "figure"


def _free(name: str, taken: set[str]) -> str:
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    taken.add(free)
    return free
