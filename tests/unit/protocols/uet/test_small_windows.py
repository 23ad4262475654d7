"""Spraying where the bandwidth-delay product is a few packets: a flow uses its paths all the same."""

from collections import Counter
from itertools import groupby
from random import Random

import pytest
from simulated_fabric import BASE_RTT_NS, PAYLOAD, RATE, Fabric, config
from simulated_topologies import ROOMY

from testbed.protocols.uet.congestion.context import CongestionContext
from testbed.protocols.uet.congestion.window import CongestionWindow
from testbed.protocols.uet.delivery.bursts import Bursts
from testbed.protocols.uet.paths import PathKind, make_paths

PACKETS = 300
SPINES = 4
SMALL_RTT_NS = 1440
"""A BDP of 18 kB: four packets."""


def spread(paths: str, base_rtt_ns: int, **settings: int) -> tuple[Counter[int], list[int]]:
    """The packets of each entropy value and on each uplink of a flow of `PACKETS` over four spines."""
    chosen = config(paths=paths, base_rtt_ns=base_rtt_ns, rto_min_ns=100 * BASE_RTT_NS, trimming=True, **settings)
    fabric = Fabric(2, chosen, traced=True)
    fabric.leaf_spine(2, SPINES, ROOMY)
    fabric.write(0, 1, PACKETS * PAYLOAD)
    fabric.run()
    trace = fabric.traces[0]
    assert trace is not None
    values = Counter(event.values["ev"] for event in trace.of("sent"))
    lines = fabric.network.lines
    uplinks = [line.frames for name, line in sorted(lines.items()) if name.startswith("leaf0->spine")]
    assert len(uplinks) == SPINES
    return values, uplinks


@pytest.mark.parametrize("packets_per_entropy", [1, 4, 64])
@pytest.mark.parametrize("paths", ["reps", "oblivious", "bitmap"])
def test_a_flow_with_a_window_of_a_few_packets_is_sprayed(paths: str, packets_per_entropy: int) -> None:
    assert RATE * SMALL_RTT_NS // (8 * 10**9 * PAYLOAD) == 4
    values, uplinks = spread(paths, SMALL_RTT_NS, packets_per_entropy=packets_per_entropy)
    assert max(values.values()) <= PACKETS / 10
    assert len(values) >= 64
    assert min(uplinks) >= PACKETS / SPINES / 2


@pytest.mark.parametrize("packets_per_entropy", [1, 4])
@pytest.mark.parametrize("base_rtt_ns", [2000, 4000, 8000, BASE_RTT_NS])
def test_no_value_has_a_flow_for_itself_at_any_window(base_rtt_ns: int, packets_per_entropy: int) -> None:
    """Whether an ACK covers one packet or four, and whatever falls into step with it."""
    values, uplinks = spread("reps", base_rtt_ns, packets_per_entropy=packets_per_entropy)
    assert max(values.values()) <= PACKETS / 10
    assert min(uplinks) >= PACKETS / SPINES / 2


def test_without_a_window_bursts_have_their_full_length() -> None:
    chosen = config(packets_per_entropy=4, cc="none")
    paths = make_paths(PathKind.BITMAP, chosen.entropies, Random(1), chosen.base_rtt_ns)
    bursts = Bursts(chosen, CongestionContext(None, None), paths)
    assert [len(list(same)) for _, same in groupby(bursts.choose(7, False) for _ in range(12))] == [4, 4, 4]
    assert bursts.covered(1) == chosen.packets_per_ack


@pytest.mark.parametrize(("window_packets", "longest"), [(1, 1), (6, 1), (15, 1), (16, 2), (24, 3), (32, 4), (200, 4)])
def test_a_burst_of_one_value_is_an_eighth_of_the_window_at_most(window_packets: int, longest: int) -> None:
    chosen = config(packets_per_entropy=4)
    window = CongestionWindow(window_packets * chosen.packet_bytes, chosen.packet_bytes)
    paths = make_paths(PathKind.BITMAP, chosen.entropies, Random(1), chosen.base_rtt_ns)
    bursts = Bursts(chosen, CongestionContext(window, None), paths)
    at_once = [bursts.choose(7, False) for _ in range(12)]
    assert [len(list(same)) for _, same in groupby(at_once)] == [longest] * (12 // longest)
    assert bursts.choose(8, False) != at_once[-1], "later is another burst"
    assert bursts.choose(8, True) not in at_once, "and so is what is sent again"
