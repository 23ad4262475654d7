"""Metrics of a workload: each is one object with its words and the pure functions that compute it."""

from testbed.workload.metrics.catalogue import (
    BY_TENANT,
    CATALOGUE,
    Selection,
    binding_limits,
    definition_of,
    measure_metrics,
    require_metric,
    selected_words,
)
from testbed.workload.metrics.collectives import COLLECTIVE_KINDS, busbw_factor
from testbed.workload.metrics.flows import SlowdownBin, fct_slowdowns, slowdown_by_size
from testbed.workload.metrics.metric import Better, Metric, MetricFamily, MetricUnit
from testbed.workload.metrics.run_samples import NotMeasured, RunSamples
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
