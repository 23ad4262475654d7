"""RoCEv2 against what was promised of it beside UET: goodput, latency, CPU of a packet, and what queue pairs cost.

Two namespaces joined by a veth of an MTU of 4200, payload 4 KiB, one path. Messages of 1 MiB: the first packet of each
is longer by the RETH, which ends a run of segments, and UET's are all of one size. Other work on the machine takes more
from one round than from another. Hence a ratio is the median of those of each round, in which both transports have
their turn one after the other, and who begins changes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from timeit import repeat

import pytest
from figures import FIGURES, Figure, judge
from two_sides import NEEDS_TWO_CPUS, PIPES, Pair, finished, in_turns, joined, median_ratio

from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.protocols import is_compiled
from testbed.protocols.roce.packets.headers import Bth, Reth, decode_bth, decode_reth
from testbed.run.schema.model import Transport, TransportKind
from testbed.run.sweep.packet_cost import measure_packet_us

pytestmark = [pytest.mark.bench, pytest.mark.timeout(300)]
BESIDE = [pytest.mark.netns, NEEDS_TWO_CPUS]

PEERS = Path(__file__).with_name("roce_peers.py")
NEAR, FAR = "10.79.1.1", "10.79.1.2"
ROUNDS = 5
FLOW_S = 1.5
PINGS = 3000
IDLE_QPS = 1024
HEADERS = 20_000
LEAST_HEADERS_PER_S = 400_000 if is_compiled() else 200_000
"""Compiled, as promised; interpreted, a third of what was measured on one core of 2026."""


@contextmanager
def serving(pair: Pair, transport: str, idle_qps: int, *, busy: bool) -> Iterator[None]:
    """The far side, from when it is ready. `busy`: it polls."""
    words = ("serve", transport, FAR, NEAR, str(idle_qps), str(int(busy)))
    with pair.serving(sys.executable, str(PEERS), *words, until="ready"):
        yield


def client(pair: Pair, role: str, transport: str, idle_qps: int, argument: float) -> float:
    words = (role, transport, NEAR, FAR, str(idle_qps), str(argument))
    return float(pair.client(sys.executable, str(PEERS), *words))


def flow_bps(pair: Pair, transport: str, idle_qps: int = 0) -> float:
    with serving(pair, transport, idle_qps, busy=False):
        return client(pair, "flow", transport, idle_qps, FLOW_S)


def half_round_trip_us(pair: Pair, transport: str) -> float:
    with serving(pair, transport, 0, busy=True):
        return client(pair, "ping", transport, 0, PINGS)


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with joined("rbn", NEAR, FAR, mtu=4200) as pair:
        yield pair


class TestBesideUet:
    pytestmark = BESIDE

    def test_goodput_of_one_flow(self, pair: Pair) -> None:
        roce, uet = in_turns(ROUNDS, lambda: flow_bps(pair, "roce"), lambda: flow_bps(pair, "uet"))
        FIGURES.append(Figure("RoCE: goodput of a flow of WRITEs", max(roce) / 1e9, at_least=0, unit="Gb"))
        judge(Figure("RoCE: goodput of a flow, in UET's", median_ratio(roce, uet), at_least=1.2, ratio=True))

    def test_latency_of_a_write(self, pair: Pair) -> None:
        roce, uet = in_turns(ROUNDS, lambda: half_round_trip_us(pair, "roce"), lambda: half_round_trip_us(pair, "uet"))
        FIGURES.append(Figure("RoCE: half a round trip of 8 bytes", min(roce), at_most=1000, unit="us"))
        judge(Figure("RoCE: half a round trip of 8 bytes, in UET's", median_ratio(roce, uet), at_most=1.0, ratio=True))

    def test_idle_queue_pairs_take_nothing_from_a_busy_one(self, pair: Pair) -> None:
        among, alone = in_turns(ROUNDS, lambda: flow_bps(pair, "roce", IDLE_QPS), lambda: flow_bps(pair, "roce"))
        judge(Figure("RoCE: goodput beside 1,024 idle QPs, in that alone", median_ratio(among, alone), at_least=0.95))


@pytest.mark.netns
@pytest.mark.frr
def test_cpu_of_a_packet() -> None:
    state = StateDirectory()
    costs = {kind: measure_packet_us(Transport(kind=kind), state) for kind in (TransportKind.ROCE, TransportKind.UET)}
    roce = costs[TransportKind.ROCE]
    FIGURES.append(
        Figure(
            "RoCE: CPU of the workers for a data packet, one switch",
            roce,
            at_most=80 if is_compiled() else 500,
            unit="us",
        )
    )
    judge(Figure("RoCE: the same, in that of UET", roce / costs[TransportKind.UET], at_most=1.0, ratio=True))


def test_state_of_a_queue_pair() -> None:
    for account in ("traced", "resident"):
        found = json.loads(finished(subprocess.Popen([sys.executable, str(PEERS), account, "1000"], **PIPES)))
        for when, words in (("new", "connected"), ("used", "when its traffic has gone")):
            what = f"RoCE: state of a QP, {words}, {account}"
            judge(Figure(what, found[when] / 1e3, at_most=6, unit="kB", ratio=True))


def test_cpu_of_idle_queue_pairs() -> None:
    percent = float(finished(subprocess.Popen([sys.executable, str(PEERS), "idle", str(IDLE_QPS), "5"], **PIPES)))
    judge(Figure("RoCE: CPU of 1,024 idle QPs over 5 s", percent, at_most=1, unit="%"))


def test_headers_per_second() -> None:
    """A BTH and an RETH, as a packet of a WRITE has them: what is encoded is decoded."""
    bths = [Bth(0x0A, number, 0xFF_FFFF - number, number % 2 == 0, number % 4) for number in range(HEADERS)]
    reths = [Reth(number << 20, number, number) for number in range(HEADERS)]
    encoded = [bth.encode() + reth.encode() for bth, reth in zip(bths, reths, strict=True)]

    def encode() -> None:
        for bth, reth in zip(bths, reths, strict=True):
            bth.encode()
            reth.encode()

    def decode() -> None:
        for data in encoded:
            decode_bth(data)
            decode_reth(data, 12)

    assert [(decode_bth(data), decode_reth(data, 12)) for data in encoded] == list(zip(bths, reths, strict=True))
    for word, once in (("encoded", encode), ("decoded", decode)):
        rate = 2 * HEADERS / min(repeat(once, number=1, repeat=7))
        what = f"RoCE: headers {word} a second"
        judge(Figure(what, rate, at_least=LEAST_HEADERS_PER_S, unit="/s"))
