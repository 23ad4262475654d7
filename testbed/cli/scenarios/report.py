"""The verb `report`."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.base.errors import RecordError, disk_error
from testbed.cli import options
from testbed.cli.command import PATH, command, option

if TYPE_CHECKING:
    from testbed.record.report.chart.figure import FigureStyle

_LENGTH = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(mm|cm|in|pt)")
_MM = {"mm": 1.0, "cm": 10.0, "in": 25.4, "pt": 25.4 / 72}
_FONT = re.compile(r"[\w .+-]{1,60}")
_WIDTHS_MM = (20.0, 1000.0)
_SIZES_PT = (3.0, 40.0)
_DPI = (36, 2400)


@command("report")
@options.record
@option("-o", "--output", type=PATH, help="Directory to write into.")
@option("--figures", metavar="DIR", type=PATH, help="Write each chart into a file there instead, for a paper.")
@option("-f", "--format", default="svg", help="Of --figures: svg, pdf or png.")
@option("--width", metavar="LENGTH", help="Of --figures: how wide each is, such as 88mm, 3.5in or 252pt.")
@option("--font", metavar="FAMILY", default="", help="Of --figures: an installed font, such as 'Times New Roman'.")
@option("--font-size", metavar="PT", type=float, help="Of --figures: the size of text in points.")
@option("--greyscale", is_flag=True, help="Of --figures: greys and dashes instead of colours.")
@option("--titles", is_flag=True, help="Of --figures: each chart's title above it.")
@option("--dpi", type=int, default=300, help="Of --figures: how finely PNG is drawn.")
def report(
    record: Path,
    output: Path | None,
    figures: Path | None,
    format: str,
    width: str | None,
    font: str,
    font_size: float | None,
    greyscale: bool,
    titles: bool,
    dpi: int,
) -> None:
    """Write the report of a record anew: one HTML page, and JSON, CSV and JUnit beside it. Or its charts as files."""
    from testbed.record.store import load_record

    if figures is not None:
        if output is not None:
            raise RecordError("-o is where the report goes, and --figures where its charts go", hint="leave one out")
        style = _style(width, font, font_size, greyscale=greyscale, titles=titles, dpi=dpi)
        _write_figures(record, figures, format, style)
        return
    asked = {"--width": width, "--font": font, "--font-size": font_size, "--greyscale": greyscale, "--titles": titles}
    for name, value in asked.items():
        if value:
            raise RecordError(f"{name} is about the files of --figures", hint="--figures DIR")
    from testbed.record.report import write_report_files

    content = load_record(record)
    directory = output or (record if record.is_dir() else record.parent)
    with disk_error(f"create {directory}"):
        directory.mkdir(parents=True, exist_ok=True)
    print(write_report_files(content, directory))


def _write_figures(record: Path, directory: Path, form: str, style: "FigureStyle") -> None:
    from testbed.base.names import known_names_hint
    from testbed.cli.output import emit, warn
    from testbed.record.report.scenario.paper import FORMATS, FigureFile, write_figures
    from testbed.record.store import load_record

    if form not in FORMATS:
        raise RecordError(f"--format {form}: no format of figures", hint=known_names_hint(form, FORMATS))
    written = write_figures(load_record(record), directory, form, style)
    if not written:
        warn(f"{record} has nothing to draw: was anything measured?")
    emit(written, FigureFile, options.Format.TABLE, title=str(directory))


def _style(
    width: str | None, font: str, font_size: float | None, *, greyscale: bool, titles: bool, dpi: int
) -> "FigureStyle":
    """Read how figures are to look. Raises `RecordError` for what is no length, font or size."""
    from testbed.record.report.chart.figure import FigureStyle

    if font and not _FONT.fullmatch(font):
        raise RecordError(f"--font {font}: no name of a font", hint="one family, such as 'Times New Roman'")
    if font_size is not None and not _SIZES_PT[0] <= font_size <= _SIZES_PT[1]:
        raise RecordError(f"--font-size {font_size:g}: expected {_SIZES_PT[0]:g} to {_SIZES_PT[1]:g} pt")
    if not _DPI[0] <= dpi <= _DPI[1]:
        raise RecordError(f"--dpi {dpi}: expected {_DPI[0]} to {_DPI[1]}")
    return FigureStyle(
        width_mm=None if width is None else _length_mm(width),
        font=font,
        font_pt=font_size,
        greyscale=greyscale,
        titled=titles,
        dpi=dpi,
    )


def _length_mm(written: str) -> float:
    found = _LENGTH.fullmatch(written.strip())
    length = float(found[1]) * _MM[found[2]] if found else 0.0
    if not _WIDTHS_MM[0] <= length <= _WIDTHS_MM[1]:
        raise RecordError(f"--width {written}: expected 20mm to 1000mm", hint="such as 88mm, 3.5in or 252pt")
    return length
