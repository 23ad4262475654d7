"""Percentiles by the one stated method, Jain, max / mean, and summaries over runs."""

import pytest

from testbed.workload.metrics import (
    coefficient_of_variation,
    jain_index,
    max_mean_ratio,
    percentile,
    summarise_metrics,
    summarise_runs,
    weighted_percentile,
)


def test_a_percentile_is_a_sample_that_was_seen() -> None:
    # RFC 2330 section 11.3 has this example: -2, 7, 7, 4, 18, -5.
    samples = [-2, 7, 7, 4, 18, -5]
    assert percentile(samples, 0.5) == 4
    assert percentile(samples, 0.0) == -5
    assert percentile(samples, 1.0) == 18
    assert percentile([], 0.5) is None


@pytest.mark.parametrize(
    ("count", "share", "expected"), [(20, 0.95, 19), (100, 0.99, 99), (1000, 0.999, 999), (7, 0.99, 7)]
)
def test_rounding_moves_no_percentile(count: int, share: float, expected: int) -> None:
    assert percentile(range(1, count + 1), share) == expected


def test_weights_are_repetitions() -> None:
    assert weighted_percentile([10, 20, 30], [1, 8, 1], 0.5) == 20
    assert weighted_percentile([10, 20, 30], [1, 8, 1], 0.9) == percentile([10] + [20] * 8 + [30], 0.9) == 20
    assert weighted_percentile([10, 20, 30], [1, 8, 1], 0.91) == 30
    assert weighted_percentile([10, 20], [0, 0], 0.5) is None


@pytest.mark.parametrize("share", [-0.1, 1.1, 95])
def test_a_share_is_between_0_and_1(share: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        percentile([1], share)
    with pytest.raises(ValueError, match="between 0 and 1"):
        weighted_percentile([1], [1], share)


def test_jain_and_max_over_mean() -> None:
    assert jain_index([5, 5, 5, 5]) == pytest.approx(1)
    assert jain_index([9, 0, 0]) == pytest.approx(1 / 3)
    assert jain_index([1, 3]) == pytest.approx(16 / 20)
    assert jain_index([1e300, 3e300]) == pytest.approx(16 / 20)
    assert jain_index([]) is None and jain_index([0, 0]) is None
    assert max_mean_ratio([4, 2, 2, 0]) == pytest.approx(2)
    assert max_mean_ratio([0, 0]) is None
    with pytest.raises(ValueError, match="negative"):
        max_mean_ratio([-1, 1])


def test_summary_is_the_median_of_runs_with_min_max_and_cv() -> None:
    summary = summarise_runs([4.0, None, 2.0, 9.0])
    assert summary.values == (4.0, None, 2.0, 9.0)
    assert (summary.runs, summary.median, summary.minimum, summary.maximum) == (3, 4.0, 2.0, 9.0)
    assert summary.cv == pytest.approx(3.6056 / 5, rel=1e-4)
    assert summarise_runs([1.0, 3.0]).median == 2.0
    assert summarise_runs([1.0]).cv is None
    nothing = summarise_runs([None])
    assert (nothing.runs, nothing.median, nothing.minimum, nothing.maximum, nothing.cv) == (0, None, None, None, None)
    with pytest.raises(ValueError, match="finite"):
        summarise_runs([float("nan")])


def test_metrics_of_runs_keep_their_order_and_their_gaps() -> None:
    summaries = summarise_metrics([{"jct": 1.0, "busbw": None}, {"jct": 3.0, "tail_fct": 7.0}])
    assert list(summaries) == ["jct", "busbw", "tail_fct"]
    assert summaries["tail_fct"].values == (None, 7.0)
    assert summaries["jct"].median == 2.0


def test_cv_has_no_meaning_around_zero() -> None:
    assert coefficient_of_variation([0.0, 0.0]) is None
    assert coefficient_of_variation([2.0, 2.0]) == 0
