"""The comparison of clocks: the shortest exchange counts, and a clock that drifts is known less well."""

from __future__ import annotations

from itertools import chain

from testbed.api.pool.over.clocks import ClockReading, compare_clock, over_a_run


def test_the_shortest_exchange_says_how_far_a_clock_is_ahead() -> None:
    # three exchanges of 400, 60 and 200 ns; theirs is 5,000 ns ahead and read at a tenth of the way
    begins, lengths = (1_000, 2_000, 3_000), (400, 60, 200)
    ours = chain.from_iterable((begin, begin + length) for begin, length in zip(begins, lengths, strict=True))
    theirs = iter([begin + length // 10 + 5_000 for begin, length in zip(begins, lengths, strict=True)])
    found = compare_clock(lambda: next(theirs), exchanges=3, clock_ns=lambda: next(ours))
    assert found == ClockReading(ahead_ns=5_000 + 6 - 30, error_ns=30)
    assert abs(found.ahead_ns - 5_000) <= found.error_ns


def test_a_clock_that_drifts_in_a_run_is_known_as_well_as_it_keeps_still() -> None:
    before, after = ClockReading(ahead_ns=1_000, error_ns=10), ClockReading(ahead_ns=1_100, error_ns=30)
    found = over_a_run(before, after)
    assert found == ClockReading(ahead_ns=1_050, error_ns=30 + 50)
    for moment in (before, after):  # whatever it was in truth, at either end
        assert abs(moment.ahead_ns - found.ahead_ns) + moment.error_ns <= found.error_ns
