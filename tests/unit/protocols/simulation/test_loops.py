"""Packets that go round: their time to live, the threshold of deadlock, and the watchdog that dissolves one.

Hu et al., "Deadlocks in Datacenter Networks: Why Do They Form, and How to Avoid Them", HotNets 2016: a loop of n
switches with links of rate B deadlocks where packets with a TTL are injected faster than n B / TTL.
"""

from collections.abc import Sequence

import pytest

from testbed.base.datapath.traffic_class import ClassPlan
from testbed.protocols.datagram import Incoming, Outgoing, Priority
from testbed.protocols.simulation import FabricNetwork, FabricPortSettings, LinkSettings, SwitchSettings

A, B = "10.0.0.1", "10.0.0.2"
GBPS = 10**9
DATA = 3
DETECT_NS, RESTORE_NS = 200_000, 50_000
PORT = FabricPortSettings(
    classes=(ClassPlan(priority=DATA, lossless=True, xoff_bytes=20_000, xon_bytes=15_000, headroom_bytes=12_000),),
    priority_of=(DATA,) * 5,
)


class Sender:
    """Sends datagrams to B as fast as its NIC takes them, and keeps what it gets."""

    def __init__(self, address: str, count: int = 0) -> None:
        self.address = address
        self.left = count
        self.got = 0

    def receive(self, datagrams: Sequence[Incoming], now: int) -> None:
        self.got += len(datagrams)

    def transmit(self, now: int, limit: int = 64) -> list[Outgoing]:
        if not self.left:
            return []
        self.left -= 1
        return [Outgoing(B, 50_000, Priority.DATA, b"h", bytes(957))]

    def next_timer(self) -> int | None:
        return None

    def handle_timer(self, now: int) -> None: ...


def looped(rate_bps: int, *, ttl: int = 16, count: int = 2000, guarded: bool = False) -> tuple[FabricNetwork, Sender]:
    """A sends to B over two switches, each of which has a route for B by the other one."""
    a, b = Sender(A, count), Sender(B)
    network = FabricNetwork([a, b], seed=1, overhead_bytes=42)
    for name in ("left", "right"):
        network.add_fabric_switch(name, SwitchSettings())
    ends = {"a": (A, "left"), "on": ("left", "right"), "back": ("right", "left"), "b": ("right", B), "up": (B, "right")}
    for name, (source, target) in ends.items():
        link = LinkSettings(rate_bps=rate_bps if name == "a" else 10 * GBPS, delay_ns=1000)
        port = network.connect(name, source, target, link, out=PORT, into=PORT)
        network.obey(name, 0)
        if guarded and source in ("left", "right"):
            port.guard(DETECT_NS, RESTORE_NS)
    network.route("left", B, ["on"])
    network.route("right", B, ["b"])
    network.divert("right", B, ["back"])
    network.nics[A].ttl = ttl
    return network, b


@pytest.mark.parametrize(("ttl", "passed"), [(2, 1), (3, 2), (16, 15)])
def test_a_packet_passes_one_router_less_than_its_time_to_live(ttl: int, passed: int) -> None:
    network, b = looped(GBPS, ttl=ttl, count=1)
    network.run()
    assert network.lines["on"].frames + network.lines["back"].frames == passed
    assert sum(switch.expired_packets for switch in network.fabric_switches.values()) == 1
    assert b.got == 0 and network.accounted() == 1


@pytest.mark.parametrize(("rate_bps", "deadlocks"), [(int(1.1 * GBPS), False), (int(1.5 * GBPS), True)])
def test_a_loop_deadlocks_above_the_threshold_and_not_below(rate_bps: int, deadlocks: bool) -> None:
    """n B / TTL = 2 x 10 / 16 = 1.25 Gbit/s."""
    network, b = looped(rate_bps)
    network.run()
    stuck = network.in_flight()
    assert (stuck > 0) == deadlocks
    for name in ("on", "back"):
        assert network.outputs[name].queue_of(DATA).paused == deadlocks
    assert b.got == 0
    sent = network.nics[A].sent
    assert network.accounted() == sent and (sent < 2000) == deadlocks


def test_a_deadlock_outlasts_its_loop_and_a_watchdog_ends_it() -> None:
    for guarded in (False, True):
        network, b = looped(int(1.5 * GBPS), guarded=guarded)
        network.at(1_500_000, lambda now, network=network: network.divert("right", B, []))  # type: ignore[misc]
        network.run()
        dropped = sum(sum(port.queue_of(DATA).drops_packets) for port in network.outputs.values())
        frees = sum(port.queue_of(DATA).watched.frees for port in network.outputs.values())
        assert (frees > 0) == guarded
        assert (network.in_flight() == 0) == guarded
        assert (b.got > 500) == guarded, "what is sent after the loop arrives"
        assert dropped == 0 or guarded
        assert network.accounted() == network.nics[A].sent


def test_a_freed_queue_obeys_pauses_again_once_there_was_none_for_long_enough() -> None:
    network, _ = looped(GBPS, count=0, guarded=True)
    port = network.outputs["on"]
    queue = port.queue_of(DATA)
    port.pause(0, DATA)
    network.run(until=DETECT_NS - 1)
    assert queue.paused and not queue.watched.freed
    network.run(until=DETECT_NS)
    assert not queue.paused and queue.watched.freed and port.paused_ns(DATA, network.now) == DETECT_NS
    port.resume(network.now, DATA)
    network.run(until=DETECT_NS + RESTORE_NS - 1)
    port.pause(network.now, DATA)
    assert not queue.paused, "it was asked for a pause before it was guarded again"
    port.resume(network.now, DATA)
    network.run(until=DETECT_NS + 3 * RESTORE_NS)
    port.pause(network.now, DATA)
    assert queue.paused and queue.watched.frees == 1 and queue.pauses == 2
