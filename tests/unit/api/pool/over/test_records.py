"""The file of a lab over several machines, and the lines that machines are asked by."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.api.pool.over import messages
from testbed.api.pool.over.messages import ANSWERS, QUESTIONS, line_of, read_line
from testbed.api.pool.over.records import SpreadExists, SpreadMachine, SpreadRecord, SpreadRecords, SpreadState
from testbed.base.errors import ConvergenceError, LabNotFound

RECORD = SpreadRecord(
    name="wide",
    state=SpreadState.RUNNING,
    created="2026-11-29T12:00:00+00:00",
    source="wide.yml",
    design="rail-optimized",
    machines=(SpreadMachine(name="a", ssh="root@a", address="10.0.0.1"), SpreadMachine(name="b", ssh="root@b")),
    places={"h1": "a", "h2": "b", "h3": "c"},
    hosts=2,
    switches=0,
    links=1,
    cut_links=1,
    k=100.0,
    mark="0a1b",
)


def test_a_record_comes_back_and_goes_by_its_name(tmp_path: Path) -> None:
    records = SpreadRecords(tmp_path / "over")
    assert records.names() == [] and not records.exists("wide")
    records.write(RECORD)
    assert records.names() == ["wide"] and records.read("wide") == RECORD
    records.forget("wide")
    assert records.names() == []
    with pytest.raises(LabNotFound, match="no lab named wide"):
        records.read("wide")


def test_a_node_has_the_machine_that_the_record_says() -> None:
    place = RECORD.place("h2")
    assert place is not None and place.name == "b"
    assert RECORD.place("h3") is None and RECORD.place("nobody") is None


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'{"name": "wide"', b"\xff"])
def test_a_damaged_record_is_refused_with_a_way_out(content: bytes, tmp_path: Path) -> None:
    records = SpreadRecords(tmp_path)
    (tmp_path / "wide.json").write_bytes(content)
    with pytest.raises(LabNotFound, match="damaged or of another version") as refused:
        records.read("wide")
    assert refused.value.hint is not None and "destroy -n wide" in refused.value.hint


def test_one_command_at_a_time_works_on_a_lab(tmp_path: Path) -> None:
    records = SpreadRecords(tmp_path)
    with records.lock("wide"), pytest.raises(SpreadExists, match="another command"), records.lock("wide"):
        pass
    with records.lock("wide"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_questions_and_answers_come_back_as_they_were() -> None:
    asked = messages.Reach(addresses={"b": "10.0.0.2"}, packet_bytes=4564)
    assert read_line(line_of(asked), QUESTIONS) == asked
    answer = messages.CheckAnswer(
        results=(messages.Result(name="links", status="pass", count=3, detail="3 ports", failures=("x",)),),
        nics={"backend rail 1": {"h1": "10.0.0.2"}},
    )
    assert read_line(line_of(answer), ANSWERS) == answer


@pytest.mark.parametrize(
    "line",
    [b"", b"{}", b'["Nothing",{}]', b'["Up",{}]', b'["Up",{"nodes":"x","seconds":1}]', b'["Go",{}]', b"\xff\xfe"],
)
def test_an_answer_that_is_none_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError):  # of msgspec's kinds
        read_line(line, ANSWERS)


def test_an_error_of_a_machine_is_told_with_its_name() -> None:
    error = messages.PartRefused(message="no FRR", hint="install it").error("b")
    assert error.message == "b: no FRR" and error.hint == "install it"
    assert isinstance(messages.PartRefused(message="late", converging=True).error("b"), ConvergenceError)
