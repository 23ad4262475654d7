"""Metrics of a workload: definitions one can print, and the pure functions that compute them."""

from testbed.workload.metrics.catalogue import CATALOGUE
from testbed.workload.metrics.collectives import COLLECTIVE_KINDS, busbw_factor
from testbed.workload.metrics.definition import Better, MetricDefinition, MetricUnit
from testbed.workload.metrics.flows import SlowdownBin, fct_slowdowns, slowdown_by_size
from testbed.workload.metrics.links import pause_intervals
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

__all__ = [
    "CATALOGUE",
    "COLLECTIVE_KINDS",
    "Better",
    "MetricDefinition",
    "MetricUnit",
    "RunSummary",
    "SlowdownBin",
    "busbw_factor",
    "coefficient_of_variation",
    "fct_slowdowns",
    "jain_index",
    "max_mean_ratio",
    "pause_intervals",
    "percentile",
    "slowdown_by_size",
    "summarise_metrics",
    "summarise_runs",
    "weighted_percentile",
]
