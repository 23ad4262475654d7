"""The columns that pages get, of two readings; and what is told of them."""

from typing import Any

import numpy as np
import pytest

from testbed.api.console.counters.quantities import (
    QUANTITIES,
    UNKNOWN,
    PortFrame,
    Totals,
    differences,
    nothing_known,
    quantities,
    rounded,
)

SECOND = 1_000_000_000
RATES = np.array([8_000, 8_000], np.int64)


def totals(time_ns: int, **counted: list[int]) -> Totals:
    names = [name for name in Totals.__slots__ if name != "time_ns"]
    values: dict[str, Any] = {name: np.array(counted.get(name, [0, 0]), np.int64) for name in names}
    return Totals(time_ns=np.full(2, time_ns, np.int64), **values)


def column(name: str, before: list[int], after: list[int], **others: tuple[list[int], list[int]]) -> list[int]:
    quantity = {"use": "sent_bytes", "queue": "queue_bytes", "marks": "marked_packets", "pauses": "paused_ns"}
    quantity |= {"losses": "lost_packets", "errors": "corrupted_packets"}
    first = {quantity[name]: before, **{key: value[0] for key, value in others.items()}}
    second = {quantity[name]: after, **{key: value[1] for key, value in others.items()}}
    frame = quantities(totals(SECOND, **first), totals(2 * SECOND, **second), RATES, t=5.0)
    return [int(value) for value in frame.columns[name]]


@pytest.mark.parametrize(
    ("name", "before", "after", "told"),
    [
        ("use", [0, 100], [500, 1_100], [500, 1_000]),  # permille of the rate
        ("use", [5_000, 0], [10, 0], [0, 0]),  # a counter that began anew counts nothing
        ("use", [UNKNOWN, 100], [500, 1_100], [0, 1_000]),  # nor does what was not read before
        ("losses", [UNKNOWN, 0], [70, 2], [0, 2]),
        ("use", [0, 0], [0, 0], [0, 0]),
        ("pauses", [0, 0], [1, SECOND], [1, 1_000]),  # a little is not nothing
        ("pauses", [0, 0], [SECOND // 2, 3 * SECOND], [500, 1_000]),  # nor more than all the time
        ("losses", [10, 0], [10, 1], [0, 1]),  # packets a second, and one is told
        ("errors", [0, 0], [7, 12_345], [7, 12_300]),
        ("queue", [0, 0], [123_456, 999], [123_000, 999]),  # three digits
        ("marks", [UNKNOWN, 0], [UNKNOWN, 0], [UNKNOWN, 0]),  # what a port does not count
    ],
)
def test_what_is_told_of_two_readings(name: str, before: list[int], after: list[int], told: list[int]) -> None:
    assert column(name, before, after) == told


def test_a_rate_is_over_the_time_between_a_port_s_own_readings() -> None:
    before = totals(SECOND, sent_bytes=[0, 0])
    after = totals(2 * SECOND, sent_bytes=[1_000, 2_000])
    after.time_ns[1] += SECOND  # it was read a second later
    assert quantities(before, after, RATES, t=5.0).columns["use"].tolist() == [1_000, 1_000]


def test_marks_are_permille_of_the_packets_that_could_be_marked() -> None:
    assert column("marks", [0, 0], [1, 5], markable_packets=([0, 0], [4, 0])) == [250, 0]


def test_numbers_have_three_digits() -> None:
    assert rounded(np.array([0, 7, 1_004, 1_005_999])).tolist() == [0, 7, 1_000, 1_010_000]


def test_only_what_changed_is_told() -> None:
    before = nothing_known(1.0, 3)
    columns = {name: before.columns[name].copy() for name in QUANTITIES}
    columns["use"][1] = 7
    after = PortFrame(t=2.0, dt=0.5, columns=columns)
    assert differences(before, after) == {"use": ([1], [7])}
    assert differences(after, after) == {}


@pytest.mark.parametrize("seed", range(20))
def test_differences_put_together_are_the_frame(seed: int) -> None:
    random = np.random.default_rng(seed)
    known = {name: np.full(50, UNKNOWN, np.int32) for name in QUANTITIES}
    frame = nothing_known(0.0, 50)
    for t in range(10):
        columns = {
            name: np.where(random.random(50) < 0.2, random.integers(-1, 9, 50), frame.columns[name]).astype(np.int32)
            for name in QUANTITIES
        }
        after = PortFrame(t=float(t), dt=0.5, columns=columns)
        for name, (ports, values) in differences(frame, after).items():
            known[name][ports] = values
        frame = after
        assert all((known[name] == frame.columns[name]).all() for name in QUANTITIES)
