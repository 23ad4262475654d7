"""Reports of the records in tests/data, word for word."""

import pytest
from golden_files import Golden
from recorded import NAMES, load, screen

from testbed.record.report import render_report
from testbed.record.report.scenario.tables import junit_xml, metrics_csv


def lines(name: str) -> list[str]:
    return [line.rstrip() for line in screen(load(name), 150).splitlines()]


def test_page(golden: Golden) -> None:
    golden("report/permutation.html").check(render_report(load("permutation")))


def test_files_for_other_programs(golden: Golden) -> None:
    golden("report/silent-failure.junit.xml").check(junit_xml(load("silent-failure")))
    golden("report/silent-failure.metrics.csv").check(metrics_csv(load("silent-failure")))


@pytest.mark.parametrize("name", NAMES)
def test_console(name: str, golden: Golden) -> None:
    golden(f"report/{name}.txt").check("".join(f"{line}\n" for line in lines(name)))


@pytest.mark.parametrize("name", NAMES)
def test_console_is_one_screen(name: str) -> None:
    assert len(lines(name)) <= 50
