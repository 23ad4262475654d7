"""Collectives as nccl-tests prints them, read by parsers as people's scripts have them."""

import re
from dataclasses import replace

import pytest
from recorded import load, with_runs

from testbed.record.record import Record, RunResult
from testbed.record.report.scenario.nccl_table import collective_rows, nccl_number, nccl_tests_text
from testbed.record.samples import CollectiveResult

LINE = re.compile(
    r"^\s*(?P<size>\d+)\s+(?P<count>\d+)\s+(?P<type>\w+)\s+(?P<redop>\w+)\s+(?P<root>-?\d+)"
    r"\s+(?P<time>[\d.e+]+)\s+(?P<algbw>[\d.e+-]+)\s+(?P<busbw>[\d.e+-]+)\s+(?P<wrong>\d+|N/A)"
    r"\s+(?P<in_time>[\d.e+]+)\s+(?P<in_algbw>[\d.e+-]+)\s+(?P<in_busbw>[\d.e+-]+)\s+(?P<in_wrong>\d+|N/A)\s*$"
)
"""What scripts that plot nccl-tests look for: thirteen columns, comments left out."""
AVERAGE = re.compile(r"^# Avg bus bandwidth\s+:\s+(\S+)", re.MULTILINE)


@pytest.fixture
def record() -> Record:
    return load("allreduce-rail")


def scaled(record: Record, seconds: float) -> Record:
    """The record with every operation that long in the real fabric."""

    def stretched(item: CollectiveResult) -> CollectiveResult:
        factor = seconds * record.points[0].lab.k / item.seconds
        return replace(
            item, seconds=item.seconds * factor, algbw_bps=item.algbw_bps / factor, busbw_bps=item.busbw_bps / factor
        )

    def slow(run: RunResult) -> RunResult:
        return replace(run, collectives=list(map(stretched, run.collectives)))

    return with_runs(record, slow)


def test_a_script_that_reads_nccl_tests_reads_ours(record: Record) -> None:
    text = nccl_tests_text(record.points)
    rows = collective_rows(record.points[0])
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    found = [match for line in lines if (match := LINE.match(line))]
    assert len(found) == len(lines) == len(rows)
    for match, row in zip(found, rows, strict=True):
        assert (int(match["size"]), int(match["count"]), match["type"]) == (row.size_bytes, row.elements, "float")
        assert (match["redop"], int(match["root"]), match["wrong"]) == ("sum", -1, "0")
        assert float(match["time"]) == pytest.approx(row.real_us, rel=0.01, abs=0.006)
        assert float(match["busbw"]) == pytest.approx(row.real_busbw / 1e9, rel=0.01, abs=0.006)
        assert [match[f"in_{name}"] for name in ("time", "algbw", "busbw", "wrong")] == [
            match[name] for name in ("time", "algbw", "busbw", "wrong")
        ]
    (average,) = AVERAGE.findall(text)
    assert float(average) == pytest.approx(sum(row.real_busbw for row in rows) / len(rows) / 1e9, rel=1e-4)


def test_columns_stand_where_nccl_tests_has_them(record: Record) -> None:
    """A script that cuts by places, or by the words of the heading."""
    heads = [line for line in nccl_tests_text(record.points).splitlines() if line.startswith("#  ")]
    assert heads[0].split() == ["#", "out-of-place", "in-place"]
    once = ["time", "algbw", "busbw", "#wrong"]
    assert heads[1].split() == ["#", "size", "count", "type", "redop", "root", *once, *once]
    assert heads[2].split() == ["#", "(B)", "(elements)", *2 * ["(us)", "(GB/s)", "(GB/s)"]]
    row = next(line for line in nccl_tests_text(record.points).splitlines() if LINE.match(line))
    for name, width in (("size", 10), ("count", 12), ("type", 8), ("redop", 6), ("root", 6), ("time", 7)):
        end = heads[1].index(name) + len(name)
        assert heads[1][end - min(width, end) : end].strip().endswith(name)
        assert row[end - 1] != " " and (row + " ")[end] == " ", name


@pytest.mark.parametrize(("seconds", "text"), [(0.17e-6, "0.17"), (1234.567e-6, "1234.57"), (0.123456, "123456")])
def test_short_times_keep_two_decimals(record: Record, seconds: float, text: str) -> None:
    lines = nccl_tests_text(scaled(record, seconds).points).splitlines()
    assert {match["time"] for match in map(LINE.match, lines) if match} == {text}
    assert {row.real_time_text for row in collective_rows(scaled(record, seconds).points[0])} == {text}


@pytest.mark.parametrize(
    ("value", "width", "text"),
    [
        (0.0, 7, "0.00"),
        (0.17, 7, "0.17"),
        (9999.994, 7, "9999.99"),
        (12345.67, 7, "12345.7"),
        (123456.7, 7, "123457"),
        (1234567.8, 7, "1234568"),
        (12345678.0, 7, "1.2e+07"),
        (999.994, 6, "999.99"),
        (1234.56, 6, "1234.6"),
        (12345.6, 6, "12346"),
        (12345678.0, 6, "1e+07"),
    ],
)
def test_numbers_are_fitted_as_nccl_tests_fits_them(value: float, width: int, text: str) -> None:
    """Its rule (src/util.cu, getFloatStr): two decimals, then one, then none, then an exponent."""
    assert nccl_number(value, width) == text


def test_a_record_without_collectives_has_no_such_file() -> None:
    assert nccl_tests_text(load("permutation").points) == ""
