"""What befell packets is told by channel, in one vocabulary for all transports, and set against the whole."""

import csv
import io
from dataclasses import replace

from recorded import load, screen, with_runs

from testbed.record.record import Record, RunResult
from testbed.record.report import render_report
from testbed.record.report.scenario.counters import BalanceLine, reconcile
from testbed.record.report.scenario.figures import FATES, fates_of
from testbed.record.report.scenario.tables import channels_csv, summary_json

COUNTERS = [
    {"timeout": 3, "ce_marked": 40, "contexts": 1},
    {"trimmed": 5, "inferred_loss": 0, "out_of_order": 7},
    {"delivered_ce": 2, "duplicate_sacks": 1},
]


def record_with(totals: dict[str, float]) -> Record:
    """The incast of eight, three of whose channels have counters."""

    def counted(run: RunResult) -> RunResult:
        counters = COUNTERS + [{}] * (len(run.channels) - len(COUNTERS))
        channels = [replace(one, counters=own) for one, own in zip(run.channels, counters, strict=True)]
        return replace(run, channels=channels, counters=totals)

    return with_runs(load("incast-trimming"), counted)


def balances(totals: dict[str, float]) -> dict[str, BalanceLine]:
    run = record_with(totals).points[0].runs[0]
    return {line.what.partition(",")[0]: line for line in reconcile(run)}


def test_the_names_of_all_transports_are_one_fate() -> None:
    found = {fate.title: [fate.of(counters) for counters in COUNTERS] for fate in fates_of(COUNTERS)}
    assert found == {
        "Time-outs": [3, 0, 0],
        "Trimmed": [0, 5, 0],
        "CE-marked": [40, 0, 2],
        "Out of order": [0, 7, 0],
        "Duplicates": [0, 0, 1],
    }
    names = [name for fate in FATES for name in fate.names]
    assert len(names) == len(set(names))


def test_the_terminal_shows_what_befell_any_and_no_more_than_fits() -> None:
    head = next(line for line in screen(record_with({}), 150).splitlines() if "Share of ideal" in line)
    assert head.split("Retransmits")[1].split() == ["Time-outs", "Trimmed", "CE-marked", "Out", "of", "order"]


def test_the_page_shows_all_of_them() -> None:
    page = render_report(record_with({}))
    table = page[page.index('<table class="flows">') :]
    head = table[: table.index("</thead>")]
    assert all(f'<th class="n extra">{fate.title}</th>' in head for fate in fates_of(COUNTERS))
    assert "Inferred lost" not in head


def test_channels_set_against_what_their_endpoints_counted() -> None:
    found = balances({"timeout": 3, "trimmed": 7, "out_of_order": 6})
    assert (found["Time-outs"].counted, found["Time-outs"].ok) == ("3", True)
    assert (found["Trimmed"].remark, found["Trimmed"].ok) == ("2 of no channel", True)
    assert (found["Out of order"].remark, found["Out of order"].ok) == ("1 more than the endpoints counted", False)
    assert found["CE-marked"].ok is None, "nobody counted them in all"
    assert "Inferred lost" not in found


def test_channels_have_a_line_each_and_a_column_for_each_counter() -> None:
    record = record_with({})
    found = list(csv.DictReader(io.StringIO(channels_csv(record))))
    assert len(found) == len(record.points[0].runs[0].channels)
    assert (found[0]["timeout"], found[0]["trimmed"], found[1]["trimmed"]) == ("3", "", "5")
    assert found[0]["source"].count(":") == 1 and found[0]["rail"] == "1"
    assert summary_json(record)["points"][0]["counters"]["ce_marked"] == 40
