"""Metrics of a workload: each is one object with its words and the pure functions that compute it."""

from testbed.workload.metrics.collectives import COLLECTIVE_KINDS, busbw_factor
from testbed.workload.metrics.flows import SlowdownBin, fct_slowdowns, slowdown_by_size
from testbed.workload.metrics.statistics import (
    RunSummary,
    coefficient_of_variation,
    jain_index,
    max_mean_ratio,
    percentile,
    summarise_metrics,
    summarise_runs,
    weighted_percentile,
)
