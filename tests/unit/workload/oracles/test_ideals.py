"""Ideal serialisation and rooflines against sums made by hand."""

from dataclasses import replace

import pytest
from closed_forms import (
    collective_roofline_s,
    incast_ideal_s,
    overlapped_roofline_s,
    rocev2_framing,
    standalone_fct_s,
    training_roofline_s,
)

from testbed.workload.oracles.roofline import workload_roofline_s
from testbed.workload.oracles.serialisation import Framing, pattern_ideal_s, tcp_framing
from testbed.workload.steps import Compute, Step, Transfer, Workload

PLAIN = Framing(payload_bytes=1000, overhead_bytes=0)


def test_payload_shares_of_rocev2() -> None:
    assert rocev2_framing(4096).efficiency == pytest.approx(0.980, abs=5e-4)
    assert rocev2_framing(1024).efficiency == pytest.approx(0.926, abs=5e-4)


def test_tcp_counts_as_the_shaped_port_does() -> None:
    assert tcp_framing(4500).efficiency == pytest.approx(4448 / 4514)


def test_every_packet_has_headers() -> None:
    framing = Framing(payload_bytes=1000, overhead_bytes=60, first_bytes=16)
    assert framing.wire_bytes(1000) == 1076
    assert framing.wire_bytes(1001) == 1001 + 2 * 60 + 16
    assert framing.wire_bytes(0) == 76
    with pytest.raises(ValueError, match="a message of -1"):
        framing.wire_bytes(-1)
    with pytest.raises(ValueError, match="a packet of 0"):
        Framing(payload_bytes=0, overhead_bytes=0)


def test_incast_of_8_times_1_mb_at_400_gbit() -> None:
    # 8 MB at 50 GB/s are 160 us, and the base RTT.
    ideal = incast_ideal_s(8, 1_000_000, rate_bps=400e9, base_rtt_s=12e-6, framing=PLAIN)
    assert ideal == pytest.approx(172e-6)
    pattern = pattern_ideal_s([(n, 9, 1_000_000) for n in range(8)], 400e9, base_rtt_s=12e-6, framing=PLAIN)
    assert pattern == pytest.approx(ideal)
    assert standalone_fct_s(1_000_000, rate_bps=400e9, base_rtt_s=12e-6, framing=PLAIN) == pytest.approx(32e-6)


def test_the_busiest_nic_is_the_ideal_of_a_pattern() -> None:
    pattern = [("a", "b", 1000), ("a", "c", 1000), ("c", "b", 1000)]
    assert pattern_ideal_s(pattern, 8e3, base_rtt_s=0, framing=PLAIN) == pytest.approx(2.0)
    slow_b = {"a": 8e3, "b": 4e3, "c": 8e3}
    assert pattern_ideal_s(pattern, slow_b, base_rtt_s=0.5, framing=PLAIN) == pytest.approx(4.5)
    assert pattern_ideal_s([], 8e3, base_rtt_s=0.5, framing=PLAIN) == 0


def test_all_reduce_of_350_gb_on_1024_gpus() -> None:
    # workloads: 13.99 s at 400 Gbit/s a GPU.
    assert collective_roofline_s("all_reduce", 1024, 350e9, 400e9) == pytest.approx(13.986, abs=1e-3)


def test_a_step_computes_then_communicates_or_both_at_once() -> None:
    assert training_roofline_s(10, 0.1, [0.05, 0.01]) == pytest.approx(1.6)
    assert overlapped_roofline_s(10, 0.1, [0.05, 0.01]) == pytest.approx(1.0)


def ring_all_reduce(ranks: int, size_bytes: int) -> Workload:
    steps: list[Step] = []
    last: dict[int, int] = {}
    for _ in range(2 * (ranks - 1)):
        sent = {}
        for rank in range(ranks):
            after = (last[rank],) if rank in last else ()
            to = (rank + 1) % ranks
            number = len(steps)
            chunk = size_bytes // ranks
            steps.append(Transfer(number=number, source=rank, destination=to, size_bytes=chunk, after=after))
            sent[to] = number
        last = sent
    return Workload(name="ring", ranks=ranks, steps=tuple(steps))


def test_the_roofline_of_a_ring_is_the_formula() -> None:
    ring = ring_all_reduce(8, 8_000_000)
    formula = collective_roofline_s("all_reduce", 8, 8_000_000, 100e9)
    assert workload_roofline_s(ring, rate_bps=lambda _: 100e9, scale_up_bps=900e9) == pytest.approx(formula)
    # 14 steps wait for each other.
    late = workload_roofline_s(ring, rate_bps=lambda _: 100e9, scale_up_bps=900e9, latency_s=1e-6)
    assert late == pytest.approx(formula + 14e-6)


def test_the_roofline_knows_busy_nics_ranks_and_scale_up() -> None:
    incast = Workload(
        name="incast",
        ranks=4,
        steps=tuple(Transfer(number=n, source=n + 1, destination=0, size_bytes=1000) for n in range(3)),
    )
    assert workload_roofline_s(incast, rate_bps=lambda _: 8e3, scale_up_bps=8e4) == pytest.approx(3.0)
    faster = workload_roofline_s(incast, rate_bps=lambda rank: 8e3 if rank else 16e3, scale_up_bps=8e4)
    assert faster == pytest.approx(1.5)
    steps: tuple[Step, ...] = (
        Compute(number=0, rank=0, duration_ns=2_000_000_000),
        Compute(number=1, rank=0, duration_ns=1_000_000_000),
        Transfer(number=2, source=0, destination=1, size_bytes=1000, after=(0,), scale_up=True),
    )
    busy = Workload(name="busy", ranks=2, steps=steps)
    assert workload_roofline_s(busy, rate_bps=lambda _: 8e3, scale_up_bps=8e3) == pytest.approx(3.0)
    assert workload_roofline_s(busy, rate_bps=lambda _: 8e3, scale_up_bps=8e2, scale=2) == pytest.approx(14.0)
    delayed = Workload(
        name="late", ranks=2, steps=(Transfer(number=0, source=0, destination=1, size_bytes=1000, start_ns=5),)
    )
    alone_s = workload_roofline_s(delayed, rate_bps=lambda _: 8e3, scale_up_bps=8e3, scale=1e9)
    assert alone_s == pytest.approx(1.0), "a job is timed from when its first step begins"
    first = Transfer(number=1, source=2, destination=3, size_bytes=1000)
    both = replace(delayed, ranks=4, steps=(*delayed.steps, first))
    assert workload_roofline_s(both, rate_bps=lambda _: 8e3, scale_up_bps=8e3, scale=1e9) == pytest.approx(6.0)
