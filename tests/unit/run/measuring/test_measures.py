"""From samples of a run to its metrics."""

from dataclasses import replace
from typing import Any

import pytest
import run_rows
from run_rows import transfers

from testbed.record.samples import Channel, ChannelSamples, CollectiveResult, PortLoad, RunEvent, Transfers
from testbed.run.machine.cpu import CpuUse
from testbed.run.measuring.flow_rates import common_span, first_done_after, goodput_curve, rates_together
from testbed.run.measuring.measured import Measured
from testbed.run.measuring.measures import RunData, compute_metrics
from testbed.run.measuring.observation import Observation
from testbed.workload.steps import READ_REQUEST_BYTES


def channel(index: int, samples: list[tuple[float, int]], **changes: Any) -> Channel:
    last_s, last = samples[-1]
    table = ChannelSamples(at_s=[at for at, _ in samples], acked_bytes=[acked for _, acked in samples])
    values = {"source": f"a{index}", "destination": f"b{index}", "samples": table, "packets": 100}
    rates = {"ideal_bps": 8e6, "goodput_bps": 8 * last / last_s}
    return run_rows.channel(source_rank=index, **(values | rates | changes))


FAST = channel(0, [(0.5, 500_000), (1.0, 1_000_000)])
SLOW = channel(1, [(1.0, 500_000), (1.5, 1_000_000)])
"""Half as fast until the other one has ended."""
BOTH = transfers((0.0, 1.0), (0.0, 1.5))


def data(**changes: object) -> RunData:
    observation = Observation(elapsed_s=1.5, cpu=CpuUse(busy=0.25, steal=0.0, softirq=0.0))
    values = {"transfers": BOTH, "channels": [FAST, SLOW], "observation": observation, "nic_bps": 8e6} | changes
    of_run = {name: values.pop(name) for name in Measured.__dataclass_fields__.keys() - {"ports"} if name in values}
    return RunData(measured=Measured(**of_run), **values)  # type: ignore[arg-type]


def until(*end_s: float) -> Transfers:
    """A transfer on each channel from the beginning until then."""
    return transfers(*((0.0, at_s) for at_s in end_s))


def test_rates_are_those_while_all_send() -> None:
    assert common_span([FAST, SLOW], BOTH) == (0.0, 1.0)
    assert rates_together([FAST, SLOW], BOTH) == [pytest.approx(8e6), pytest.approx(4e6)]


def test_what_was_sent_is_acknowledged_a_round_trip_later() -> None:
    """1 MB/s for 1 s, in which the way takes 0.1 s: nothing is acknowledged in the first 0.2 s."""
    late = channel(0, [(0.2, 0), (0.6, 400_000), (1.0, 800_000), (1.1, 900_000)], min_rtt_us=200_000.0)
    assert rates_together([late], until(1.0)) == [pytest.approx(8e6)]


def test_requests_for_reads_are_no_flows_beside_them() -> None:
    """72 bytes that ask for a megabyte had a share of the link that nobody would call one: 0.02 % as measured."""
    asking = channel(1, [(0.001, 72)])
    rows = replace(until(1.0, 0.001), size_bytes=[1_000_000, READ_REQUEST_BYTES])
    found = compute_metrics(data(transfers=rows, channels=[FAST, asking]))
    alone = compute_metrics(data(transfers=until(1.0), channels=[FAST]))
    for metric in ("aggregate_share", "slowest_share", "jain_flows"):
        assert found[metric] == alone[metric] == pytest.approx(1.0)


def test_flows_that_never_met_have_their_own_rates() -> None:
    apart = transfers((0.0, 1.0), (1.0, 2.5))
    assert common_span([FAST, SLOW], apart) is None
    assert rates_together([FAST, SLOW], apart) == [FAST.goodput_bps, SLOW.goodput_bps]


def test_a_job_lasts_until_the_last_computing_has_ended() -> None:
    assert compute_metrics(data(computed_s=(0.25, 2.0)))["jct"] == 2.0
    assert compute_metrics(data(computed_s=(0.25, 1.0)))["jct"] == 1.5


def test_a_job_has_its_transfers_inside_a_domain_too() -> None:
    assert compute_metrics(data(inside_s=(0.25, 2.0)))["jct"] == 2.0
    nothing = Transfers()
    alone = compute_metrics(data(transfers=nothing, channels=[], inside_s=(0.5, 2.0), roofline_s=1.0))
    assert alone["jct"] == 1.5 and alone["jct_ratio"] == 1.5 and "tail_fct" not in alone


def test_metrics_of_a_pattern() -> None:
    found = compute_metrics(data(pattern_ideal_s=1.0, roofline_s=1.2, fabric_bytes=2_000_000))
    assert found["tail_fct"] == 1.5 and found["tail_fct_ratio"] == 1.5
    assert found["jct"] == 1.5 and found["jct_ratio"] == pytest.approx(1.25)
    assert found["fct_slowdown_p99"] == 1.5 and found["fct_spread"] == 1.5
    assert found["aggregate_share"] == pytest.approx(0.75)
    assert found["slowest_share"] == pytest.approx(0.5)
    assert found["retransmit_ratio"] == 0.0
    assert found["s_fabric"] == 2_000_000
    assert found["cpu_busy"] == 0.25
    assert "busbw" not in found and "mmr_uplinks" not in found and "pause_frames" not in found


def test_a_run_cut_short_says_nothing_about_its_length() -> None:
    cut = transfers((0.0, 1.0), (0.0, None))
    found = compute_metrics(data(transfers=cut, pattern_ideal_s=1.0, roofline_s=1.0))
    assert "jct" not in found and "tail_fct_ratio" not in found
    assert found["fct_slowdown_p50"] == 1.0


def test_collectives_have_the_mean_time_of_the_largest() -> None:
    def collective(size: int, seconds: float, wrong: int | None) -> CollectiveResult:
        rate = 8 * size / seconds
        return CollectiveResult(
            kind="all_reduce",
            algorithm="ring",
            ranks=4,
            size_bytes=size,
            elements=size // 4,
            datatype="float32",
            redop="sum",
            root=None,
            start_s=0.0,
            seconds=seconds,
            algbw_bps=rate,
            busbw_bps=1.5 * rate,
            ideal_busbw_bps=None,
            wrong=wrong,
        )

    found = compute_metrics(
        data(collectives=[collective(1000, 1.0, 2), collective(4000, 1.0, 0), collective(4000, 3.0, 1)])
    )
    assert found["algbw"] == pytest.approx(4000 / 2.0)
    assert found["busbw"] == pytest.approx(1.5 * 4000 / 2.0)
    assert found["wrong"] == 3
    of_nics = compute_metrics(data(collectives=[collective(4000, 2.0, 0)]))["busbw_share"]
    inside = replace(collective(4000, 2.0, 0), line_bps=96_000.0)
    assert compute_metrics(data(collectives=[inside]))["busbw_share"] == pytest.approx(0.25)
    assert of_nics == pytest.approx(1.5 * 4000 / 2.0 * 8 / data().nic_bps)


def test_links_of_the_uplink_tier() -> None:
    def port(node: str, name: str, sent: int, tier: str = "uplink") -> PortLoad:
        return PortLoad(
            node=node,
            interface=name,
            peer="",
            tier=tier,
            rate_bps=8_000_000,
            tx_bytes=sent,
            tx_dropped=0,
            utilisation=sent / 1_500_000,
        )

    ports = [port("r1", "u1", 900), port("r1", "u2", 0), port("r2", "u1", 450), port("r2", "u2", 450)]
    found = compute_metrics(data(ports=[*ports, port("s", "d", 10**9, "downlink")]))
    assert found["mmr_uplinks"] == pytest.approx(2.0)
    assert found["mmr_worst_switch"] == pytest.approx(2.0)
    assert found["effective_paths"] == pytest.approx(1.5)
    assert found["paths_used"] == pytest.approx(0.75)
    spine = [port("s", f"up{number}", sent, "spine-uplink") for number, sent in enumerate((900, 0, 0), 1)]
    higher = compute_metrics(data(ports=[*ports, *spine]))
    assert higher["mmr_worst_switch"] == pytest.approx(3.0), "it may be a spine that spreads worst"
    assert higher["mmr_uplinks"] == pytest.approx(2.0) and higher["paths_used"] == pytest.approx(0.75)


def test_a_fault_is_seen_in_the_curve() -> None:
    steps = [(0.05 * step, 50_000 * (step if step <= 20 else 20 if step <= 40 else step - 20)) for step in range(1, 81)]
    event = RunEvent(at_s=1.0, kind="link-set", target="a:b", detail="silent=True")
    seen = [RunEvent(at_s=at_s, kind="detected", target="a", detail="b BGP") for at_s in (1.9, 2.5)]
    found = compute_metrics(data(channels=[channel(0, steps)], transfers=until(4.0), events=[event, *seen]))
    assert found["blackhole_time_rate"] == pytest.approx(1.0, abs=0.11)
    assert found["dip_depth"] == pytest.approx(1.0)
    assert found["fault_rate_loss"] == pytest.approx(0.0)  # the rate was back long before the run ended
    undone = RunEvent(at_s=2.0, kind="undone-link-set", target="a:b", detail="")
    found = compute_metrics(data(channels=[channel(0, steps)], transfers=until(4.0), events=[event, undone, *seen]))
    assert found["fault_rate_loss"] == pytest.approx(1.0)
    assert found["detection_time"] == pytest.approx(0.9)


def test_a_channel_that_is_done_is_no_dip() -> None:
    steady = [(0.05 * step, 50_000 * step) for step in range(1, 81)]
    done = until(2.0, 4.0)
    assert first_done_after([FAST, SLOW], done, 1.0) == 2.0 and first_done_after([FAST, SLOW], done, 2.0) == 4.0
    assert first_done_after([FAST, SLOW], done, 4.0) is None
    nothing = until()  # FAST is done at 1.0
    assert first_done_after([FAST, SLOW], nothing, 1.0) == SLOW.samples.at_s[-1]
    event = RunEvent(at_s=1.0, kind="link-set", target="a:b", detail="silent=True")
    channels = [channel(0, steady[:40]), channel(1, steady)]
    found = compute_metrics(data(channels=channels, transfers=done, events=[event]))
    assert found["dip_depth"] == pytest.approx(0.0, abs=1e-6)


def test_the_curve_of_all_channels() -> None:
    times, rates = goodput_curve([FAST, SLOW], 0.5)
    assert times == [0.5, 1.0, 1.5]
    assert rates == [pytest.approx(1.2e7), pytest.approx(1.2e7), pytest.approx(8e6)]


def test_a_victim_has_both_its_nics_for_itself_beside_an_incast() -> None:
    incast = [channel(index, [(1.0, 250_000)], destination="b9") for index in (0, 1)]
    victim = channel(2, [(1.0, 500_000)])
    assert compute_metrics(data(channels=[*incast, victim], transfers=until(1.0, 1.0, 1.0)))["victim_share"] == 0.5
    beside = channel(3, [(1.0, 250_000)], source="a2")
    found = compute_metrics(data(channels=[*incast, victim, beside], transfers=until(1.0, 1.0, 1.0, 1.0)))
    assert "victim_share" not in found, "its sender has another flow"
    assert "victim_share" not in compute_metrics(data()), "nobody shares a receiver"
