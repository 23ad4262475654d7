"""Reports of the records in tests/data, word for word."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from golden_files import Golden

from testbed.record.record import Record
from testbed.record.report import print_record, render_report
from testbed.record.report.scenario.tables import junit_xml, metrics_csv
from testbed.record.store import load_record

HERE = Path(__file__).parent
RECORDS = HERE.parent / "data" / "records"
NAMES = sorted(path.stem for path in RECORDS.glob("*.json"))


def load(name: str) -> Record:
    return load_record(RECORDS / f"{name}.json")


def screen(name: str) -> str:
    from rich.console import Console

    output = io.StringIO()
    print_record(load(name), Console(file=output, width=150, color_system=None))
    return "".join(line.rstrip() + "\n" for line in output.getvalue().splitlines())


def test_page(golden: Golden) -> None:
    golden("report/permutation.html").check(render_report(load("permutation")))


def test_files_for_other_programs(golden: Golden) -> None:
    golden("report/silent-failure.junit.xml").check(junit_xml(load("silent-failure")))
    golden("report/silent-failure.metrics.csv").check(metrics_csv(load("silent-failure")))


@pytest.mark.parametrize("name", NAMES)
def test_console(name: str, golden: Golden) -> None:
    golden(f"report/{name}.txt").check(screen(name))


@pytest.mark.parametrize("name", NAMES)
def test_console_is_one_screen(name: str) -> None:
    assert len(screen(name).splitlines()) <= 50
