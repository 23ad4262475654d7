"""The layout of reports as a browser computes it: tables fit their columns, labels keep apart, grey is grey."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from headless_browser import browse
from recorded import NAMES, load, with_runs

from testbed.record.record import Outcome, Record, RunResult
from testbed.record.report import render_report
from testbed.record.report.comparison import compare_records, render_comparison
from testbed.record.report.scenario.figures import FATES
from testbed.record.samples import NetworkLoad, TenantLoad

POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
PAPER = 718
"""The width of an A4 page between Chromium's margins of 1 cm, in CSS pixels."""
WINDOWS = ((1400, False), (1920, False), (PAPER, True))
"""Widths of windows, and whether the page is laid out as for print there."""

pytestmark = [pytest.mark.browser, pytest.mark.process]


def measured(page: str, width: int, script: str, directory: Path, *, printed: bool = False) -> list[int]:
    """What `script` evaluates to in a page with all of its details open."""
    text, replaced = POLICY.subn(
        "", page.replace("<details", "<details open")
    )  # which forbids the script that measures
    assert replaced == 1
    if printed:
        assert "@media print {" in text
        text = text.replace("@media print {", "@media screen {")
    end = f'<script>document.title = "measured " + ({script}).map(Math.round).join(" ");</script></body>'
    (directory / "page.html").write_text(text.replace("</body>", end))
    shown = browse(directory / "page.html", [f"--window-size={width},900", "--dump-dom"], directory / "browser")
    found = re.search(r"<title>measured ([-\d ]*)</title>", shown)
    assert found is not None
    return [int(word) for word in found[1].split()]


PORT = "p12-s3-rail7b:uplink16"


def tenant(number: int) -> TenantLoad:
    return TenantLoad(
        name=f"a-tenant-of-many-words-{number}", ports=128, entered_bytes=123_456_789_012, entered_frames=98_765_432,
        delivered_bytes=123_456_700_000, delivered_frames=98_765_000, utilisation=0.97654, busiest_port=PORT,
        busiest_utilisation=0.9987, queue_max_bytes=1_234_567, queue_port=PORT, queue_class="best-effort",
        drops={"buffer": 12_345, "headroom": 678}, guarded={"source-guard": 1_234, "policy": 56_789},
        payload_bytes=120_000_000_000,
    )  # fmt: skip


def network(number: int) -> NetworkLoad:
    return NetworkLoad(
        name=f"a-network-{number}", carrier="the-frontend", ports=2_048, sent_bytes=987_654_321_098,
        entered_bytes=123_456_789_012, delivered_bytes=123_456_700_000, utilisation=0.4567, peak_utilisation=0.98765,
        busiest_port=PORT, busiest_utilisation=0.9987, busiest_peak_utilisation=1.0, queue_max_bytes=1_234_567,
        queue_port=PORT, queue_class="best-effort", drops={"buffer": 12_345, "headroom": 678, "queue": 90_123},
        ce_packets=12_345_678, pause_frames=123_456, paused_s=12.345,
        guarded={"source-guard": 1_234, "policy": 56_789}, tenants=[tenant(1), tenant(2)],
    )  # fmt: skip


def laden(name: str) -> Record:
    """A record with every column that a report can have, and long words in them."""

    def more(run: RunResult) -> RunResult:
        channels = [
            replace(
                channel,
                counters=channel.counters | {one: 1_234_567 for fate in FATES for one in fate.names},
                source=replace(channel.source, node=f"p12-s3-{channel.source.node}"),
                destination=replace(channel.destination, node=f"p11-s2-{channel.destination.node}"),
                retransmits=12_345_678,
            )
            for channel in run.channels
        ]
        collectives = [
            replace(item, kind="reduce_scatter", algorithm="hierarchical-ring", label="group12", size_bytes=2**40)
            for item in run.collectives
        ]
        return replace(run, channels=channels, collectives=collectives, networks=[network(1), network(2)])

    record = with_runs(load(name), more)
    points = [
        replace(point, name=f"{point.name} workload.tenants[1].workload.checkpoints=0 qos.mode=lossless")
        for point in record.points
    ]
    expectations = [
        replace(item, metric=f"aggregate_share over that of {points[0].name}", point=points[0].name, minimum=0.12345)
        for item in record.expectations
    ]
    return replace(record, points=points, expectations=expectations)


def page(name: str) -> str:
    if name == "comparison":
        record = load("permutation-lb")
        return render_comparison([compare_records(record, record)])
    if name.startswith("laden "):
        return render_report(laden(name.removeprefix("laden ")))
    return render_report(load(name))


TABLES = """[...document.querySelectorAll("table")].map(table => {
  const column = table.closest(".scroll"), edge = column.getBoundingClientRect().right;
  const cells = [...table.querySelectorAll("td, th")].map(cell => cell.getBoundingClientRect().right - edge);
  return Math.max(0, column.scrollWidth - column.clientWidth, ...cells);
})"""


WIDTHS = """(() => {
  const main = document.querySelector("main").getBoundingClientRect();
  const rows = new Map();
  for (const figure of document.querySelectorAll(".plots figure")) {
    const box = figure.getBoundingClientRect(), row = Math.round(box.top) + " " + figure.closest(".plots").offsetTop;
    const room = figure.closest(".plots").getBoundingClientRect();
    rows.set(row, Math.max(rows.get(row) || 0, 100 * (box.right - room.left) / room.width));
  }
  return [innerWidth - main.width, ...rows.values()];
})()"""


@pytest.mark.parametrize("width", [1400, 1920])
def test_the_page_and_its_rows_of_pictures_are_as_wide_as_the_window(width: int, tmp_path: Path) -> None:
    beside, *rows = measured(page("permutation"), width, WIDTHS, tmp_path)
    assert beside <= 1
    assert len(rows) > 2 and min(rows) >= 99


LABELS = """[...document.querySelectorAll("svg.chart")].flatMap(chart => {
  const room = chart.getBoundingClientRect(), scale = room.width / chart.viewBox.baseVal.width;
  const slanted = one => one.closest("[transform*=rotate]");
  const texts = [...chart.querySelectorAll("text")].filter(one => one.textContent.trim());
  const boxes = texts.map(one => [one, one.getBoundingClientRect()]);
  const outside = boxes.filter(([_, box]) => box.left < room.left - 1 || box.right > room.right + 1
    || box.top < room.top - 1 || box.bottom > room.bottom + 1).length;
  let over = 0;
  for (const [at, [one, box]] of boxes.entries()) for (const [other, beside] of boxes.slice(at + 1)) {
    if (slanted(one) || slanted(other)) continue;
    const across = Math.min(box.right, beside.right) - Math.max(box.left, beside.left);
    const down = Math.min(box.bottom, beside.bottom) - Math.max(box.top, beside.top);
    if (across > 1 && down > 3 * scale) over++;
  }
  return [outside, over];
})"""


TEXTS = """[...document.querySelectorAll("svg.chart")].flatMap(chart => {
  const scale = chart.getBoundingClientRect().width / chart.viewBox.baseVal.width;
  return [...chart.querySelectorAll("text")].map(one => 100 * parseFloat(getComputedStyle(one).fontSize) * scale);
})"""


LADEN = ("allreduce-rail", "permutation-lb", "rdma-latency")


@pytest.mark.parametrize("name", [*NAMES, *(f"laden {name}" for name in LADEN), "comparison"])
def test_tables_fit_their_columns_and_labels_keep_apart(name: str, tmp_path: Path) -> None:
    """At two sizes of a window and on paper. On paper text is smaller."""
    text = page(name)
    script = "(() => [Math.max(..." + TABLES + "), ..." + LABELS + ", -1, Math.min(..." + TEXTS + ")])()"
    for width, printed in WINDOWS:
        beyond, *labels, least = measured(text, width, script, tmp_path, printed=printed)
        assert beyond <= 1, (width, printed)
        assert labels.pop() == -1 and labels and not any(labels), (width, printed)
        assert least >= (1050 if not printed else 550), (width, printed)


GREYS = """[...document.querySelectorAll(".plot, .tiles, .figures table, .chip, #trust, .verdict h2")].map(one => {
  let grey = 0;
  for (let at = one; at; at = at.parentElement) if (getComputedStyle(at).filter.includes("grayscale")) grey = 1;
  return 2 * grey + (one.matches(".plot, .tiles, .figures table") ? 1 : 0);
})"""


def test_figures_of_an_invalid_run_are_grey_and_its_verdict_is_not(tmp_path: Path) -> None:
    record = load("permutation-lb")
    void = replace(record, verdict=replace(record.verdict, outcome=Outcome.INVALID))
    found = measured(render_report(void), 1400, GREYS, tmp_path)
    assert {one for one in found if one % 2} == {3}, "every picture, tile and table is grey"
    assert 0 in found, "the verdict and the checks are not"
    assert not any(one >= 2 for one in measured(render_report(record), 1400, GREYS, tmp_path))
