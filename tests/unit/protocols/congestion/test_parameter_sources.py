"""The parameter sets of every controller of RoCE, as the sources that their docstrings name have them."""

from typing import Any

import pytest

from testbed.protocols.congestion.registry import CONTROLLERS

MBPS = 1e6

HPCC_RUN_PY: dict[str, Any] = {
    "cnp_us": 0,  # L2_ACK_INTERVAL 1, and each ACK carries its packet's mark
    "g": 0.00390625,  # EWMA_GAIN
    "counter_bytes": 0,
    "fast_recovery": 1,  # FAST_RECOVERY_TIMES
    "additive_bps": 5 * MBPS,  # RATE_AI 5 * bw / 25
    "hyper_bps": 50 * MBPS,  # RATE_HAI 50 * bw / 25
    "per_25g": True,
    "least_bps": 1000 * MBPS,  # MIN_RATE
    "clamp_target": False,  # CLAMP_TARGET_RATE 0
}
"""alibaba-edu/High-Precision-Congestion-Control, `simulation/run.py`: what `dcqcn` and `dcqcn_paper` share."""

SOURCES: dict[tuple[str, str], dict[str, Any]] = {
    # ALPHA_RESUME_INTERVAL, RATE_DECREASE_INTERVAL, RP_TIMER: t_alpha, t_dec and t_inc of run.py
    ("dcqcn", "hpcc-paper"): {**HPCC_RUN_PY, "alpha_us": 50, "decrease_us": 50, "timer_us": 55},
    ("dcqcn", "hpcc-vendor"): {**HPCC_RUN_PY, "alpha_us": 1, "decrease_us": 4, "timer_us": 300},
    # Zhu et al., SIGCOMM 2015, section 5; R_HAI and the least rate are ours
    ("dcqcn", "paper"): {
        "cnp_us": 50,
        "alpha_us": 55,
        "g": 1 / 256,
        "decrease_us": 0,
        "timer_us": 55,
        "counter_bytes": 10_000_000,
        "fast_recovery": 5,
        "additive_bps": 40 * MBPS,
        "hyper_bps": 400 * MBPS,
        "per_25g": False,
        "least_bps": 10 * MBPS,
        "clamp_target": True,
    },
    # `mlxconfig query` of a ConnectX; RPG_BYTE_RESET is left out
    ("dcqcn", "nvidia"): {
        "cnp_us": 4,  # MIN_TIME_BETWEEN_CNPS
        "alpha_us": 1,  # DCE_TCP_RTT
        "g": 1 - 1019 / 1024,  # DCE_TCP_G
        "decrease_us": 4,  # RATE_REDUCE_MONITOR_PERIOD
        "timer_us": 300,  # RPG_TIME_RESET
        "counter_bytes": 0,
        "fast_recovery": 1,  # RPG_THRESHOLD
        "additive_bps": 5 * MBPS,  # RPG_AI_RATE
        "hyper_bps": 50 * MBPS,  # RPG_HAI_RATE
        "per_25g": False,
        "least_bps": 1 * MBPS,  # RPG_MIN_RATE
        "clamp_target": False,  # CLAMP_TGT_RATE
    },
    # Mittal et al., SIGCOMM 2015: 50 and 500 us at 20 us, 10 Mbit/s of 10 Gbit/s, beta 0.8, N 5; the least rate is ours
    ("timely", "paper"): {
        "low_rtts": 50 / 20,
        "high_rtts": 500 / 20,
        "increase": 10e6 / 10e9,
        "decrease": 0.8,
        "weight": 0.875,
        "hyper_after": 5,
        "least": 0.001,
    },
    # Kumar et al., SIGCOMM 2020: 25 us at 20 us; ai 1, beta 0.8, max_mdf 0.5, cwnd of 0.1 and 100 packets;
    # fs_range, min_cwnd and max_cwnd are ours
    ("swift", "paper"): {
        "target_rtts": 25 / 20,
        "increase": 1.0,
        "decrease": 0.8,
        "most_decrease": 0.5,
        "range_rtts": 2.5,
        "least_scaled": 0.1,
        "most_scaled": 100.0,
        "least_window": 0.01,
        "window_bdps": 1.5,
        "repath_rounds": 0,
    },
    # Qureshi et al., SIGCOMM 2022, and Linux's tcp_plb_rehash_rounds: 12 congested rounds
    ("swift", "plb"): {
        "target_rtts": 25 / 20,
        "increase": 1.0,
        "decrease": 0.8,
        "most_decrease": 0.5,
        "range_rtts": 2.5,
        "least_scaled": 0.1,
        "most_scaled": 100.0,
        "least_window": 0.01,
        "window_bdps": 1.5,
        "repath_rounds": 12,
    },
    # InfiniBand volume 1, annex A10.4.3.6: the timer's unit; the specification leaves all values to the subnet manager,
    # and these are ours
    ("ccti", "default"): {"increase": 1, "timer_us": 1.024, "limit": 1023, "minimum": 0, "step": 1 / 32},
    # RFC 8257, section 4.2: g 1/16; a packet in a round trip, as TCP; the bounds of the window are ours
    ("dctcp", "rfc8257"): {"gain": 1 / 16, "increase": 1.0, "window_bdps": 1.5, "least_window": 1.0},
}


def test_every_set_has_its_source_here() -> None:
    assert {(one.name, name) for one in CONTROLLERS.values() for name in one.parameter_sets} == set(SOURCES)


@pytest.mark.parametrize(("controller", "name"), SOURCES)
def test_a_set_has_the_values_of_its_source(controller: str, name: str) -> None:
    assert dict(CONTROLLERS[controller].values[name]) == pytest.approx(SOURCES[controller, name])
