"""Drawings as files: what is seen in a PNG, that a PDF is one, and names that are no picture."""

import io
from pathlib import Path

import pytest
from PIL import Image

from testbed.base.errors import CapabilityError, TestbedError
from testbed.record.report.chart import XYChart, draw_sheet, linear_axis
from testbed.record.report.chart.sheet import PIXELS_PER_UNIT, style_sheet, write_picture

WHITE, BLUE = (255, 255, 255), (0x24, 0x58, 0xD3)
WIDTH, HEIGHT = 600.0, 300.0


def _sheet(title: str = "a <b>") -> str:
    chart = XYChart(
        x=linear_axis("time", "s", [0.0, 1.0]), y=linear_axis("size", "byte", [0.0, 10.0]), width=WIDTH, height=HEIGHT
    )
    chart.steps([(0.0, 5.0), (1.0, 5.0)], label="half", weight="thick")
    return draw_sheet(title, [(chart.draw("sizes"), HEIGHT)], width=WIDTH)


def _png(tmp_path: Path, svg: str) -> Image.Image:
    target = tmp_path / "picture.png"
    write_picture(svg, target)
    return Image.open(io.BytesIO(target.read_bytes())).convert("RGB")


@pytest.mark.process
def test_a_png_shows_the_line_in_its_colour_on_white(tmp_path: Path) -> None:
    picture = _png(tmp_path, _sheet())
    assert picture.width == pytest.approx((WIDTH + 32) * PIXELS_PER_UNIT, abs=2)
    assert picture.getpixel((picture.width - 3, 3)) == WHITE
    column = [picture.getpixel((picture.width // 2, y)) for y in range(picture.height)]
    lines = [y for y, colour in enumerate(column) if colour == BLUE]
    assert 2 <= len(lines) <= 6 and lines[-1] - lines[0] == len(lines) - 1, "one line, three units thick"


def test_text_is_written(tmp_path: Path) -> None:
    """The title's corner is white without a title, and has ink with one."""
    corner = (0, 0, 300, 50)
    without = _png(tmp_path, _sheet("")).crop(corner)
    assert without.getcolors() == [(300 * 50, WHITE)]
    colours = _png(tmp_path, _sheet()).crop(corner).getcolors(maxcolors=15_000)
    assert colours is not None and len(colours) > 10


def test_a_pdf(tmp_path: Path) -> None:
    write_picture(_sheet(), tmp_path / "picture.PDF")
    content = (tmp_path / "picture.PDF").read_bytes()
    assert content.startswith(b"%PDF-") and content.rstrip().endswith(b"%%EOF")
    assert len(content) > 3000, "an empty page has some hundred bytes"


def test_an_svg_keeps_its_style_sheet(tmp_path: Path) -> None:
    write_picture(_sheet(), tmp_path / "picture.svg")
    assert style_sheet() in (tmp_path / "picture.svg").read_text()


@pytest.mark.parametrize("name", ["picture.nonsense", "picture", "missing/picture.svg", "missing/picture.png"])
def test_a_name_that_is_no_picture(tmp_path: Path, name: str) -> None:
    with pytest.raises(TestbedError, match="cannot write"):
        write_picture(_sheet(), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_without_cairo_the_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str, *arguments: object, **keywords: object) -> object:
        if name == "cairosvg":
            raise OSError('no library called "cairo-2" was found\nand more')
        return real(name, *arguments, **keywords)

    real = __import__
    monkeypatch.setattr("builtins.__import__", absent)
    with pytest.raises(CapabilityError, match="cairo-2"):
        write_picture(_sheet(), tmp_path / "picture.png")
    write_picture(_sheet(), tmp_path / "picture.svg")
