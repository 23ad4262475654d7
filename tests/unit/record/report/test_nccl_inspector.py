"""Collectives as NCCL's Inspector dumps them, read as its own exporter and as Prometheus read them."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from recorded import load, with_runs

from testbed.record.record import Record, RunResult
from testbed.record.report.scenario.nccl_inspector import (
    INSPECTOR_FILE,
    PROMETHEUS_FILE,
    inspector_json,
    inspector_prometheus,
    size_range,
)
from testbed.record.report.scenario.page import write_report_files


@pytest.fixture
def record() -> Record:
    return load("allreduce-rail")


def restored(text: str) -> list[dict[str, Any]]:
    """The rows that perf_summary_exporter.py (NCCL, plugins/profiler/inspector) makes of a dump: a line without context
    of its own, or without a part, is none."""
    rows = []
    for line in text.splitlines():
        read = json.loads(line)
        assert {"header", "metadata", "coll_perf"} == set(read)
        header = read["header"]
        if header["n_ranks"] == 1:
            kind = "single-rank"
        elif header["nnodes"] == 1:
            kind = "nvlink-only"
        else:
            kind = "hca-only" if header["n_ranks"] == header["nnodes"] else "mixed"
        rows.append({**header, "comm_type": kind, **read["coll_perf"], **read["metadata"]})
    return rows


def test_inspectors_exporter_reads_every_operation(record: Record) -> None:
    point = record.points[0]
    operations = [item for run in point.runs for item in sorted(run.collectives, key=lambda one: one.start_s)]
    rows = restored(inspector_json(record))
    assert len(rows) == len(operations) > 1
    for number, (row, item) in enumerate(zip(rows, operations, strict=True)):
        assert (row["coll"], row["coll_sn"], row["coll_msg_size_bytes"]) == ("AllReduce", number, item.size_bytes)
        assert row["coll_exec_time_us"] == round(item.seconds / point.lab.k * 1e6)
        assert row["coll_busbw_gbs"] == pytest.approx(item.busbw_bps * point.lab.k / 8e9, abs=1e-6)
        assert row["coll_algobw_gbs"] == pytest.approx(item.algbw_bps * point.lab.k / 8e9, abs=1e-6)
        assert row["inspector_output_format_version"] == "v4.0"
        assert (row["n_ranks"], row["comm_type"]) == (8, "mixed" if row["nnodes"] < 8 else "hca-only")
        assert isinstance(row["dump_timestamp_us"], int)
    assert len({row["id"] for row in rows}) == 1, "one communicator"
    assert int(rows[0]["id"], 16) > 0


def test_groups_of_ranks_are_communicators_of_their_own(record: Record) -> None:
    def in_groups(run: RunResult) -> RunResult:
        items = [
            replace(item, label=f"all_reduce[{place // 2}].group{place % 2}")
            for place, item in enumerate(run.collectives)
        ]
        return replace(run, collectives=items)

    rows = restored(inspector_json(with_runs(record, in_groups)))
    assert {row["comm_name"] for row in rows} == {"group0", "group1"}
    assert len({row["id"] for row in rows}) == 2
    for name in ("group0", "group1"):
        numbers = [row["coll_sn"] for row in rows if row["comm_name"] == name]
        assert numbers == list(range(len(numbers)))


def test_prometheus_takes_the_text_of_all_operations(record: Record) -> None:
    text = inspector_prometheus(record)
    families = {family.name: family.samples for family in text_string_to_metric_families(text)}
    assert set(families) == {"nccl_bus_bandwidth_gbs", "nccl_collective_exec_time_microseconds"}
    rows = restored(inspector_json(record))
    for sample in families["nccl_bus_bandwidth_gbs"]:
        assert (sample.labels["collective"], sample.labels["nranks"]) == ("AllReduce", "8")
        assert sample.labels["algo_proto"] == "RING"
        same = [
            row["coll_busbw_gbs"]
            for row in rows
            if size_range(row["coll_msg_size_bytes"]) == sample.labels["message_size"]
        ]
        assert sample.value == pytest.approx(math.exp(sum(map(math.log, same)) / len(same)), rel=1e-4)
    for sample in families["nccl_collective_exec_time_microseconds"]:
        assert sample.value > 0


@pytest.mark.parametrize(
    ("size_bytes", "label"),
    [(0, "0B"), (1, "1-2B"), (1023, "1023-1024B"), (1 << 10, "1-2KB"), (3 << 20, "3-4MB"), (5 << 50, "5120-5121TB")],
)
def test_sizes_fall_into_inspectors_ranges(size_bytes: int, label: str) -> None:
    assert size_range(size_bytes) == label


def test_a_strangers_record_breaks_no_line(record: Record) -> None:
    """A name with quotes and newlines, a time scale next to nothing, a begin that is no time."""
    point = record.points[0]
    bad = replace(point, name='x"} 1\nevil', lab=replace(point.lab, k=1e-300))
    hostile = with_runs(replace(record, points=[bad]), lambda run: replace(run, started="yesterday"))
    rows = restored(inspector_json(hostile))
    assert {row["dump_timestamp_us"] for row in rows} == {0}
    text = inspector_prometheus(hostile)
    (family, _) = text_string_to_metric_families(text)
    assert {sample.labels["comm_name"] for sample in family.samples} == {'x"} 1\nevil'}


def test_files_are_there_where_there_are_collectives(record: Record, tmp_path: Any) -> None:
    write_report_files(record, tmp_path)
    assert (tmp_path / INSPECTOR_FILE).read_text() == inspector_json(record)
    assert (tmp_path / PROMETHEUS_FILE).read_text() == inspector_prometheus(record)
    without = tmp_path / "without"
    without.mkdir()
    write_report_files(load("permutation"), without)
    assert not (without / INSPECTOR_FILE).exists()
    assert not (without / PROMETHEUS_FILE).exists()
