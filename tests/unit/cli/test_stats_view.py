"""Numbers for people, spans of time, and documents with units."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fake_ports import BULK, FakePorts, fake_plan

from testbed.base.datapath.abi import CLASSES
from testbed.base.datapath.markers import MarkAt, MarkBy
from testbed.base.errors import TestbedError
from testbed.cli.counters.view import (
    QUEUE_COLUMNS,
    flat_queue,
    queue_document,
    queue_table,
    short,
    short_time,
    totals_document,
)
from testbed.cli.counters.watch import parse_span_s
from testbed.lab.core.model.telemetry import DropCause, QueueTelemetry
from testbed.lab.observe.telemetry import queue_rows, take_snapshot

UP = "p1-s1-rail1:uplink1"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (999, "999"),
        (999.4, "999"),
        (999.6, "1.00 k"),
        (1000, "1.00 k"),
        (1234567, "1.23 M"),
        (12345, "12.3 k"),
        (123456, "123 k"),
        (-178_000, "-178 k"),
        (999_600, "1.00 M"),
        (5e18, "5000 P"),
        (0.25, "0.25"),
    ],
)
def test_three_digits(value: float, text: str) -> None:
    assert short(value) == text


def test_units() -> None:
    assert short(1500, "B") == "1.50 kB"
    assert short(12, "B") == "12 B"
    assert [short_time(value) for value in (0, 3.4, 340, 1_500, 2_500_000, 4_000_000_000)] == [
        "",
        "3 us",
        "340 us",
        "1.5 ms",
        "2.5 s",
        "4000 s",
    ]


@pytest.mark.parametrize(("text", "seconds"), [("2", 2), ("0.5", 0.5), ("500ms", 0.5), ("1m", 60)])
def test_spans(text: str, seconds: float) -> None:
    assert parse_span_s(text) == seconds


@pytest.mark.parametrize("text", ["1ms", "0", "2x", "1.2.3"])
def test_no_spans(text: str) -> None:
    with pytest.raises(TestbedError, match="span"):
        parse_span_s(text)


@pytest.fixture
def row() -> QueueTelemetry:
    ports = FakePorts()
    up = ports.number(UP)
    ports.offer(up, BULK, 20, dropped={DropCause.TAIL: 3})
    ports.send(up, BULK, 10)
    chosen = ports.table.select([UP], "bulk")
    return queue_rows(ports.table, take_snapshot(ports.maps, now_ns=1), chosen)[0]


def test_a_document_has_units_in_its_keys(row: QueueTelemetry) -> None:
    document = json.loads(json.dumps(queue_document(row, 0.5)))
    assert document["offered_packets"] == 20
    assert document["drops"]["tail"] == {"packets": 3, "bytes": 4500}
    assert document["sent_bps"] == 10 * 1500 * 8 / 0.5
    assert len(document["depth_packets"]) == 16
    units = ("_packets", "_bytes", "_bps", "_us", "_frames", "_received", "_sent", "_events", "_share")
    words = {"node", "interface", "class", "priority", "lossless", "drops", "paused"}
    assert [key for key in document if not key.endswith(units) and key not in words] == []
    assert "sent_bps" not in queue_document(row, None), "no span, no rate"


def test_a_line_of_csv_has_all_columns(row: QueueTelemetry) -> None:
    flat = flat_queue(row, 1, 0.5)
    assert set(QUEUE_COLUMNS) <= set(flat)
    assert flat["dropped_tail_packets"] == 3
    assert set(flat) - set(QUEUE_COLUMNS) == {"depth_packets"}


def test_totals(row: QueueTelemetry) -> None:
    totals = totals_document([row, row])
    assert (totals["queues"], totals["sent_packets"], totals["drops"]["tail"]["packets"]) == (2, 20, 6)
    assert totals["lossless_dropped_packets"] == 0


@pytest.mark.parametrize(
    "marking",
    [{"mark_at": MarkAt.DEQUEUE}, {"mark_by": MarkBy.RED}, {}],
    ids=["at dequeue", "by the kernel", "at enqueue"],
)
def test_the_share_of_marks_is_one_of_the_packets_that_could_be_marked_in_the_span(marking: dict[str, object]) -> None:
    """A queue that drains in the span sends more than it takes: marks of what it sends are no share of what it took."""
    plan = fake_plan()
    assert plan.tables is not None
    profiles = tuple(
        replace(one, classes=tuple(replace(item, kmin_bytes=1, kmax_bytes=2, **marking) for item in one.classes))  # type: ignore[arg-type]
        for one in plan.tables.profiles
    )
    tables = replace(plan.tables, profiles=profiles)
    ports = FakePorts(replace(plan, qos=tables, tables=tables))
    up, late = ports.number(UP), bool(marking)
    ports.offer(up, BULK, 60, marked=0 if late else 60)
    before = take_snapshot(ports.maps, now_ns=1)
    ports.offer(up, BULK, 50, marked=0 if late else 50)
    ports.send(up, BULK, 100)
    if late:
        ports.maps.queues[up * CLASSES + BULK]["ce_packets"] += 53
    chosen = ports.table.select([UP], "bulk")
    (row,) = queue_rows(ports.table, take_snapshot(ports.maps, now_ns=2).since(before), chosen)
    assert (row.ce_packets, row.ce_among_packets, row.ce_share) == ((53, 100, 0.53) if late else (50, 50, 1.0))
    document = queue_document(row, 1.0)
    assert (document["ce_share"], flat_queue(row, 1, 1.0)["ce_share"]) == (row.ce_share, row.ce_share)
    text = queue_table([row], 1.0, title="", room=None)
    column = next(column for column in text.columns if column.header == "CE marked")
    assert [str(cell) for cell in column.cells] == ["53 (53.0%)" if late else "50 (100.0%)"]


class WrittenMeanwhile(np.ndarray):
    """Records that a packet changes while they are copied: the copy has its mark, and not yet itself."""

    def copy(self, order: Any = "C") -> Any:
        torn = np.asarray(self).copy(order)
        torn["ce_packets"] += 1
        for name in ("ce_packets", "enqueued_packets"):
            self[name] += 1
        return torn


def test_counters_of_a_queue_that_is_being_written_belong_together(monkeypatch: pytest.MonkeyPatch) -> None:
    ports = FakePorts()
    live = ports.maps.by_port("queues").view(WrittenMeanwhile)
    monkeypatch.setattr(
        ports.maps, "by_port", lambda name: live if name == "queues" else FakePorts().maps.by_port(name)
    )
    queues = take_snapshot(ports.maps, now_ns=1).queues
    assert set(queues["ce_packets"].flat) == set(queues["enqueued_packets"].flat) == {1}
