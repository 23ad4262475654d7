"""The verbs that hand a record to other programs: `export` with its tables, `report --figures` with its pictures."""

import csv
import io
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from recorded import load

from testbed.base.errors import CapabilityError, RecordError
from testbed.cli.command import VerbCommand
from testbed.cli.labs.export import export
from testbed.cli.scenarios.report import report
from testbed.record.record import Record
from testbed.record.report.scenario.plots import draw_overview
from testbed.record.samples import ChannelSamples
from testbed.record.store import write_record

SVG = "{http://www.w3.org/2000/svg}"


def with_control(record: Record) -> Record:
    """The record as if the first channel of each run had been paced by DCQCN."""

    def paced(samples: ChannelSamples) -> ChannelSamples:
        count = len(samples.at_s)
        rates: list[float | None] = [1e8 - number for number in range(count)]
        alphas: list[float | None] = [None, *(1 / (number + 1) for number in range(count - 1))]
        return replace(samples, rate_bps=rates, control={"alpha": alphas, "target_bps": rates})

    points = []
    for point in record.points:
        runs = []
        for run in point.runs:
            first, *others = run.channels
            runs.append(replace(run, channels=[replace(first, samples=paced(first.samples)), *others]))
        points.append(replace(point, runs=runs))
    return replace(record, points=points)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A results directory with the record of a sweep over three modes."""
    directory = tmp_path / "results"
    directory.mkdir()
    write_record(with_control(load("permutation-lb")), directory / "record.json")
    return directory


def run(verb: VerbCommand, *words: object) -> Any:
    done = CliRunner().invoke(verb, list(map(str, words)), catch_exceptions=True)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def test_without_a_file_it_says_which_curves_there_are(results: Path) -> None:
    rows = {row["series"]: row for row in json.loads(run(export, results, "-f", "json").stdout)}
    assert {"queue", "cwnd", "rtt", "goodput", "rate", "alpha", "target_bps", "acked", "retransmits"} <= set(rows)
    assert (rows["rtt"]["unit"], rows["cwnd"]["unit"], rows["target_bps"]["unit"], rows["alpha"]["unit"]) == (
        "s", "byte", "bit/s", "",
    )  # fmt: skip
    record = load("permutation-lb")
    runs = sum(len(point.runs) for point in record.points)
    assert rows["alpha"]["curves"] == runs and rows["rtt"]["curves"] > runs


def test_a_table_has_a_row_for_each_sample(results: Path, tmp_path: Path) -> None:
    table = tmp_path / "curves.csv"
    run(export, results, "--series", "queue,cwnd,rate,alpha,rtt", "-o", table)
    rows = list(csv.DictReader(io.StringIO(table.read_text())))
    record = with_control(load("permutation-lb"))
    assert {row["series"] for row in rows} == {"queue", "cwnd", "rate", "alpha", "rtt"}
    point, one = record.points[0], record.points[0].runs[0]
    mine = [row for row in rows if (row["point"], row["run"]) == (point.name, str(one.index))]
    assert {row["qos.load_balancing.mode"] for row in mine} == {"flow"}, "a key of the matrix is a column"
    alpha = [row for row in mine if row["series"] == "alpha"]
    samples = one.channels[0].samples
    assert [float(row["time_s"]) for row in alpha] == samples.at_s
    assert [row["value"] for row in alpha][:2] == ["", "1.0"], "what is not known is empty, not zero"
    assert {row["k"] for row in rows} == {str(point.lab.k)} and {row["seed"] for row in mine} == {str(one.seed)}
    queue = next(item for item in one.series if item.name.startswith("queue:"))
    depths = [row for row in mine if row["series"] == "queue" and f"queue:{row['of']}" == queue.name]
    assert [float(row["value"]) for row in depths] == queue.values
    rtt = next(row for row in mine if row["series"] == "rtt")
    assert float(rtt["value"]) == pytest.approx(samples.rtt_us[0] / 1e6)


def test_what_a_record_does_not_have_is_named(results: Path, tmp_path: Path) -> None:
    done = run(export, results, "--series", "cwnd,gradient", "-o", tmp_path / "some.csv")
    assert "no curves of gradient" in done.stderr and (tmp_path / "some.csv").exists()
    with pytest.raises(RecordError, match="no curves of cwind") as caught:
        run(export, results, "--series", "cwind", "-o", tmp_path / "none.csv")
    assert caught.value.hint == "did you mean cwnd?" and not (tmp_path / "none.csv").exists()
    with pytest.raises(RecordError, match="-o is missing"):
        run(export, results, "--series", "cwnd")
    with pytest.raises(RecordError, match=r"no table ends in \.xlsx"):
        run(export, results, "-o", tmp_path / "x.xlsx")
    with pytest.raises(RecordError, match="cannot write"):
        run(export, results, "-o", tmp_path / "missing" / "x.csv")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_cells_of_strangers_are_no_formulas(results: Path, tmp_path: Path) -> None:
    record = load("permutation-lb")
    points = [replace(point, name=f"=cmd|{point.name}") for point in record.points]
    write_record(replace(record, points=points), results / "record.json")
    run(export, results, "-o", tmp_path / "x.csv")
    assert all(line.startswith(("point,", "'=cmd|")) for line in (tmp_path / "x.csv").read_text().splitlines())


def test_parquet_has_the_same_rows(results: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="PyArrow is not installed: pip install testbed[data]")
    run(export, results, "--series", "alpha,queue", "-o", tmp_path / "x.csv")
    run(export, results, "--series", "alpha,queue", "-o", tmp_path / "x.parquet")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "x.csv").read_text())))
    table = parquet.read_table(tmp_path / "x.parquet")
    assert table.column_names == list(rows[0]) and table.num_rows == len(rows)
    assert table["value"].to_pylist() == [float(row["value"]) if row["value"] else None for row in rows]
    assert table["of"].to_pylist() == [row["of"] for row in rows]


def test_parquet_without_pyarrow_says_how_to_get_it(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(CapabilityError, match="pyarrow") as caught:
        run(export, results, "-o", tmp_path / "x.parquet")
    assert "testbed[data]" in (caught.value.hint or "") and list(tmp_path.iterdir()) == [results]


def figures(results: Path, directory: Path, *words: object) -> list[Path]:
    run(report, results, "--figures", directory, *words)
    return sorted(directory.iterdir())


def test_each_chart_of_the_report_is_a_file(results: Path, tmp_path: Path) -> None:
    files = figures(results, tmp_path / "figures")
    names = {path.stem for path in files}
    assert {plot.name for plot in draw_overview(load("permutation-lb"))} <= names
    assert "mode-flow-cwnd" in names and "mode-spray-cwnd" in names
    for path in files:
        text = path.read_text()
        root = ElementTree.fromstring(text)
        assert root.tag == f"{SVG}svg" and (root.get("width") or "").endswith("mm")
        assert "var(" not in text and "@media" not in text and "<script" not in text
        style = root.find(f"{SVG}style")
        assert style is not None and style.text
        named = set(re.findall(r'class="([^"]+)"', text))
        assert named, "what is drawn has the classes that the style is about"


def test_size_font_and_grey(results: Path, tmp_path: Path) -> None:
    words = ("--width", "88mm", "--font", "Times New Roman", "--font-size", "8", "--greyscale", "--titles")
    path = next(path for path in figures(results, tmp_path / "grey", *words) if path.stem == "mode-flow-cwnd")
    text = path.read_text()
    root = ElementTree.fromstring(text)
    assert root.get("width") == "88.00mm"
    style = root.find(f"{SVG}style")
    assert ".chart { font-size: " in style.text and '"Times New Roman"' in style.text
    width = float((root.get("viewBox") or "").split()[2])
    found = re.search(r"\.chart \{ font-size: ([\d.]+)px", style.text)
    assert found and float(found[1]) / width * 88 == pytest.approx(8 * 25.4 / 72, rel=0.01), "8 pt on paper"
    colours = set(re.findall(r"#[0-9a-fA-F]{6}", text))
    assert all(colour[1:3] == colour[3:5] == colour[5:7] for colour in colours), colours
    assert "stroke-dasharray" in style.text and "Congestion window" in text
    coloured = next(path for path in figures(results, tmp_path / "colour") if path.stem == "mode-flow-cwnd").read_text()
    assert "#2458d3" in coloured


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--width", "88"), "--width 88: expected 20mm to 1000mm"),
        (("--width", "9km"), "--width 9km"),
        (("--width", "50mm", "--font-size", "12"), "text of 12 pt is too large for this width: at most 4.5 pt"),
        (("--font-size", "900"), "--font-size 900"),
        (("--font", "a;}</style>"), "no name of a font"),
        (("--format", "gif"), "no format of figures"),
        (("--dpi", "1"), "--dpi 1"),
        (("-o", "x"), "leave one out"),
    ],
)
def test_what_is_no_looks_is_refused(results: Path, tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    with pytest.raises(RecordError) as caught:
        run(report, results, "--figures", tmp_path / "figures", *words)
    assert message in str(caught.value)
    with pytest.raises(RecordError, match="--greyscale is about the files of --figures"):
        run(report, results, "--greyscale")


@pytest.mark.process
@pytest.mark.parametrize(("form", "begin"), [("pdf", b"%PDF-"), ("png", b"\x89PNG")])
def test_pdf_and_png(form: str, begin: bytes, results: Path, tmp_path: Path) -> None:
    from PIL import Image

    files = figures(results, tmp_path / "out", "--format", form, "--width", "88mm", "--dpi", "300")
    assert files and all(path.read_bytes().startswith(begin) and path.suffix == f".{form}" for path in files)
    if form == "png":
        picture = Image.open(next(path for path in files if path.stem == "mode-flow-cwnd"))
        assert picture.width == pytest.approx(88 / 25.4 * 300, abs=3)
        colours = picture.convert("RGB").getcolors(maxcolors=1 << 20)
        assert colours is not None and len(colours) > 10 and (255, 255, 255) in [colour for _, colour in colours]
