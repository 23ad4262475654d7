"""The report of a captured record, word for word; `python tests/golden/test_report_golden.py` rewrites it.

Plots are left out here: their bytes depend on matplotlib's version (see test_report_plots).
"""

from __future__ import annotations

import io
from pathlib import Path

from testbed.report import print_record, render_report
from testbed.results import load_record

HERE = Path(__file__).parent
RECORD = HERE.parent / "data" / "records" / "permutation.json"
GOLDEN = HERE / "report"
PLOTS = {name: f'<svg id="{name}"></svg>' for name in ("rank", "time", "uplinks")}


def page() -> str:
    return render_report(load_record(RECORD), plots=PLOTS)


def screen() -> str:
    from rich.console import Console

    output = io.StringIO()
    print_record(load_record(RECORD), Console(file=output, width=110, color_system=None))
    return "".join(line.rstrip() + "\n" for line in output.getvalue().splitlines())


def test_page() -> None:
    assert page() == (GOLDEN / "permutation.html").read_text()


def test_console() -> None:
    assert screen() == (GOLDEN / "permutation.txt").read_text()


def test_console_is_one_screen() -> None:
    assert len(screen().splitlines()) <= 50


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    (GOLDEN / "permutation.html").write_text(page())
    (GOLDEN / "permutation.txt").write_text(screen())
