"""Histograms, timers and the ledger of the pause agent."""

from __future__ import annotations

import numpy as np
import pytest

from testbed.datapath.abi import CLASSES
from testbed.datapath.layout import EVENT, INGRESS, PAUSE
from testbed.datapath.maps import LabMaps
from testbed.portd.histogram import Histogram, Latency
from testbed.portd.lab import EVENT as EVENT_STRUCT
from testbed.portd.ledger import Ledger
from testbed.portd.timers import Timers


def test_quantiles_of_known_values() -> None:
    histogram = Histogram()
    for value in range(1, 1001):
        histogram.record(value * 1000)
    summary = histogram.summary()
    assert summary.count == 1000
    assert summary.p50_ns == pytest.approx(500_000, rel=0.032)
    assert summary.p99_ns == pytest.approx(990_000, rel=0.032)
    assert summary.max_ns == 1_000_000, "exactly"


def test_small_values_are_exact_and_negative_ones_are_zero() -> None:
    histogram = Histogram()
    for value in (-5, 0, 7, 63):
        histogram.record(value)
    assert [histogram.quantile(share) for share in (0.25, 0.5, 0.75, 1.0)] == [0, 0, 7, 63]


def test_nothing_recorded_is_zero() -> None:
    assert Histogram().summary() == Latency()


def test_merge_is_recording_both() -> None:
    one, other, both = Histogram(), Histogram(), Histogram()
    for value in (3, 1000, 5_000_000):
        one.record(value)
        both.record(value)
    for value in (9, 1001, 80):
        other.record(value)
        both.record(value)
    one.merge(other)
    assert one.summary() == both.summary()


def test_timers_fire_in_order_and_once() -> None:
    timers = Timers()
    timers.set(1, 30)
    timers.set(2, 10)
    timers.set(3, 20)
    timers.cancel(3)
    assert timers.next_ns() == 10
    assert list(timers.expired(9)) == []
    assert list(timers.expired(100)) == [2, 1]
    assert timers.next_ns() is None


def test_moved_timer_fires_at_its_last_time() -> None:
    timers = Timers()
    timers.set(1, 10)
    timers.set(1, 50)
    assert list(timers.expired(20)) == []
    assert timers.next_ns() == 50
    timers.set(1, 30)
    assert timers.next_ns() == 30
    assert list(timers.expired(30)) == [1]
    assert list(timers.expired(100)) == [], "the entry for 50 was overtaken"


def test_a_flood_of_moves_leaves_one_entry() -> None:
    timers = Timers()
    for number in range(10_000):
        timers.set(1, 1000 + number)
    assert len(timers._heap) == 1


def test_timer_may_be_set_while_it_fires() -> None:
    timers = Timers()
    timers.set(1, 10)
    for key in timers.expired(10):
        timers.set(key, 10 + 90)
    assert timers.next_ns() == 100


def test_ledger_writes_where_the_data_path_reads() -> None:
    maps = LabMaps.in_memory(4)
    ledger = Ledger(maps)
    queue = 3 * CLASSES + 5
    ledger.xoff_sent(queue, 100)
    ledger.xoff_sent(queue, 150)
    ledger.xon_sent(queue, 400)
    ledger.xoff_received(queue)
    ledger.xon_received(queue)
    ledger.gate_closes(queue, 1000)
    ledger.gate_opened(queue, 1700)
    ledger.watchdog_frees(queue)
    ledger.storm(queue, True)
    record = maps.pauses[queue]
    expected = {
        "xoff_sent": 2,
        "xon_sent": 1,
        "xoff_received": 1,
        "xon_received": 1,
        "paused_ns": 700,
        "asked_ns": 300,
        "watchdog_events": 1,
        "storm": 1,
        "ignored": 1,
    }
    assert {name: int(record[name]) for name in PAUSE.names or () if record[name]} == expected
    others = np.delete(maps.pauses, queue)
    assert not any(others[name].any() for name in PAUSE.names or ()), "and nowhere else"


def test_ledger_reads_what_the_data_path_writes() -> None:
    maps = LabMaps.in_memory(4)
    ledger = Ledger(maps)
    maps.ingress[9]["xoff"] = 1
    maps.pauses[17]["closed"] = 1
    maps.pauses[18]["asked_since"] = 1 << 40
    maps.ingress[2 * CLASSES]["malformed_frames"] = 6
    assert ledger.is_over(9)
    assert not ledger.is_over(8)
    assert (ledger.all_over(), ledger.all_closed(), ledger.all_asking()) == ([9], [17], [18])
    assert ledger.malformed_frames().tolist() == [0, 0, 6, 0, 0]


def test_event_is_that_of_the_layout() -> None:
    assert EVENT_STRUCT.size == EVENT.itemsize
    record = np.zeros(1, EVENT)
    record["ns"], record["port"], record["kind"], record["priority"], record["bytes"] = 1 << 40, 513, 3, 0x18, 99
    record["quanta"] = np.arange(8)
    assert EVENT_STRUCT.unpack(record.tobytes()) == (1 << 40, 513, 3, 0x18, 99, *range(8))
    assert INGRESS.itemsize % 8 == PAUSE.itemsize % 8 == 0
