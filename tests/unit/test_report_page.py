"""The page: complete without a network, safe with a stranger's record."""

from __future__ import annotations

import dataclasses
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from testbed.report import print_record, render_report
from testbed.report.scenario.figures import format_bytes, format_rate, format_value, typical_run
from testbed.report.scenario.plots import plot_ranks, plot_time, plot_uplinks
from testbed.results import Outcome, Record, Verdict, load_record

RECORD = Path(__file__).parents[1] / "data" / "records" / "permutation.json"
HOSTILE = "<script>alert(1)</script>\"'$\\frac{&"


@pytest.fixture(scope="module")
def record() -> Record:
    return load_record(RECORD)


@pytest.fixture(scope="module")
def page(record: Record) -> str:
    return render_report(record)


class Structure(HTMLParser):
    """Tags that are open, ids, and attributes that could load something."""

    VOID = frozenset({"meta", "link", "br", "img", "input"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.references: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attributes:
            if name == "id":
                self.ids.append(value or "")
            if name in ("src", "href", "xlink:href", "action", "data"):
                self.references.append(value or "")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def structure(page: str) -> Structure:
    parser = Structure()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    return parser


def test_one_file_that_loads_nothing(page: str) -> None:
    found = structure(page)
    assert "script" not in found.tags
    assert all(reference.startswith("#") for reference in found.references)
    assert not re.findall(r"url\((?!#)", page)
    assert "@import" not in page


def test_ids_are_unique_and_referenced_ones_exist(page: str) -> None:
    found = structure(page)
    assert len(found.ids) == len(set(found.ids))
    assert {reference[1:] for reference in found.references} <= set(found.ids)
    assert set(re.findall(r"url\(#([^)]*)\)", page)) <= set(found.ids)


def test_says_what_matters(page: str, record: Record) -> None:
    for text in (
        record.verdict.outcome.value,
        *record.verdict.reasons,
        *record.environment.approximations,
        "400 Gbit/s",
        "80 Mbit/s",
        "Uplink utilisation",
        "testbed run scenarios/rail-permutation.yml",
    ):
        assert text.replace("'", "&#39;") in page, text


def test_light_and_dark_and_phone(page: str) -> None:
    assert "prefers-color-scheme: dark" in page
    assert 'name="viewport"' in page
    assert "max-width: 520px" in page


def test_a_strangers_record_is_text(record: Record) -> None:
    run = record.runs[0]
    flow = dataclasses.replace(run.flows[0], source=dataclasses.replace(run.flows[0].source, node=HOSTILE))
    uplink = dataclasses.replace(run.uplinks[0], switch=HOSTILE, peer=f"{HOSTILE}:x")
    evil = dataclasses.replace(
        record,
        scenario=dataclasses.replace(record.scenario, name=HOSTILE, transport={HOSTILE: HOSTILE}),
        environment=dataclasses.replace(record.environment, approximations=[HOSTILE], cpu_model=HOSTILE),
        runs=[dataclasses.replace(run, flows=[flow, *run.flows[1:]], uplinks=[uplink, *run.uplinks[1:]])],
        metrics=[dataclasses.replace(metric, title=HOSTILE, unit=HOSTILE) for metric in record.metrics],
        verdict=Verdict(outcome=Outcome.FAIL, reasons=[HOSTILE]),
        command=["rm", HOSTILE],
        started=HOSTILE,
    )
    found = structure(render_report(evil))
    assert "script" not in found.tags
    print_record(evil, _console())


def test_a_record_of_nothing(record: Record) -> None:
    empty = dataclasses.replace(record, runs=[], metrics=[], expectations=[], incomplete="interrupted in run 1 of 3")
    page = render_report(empty)
    structure(page)
    assert "No flow was measured." in page
    assert "<svg" not in page
    print_record(empty, _console())


def _console():  # type: ignore[no-untyped-def]
    import io

    from rich.console import Console

    return Console(file=io.StringIO(), width=100)


def test_plots_are_the_same_each_time_and_take_the_pages_colours(record: Record) -> None:
    run = typical_run(record)
    assert run is not None
    for drawn in (plot_ranks(record), plot_time(run), plot_uplinks(run)):
        assert drawn is not None and drawn.startswith("<svg")
        assert "var(--accent)" in drawn
        assert not re.search(r"#0[1-6]0[1-6]0[1-6]\b", drawn), "a stand-in colour was left"
        assert "<dc:date>" not in drawn
    assert plot_ranks(record) == plot_ranks(record)


def test_samples_of_unequal_length_and_zero_time_do_not_break_a_plot(record: Record) -> None:
    run = record.runs[0]
    samples = dataclasses.replace(run.flows[0].samples, seconds=[0.0, 0.25], bytes=[1])
    flows = [dataclasses.replace(flow, samples=samples) for flow in run.flows]
    assert plot_time(dataclasses.replace(run, flows=flows)) is None
    assert plot_ranks(dataclasses.replace(record, runs=[])) is None
    assert plot_uplinks(dataclasses.replace(run, uplinks=[])) is None


def test_typical_run_is_the_median_of_the_complete_ones(record: Record) -> None:
    def run(index: int, share: float, *, complete: bool = True):  # type: ignore[no-untyped-def]
        return dataclasses.replace(record.runs[0], index=index, metrics={"aggregate_share": share}, complete=complete)

    runs = [run(1, 0.9), run(2, 0.5), run(3, 0.7), run(4, 0.6, complete=False)]
    chosen = typical_run(dataclasses.replace(record, runs=runs))
    assert chosen is not None and chosen.index == 3


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.8754, "share", "87.5%"),
        (0.0021, "share", "0.21%"),
        (0.0, "share", "0.0%"),
        (1.46, "ratio", "1.460"),
        (123456.0, "count", "123,456"),
        (80e6, "bit/s", "80 Mbit/s"),
        (None, "ratio", "–"),
        (3.0, "furlongs", "3 furlongs"),
    ],
)
def test_values(value: float | None, unit: str, text: str) -> None:
    assert format_value(value, unit) == text


def test_quantities() -> None:
    assert format_rate(400e9) == "400 Gbit/s"
    assert format_rate(98.54e6) == "98.5 Mbit/s"
    assert format_rate(999.7e6) == "1,000 Mbit/s"
    assert format_bytes(512) == "512 B"
