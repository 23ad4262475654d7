"""The sampler without a thread or a clock: ticks, the ring, and what it says of itself."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from fake_ports import BULK, CONTROL, RDMA, FakePorts

from testbed.lab.observe.sampler import RowRing, Sampler, SamplerError, TickSchedule

UP = "p1-s1-rail1:uplink1"
MS = 1_000_000


class Clock:
    def __init__(self) -> None:
        self.ns = 0

    def now(self) -> int:
        return self.ns


@pytest.fixture
def ports() -> FakePorts:
    return FakePorts()


def sampler(ports: FakePorts, clock: Clock, **options: Any) -> Sampler:
    options.setdefault("chosen", ports.table.select([UP]))
    return Sampler(ports.maps, ports.table, clock_ns=clock.now, **options)


def test_samples_are_columns_over_time(ports: FakePorts) -> None:
    clock, up = Clock(), ports.number(UP)
    found = sampler(ports, clock, columns=("queues.bytes", "pauses.paused_ns"))
    for step in range(5):
        ports.offer(up, RDMA, step, size=1000)
        ports.maps.pauses[up * 8 + BULK]["paused_ns"] = step
        clock.ns = step * MS
        found.tick()
    samples = found.since()
    assert samples.queues == ((up, BULK), (up, RDMA), (up, CONTROL))
    assert samples.times_ns.tolist() == [0, MS, 2 * MS, 3 * MS, 4 * MS]
    assert samples.of("queues.bytes", up, RDMA).tolist() == [0, 1000, 3000, 6000, 10_000]
    assert samples.of("pauses.paused_ns", up, BULK).tolist() == [0, 1, 2, 3, 4]
    assert samples.complete
    later = found.since(2 * MS)
    assert later.times_ns.tolist() == [3 * MS, 4 * MS]
    assert later.complete
    with pytest.raises(KeyError, match="port 1 priority 3"):
        samples.of("queues.bytes", 1, RDMA)


def test_all_classes_of_all_ports_by_default(ports: FakePorts) -> None:
    found = Sampler(ports.maps, ports.table)
    assert len(found.queues) == ports.table.count * 3


def test_memory_is_bounded_and_what_was_overwritten_is_told(ports: FakePorts) -> None:
    clock = Clock()
    found = sampler(ports, clock, memory_bytes=8 * 7 * 10)
    for step in range(25):
        clock.ns = step * MS
        found.tick()
    samples = found.since()
    assert samples.times_ns.tolist() == [step * MS for step in range(16, 25)]
    assert not samples.complete
    assert found.since(20 * MS).complete
    assert not found.since(3 * MS).complete
    assert found.taken == 25


def test_a_row_that_is_overwritten_while_it_is_read_is_left_out() -> None:
    ring = RowRing(8, 1)

    def put(number: int) -> None:
        ring.append(number, lambda row: row.fill(number))

    for number in range(8):
        put(number)

    class Racing(np.ndarray):
        """Three more rows are written while the values are copied."""

        def __getitem__(self, index: Any) -> Any:
            if isinstance(index, np.ndarray):
                ring.values = plain
                for number in range(8, 11):
                    put(number)
            return super().__getitem__(index)

    plain = ring.values
    ring.values = plain.view(Racing)
    times, values, complete = ring.since(-1)
    assert times.tolist() == [4, 5, 6, 7]
    assert np.asarray(values)[:, 0].tolist() == [4, 5, 6, 7]
    assert not complete


def test_the_schedule_is_absolute_and_counts_what_it_missed() -> None:
    schedule = TickSchedule(1000, 100)
    schedule.take(1000)
    assert (schedule.due_ns, schedule.missed) == (1100, 0)
    schedule.take(1199)
    assert (schedule.due_ns, schedule.missed) == (1200, 0), "late, but not missed; the next is not shifted"
    schedule.take(1550)
    assert (schedule.due_ns, schedule.missed) == (1600, 3)
    schedule.take(1590)
    assert (schedule.due_ns, schedule.missed) == (1700, 3), "early wake-ups are taken for the tick"


def test_a_late_thread_takes_one_sample_and_reports_the_others(ports: FakePorts) -> None:
    clock = Clock()
    found = sampler(ports, clock, interval_ns=2 * MS)
    found._schedule = TickSchedule(0, 2 * MS)
    waits: list[float] = []

    def steps() -> Iterator[bool]:
        for late_ns in (0, 0, 7 * MS, 0):
            clock.ns += round(waits[-1] * 1e9) + late_ns
            yield False
        yield True

    script = steps()

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        return next(script)

    found.run_until(wait)
    assert waits == [0, 0.002, 0.002, 0.001, 0.002]
    assert found.since().times_ns.tolist() == [0, 2 * MS, 11 * MS, 12 * MS]
    assert (found.taken, found.missed, found.latest_ns) == (4, 3, 7 * MS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"interval_ns": MS - 1}, "too often"),
        ({"columns": ("queues.nothing",)}, "no column 'queues.nothing'"),
        ({"columns": ("queues.depth",)}, "no column 'queues.depth'"),
        ({"columns": ("ports.loss",)}, "no column 'ports.loss'"),
        ({"memory_bytes": 50}, "do not hold two samples"),
    ],
)
def test_what_cannot_be_sampled_is_refused(ports: FakePorts, options: dict[str, Any], message: str) -> None:
    with pytest.raises(SamplerError, match=message):
        sampler(ports, Clock(), **options)


def test_too_many_queues_are_refused(ports: FakePorts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("testbed.lab.observe.sampler.MOST_QUEUES", 2)
    with pytest.raises(SamplerError, match="3 queues are too many"):
        sampler(ports, Clock())


def test_a_failure_of_the_thread_reaches_the_reader(ports: FakePorts) -> None:
    found = sampler(ports, Clock())
    found._fill = lambda _row: 1 / 0  # type: ignore[assignment, method-assign, return-value]
    with found:
        found._thread.join()
    with pytest.raises(SamplerError, match="the sampler stopped: division by zero"):
        found.since()


def test_the_thread_ends_with_its_context(ports: FakePorts) -> None:
    with pytest.raises(KeyboardInterrupt), Sampler(ports.maps, ports.table) as found:
        thread = found._thread
        raise KeyboardInterrupt
    assert not thread.is_alive()
    found.stop()
