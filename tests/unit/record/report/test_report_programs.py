"""A program of one's own in reports: its steps, its ranks, and the last lines of the one that failed."""

from dataclasses import replace
from xml.etree import ElementTree

import pytest
from recorded import Page, load, screen

from testbed.record.record import ExpectationResult, Outcome, Record, RunResult
from testbed.record.report import render_report
from testbed.record.report.scenario.plots.programs import plot_steps
from testbed.record.report.scenario.programs import program_view
from testbed.record.report.scenario.tables import junit_xml
from testbed.record.samples import ProgramRank, ProgramRecord, ProgramStepTable, RunEvent
from testbed.record.store import decode_record, encode_record

HOSTILE = "<script>alert(1)</script> \x1b[31m]]>"


def program(*, status: int = 0, ranks: int = 3) -> ProgramRecord:
    every = [
        ProgramRank(
            rank=rank,
            host=f"p1-s1-h{rank + 1}",
            interface="rail1",
            status=status if rank == 1 else -15 if status else 0,
            reason="" if rank == 1 or not status else "ended with the others",
            seconds=4.0,
            last_lines=["the reason", HOSTILE] if rank == 1 else [f"line of {rank}"],
        )
        for rank in range(ranks)
    ]
    return ProgramRecord(
        command=["python3", "train.py", "--name", "a b"],
        exit_code=status,
        failure=f"rank 1 on p1-s1-h2 ended with {status}" if status else "",
        ranks=every,
        speaker=1 if status else 0,
        steps=ProgramStepTable(
            number=[0, 1, 2], at_s=[1.0, 2.0, 3.0], seconds=[5.0, 0.8, 1.6], warm_up=[True, False, False]
        ),
        sent_bytes=104_000_000,
        stated_bytes=14_000_000,
        ideal_step_s=0.75,
        padding_s=0.2,
        represented=5907.2,
        congestion_control="cubic",
        sent_again=7,
    )


def record_of(of: ProgramRecord, *, single: bool = True) -> Record:
    record = load("silent-failure")

    def with_program(run: RunResult) -> RunResult:
        metrics = {"program_step_p50": 1.2, "program_exit": float(of.exit_code)}
        event = RunEvent(at_s=1.5, kind="link-down", target="a:b", detail="")
        return replace(run, program=of, channels=[], metrics=metrics, events=[event])

    points = [replace(point, runs=list(map(with_program, point.runs))) for point in record.points]
    failed = ExpectationResult(
        metric="program_exit",
        minimum=None,
        maximum=0.0,
        source="it is to succeed",
        measured=float(of.exit_code),
        outcome=Outcome.FAIL if of.exit_code else Outcome.PASS,
        point=points[0].name,
    )
    return replace(record, points=points[:1] if single else points, expectations=[failed], incomplete="")


def test_a_record_with_a_program_is_read_as_it_was_written() -> None:
    record = record_of(program(status=5))
    assert decode_record(encode_record(record)) == record


def test_the_page_shows_what_was_run_and_who_failed_first() -> None:
    text = render_report(record_of(program(status=5)))
    Page(text).assert_inert()
    assert "<script>alert" not in text and "&lt;script&gt;alert" in text
    assert "python3 train.py --name &#39;a b&#39;" in text
    assert "rank 1 on p1-s1-h2 ended with 5" in text and "The last lines of rank 1" in text
    assert "Steps of the program" in text and "A byte stands for" in text
    assert "<h3>Flows</h3>" not in text, "a program has none that anybody knows"


def test_the_steps_are_drawn_with_their_ideal_and_the_events() -> None:
    run = record_of(program()).points[0].runs[0]
    plot = plot_steps(run)
    assert plot is not None and "The first one is in no figure" in plot.caption and plot.wide
    assert plot_steps(replace(run, program=None)) is None
    short = replace(program(), steps=ProgramStepTable(number=[1], at_s=[1.0], seconds=[1.0], warm_up=[False]))
    assert plot_steps(replace(run, program=short)) is None


def test_of_many_ranks_those_that_failed_are_first() -> None:
    run = record_of(program(status=5, ranks=100)).points[0].runs[0]
    view = program_view(run)
    assert view is not None and view.hidden == 36 and view.ranks[0].rank == 0
    assert view.speaker is not None and view.speaker.rank == 1
    whole = program_view(replace(run, program=program()))
    assert whole is not None and whole.speaker is not None and whole.speaker.rank == 0


@pytest.mark.parametrize("status", [0, 5])
def test_the_console_has_the_last_lines_of_a_program_that_failed(status: int) -> None:
    shown = screen(record_of(program(status=status)))
    assert ("[1] the reason" in shown) == bool(status)
    assert "\x1b" not in shown


def test_junit_has_the_last_lines_beside_the_exit_code() -> None:
    cases = {
        case.get("name"): case
        for case in ElementTree.fromstring(junit_xml(record_of(program(status=5)))).iter("testcase")
    }
    (case,) = (case for name, case in cases.items() if name and name.startswith("program_exit"))
    said = case.findtext("system-out") or ""
    assert "rank 1 on p1-s1-h2 ended with 5" in said and "[1] the reason" in said and "\x1b" not in said
    whole = ElementTree.fromstring(junit_xml(record_of(program())))
    assert whole.find(".//system-out") is None
