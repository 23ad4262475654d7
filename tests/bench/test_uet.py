"""The UET agent against what was promised: goodput, encryption, latency, many agents at once, and what idling costs.

Two namespaces joined by a veth, MTU 4500, payload 4 KiB. Other work on the machine takes more from one round than from
another. Hence absolute figures are the best of several rounds, and a ratio is the median of those of each round, in
which both sides of it have their turn one after the other.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from figures import FIGURES, Figure, judge
from two_sides import NEEDS_TWO_CPUS, PATIENCE_S, PIPES, Pair, finished, joined, median_ratio

pytestmark = [pytest.mark.bench, pytest.mark.netns, pytest.mark.timeout(180), NEEDS_TWO_CPUS]

PEERS = Path(__file__).with_name("uet_peers.py")
PYTHON = sys.executable
NEAR, FAR = "10.79.0.1", "10.79.0.2"
DATAGRAM = 4096 + 12 + 44
"""UDP payload of a full packet: PDS and SES header, and 4 KiB."""
LINK_RATE = "100G"
"""More than is reached: neither the window nor the pacing of a slower link is to hold a flow back."""
ROUNDS = 3


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with joined("ubn", NEAR, FAR, mtu=4500) as pair:
        yield pair


def perftest(pair: Pair, directory: Path, tool: str, *options: str) -> dict[str, float]:
    """The results of a tool between the two sides."""
    path = directory / "results.json"
    words = [PYTHON, "-m", "testbed.endpoints.perftest", tool, "-m", "4096", *options]
    with pair.serving(*words, "-i", FAR, until="Data ex. method") as server:
        pair.client(*words, "--out_json_file", str(path), FAR)
        finished(server)
    results: dict[str, float] = json.loads(path.read_text())["results"]
    return results


def uet_bps(pair: Pair, directory: Path, *options: str) -> float:
    words = ("-D", "1.5", "--report_gbits", "--rate", LINK_RATE, *options)
    return perftest(pair, directory, "uet_write_bw", *words)["BW_average"] * 1e9


def iperf3_bps(pair: Pair) -> float:
    with pair.serving("iperf3", "-s", "-1", "--forceflush", until="Server listening"):
        words = ("-u", "-b", "0", "-l", str(DATAGRAM), "-t", "1.5", "-J", "--get-server-output")
        report = json.loads(pair.client("iperf3", "-c", FAR, *words))
    total = report["end"]["sum"]
    return float(total["bits_per_second"]) * (1 - float(total["lost_percent"]) / 100)


def bare_bps(pair: Pair) -> float:
    with pair.serving(PYTHON, str(PEERS), "sink", FAR, until="ready") as sink:
        pair.client(PYTHON, str(PEERS), "flood", FAR, str(DATAGRAM), "1")
        return float(finished(sink))


def test_goodput_of_one_flow(pair: Pair, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("00112233445566778899aabbccddeeff" * 2)
    plain, sealed, iperf3, bare = [], [], [], []
    for _ in range(ROUNDS):
        # There is one path between the two; a spraying sender's packets leave in smaller bursts (below).
        plain.append(uet_bps(pair, tmp_path, "--paths", "single"))
        sealed.append(uet_bps(pair, tmp_path, "--paths", "single", "--tss", str(key)))
        iperf3.append(iperf3_bps(pair))
        bare.append(bare_bps(pair))
    best = max(plain)
    sprayed = uet_bps(pair, tmp_path, "--paths", "reps")
    FIGURES.extend(
        Figure(f"UET: {what}", measured, at_least=0, unit=unit)
        for what, measured, unit in (
            ("the same, sprayed over 256 entropy values by REPS", sprayed / 1e9, "Gb"),
            ("iperf3's UDP goodput", max(iperf3) / 1e9, "Gb"),
            ("share of iperf3's UDP goodput", median_ratio(plain, iperf3), ""),
        )
    )
    judge(
        Figure("UET: goodput of a RUD flow with NSCC", best / 1e9, at_least=1.5, unit="Gb"),
        Figure(
            # Where system calls are cheap, a Python loop that only sends is behind iperf3 too, as we cannot but be.
            "UET: share of iperf3's UDP goodput, or a bare Python loop's",
            median_ratio(plain, [min(both) for both in zip(iperf3, bare, strict=True)]),
            at_least=0.8,
            ratio=True,
        ),
        Figure(
            "UET: encrypted, share of plain goodput",
            # Not of one moment: rounds of a shared machine were 0.51 to 0.79 within two minutes. Marked when missed.
            median_ratio(sealed, plain),
            at_least=0.6,
        ),
    )


@pytest.mark.thorough  # where the kernel wakes a process decides it, on some hosts
def test_latency_of_a_send(pair: Pair, tmp_path: Path) -> None:
    ours, bare = [], []
    for _ in range(ROUNDS):
        ours.append(perftest(pair, tmp_path, "uet_send_lat", "-s", "8", "-n", "3000")["t_typical"])
        with pair.serving(PYTHON, str(PEERS), "echo", FAR, until="ready"):
            bare.append(float(pair.client(PYTHON, str(PEERS), "ping", FAR, "8", "3000")))
    best = min(ours)
    FIGURES.append(Figure("UET: half a round trip of 8 bytes", best, at_most=1000, unit="us"))
    judge(Figure("UET: the same, in those of a bare Python echo", median_ratio(ours, bare), at_most=1.3, ratio=True))


@pytest.mark.thorough
def test_all_to_all_of_64_agents() -> None:
    """Each sends 1 MiB in all, a 63rd of it to each other agent; a MiB for each pair would be 4 GiB."""
    count = 64
    with ExitStack() as cleanup:
        agents = []
        for number in range(count):
            words = [PYTHON, str(PEERS), "agent", str(number), str(count), str(1 << 20)]
            process = subprocess.Popen(words, stdin=subprocess.PIPE, **PIPES)
            cleanup.callback(process.communicate)
            cleanup.callback(process.kill)
            agents.append(process)
        for process in agents:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
        begin = time.monotonic_ns() + 500_000_000
        for process in agents:
            process.stdin.write(f"{begin}\n")
            process.stdin.flush()
        reports = []
        for process in agents:
            reports.append(json.loads(process.stdout.readline()))
        for process in agents:
            process.communicate("\n", timeout=PATIENCE_S)
            assert process.returncode == 0
    assert all(report["done"] and not report["failed"] for report in reports), reports
    rates = [1 / report["took_s"] for report in reports]
    jain = sum(rates) ** 2 / (count * sum(rate * rate for rate in rates))
    timeouts = sum(report["counters"].get("timeout", 0) for report in reports)
    took = max(report["took_s"] for report in reports)
    FIGURES.append(Figure("UET: 64 agents, all to all, until the last is done", took, at_most=60, unit="s"))
    judge(
        Figure("UET: 64 agents, all to all, time-outs", timeouts, at_most=0, ratio=True),
        Figure("UET: 64 agents, all to all, Jain's index of their rates", jain, at_least=0.95, ratio=True),
    )


def test_an_idle_agent() -> None:
    memory, cpu = map(float, finished(subprocess.Popen([PYTHON, str(PEERS), "idle", "5"], **PIPES)).split())
    judge(
        Figure("UET: memory of an idle agent", memory, at_most=40, unit="MB", ratio=True),
        Figure("UET: CPU of an idle agent over 5 s", cpu, at_most=0.5, unit="%"),
    )


def test_idle_contexts() -> None:
    each = float(finished(subprocess.Popen([PYTHON, str(PEERS), "contexts", "10000"], **PIPES)))
    judge(Figure("UET: memory of each of 10,000 idle PDCs", each / 1e3, at_most=4, unit="kB", ratio=True))
