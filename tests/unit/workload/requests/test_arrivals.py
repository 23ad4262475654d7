"""Arrivals and lengths of requests: their statistics are those of their laws."""

import math
import random
import statistics
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from testbed.base.errors import WorkloadError
from testbed.base.units import ByteCount, Duration
from testbed.workload.draws import draw_gamma, draw_lognormal, draw_normal
from testbed.workload.kinds.kind import FabricView
from testbed.workload.registry import build_workload
from testbed.workload.requests.token_lengths import LENGTH_PRESETS
from testbed.workload.steps import Workload
from testbed.workload.tenants import Tenant, mix_tenants

S = 10**9


def cv(samples: Sequence[float]) -> float:
    return statistics.pstdev(samples) / statistics.fmean(samples)


def build(ranks: int = 4, seed: int = 1, **written: Any) -> Workload:
    fabric = FabricView(ranks=ranks, rate_bps=10**9, bdp_bytes=10_000, rng=random.Random(seed))
    return build_workload("inference-requests", written, fabric)


def starts(seed: int, **written: Any) -> list[int]:
    return [one.start_ns for one in build(seed=seed, output_tokens=1, **written).requests]


def test_normal_draws() -> None:
    rng = random.Random(1)
    drawn = [draw_normal(rng) for _ in range(40_000)]
    assert statistics.fmean(drawn) == pytest.approx(0, abs=0.02)
    assert statistics.pstdev(drawn) == pytest.approx(1, abs=0.02)
    assert sum(abs(x) < 1.96 for x in drawn) / len(drawn) == pytest.approx(0.95, abs=0.005)


@pytest.mark.parametrize("shape", [0.0625, 0.25, 1.0, 4.0])
def test_gamma_draws_have_the_mean_and_variance_of_their_shape(shape: float) -> None:
    rng = random.Random(2)
    drawn = [draw_gamma(rng, shape=shape, mean=3.0) for _ in range(60_000)]
    assert statistics.fmean(drawn) == pytest.approx(3.0, rel=0.05)
    assert cv(drawn) == pytest.approx(1 / math.sqrt(shape), rel=0.05)
    assert min(drawn) >= 0


def test_a_gamma_distribution_of_shape_one_is_exponential() -> None:
    rng = random.Random(3)
    drawn = sorted(draw_gamma(rng, shape=1.0, mean=1.0) for _ in range(20_000))
    worst = max(abs(rank / len(drawn) - (1 - math.exp(-x))) for rank, x in enumerate(drawn, start=1))
    assert worst < 1.36 / math.sqrt(len(drawn)), "Kolmogorov and Smirnov, 5 %"


def test_lognormal_draws_have_the_median_and_the_mean() -> None:
    rng = random.Random(4)
    drawn = [draw_lognormal(rng, median=13, mean=28) for _ in range(60_000)]
    assert statistics.median(drawn) == pytest.approx(13, rel=0.03)
    assert statistics.fmean(drawn) == pytest.approx(28, rel=0.05)


def test_poisson_arrivals() -> None:
    found = starts(5, requests_per_s=200, span=Duration.parse("50s"))
    assert found == sorted(found) and found[-1] < 50 * S
    assert len(found) == pytest.approx(10_000, abs=3 * 100), "3 sigma"
    assert cv([b - a for a, b in pairwise(found)]) == pytest.approx(1, abs=0.03)
    windows = Counter(at // S for at in found)
    counts = [windows[second] for second in range(50)]
    assert statistics.variance(counts) / statistics.fmean(counts) == pytest.approx(1, abs=0.6), "index of dispersion"


@pytest.mark.parametrize("wanted", [0.5, 1.0, 4.0])
def test_gamma_arrivals_have_the_coefficient_of_variation(wanted: float) -> None:
    found = starts(6, arrivals="gamma", requests_per_s=500, cv=wanted, span=Duration.parse("200s"))
    gaps = [b - a for a, b in pairwise(found)]
    assert cv(gaps) == pytest.approx(wanted, rel=0.05)
    assert statistics.fmean(gaps) == pytest.approx(S / 500, rel=0.05)


def test_a_burst_has_ten_times_the_arrivals() -> None:
    bursts = {"burst_off": Duration.parse("40s"), "burst_on": Duration.parse("10s"), "burst_factor": 10}
    found = starts(7, arrivals="on-off", requests_per_s=50, span=Duration.parse("90s"), **bursts)
    inside = [at for at in found if 40 * S <= at < 50 * S]
    assert len(inside) == pytest.approx(5000, abs=3 * 71)
    assert len(found) - len(inside) == pytest.approx(4000, abs=3 * 64)


@pytest.mark.parametrize("name", ["azure-code", "azure-conversation"])
def test_presets_keep_median_and_mean_of_the_trace(name: str) -> None:
    rng = random.Random(8)
    preset = LENGTH_PRESETS[name]
    for drawn, wanted in (
        ([preset.prompt.draw(rng) for _ in range(30_000)], preset.prompt),
        ([preset.output.draw(rng) for _ in range(30_000)], preset.output),
    ):
        assert statistics.median(drawn) == pytest.approx(wanted.median, rel=0.05)
        assert statistics.fmean(drawn) == pytest.approx(wanted.mean, rel=0.05)
        assert min(drawn) >= 1


def test_the_tails_that_the_docstring_tells() -> None:
    for preset, p90, p99 in (
        (LENGTH_PRESETS["azure-code"].prompt, 4175, 9780),
        (LENGTH_PRESETS["azure-code"].output, 64, 232),
        (LENGTH_PRESETS["azure-conversation"].prompt, 1932, 3253),
        (LENGTH_PRESETS["azure-conversation"].output, 460, 1297),
    ):
        sigma = math.sqrt(2 * math.log(preset.mean / preset.median))
        assert preset.median * math.exp(1.2816 * sigma) == pytest.approx(p90, rel=0.01)
        assert preset.median * math.exp(2.3263 * sigma) == pytest.approx(p99, rel=0.01)


def test_requests_are_what_is_asked_for() -> None:
    workload = build(
        clients=(0, 1),
        servers=(2, 3),
        requests_per_s=500,
        span=Duration.parse("2s"),
        prompt_tokens=100,
        output_tokens=5,
        prefill=Duration.parse("3ms"),
        prefill_per_token=Duration.parse("10us"),
        tpot=Duration.parse("2ms"),
        chunk_bytes=ByteCount(90),
    )
    assert not workload.steps
    assert 850 < len(workload.requests) < 1150
    assert [one.server for one in workload.requests[:4]] == [2, 3, 2, 3], "in turn"
    share = sum(one.client for one in workload.requests) / len(workload.requests)
    assert share == pytest.approx(0.5, abs=0.06)
    first = workload.requests[0]
    assert (first.prompt_tokens, first.output_tokens, first.chunk_bytes) == (100, 5, 90)
    assert first.request_bytes == 4 * 100 + 200
    assert (first.prefill_ns, first.tpot_ns) == (4_000_000, 2_000_000)
    assert build(seed=7) == build(seed=7) != build(seed=8)


def test_by_default_half_of_all_ranks_ask_the_others() -> None:
    requests = build(ranks=5).requests
    assert {one.client for one in requests} == {0, 1}
    assert {one.server for one in requests} == {2, 3, 4}
    named = build(ranks=4, servers=(0,), clients=2).requests
    assert {one.client for one in named} == {1, 2} and {one.server for one in named} == {0}
    drawn = Counter(one.server for one in build(balance="random", requests_per_s=1000).requests)
    assert set(drawn) == {2, 3} and min(drawn.values()) > 4500


@pytest.mark.parametrize(
    ("written", "field", "message"),
    [
        ({"clients": (0,), "servers": (0, 1)}, "servers", "different ranks"),
        ({"clients": 4}, "servers", "one of each"),
        ({"clients": 5}, "clients", "there are 4"),
        ({"clients": (0, 0), "servers": (1,)}, "clients", "twice"),
        ({"clients": (9,)}, "clients", "4 ranks"),
        ({"arrivals": "trace"}, "trace", "need a file"),
        ({"lengths": "trace"}, "trace", "need a file"),
        ({"trace": "x.csv"}, "trace", "used for nothing"),
        ({"requests_per_s": 1e6}, "span", "more than 200000 requests"),
        ({"output_tokens": 100_000}, "span", "2000000 tokens"),
        ({"span": Duration.parse("1ns")}, "span", "no request arrives"),
        ({"chunk_bytes": ByteCount(70_000)}, "chunk_bytes", "at most 65536 bytes"),
        ({"arrivals": "gama"}, "arrivals", "no arrivals is called 'gama'"),
    ],
)
def test_what_cannot_be(written: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=message) as refused:
        build(**written)
    assert refused.value.field == field


def test_requests_of_tenants_stand_in_the_order_of_their_begins() -> None:
    workload = build(ranks=2, requests_per_s=50)
    tenants = [
        Tenant(name="a", workload=workload, ranks=(0, 2)),
        Tenant(name="b", workload=workload, ranks=(3, 1), start_ns=S),
    ]
    mixed = mix_tenants(tenants, ranks=4)
    starts = [one.start_ns for one in mixed.requests]
    assert starts == sorted(starts)
    assert len(starts) == 2 * len(workload.requests)
    assert {(one.client, one.server) for one in mixed.requests} == {(0, 2), (3, 1)}
    first = next(one for one in mixed.requests if one.client == 3)
    assert first.start_ns == workload.requests[0].start_ns + S
