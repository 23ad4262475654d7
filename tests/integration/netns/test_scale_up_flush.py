"""LLR's FLUSH over real wires: when frames that a link keeps for a replay are given up, and what becomes of their
operations."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from domain_lab import DomainLab, domain_lab
from scale_up_link_bounds import flush_copies
from steady_rates import prompt

from testbed.protocols.scale_up.domain.endpoint import Endpoint
from testbed.protocols.scale_up.domain.link import LinkSettings
from testbed.protocols.scale_up.retry import RetryConfig

pytestmark = [pytest.mark.netns]

RATE_BPS = 100_000_000
SIZE = 1 << 21
REPLAYS, OUTSTANDING = 2, 32
LOST_S = 0.8
"""Without a signal for so long a link is down."""
RETRY = RetryConfig(
    outstanding_frames_max=OUTSTANDING,
    replay_timer_ns=20_000_000,
    replay_count_max=REPLAYS,
    pcs_lost_timeout_ns=round(LOST_S * 1e9),
)
LINK = LinkSettings(rate_bps=RATE_BPS, delay_ns=2_000_000, retry=RETRY)

DROP_CONTROL = "4,48 0 0 14,21 0 1 92,6 0 0 2,6 0 0 0"
"""Classic BPF for tc: load the byte behind the Ethernet header; TC_ACT_SHOT where it is a control frame's, 0x5c."""


def until(lab: DomainLab, condition: Callable[[], Any], what: str) -> None:
    """Serve the endpoints until it is so."""
    deadline = time.monotonic() + 10.0
    while not condition():
        assert time.monotonic() < deadline, what
        lab.endpoints.run(0.01)


def retry_of(gpu: Endpoint) -> dict[str, int]:
    """LLR's counters at the GPU's end of its link."""
    found: dict[str, int] = gpu.counters()["planes"][0]["retry"]
    return found


def port_of(lab: DomainLab, gpu: int) -> dict[str, Any]:
    found: dict[str, Any] = lab.switch.status()["ports"][gpu]
    return found


def credits_are_back(lab: DomainLab, gpus: list[Endpoint]) -> bool:
    """At both ends of all links, in both directions."""
    for gpu, port in zip(gpus, lab.switch.status()["ports"], strict=True):
        for ours, theirs in zip(gpu.counters()["planes"][0]["vcs"], port["vcs"], strict=True):
            for one, other in ((ours, theirs), (theirs, ours)):
                if not one["s_cc"] == one["s_cf"] == other["r_cc"] == other["r_cf"]:
                    return False
    return True


def test_as_many_copies_arrive_as_are_sent_before_a_flush(tmp_path: Path) -> None:
    """LLR-07: control frames to the GPU are thrown away behind its wire, and with them all acknowledgements of a full
    window. The switch gets it (1 + replays) times, and takes each frame once."""
    with domain_lab(tmp_path, LINK, gpus=2, planes=1) as lab, prompt():
        source, target = lab.gpu(0), lab.gpu(1)
        data = random.Random(7).randbytes(SIZE)
        memory = bytearray(SIZE)
        window = target.export(memory)
        window.authorise(source.gpu)
        lab.endpoints.wait(source, source.write(window.reference(), b"first"))
        until(lab, lambda: retry_of(source)["rx_ack_ctl_os"], "all is acknowledged")
        lab.endpoints.run(0.1)
        sent, before = retry_of(source)["tx_ok"], port_of(lab, 0)["retry"]
        tc(lab, "qdisc", "add", "dev", "g0p0", "clsact")
        program = ["bpf", "da", "bytecode", DROP_CONTROL]
        tc(lab, "filter", "add", "dev", "g0p0", "ingress", "protocol", "0x88b6", *program)
        handle = source.write(window.reference(), data)
        until(lab, lambda: retry_of(source)["tx_flushed"], "the GPU gives up")
        copies = flush_copies(replays=REPLAYS, outstanding=OUTSTANDING)
        assert retry_of(source)["tx_flushed"] == OUTSTANDING
        assert retry_of(source)["tx_ok"] - sent == copies
        assert retry_of(source)["tx_replay"] == REPLAYS
        until(lab, lambda: port_of(lab, 0)["retry"]["rx_ok"] - before["rx_ok"] == copies, "all of them arrive")
        after = port_of(lab, 0)["retry"]
        assert after["rx_expected_seq_good"] - before["rx_expected_seq_good"] == OUTSTANDING
        assert after["rx_duplicate_seq"] - before["rx_duplicate_seq"] == copies - OUTSTANDING
        tc(lab, "qdisc", "del", "dev", "g0p0", "clsact")
        lab.endpoints.wait(source, handle)
        assert memory == data, "none of the frames was lost, and so no operation is"
        assert retry_of(source)["tx_flushed"] == OUTSTANDING
        until(lab, lambda: credits_are_back(lab, [source, target]), "no credit is missing")


def tc(lab: DomainLab, *words: str) -> None:
    subprocess.run(["tc", "-n", lab.gpu_namespace, *words], check=True, capture_output=True)
