"""The page: complete without a network, safe with a stranger's record, with everything one asks of it."""

import re
from dataclasses import replace

import pytest
from recorded import NAMES, Page, load, screen, with_runs

from testbed.record.record import Outcome, Record, RunResult, Verdict
from testbed.record.report import render_report
from testbed.record.report.scenario.figures import (
    foremost_metrics,
    format_bytes,
    format_rate,
    format_time,
    format_value,
    typical_run,
)
from testbed.record.report.scenario.page import draw_bullet
from testbed.record.report.scenario.plots import draw_run
from testbed.record.samples import RunEvent, Series

HOSTILE = "<script>alert(1)</script>\"'$\\frac{& \x1b[31m\x00"


@pytest.fixture(scope="module", params=NAMES)
def record(request: pytest.FixtureRequest) -> Record:
    return load(request.param)


@pytest.fixture(scope="module")
def page(record: Record) -> str:
    return render_report(record)


def test_one_file_that_loads_nothing(page: str) -> None:
    Page(page).assert_inert()
    assert not re.findall(r"url\((?!#)", page)
    assert "@import" not in page
    assert len(page) < 2_000_000


def test_ids_are_unique_and_referenced_ones_exist(page: str) -> None:
    found = Page(page)
    ids = found.values("id")
    assert len(ids) == len(set(ids))
    assert {reference[1:] for reference in found.references() if reference.startswith("#")} <= set(ids)


def test_every_drawing_has_words_and_the_pages_colours(page: str) -> None:
    drawings = re.findall(r"<svg [^>]*class=\"chart\"[^>]*>", page)
    assert drawings
    assert all('role="img"' in drawing and 'aria-label="' in drawing for drawing in drawings)
    inside = "".join(re.findall(r"<svg .*?</svg>", page))
    assert not re.search(r"#[0-9a-fA-F]{3,6}\b|rgb\(|fill=|stroke=", inside.replace("fill-opacity=", ""))


def test_light_and_dark_and_phone_and_print(page: str) -> None:
    for text in ("prefers-color-scheme: dark", 'name="viewport"', "max-width: 520px", "@media print"):
        assert text in page


def test_says_what_matters(page: str, record: Record) -> None:
    for text in (
        record.verdict.outcome.value,
        *record.verdict.reasons,
        *record.environment.approximations,
        record.scenario.description,
        *(item.source for item in record.expectations),
        *(point.name for point in record.points),
        *(note for point in record.points for note in point.notes),
        *(metric.title for point in record.points for metric in point.metrics if metric.headline),
        "testbed run ",
    ):
        assert text.replace("'", "&#39;") in page, text


def test_a_point_whose_runs_prove_nothing_is_invalid() -> None:
    record = load("permutation-lb")
    assert "invalid" not in _points(record), "what is expected of them is met, or not"
    first, *others = record.points
    run = first.runs[0]
    broken = replace(run, checks=[replace(run.checks[0], ok=False), *run.checks[1:]])
    points = [replace(first, runs=[broken, *first.runs[1:]]), *others]
    assert _points(replace(record, points=points))[0] == "invalid"


def _points(record: Record) -> list[str]:
    """The chips behind the points' names."""
    return re.findall(r"<summary>.*?<span class=\"chip (\w+)\"", render_report(record))


@pytest.mark.parametrize(
    ("name", "titles"),
    [
        ("permutation", ["Throughput by flow rank", "Goodput over time", "Congestion window", "Uplink utilisation"]),
        (
            "permutation-lb",
            ["Aggregate share of ideal", "Throughput against queue", "Completion times", "Queue depth", "Busiest"],
        ),
        ("allreduce-rail", ["Collectives", "Bus bandwidth by size", "Repeatability"]),
        ("silent-failure", ["Goodput over time", "What happened", "Reordering extent", "Other counters"]),
        ("incast-senders", ["Tail FCT over ideal, by senders", "Busiest ports", "Paused ports"]),
        ("frontend-mice", ["Completion times", "Slowdown by size"]),
    ],
)
def test_pictures_are_those_that_the_record_has_data_for(name: str, titles: list[str]) -> None:
    record = load(name)
    headings = re.findall(r"<(?:h3|summary)>(.*?)</", render_report(record))
    for title in titles:
        if title == "Busiest":
            assert "Busiest ports" not in headings, "the heat map has all of these ports"
        else:
            assert title in headings


def test_collectives_have_nccl_tests_columns() -> None:
    page = render_report(load("allreduce-rail"))
    head = page[page.index('<table class="nccl">') :]
    columns = re.findall(r"<th[^>]*>(.*?)</th>", head[: head.index("</thead>")])
    words = [re.sub(r"<br>.*", "", column) for column in columns]
    assert words[words.index("collective") + 1 : words.index("collective") + 7] == [
        "size", "count", "type", "redop", "root", "ops",
    ]  # fmt: skip
    assert words[-3:] == ["busbw", ["of", "ideal"][0], "#wrong"]
    assert ">16777216<" in head and ">46.98<" in head, "16 MiB, in GB/s of the real fabric"


def test_wrong_elements_stand_out() -> None:
    def wrong(run: RunResult) -> RunResult:
        return replace(run, collectives=[replace(item, wrong=3 * (run.index == 1)) for item in run.collectives])

    broken = with_runs(load("allreduce-rail"), wrong)
    assert '<span class="chip fail">6</span>' in render_report(broken), "two operations of a size, 3 each"
    assert "      6" in screen(broken)


def test_events_are_numbered_as_in_the_picture() -> None:
    page = render_report(load("silent-failure"))
    assert 'class="bubble-name" text-anchor="middle">2</text>' in page
    assert '<span class="number">2</span>' in page
    assert "BFD: peer down" in page


def test_a_partial_record_says_so() -> None:
    record = load("silent-failure")
    assert "Partial: interrupted in run 2 of 3" in render_report(record)
    assert "partial: interrupted in run 2 of 3" in screen(record)


def test_figures_of_an_invalid_run_are_marked_and_said_to_be_grey() -> None:
    record = load("permutation-lb")
    void = render_report(replace(record, verdict=replace(record.verdict, outcome=Outcome.INVALID)))
    assert '<body class="void">' in void and "its figures say nothing about the fabric, and are grey" in void
    inside = void[void.index('<div class="figures">') : void.index("Can this be trusted?")]
    assert inside.count("<svg") == void.count("<svg") - void[: void.index('<div class="figures">')].count("<svg")
    assert "void" not in render_report(record).partition("</style>")[2]


def test_a_curve_has_gaps_where_nothing_was_measured() -> None:
    def with_gap(run: RunResult) -> RunResult:
        at_s = [0.1 * number for number in range(10)]
        values = [1.0, 2.0, 3.0, None, None, 4.0, None, 5.0, 6.0, 7.0]
        return replace(run, series=[Series(name="ttft:p50", title="P50", unit="s", at_s=at_s, values=values)])

    run = with_gap(load("permutation").points[0].runs[0])
    (plot,) = (plot for plot in draw_run(run) if plot.title == "Time to first token")
    lines = re.findall(r'<path d="([^"]+)" class="line t1"', plot.drawing.svg)
    assert [line.count("L") for line in lines] == [2, 0, 2]
    assert plot.drawing.svg.count("<circle") == 1, "a sample alone is a dot"
    assert [label for _, label in plot.drawing.legend] == ["p50"]


def test_a_strangers_record_is_text(record: Record) -> None:
    named = {"name": HOSTILE, "title": HOSTILE}

    def hostile(run: RunResult) -> RunResult:
        return replace(
            run,
            channels=[replace(channel, source=replace(channel.source, node=HOSTILE)) for channel in run.channels],
            ports=[
                replace(port, node=HOSTILE + port.node, peer=HOSTILE, tier=f"{HOSTILE}uplink") for port in run.ports
            ],
            events=[RunEvent(at_s=0.1, kind=HOSTILE, target=HOSTILE, detail=HOSTILE)],
            series=[replace(item, **named, unit=HOSTILE) for item in run.series],
            distributions=[replace(item, **named, unit=HOSTILE) for item in run.distributions],
            collectives=[replace(item, kind=HOSTILE, label=HOSTILE, datatype=HOSTILE) for item in run.collectives],
            counters={HOSTILE: 1.0},
            checks=[replace(check, **named, message=HOSTILE, ok=False) for check in run.checks],
        )

    points = [
        replace(
            point,
            name=HOSTILE + point.name,
            values={HOSTILE + key: value for key, value in point.values.items()},
            notes=[HOSTILE],
            metrics=[
                replace(metric, name=HOSTILE + metric.name, title=HOSTILE, unit=HOSTILE) for metric in point.metrics
            ],
        )
        for point in with_runs(record, hostile).points
    ]
    evil = replace(
        record,
        scenario=replace(
            record.scenario,
            name=HOSTILE,
            description=HOSTILE,
            transport={HOSTILE: HOSTILE},
            faults=[{HOSTILE: [HOSTILE]}],
            matrix={HOSTILE: [HOSTILE]},
        ),
        environment=replace(record.environment, approximations=[HOSTILE], cpu_model=HOSTILE),
        points=points,
        verdict=Verdict(outcome=Outcome.FAIL, reasons=[HOSTILE]),
        incomplete=HOSTILE,
        command=["rm", HOSTILE],
        comparability={HOSTILE: HOSTILE},
        started=HOSTILE,
    )
    Page(render_report(evil)).assert_inert()
    assert "\x1b" not in screen(evil)


def test_a_record_of_nothing(record: Record) -> None:
    empty = replace(record, points=[], expectations=[], incomplete="interrupted before the first run")
    page = render_report(empty)
    Page(page)
    assert "No flow was measured." in page
    assert "<svg" not in page
    assert "interrupted before" in screen(empty)


def test_a_point_without_runs(record: Record) -> None:
    empty = replace(record, points=[replace(point, runs=[], metrics=[]) for point in record.points])
    page = render_report(empty)
    Page(page)
    assert "No flow was measured." in page
    screen(empty)


def test_pictures_that_do_not_fit_are_left_out_and_the_page_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("testbed.record.report.scenario.page.PLOT_BUDGET", 60_000)
    page = render_report(load("permutation-lb"))
    assert "would make this page too large" in page
    assert "Throughput by flow rank" in page


def test_columns_of_unequal_length_and_zero_time_break_nothing() -> None:
    def uneven(run: RunResult) -> RunResult:
        samples = replace(run.channels[0].samples, at_s=[0.0, 0.25], acked_bytes=[1])
        return replace(run, channels=[replace(one, samples=samples, ideal_bps=0.0) for one in run.channels])

    Page(render_report(with_runs(load("permutation"), uneven)))


def test_typical_run_is_the_median_of_the_complete_ones() -> None:
    point = load("permutation").points[0]

    def run(index: int, share: float, *, complete: bool = True):  # type: ignore[no-untyped-def]
        return replace(point.runs[0], index=index, metrics={"aggregate_share": share}, complete=complete)

    runs = [run(1, 0.9), run(2, 0.5), run(3, 0.7), run(4, 0.6, complete=False)]
    chosen = typical_run(replace(point, runs=runs))
    assert chosen is not None and chosen.index == 3


def test_what_is_expected_comes_first() -> None:
    assert foremost_metrics(load("permutation-lb"), 3) == ["aggregate_share", "tail_fct_ratio", "slowest_share"]
    assert "cpu_busy" not in foremost_metrics(load("permutation-lb"), 99)


@pytest.mark.parametrize(
    ("band", "mark"),
    [((0.4, 0.9, 0.6), "met"), ((0.4, None, 0.3), "missed"), ((None, 2.0, 3.0), "missed"), ((0.0, 0.0, 0.0), "met")],
)
def test_a_bullet_shows_on_which_side_a_value_is(band: tuple[float | None, float | None, float], mark: str) -> None:
    assert f'class="{mark}"' in draw_bullet(*band)


def test_no_bullet_without_a_value_or_a_band() -> None:
    assert draw_bullet(0.1, 0.2, None) == ""
    assert draw_bullet(None, None, 1.0) == ""


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.8754, "share", "87.5%"),
        (0.0021, "share", "0.21%"),
        (0.0, "share", "0.0%"),
        (1.46, "ratio", "1.460"),
        (28863.3, "ratio", "28,863"),
        (123456.0, "count", "123,456"),
        (7.5, "count", "7.5"),
        (80e6, "bit/s", "80 Mbit/s"),
        (11.75e6, "byte/s", "11.8 MB/s"),
        (1048576.0, "byte", "1.05 MB"),
        (0.0123, "s", "12.3 ms"),
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
    assert format_time(4.5e-8) == "45 ns"
    assert format_time(0) == "0 s"
    assert format_time(2.5) == "2.5 s"


def test_a_page_of_a_large_sweep_is_still_a_page() -> None:
    record = load("permutation-lb")
    point = record.points[0]
    run = replace(point.runs[0], channels=point.runs[0].channels * 12)
    points = [replace(point, name=f"k={number}", values={"k": number}, runs=[run] * 3) for number in range(30)]
    page = render_report(replace(record, points=points))
    Page(page)
    assert len(page) < 2_000_000
    assert "faster flows are in the record alone" in page


def test_a_queue_is_its_mean_in_a_band_and_an_older_records_queue_its_peaks() -> None:
    record = load("permutation-lb")
    older = render_report(record)
    assert "each sample is the deepest of its interval" in older and 'class="area' not in older

    def with_bands(run: RunResult) -> RunResult:
        series = [
            replace(item, least=[0.0] * len(item.at_s), most=[2 * (value or 0) for value in item.values])
            for item in run.series
        ]
        return replace(run, series=series)

    page = render_report(with_runs(record, with_bands))
    assert "the mean of each interval, in a band from its smallest to its largest" in page and 'class="area' in page
