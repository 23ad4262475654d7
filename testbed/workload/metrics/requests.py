"""Metrics of requests for inference, by the names that `vllm bench serve` gives them; its times are in ms, ours in s.

Latencies count from the time at which a request was due, whenever its client came to send it. Only requests that were
answered count, as there. What their servers were to compute is known, so that each time stands twice: as it was
measured, and less that (`..._network`): what sending, queues and losses have added, and this machine with them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import partial

from testbed.base.metric import Better, Compute, MetricFamily, MetricUnit, RunSamples
from testbed.workload.metrics.run_samples import RequestCounts, RequestTimes
from testbed.workload.metrics.sources import PERCENTILE_RULE
from testbed.workload.metrics.statistics import percentile

REQUESTS = MetricFamily()
_SOURCE = "vLLM, vllm/benchmarks/serve.py"
_Statistic = Callable[[Sequence[float]], float | None]


def request_time(measured_s: Sequence[float], statistic: _Statistic) -> float | None:
    """A statistic of times, s; None without any."""
    if any(took < 0 for took in measured_s):
        raise ValueError("a time is negative")
    return statistic(measured_s) if measured_s else None


def network_time(measured_s: Sequence[float], service_s: Sequence[float], statistic: _Statistic) -> float | None:
    """A statistic of times less those that a server was to compute, s; None without any.

    Single differences may be negative: a token that was held up comes closer to the next one.
    """
    if len(measured_s) != len(service_s):
        raise ValueError(f"{len(measured_s)} times against {len(service_s)} of servers")
    differences = [took - service for took, service in zip(measured_s, service_s, strict=True)]
    return statistic(differences) if differences else None


def _median(samples: Sequence[float]) -> float | None:
    return percentile(samples, 0.5)


def _p99(samples: Sequence[float]) -> float | None:
    return percentile(samples, 0.99)


_STATISTICS: tuple[tuple[str, str, _Statistic, str], ...] = (
    ("mean", "mean", statistics.fmean, "mean"),
    ("median", "median", _median, "0.50 percentile"),
    ("p99", "P99", _p99, "0.99 percentile"),
)
_TIMES: tuple[tuple[str, str, str], ...] = (
    ("ttft", "TTFT", "over requests of the time from when it was due to the arrival of its first token"),
    ("tpot", "TPOT", "over requests of more than one token of (last token - first token) / (tokens - 1)"),
    ("itl", "ITL", "over all tokens but each request's first of the time since the one before"),
    ("e2el", "E2EL", "over requests of the time from when it was due to the arrival of its last token"),
)
_HEADLINES = frozenset({"median_ttft", "p99_ttft", "p99_tpot", "p99_ttft_network", "p99_itl_network"})


_VARIANTS: tuple[tuple[str, str, str, tuple[str, ...], Compute], ...] = (
    ("", "", "", ("",), request_time),
    ("_network", ", network's share", ", less what the server was to compute in it", ("", "service_"), network_time),
)
"""Additions to a name, a title and a formula, the samples that are taken, and what computes the metric."""


def _measured(run: RunSamples, time: str, prefixes: Sequence[str]) -> tuple[Sequence[float], ...]:
    return tuple(getattr(run[RequestTimes], f"{prefix}{time}_s") for prefix in prefixes)


for _time, _title, _what in _TIMES:
    for _suffix, _of_title, _less, _prefixes, _compute in _VARIANTS:
        for _word, _words, _statistic, _formula in _STATISTICS:
            REQUESTS.metric(
                name=f"{_word}_{_time}{_suffix}",
                title=f"{_title} {_words}{_of_title}",
                unit=MetricUnit.SECONDS,
                better=Better.LESS,
                headline=f"{_word}_{_time}{_suffix}" in _HEADLINES,
                formula=f"{_formula} {_what}{_less}",
                source=f"{_SOURCE}; {PERCENTILE_RULE}",
                takes=partial(_measured, time=_time, prefixes=_prefixes),
            )(partial(_compute, statistic=_statistic))


@REQUESTS.metric(
    name="request_throughput",
    title="Requests per second",
    unit=MetricUnit.COUNT,
    better=Better.MORE,
    headline=True,
    formula="requests that were answered / time from the first request's due time to the last token",
    source=_SOURCE,
    takes=lambda run: (run[RequestCounts].answered, run[RequestCounts].elapsed_s),
)
def per_second(count: int, elapsed_s: float) -> float | None:
    """Return how many there were in each second; None for no time."""
    if count < 0:
        raise ValueError("a count is negative")
    return count / elapsed_s if elapsed_s > 0 else None


REQUESTS.metric(
    name="output_throughput",
    title="Output tokens per second",
    unit=MetricUnit.COUNT,
    better=Better.MORE,
    headline=True,
    formula="tokens of answered requests / time from the first request's due time to the last token",
    source=_SOURCE,
    takes=lambda run: (run[RequestCounts].output_tokens, run[RequestCounts].elapsed_s),
)(per_second)
REQUESTS.metric(
    name="request_goodput",
    title="Requests per second within TTFT and TPOT limits",
    unit=MetricUnit.COUNT,
    better=Better.MORE,
    headline=True,
    formula="requests whose TTFT and TPOT were within the workload's ttft_limit and tpot_limit / time from the"
    " first request's due time to the last token",
    source=f"{_SOURCE} (--goodput); Zhong et al., DistServe, OSDI 2024",
    takes=lambda run: (run[RequestCounts].within_limits, run[RequestCounts].elapsed_s),
)(per_second)


@REQUESTS.metric(
    name="request_goodput_share",
    title="Requests within TTFT and TPOT limits",
    unit=MetricUnit.SHARE,
    better=Better.MORE,
    ideal=1.0,
    formula="requests whose TTFT and TPOT were within the workload's limits / requests answered or failed",
    source="MLPerf Inference rules, which bound both at P99",
    takes=lambda run: (run[RequestCounts].within_limits, run[RequestCounts].answered + run[RequestCounts].failed),
)
def goodput_ratio(within_limits: int, requests: int) -> float | None:
    """The share of requests that kept their limits; None without any."""
    if not 0 <= within_limits <= requests:
        raise ValueError(f"{within_limits} of {requests} requests kept their limits")
    return within_limits / requests if requests else None


@REQUESTS.metric(
    title="Failed requests",
    unit=MetricUnit.COUNT,
    better=Better.LESS,
    headline=True,
    ideal=0.0,
    formula="requests that could not connect, whose connection broke, or whose answer was not what it should be",
    source=_SOURCE,
    takes=lambda run: (run[RequestCounts].failed,),
)
def failed_requests(failed: int) -> float:
    """Return how many requests failed."""
    if failed < 0:
        raise ValueError("a count is negative")
    return float(failed)
