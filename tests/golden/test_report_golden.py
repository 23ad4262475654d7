"""Reports of the records in tests/data, word for word; `python tests/golden/test_report_golden.py` rewrites them."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from testbed.report import print_record, render_report
from testbed.report.scenario.tables import junit_xml, metrics_csv
from testbed.results import Record, load_record

HERE = Path(__file__).parent
RECORDS = HERE.parent / "data" / "records"
GOLDEN = HERE / "report"
NAMES = sorted(path.stem for path in RECORDS.glob("*.json"))


def load(name: str) -> Record:
    return load_record(RECORDS / f"{name}.json")


def screen(name: str) -> str:
    from rich.console import Console

    output = io.StringIO()
    print_record(load(name), Console(file=output, width=150, color_system=None))
    return "".join(line.rstrip() + "\n" for line in output.getvalue().splitlines())


def test_page() -> None:
    assert render_report(load("permutation")) == (GOLDEN / "permutation.html").read_text()


def test_files_for_other_programs() -> None:
    assert junit_xml(load("silent-failure")) == (GOLDEN / "silent-failure.junit.xml").read_bytes()
    assert metrics_csv(load("silent-failure")) == (GOLDEN / "silent-failure.metrics.csv").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_console(name: str) -> None:
    assert screen(name) == (GOLDEN / f"{name}.txt").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_console_is_one_screen(name: str) -> None:
    assert len(screen(name).splitlines()) <= 50


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    (GOLDEN / "permutation.html").write_text(render_report(load("permutation")))
    (GOLDEN / "silent-failure.junit.xml").write_bytes(junit_xml(load("silent-failure")))
    (GOLDEN / "silent-failure.metrics.csv").write_text(metrics_csv(load("silent-failure")))
    for stem in NAMES:
        (GOLDEN / f"{stem}.txt").write_text(screen(stem))
