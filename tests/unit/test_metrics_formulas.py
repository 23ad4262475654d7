"""The formulas: efficiency, Jain, max/mean, ideals, summaries."""

from __future__ import annotations

import pytest

from testbed.collect.cpu import CpuUse
from testbed.model.metrics import METRICS
from testbed.model.scenario import Scope
from testbed.results import FlowEnd, FlowResult, RunResult, Samples, UplinkLoad
from testbed.scenario.fake_lab import small_lab
from testbed.scenario.metrics import (
    compute_metrics,
    ideal_goodput_bps,
    ideal_metrics,
    jain_index,
    max_mean_ratio,
    payload_efficiency,
    summarise_metrics,
)
from testbed.scenario.permutation import plan_permutation

IDLE = CpuUse(busy=0.25, steal=0.01, softirq=0.1)


def flow(number: int, share: float, *, retransmits: int = 0) -> FlowResult:
    end = FlowEnd(node="h", interface="rail1", address="10.0.0.1")
    return FlowResult(
        id=number,
        source=end,
        destination=end,
        rail=1,
        source_port=20000,
        destination_port=5201,
        ideal_bps=100e6,
        sent_bytes=4_448_000,
        received_bytes=4_448_000,
        seconds=1.0,
        goodput_bps=share * 100e6,
        share=share,
        retransmits=retransmits,
        mss_bytes=4448,
        congestion="cubic",
        started_s=0.0,
        samples=Samples(start_s=[], seconds=[], bytes=[], retransmits=[], cwnd_bytes=[], rtt_us=[]),
    )


def uplink(switch: str, number: int, tx_bytes: int) -> UplinkLoad:
    return UplinkLoad(
        switch=switch,
        interface=f"uplink{number}",
        peer=f"p1-spine{number}:down1",
        rate_bps=400_000_000,
        tx_bytes=tx_bytes,
        tx_dropped=0,
        utilisation=0.5,
    )


def test_payload_efficiency_is_that_of_a_full_segment() -> None:
    assert payload_efficiency(4500) == pytest.approx(4448 / 4514)
    assert payload_efficiency(1500) == pytest.approx(1448 / 1514)


def test_ideal_is_the_scaled_nic_rate_times_the_efficiency() -> None:
    lab, plan = small_lab(k=1000)
    transfer = plan_permutation(lab, plan, scope=Scope.INTER_SEGMENT, seed=1)[0]
    assert ideal_goodput_bps(transfer) == pytest.approx(400e6 * 4448 / 4514)


def test_jain_index() -> None:
    assert jain_index([5, 5, 5]) == pytest.approx(1)
    assert jain_index([1, 0, 0, 0]) == pytest.approx(0.25)
    assert jain_index([1.0, 0.5]) == pytest.approx(2.25 / (2 * 1.25))
    assert jain_index([0, 0]) is None
    assert jain_index([]) is None


def test_max_mean_ratio() -> None:
    assert max_mean_ratio([3, 1]) == pytest.approx(1.5)
    assert max_mean_ratio([0, 0]) is None
    assert max_mean_ratio([]) is None


def test_metrics_of_a_run() -> None:
    loads = [uplink("a", 1, 300), uplink("a", 2, 100), uplink("b", 1, 200), uplink("b", 2, 200)]
    metrics = compute_metrics([flow(1, 1.0), flow(2, 0.5, retransmits=20)], loads, IDLE)
    assert list(metrics) == list(METRICS)
    assert metrics["aggregate_share"] == pytest.approx(0.75)
    assert metrics["slowest_share"] == pytest.approx(0.5)
    assert metrics["jain_flows"] == pytest.approx(0.9)
    assert metrics["mmr_uplinks"] == pytest.approx(1.5)
    assert metrics["mmr_worst_switch"] == pytest.approx(1.5)
    assert metrics["retransmits"] == 20
    assert metrics["retransmit_ratio"] == pytest.approx(20 / 2000)
    assert metrics["cpu_busy"] == 0.25


def test_nothing_measured_is_none_not_zero() -> None:
    metrics = compute_metrics([], [], IDLE)
    assert {name for name, value in metrics.items() if value is not None} == {"cpu_busy", "cpu_steal"}


def test_ideal_uplink_load_places_whole_flows() -> None:
    lab, plan = small_lab(hosts=2, rails=2, spines=4)
    transfers = plan_permutation(lab, plan, scope=Scope.INTER_SEGMENT, seed=1)
    switches = {f"p1-s{segment}-rail{rail}": 4 for segment in (1, 2) for rail in (1, 2)}
    ideals = ideal_metrics(transfers, switches)
    # two flows leave each switch by four uplinks: at best 1, 1, 0, 0
    assert ideals["mmr_uplinks"] == pytest.approx(2)
    assert ideals["mmr_worst_switch"] == pytest.approx(2)
    assert ideals["jain_links"] == pytest.approx(0.5)
    assert ideals["aggregate_goodput"] == pytest.approx(8 * 400e6 * 4448 / 4514)


def test_flows_that_stay_below_the_spines_load_no_uplink() -> None:
    lab, plan = small_lab(segments=1, hosts=4, rails=1)
    transfers = plan_permutation(lab, plan, scope=Scope.ANY, seed=1)
    assert "mmr_uplinks" not in ideal_metrics(transfers, {"p1-s1-rail1": 4})


def test_summary_over_runs() -> None:
    def run(index: int, value: float | None) -> RunResult:
        return RunResult(
            index=index,
            seed=index,
            started="",
            elapsed_s=1.0,
            flows=[],
            uplinks=[],
            metrics={"aggregate_share": value},
            checks=[],
        )

    (summary,) = summarise_metrics([run(1, 0.8), run(2, 1.0), run(3, None)], {"aggregate_share": 1.0})
    assert summary.median == pytest.approx(0.9)
    assert (summary.minimum, summary.maximum) == (0.8, 1.0)
    assert summary.cv == pytest.approx(0.1414 / 0.9, rel=1e-3)
    assert summary.values == [0.8, 1.0, None]
    (single,) = summarise_metrics([run(1, 0.8)], {})
    assert single.cv is None and single.ideal is None
