"""The last quarter of an hour: bounded, folded, and told for any moment of it."""

import numpy as np
import pytest

from testbed.api.console.counters.history import FINE_S, FOLD, KEPT_S, TICK_S, History, PortSeries, summary, thinned
from testbed.api.console.counters.quantities import QUANTITIES, UNKNOWN, PortFrame

PORTS = 3


def frame(t: float, **values: list[int]) -> PortFrame:
    columns = {name: np.array(values.get(name, [0] * PORTS), np.int32) for name in QUANTITIES}
    return PortFrame(t=t, dt=TICK_S, columns=columns)


def filled(seconds: float) -> History:
    history = History(PORTS)
    for tick in range(int(seconds / TICK_S)):
        history.append(frame(tick * TICK_S, use=[tick % 1000, 0, UNKNOWN], queue=[tick % 8 * 64, 0, 0]))
    return history


def test_what_is_kept_takes_the_same_memory_however_long_it_goes_on() -> None:
    assert filled(1).memory_bytes == filled(2 * KEPT_S).memory_bytes
    assert History(4_096).memory_bytes < 40_000_000


def test_it_reaches_back_a_quarter_of_an_hour_and_no_further() -> None:
    history = filled(2 * KEPT_S)
    span = history.span
    assert span[1] == 2 * KEPT_S - TICK_S
    assert KEPT_S - TICK_S * FOLD <= span[1] - span[0] <= KEPT_S
    assert History(PORTS).span is None


def test_the_newest_minutes_are_as_they_were_read() -> None:
    history = filled(300)
    for t in (299.5, 250.0, 300 - FINE_S + TICK_S):
        moment = history.moment(t)
        assert moment.t == t
        assert moment.columns["use"].tolist() == [int(t / TICK_S) % 1000, 0, UNKNOWN]


def test_what_is_older_is_folded_means_and_of_queues_the_peak() -> None:
    moment = filled(300).moment(20.0)
    ticks = range(int(moment.t / TICK_S) - FOLD + 1, int(moment.t / TICK_S) + 1)
    assert 20.0 - TICK_S * FOLD < moment.t <= 20.0
    assert moment.columns["use"][0] == pytest.approx(sum(ticks) / FOLD, abs=1)
    assert moment.columns["queue"][0] == max(tick % 8 * 64 for tick in ticks)
    assert moment.columns["use"][2] == UNKNOWN


def test_before_all_that_is_kept_there_is_nothing() -> None:
    assert filled(10).moment(-1.0) is None
    assert History(PORTS).moment(0.0) is None


def test_series_are_of_the_ports_and_the_time_that_are_asked_for() -> None:
    series = filled(400).series(["use", "queue"], [2, 0], 100.0, 390.0)
    assert (series.times[0] >= 100.0, series.times[-1]) == (True, 390.0)
    assert (np.diff(series.times) > 0).all()
    assert series.values["use"].shape == (len(series.times), 2)
    assert series.values["use"][-1].tolist() == [UNKNOWN, 780]


def test_a_total_is_the_highest_port_or_the_sum_of_what_is_lost() -> None:
    history = History(PORTS)
    history.append(frame(1.0, use=[100, 400, UNKNOWN], queue=[64, 640, 0], losses=[16, 32, 0]))
    every = np.ones(PORTS, bool)
    assert history.total("use", every, 0, 9).values["use"].tolist() == [[400]]
    assert history.total("queue", every, 0, 9).values["queue"].tolist() == [[640]]
    assert history.total("losses", every, 0, 9).values["losses"].tolist() == [[48]]
    assert history.total("use", np.array([True, False, True]), 0, 9).values["use"].tolist() == [[100]]
    assert summary("use", np.array([UNKNOWN])) == UNKNOWN


def test_large_values_keep_their_size_and_small_ones_do_not_vanish() -> None:
    history = History(PORTS)
    history.append(frame(1.0, queue=[1, 4_000_000, 100_000_000], losses=[1, 1_000_000, 0]))
    moment = history.moment(1.0)
    assert moment.columns["queue"][0] > 0
    assert moment.columns["queue"][1] == pytest.approx(4_000_000, rel=0.01)
    assert moment.columns["queue"][2] >= 4_000_000  # no more than this is told apart
    assert moment.columns["losses"][0] > 0


def test_a_series_is_thinned_to_its_peaks() -> None:
    values = np.zeros((1_000, 1), np.int64)
    values[777] = 9
    found = thinned(PortSeries(times=np.arange(1_000.0), values={"queue": values}), 50)
    assert (len(found.times), found.values["queue"].max()) == (50, 9)
