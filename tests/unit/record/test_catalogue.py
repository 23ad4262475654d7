"""The catalogue: every metric is defined once, computable, agrees with those of the first scenario, and prints."""

import json

import pytest

from testbed.base.errors import TestbedError
from testbed.base.metric import Better, MetricFamily, MetricUnit, NotMeasured, RunSamples
from testbed.cli.scenarios.metrics import metrics
from testbed.record.catalogue import (
    BY_TENANT,
    CATALOGUE,
    FAMILIES,
    Selection,
    definition_of,
    measure_metrics,
    selected_words,
)
from testbed.workload.metrics.run_samples import FlowTimes, JobTime, MarkedPackets

TIMES = ("ttft", "tpot", "itl", "e2el")
WORDS = ("mean", "median", "p99")
CASES: dict[str, tuple[dict[str, object], float]] = {
    "algbw": ({"size_bytes": 1e9, "time_s": 0.5}, 2e9),
    "busbw": ({"kind": "all_reduce", "ranks": 8, "size_bytes": 1e9, "time_s": 0.5}, 3.5e9),
    "busbw_share": ({"kind": "all_reduce", "ranks": 8, "size_bytes": 1e9, "time_s": 0.5, "rate_bps": 56e9}, 0.5),
    "jct": ({"start_s": [0.0, 0.1], "end_s": [2.0, 2.5]}, 2.5),
    "jct_ratio": ({"jct_s": 2.5, "roofline_s": 2.0}, 1.25),
    "step_p99": ({"step_s": [1.0, 2.0, 3.0]}, 3.0),
    "overlap_fraction": ({"jct_s": 1.5, "compute_s": 1.0, "communication_s": 2.0}, 0.75),
    "interference": ({"contended_s": 3.0, "alone_s": 2.0}, 1.5),
    "failure_overhead": ({"failure_jct_s": 3.0, "steady_jct_s": [1.0, 1.0, 2.0]}, 2.0),
    "s_fabric": ({"payload_bytes": 100}, 100),
    "nic_peers": ({"peers": [3, 12, 1]}, 12),
    "wrong": ({"wrong_elements": [0, 2, 1]}, 3),
    "program_step_p50": ({"step_s": [0.3, 0.1, 0.2]}, 0.2),
    "program_step_p99": ({"step_s": [0.3, 0.1, 0.2]}, 0.3),
    "program_ratio": ({"step_s": [0.3, 0.1, 0.2], "ideal_s": 0.16}, 1.25),
    "program_bytes": ({"sent_bytes": 1000.0}, 1000),
    "program_exit": ({"code": 137}, 137),
    "aggregate_share": ({"goodput_bps": [50.0, 100.0], "ideal_bps": [100.0, 100.0]}, 0.75),
    "slowest_share": ({"goodput_bps": [50.0, 100.0], "ideal_bps": [100.0, 100.0]}, 0.5),
    "goodput_share": ({"ideal_s": 1.0, "time_s": 2.0}, 0.5),
    "aggregate_goodput": ({"goodput_bps": [50.0, 100.0]}, 150),
    "jain_flows": ({"goodput_bps": [1.0, 3.0]}, 0.8),
    "fct_slowdown_p50": ({"fct_s": [2.0, 0.5, 9.0], "standalone_s": [1.0, 1.0, 3.0]}, 2.0),
    "fct_slowdown_p95": ({"fct_s": [2.0, 0.5, 9.0], "standalone_s": [1.0, 1.0, 3.0]}, 3.0),
    "fct_slowdown_p99": ({"fct_s": [2.0, 0.5, 9.0], "standalone_s": [1.0, 1.0, 3.0]}, 3.0),
    "tail_fct": ({"fct_s": [2.0, 0.5, 9.0]}, 9.0),
    "tail_fct_ratio": ({"fct_s": [2.0, 0.5, 9.0], "ideal_s": 6.0}, 1.5),
    "fct_spread": ({"fct_s": [2.0, 0.5, 9.0]}, 18),
    "rdma_message_rate": ({"messages": [10, 30, 7], "time_s": [1.0, 2.0, 0.0]}, 25.0),
    "retransmits": ({"retransmitted_packets": [3, 4]}, 7),
    "retransmit_ratio": ({"retransmitted_packets": 7, "new_packets": 100}, 0.07),
    "spurious_retransmit_share": ({"spurious_packets": 1, "retransmitted_packets": 4}, 0.25),
    "victim_ratio": ({"victim_bps": 25.0, "alone_bps": 100.0}, 0.25),
    "victim_share": ({"goodputs_bps": [10.0, 45.0], "ideals_bps": [40.0, 50.0]}, 0.25),
    "rdma_latency_min": ({"latency_s": [0.3, 0.1, 0.2, 9.0]}, 0.1),
    "rdma_latency_p50": ({"latency_s": [0.3, 0.1, 0.2, 9.0]}, 0.2),
    "rdma_latency_p99": ({"latency_s": [*(n / 1000 for n in range(1000, 0, -1))]}, 0.99),
    "rdma_latency_p99_9": ({"latency_s": [*(n / 1000 for n in range(1000, 0, -1))]}, 0.999),
    "rdma_latency_max": ({"latency_s": [0.3, 0.1, 0.2, 9.0]}, 9.0),
    "rdma_latency_ratio": ({"latency_s": [0.2, 0.6, 0.9], "ideal_s": [0.1, 0.2, 0.9]}, 2.0),
    **{
        f"{word}_{time}{share}": (samples, value)
        for time in TIMES
        for share, samples, values in (
            ("", {"measured_s": [0.3, 0.1, 0.2, 0.6]}, (0.3, 0.2, 0.6)),
            ("_network", {"measured_s": [0.3, 0.1, 0.2, 0.6], "service_s": [0.2, 0.2, 0.1, 0.1]}, (0.15, 0.1, 0.5)),
        )
        for word, value in zip(WORDS, values, strict=True)
    },
    "request_throughput": ({"count": 30, "elapsed_s": 4.0}, 7.5),
    "output_throughput": ({"count": 100, "elapsed_s": 4.0}, 25.0),
    "request_goodput": ({"count": 10, "elapsed_s": 4.0}, 2.5),
    "request_goodput_share": ({"within_limits": 9, "requests": 10}, 0.9),
    "failed_requests": ({"failed": 2}, 2),
    "accelerator_utilisation": ({"batch_start_s": [[5, 6, 8], [5, 9]], "batch_end_s": [[6, 7, 10], [6, 10]]}, 0.5),
    "min_accelerator_utilisation": ({"batch_start_s": [[5, 6, 8], [5, 9]], "batch_end_s": [[6, 7, 10], [6, 10]]}, 0.25),
    "iops": ({"ios": [30.0, 10.0], "elapsed_s": 4.0}, 10.0),
    "io_bandwidth": ({"io_bytes": [3000.0, 1000.0], "elapsed_s": 4.0}, 1000.0),
    "io_bandwidth_min": ({"job_bytes_per_s": [900.0, 400.0]}, 400.0),
    "io_latency_p50": ({"job_latency_s": [3.0, 1.0, 2.0]}, 2.0),
    "io_latency_p99": ({"job_latency_s": [3.0, 1.0, 2.0]}, 3.0),
    "mmr_uplinks": ({"load_bytes": [4, 2, 2, 0]}, 2.0),
    "mmr_worst_switch": ({"load_bytes_by_switch": {"a": [1, 1], "b": [3, 1], "c": [0, 0]}}, 1.5),
    "jain_links": ({"load_bytes": [1, 3]}, 0.8),
    "link_utilisation": ({"utilisation": [0.5, 0.25]}, 0.5),
    "link_imbalance": ({"utilisation": [0.2, 0.4, 0.6]}, 1.0),
    "uplink_share": ({"load_bytes": [30, 50], "fabric_bytes": 100}, 0.8),
    "link_deviation": ({"utilisation": [0.25, 0.75]}, 0.5),
    "ecn_mark_ratio": ({"marked_packets": 5, "ect_packets": 20}, 0.25),
    "marking_error": (
        {"curves": [MarkedPackets(packets=[1000, 1000, 10], marked=[0, 130, 10], ideal=[0.0, 0.1, 0.5])]},
        0.03,
    ),
    "pause_frames": ({"value": 2}, 2),
    "pause_time": ({"value": 2.5}, 2.5),
    "pause_fraction": ({"paused_s": 1.0, "elapsed_s": 4.0}, 0.25),
    "queue_p50": ({"depth_bytes": [100, 300, 200]}, 200),
    "queue_p99": ({"depth_bytes": [100, 300, 200], "weights": [1.0, 0.001, 1.0]}, 200),
    "queue_max": ({"value": 300}, 300),
    "effective_paths": ({"path_bytes_by_switch": [[7, 7, 7, 0]]}, 3.0),
    "paths_used": ({"path_bytes_by_switch": [[7, 1, 7, 0], [1, 0, 1, 1]]}, 0.75),
    "drops": ({"value": 7}, 7),
    "trims": ({"value": 5}, 5),
    "network_entered": ({"value": 150}, 150),
    "network_delivered": ({"value": 140}, 140),
    "network_utilisation": ({"value": 0.5}, 0.5),
    "network_peak_utilisation": ({"value": 0.9}, 0.9),
    "network_busiest_utilisation": ({"value": 0.5}, 0.5),
    "network_queue_max": ({"value": 300}, 300),
    "network_drops": ({"value": 7}, 7),
    "network_guarded": ({"value": 11}, 11),
    "network_ce_packets": ({"value": 5}, 5),
    "network_pause_frames": ({"value": 3}, 3),
    "scale_up_drops": ({"value": 7}, 7),
    "scale_up_drop_share": ({"part": 1, "whole": 4}, 0.25),
    "scale_up_wire_losses": ({"value": 7}, 7),
    "scale_up_payload_share": ({"part": 1, "whole": 4}, 0.25),
    "scale_up_retries": ({"value": 7}, 7),
    "scale_up_retry_share": ({"part": 1, "whole": 4}, 0.25),
    "scale_up_pauses": ({"value": 7}, 7),
    "scale_up_leaked": ({"value": 7}, 7),
    "scale_up_wait_share": ({"value": 1.5}, 1.5),
    "scale_up_buffer_peak": ({"value": 1.5}, 1.5),
    "scale_up_buffer_share": ({"value": 1.5}, 1.5),
    "scale_up_pool_bytes": ({"value": 7}, 7),
    "scale_up_failed_share": ({"part": 1, "whole": 4}, 0.25),
    "scale_up_latency_p50": ({"value": 1.5}, 1.5),
    "scale_up_latency_p999": ({"value": 1.5}, 1.5),
    "scale_up_progress": ({"value": 1.5}, 1.5),
    "scale_up_stall": ({"value": 1.5}, 1.5),
    "scale_up_deadlocked": ({"value": 1.5}, 1.5),
    "scale_up_plane_min": ({"plane_bytes": [10, 20, 30]}, 0.5),
    "scale_up_plane_max": ({"plane_bytes": [10, 20, 30]}, 1.5),
    "scale_up_floor_share": ({"value": 1.5}, 1.5),
    "ib_wait_share": ({"value": 0.5}, 0.5),
    "ib_discards": ({"value": 7}, 7),
    "ib_lost": ({"value": 7}, 7),
    "ib_marked": ({"value": 7}, 7),
    "ib_deadlocked": ({"value": 1}, 1),
    "reordered_ratio": ({"late": 1, "packets": 4}, 0.25),
    "reordering_extent": ({"sequence": [1, 4, 3, 2]}, 2),
    "reordering_distance": ({"sequence": [1, 9, 2]}, 7),
    "reorder_buffer": ({"sequence": [2, 1], "sizes_bytes": [10, 10]}, 10),
    "convergence_time": (
        {"time_s": [1, 2, 3, 4, 5], "flow_bps": [[0, 95, 99, 100, 100]], "fair_bps": [100], "event_s": 1},
        1,
    ),
    "blackhole_time_rate": ({"time_s": [1, 2, 3, 4, 5], "rate_bps": [10, 10, 0, 5, 10], "event_s": 2}, 2),
    "blackhole_time_loss": ({"lost_packets": 900, "offered_packets_per_s": 1000}, 0.9),
    "streams_hit": ({"lost_packets": [20, 0, 10, 9]}, 0.5),
    "recovery_time": ({"time_s": [1, 2, 3, 4, 5, 6, 7], "rate_bps": [10, 10, 0, 5, 10, 10, 10], "event_s": 2}, 3),
    "dip_depth": ({"time_s": [1, 2, 3], "rate_bps": [10, 10, 4], "event_s": 2}, 0.6),
    "fault_rate_loss": (
        {"time_s": [1, 2, 3, 4, 5, 6], "rate_bps": [10, 10, 6, 8, 0, 10], "event_s": 2, "undone_s": 5.5},
        0.4,
    ),
    "redistribution_time": ({"time_s": [1, 2, 3, 4, 5], "mmr": [1, 2, 1.1, 1, 1], "event_s": 1, "ideal": 1.0}, 2),
    "detection_time": ({"event_s": 1.0, "detected_s": [0.5, 1.9, 3.0]}, 0.9),
    "cpu_busy": ({"value": 0.25}, 0.25),
    "cpu_steal": ({"value": 0.25}, 0.25),
}
"""The samples of each metric, and what it is of them."""


def test_no_two_metrics_have_one_name() -> None:
    assert len(CATALOGUE) == sum(len(list(family)) for family in FAMILIES)
    family = MetricFamily()
    declare = family.metric("jct", title="", unit=MetricUnit.SECONDS, better=Better.LESS, formula="", source="")
    declare(abs)
    with pytest.raises(ValueError, match="two metrics jct"):
        declare(abs)


def test_a_run_has_the_metrics_that_it_has_samples_for() -> None:
    found = measure_metrics(RunSamples(FlowTimes(fct_s=[1.0, 3.0], standalone_s=[1.0, 2.0])))
    assert found == {
        "fct_slowdown_p50": 1.0,
        "fct_slowdown_p95": 1.5,
        "fct_slowdown_p99": 1.5,
        "tail_fct": 3.0,
        "fct_spread": 3.0,
    }
    with pytest.raises(NotMeasured, match="JobTime"):
        RunSamples()[JobTime]


def test_every_metric_has_a_case() -> None:
    assert list(CASES) == list(CATALOGUE)


@pytest.mark.parametrize("name", CATALOGUE)
def test_it_computes_what_its_formula_says(name: str) -> None:
    samples, expected = CASES[name]
    assert CATALOGUE[name].compute(**samples) == pytest.approx(expected)


@pytest.mark.parametrize("name", CATALOGUE)
def test_its_definition_is_whole(name: str) -> None:
    metric = CATALOGUE[name]
    assert metric.name == name
    assert metric.title and metric.formula and metric.source
    assert set(CASES[name][0]) <= set(metric.samples)
    assert isinstance(metric.unit, MetricUnit) and isinstance(metric.better, Better)


def test_the_verb_prints_all_and_one(capsys: pytest.CaptureFixture[str]) -> None:
    metrics.main(["-f", "json"], standalone_mode=False)
    document = json.loads(capsys.readouterr().out)
    assert [entry["name"] for entry in document] == list(CATALOGUE)
    metrics.main(["busbw", "-f", "table"], standalone_mode=False)
    shown = capsys.readouterr().out
    assert "2(n-1)/n" in shown and "byte/s" in shown and "nccl-tests" in shown
    metrics.main(["jct", "-f", "json"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out)["samples"] == ["start_s", "end_s"]
    metrics.main(["jct", "-f", "csv"], standalone_mode=False)
    assert capsys.readouterr().out.splitlines()[0] == "name,unit,better,formula,source"


def test_a_name_says_whose_the_metric_is() -> None:
    name = Selection(network="frontend", tenant="red").name("network_drops")
    assert name == "network_drops[network=frontend tenant=red]"
    assert definition_of(name) is CATALOGUE["network_drops"]
    assert selected_words(name) == "network=frontend tenant=red"
    assert Selection().name("jct") == "jct" and definition_of("jct") is CATALOGUE["jct"]
    assert selected_words("jct") == ""
    assert definition_of("jct[tenant=a] over that of bytes=4KB") is None, "a ratio has no unit"


def test_what_all_share_is_of_no_tenant() -> None:
    assert {"jct", "busbw", "p99_ttft", "tail_fct", "iops", "recovery_time"} <= BY_TENANT
    assert not {"queue_p99", "drops", "cpu_busy", "network_drops"} & BY_TENANT


def test_an_unknown_metric_is_an_error_with_those_meant() -> None:
    with pytest.raises(TestbedError) as caught:
        metrics.main(["tail_ratio", "-f", "table"], standalone_mode=False)
    assert "tail_fct_ratio" in (caught.value.hint or "")
