"""A fabric of switches and NICs: the ways that packets take, pauses that reach NICs, and that nothing gets lost."""

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import replace
from ipaddress import IPv4Address
from random import Random

import pytest

from testbed.base.datapath.abi import BalancingMode
from testbed.base.datapath.flow_hash import FiveTuple, port_hash
from testbed.base.datapath.traffic_class import ClassPlan
from testbed.protocols.datagram import NIC_PACKETS, Incoming, Outgoing, Priority
from testbed.protocols.simulation import (
    ConfigurationError,
    FabricNetwork,
    FabricPortSettings,
    Frame,
    LinkSettings,
    SwitchSettings,
)
from testbed.protocols.simulation.switch import flow_hash

A, B, C = "10.0.0.1", "10.0.0.2", "10.0.0.3"
DATA, CONTROL = 3, 6
GBPS = 10**9
LINK = LinkSettings(rate_bps=GBPS, delay_ns=1000)
FAST = LinkSettings(rate_bps=10 * GBPS, delay_ns=1000)


def port(**data: int | bool) -> FabricPortSettings:
    classes = (ClassPlan(priority=DATA, **data), ClassPlan(priority=CONTROL, strict=True))  # type: ignore[arg-type]
    return FabricPortSettings(classes=classes, priority_of=(DATA, DATA, CONTROL, CONTROL, CONTROL))


class Talker:
    """Sends what it was given to send, control packets first, and keeps what it gets."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.data: deque[Outgoing] = deque()
        self.control: deque[Outgoing] = deque()
        self.got: list[Incoming] = []

    def give(self, remote: str, count: int, *, entropy: int = 0, size: int = 958) -> None:
        for number in range(count):
            self.data.append(Outgoing(remote, entropy or 50_000 + number, Priority.DATA, b"h", bytes(size - 1)))

    def receive(self, datagrams: Sequence[Incoming], now: int) -> None:
        self.got += datagrams

    def transmit(self, now: int, limit: int = 64) -> list[Outgoing]:
        queue = self.control or self.data
        return [queue.popleft()] if queue else []

    def next_timer(self) -> int | None:
        return None

    def handle_timer(self, now: int) -> None: ...


def two_ways(balancing: BalancingMode, *, gap_ns: int = 0) -> tuple[FabricNetwork, Talker, Talker]:
    """A and B at two switches with two lines between them."""
    a, b = Talker(A), Talker(B)
    network = FabricNetwork([a, b], seed=1, overhead_bytes=42)
    for name in ("left", "right"):
        network.add_fabric_switch(name, SwitchSettings(balancing=balancing, seed=77, gap_ns=gap_ns))
    ends = {"a": (A, "left"), "left:1": ("left", "right"), "left:2": ("left", "right"), "right:b": ("right", B)}
    ends |= {"b": (B, "right"), "right:1": ("right", "left"), "right:2": ("right", "left"), "left:a": ("left", A)}
    for name, (source, target) in ends.items():
        network.connect(name, source, target, LINK, out=port(), into=port())
    network.route("left", B, ["left:1", "left:2"])
    network.route("right", B, ["right:b"])
    network.route("right", A, ["right:1", "right:2"])
    network.route("left", A, ["left:a"])
    return network, a, b


def loads(network: FabricNetwork) -> list[int]:
    return [network.lines[name].frames for name in ("left:1", "left:2")]


@pytest.mark.parametrize("number", range(50))
def test_the_hash_is_that_of_the_emulated_switches(number: int) -> None:
    random = Random(number)
    source, destination = IPv4Address(random.getrandbits(32)), IPv4Address(random.getrandbits(32))
    ports, seed = (random.randrange(1, 65536), random.randrange(1, 65536)), random.getrandbits(32)
    five = FiveTuple(
        source=source, destination=destination, protocol=17, source_port=ports[0], destination_port=ports[1]
    )
    assert flow_hash(source.packed, destination.packed, *ports, seed) >> 32 == port_hash(five, seed)


def test_a_flow_keeps_its_way_and_many_flows_take_both() -> None:
    network, a, b = two_ways(BalancingMode.FLOW)
    a.give(B, 20, entropy=50_001)
    network.run()
    assert sorted(loads(network)) == [0, 20]
    a.give(B, 400)
    network.run()
    assert len(b.got) == 420 and min(loads(network)) > 150


def test_spraying_takes_turns_whatever_the_flow() -> None:
    network, a, _ = two_ways(BalancingMode.SPRAY)
    a.give(B, 400, entropy=50_001)
    network.run()
    one, other = loads(network)
    assert abs(one - other) <= 4


def test_a_flow_takes_another_way_only_after_a_gap() -> None:
    network, a, _ = two_ways(BalancingMode.FLOWLET, gap_ns=100_000)
    ways = []
    for _ in range(40):
        before = loads(network)
        a.give(B, 5, entropy=50_001)
        network.run()
        ways.append(tuple(now - then for now, then in zip(loads(network), before, strict=True)))
        network.at(network.now + 200_000, lambda now: None)
        network.run()
        assert sorted(ways[-1]) == [0, 5], "no flowlet is torn apart"
    assert 8 < Counter(ways)[5, 0] < 32


@pytest.mark.parametrize("narrow", ["left:right", "right:b"])
def test_a_packet_knows_whether_its_last_switch_has_cut_it(narrow: str) -> None:
    a, b = Talker(A), Talker(B)
    network = FabricNetwork([a, b], seed=1, overhead_bytes=42)
    for name in ("left", "right"):
        network.add_fabric_switch(name, SwitchSettings())
    trims = replace(port(limit_bytes=4000), trimming=True)
    ends = {"a": (A, "left"), "left:right": ("left", "right"), "right:b": ("right", B), "b": (B, "right")}
    for name, (source, target) in ends.items():
        network.connect(name, source, target, LINK if name == narrow else FAST, out=trims, into=port())
    network.route("left", B, ["left:right"])
    network.route("right", B, ["right:b"])
    a.give(B, 40)
    network.run()
    cut = [item.last_hop for item in b.got if item.trimmed]
    assert cut and set(cut) == {narrow == "right:b"}


def incast(*, lossless: bool, first: Talker | None = None) -> tuple[FabricNetwork, list[Talker]]:
    """A (or `first`) and B send to C over one switch, whose port to C is slower than theirs."""
    talkers = [first or Talker(A), Talker(B), Talker(C)]
    network = FabricNetwork(talkers, seed=1, overhead_bytes=42)
    network.add_fabric_switch("switch", SwitchSettings(buffer_bytes=100_000))
    into = port(lossless=True, xoff_bytes=4000, xon_bytes=2000, headroom_bytes=8_000) if lossless else port()
    for address in (A, B, C):
        network.connect(f"{address} up", address, "switch", FAST, out=port(), into=into)
        link = LINK if address == C else FAST
        out = port(lossless=lossless) if lossless else port(limit_bytes=8000)
        network.connect(f"{address} down", "switch", address, link, out=out, into=port())
        network.route("switch", address, [f"{address} down"])
        network.obey(f"{address} up", 500)
    return network, talkers


def test_a_full_queue_loses_packets_and_every_one_is_accounted_for() -> None:
    network, (a, b, c) = incast(lossless=False)
    a.give(C, 100)
    b.give(C, 100)
    network.run()
    dropped = sum(network.outputs[f"{C} down"].queue_of(DATA).drops_packets)
    assert dropped > 50 and len(c.got) == 200 - dropped
    assert network.accounted() == 200 and network.in_flight() == 0


def test_pauses_hold_nics_back_so_that_nothing_is_lost() -> None:
    network, (a, b, c) = incast(lossless=True)
    a.give(C, 100)
    b.give(C, 100)
    network.run()
    assert len(c.got) == 200 and network.accounted() == 200
    for address in (A, B):
        account = network.inputs[f"{address} up"].account_of(DATA)
        assert account.xoff_sent > 3 and account.xoff_sent == account.xon_sent
        assert account.max_bytes <= 12_000
        assert network.outputs[f"{address} up"].paused_ns(DATA, network.now) > 0
    assert network.fabric_switches["switch"].buffer.used_bytes == 0


def test_control_packets_pass_a_paused_nic_and_little_is_taken_from_its_endpoint() -> None:
    network, (a, _, c) = incast(lossless=True)
    network.outputs[f"{A} up"].pause(0, DATA)
    a.give(C, 100)
    network.run()
    assert c.got == [] and len(a.data) == 100 - NIC_PACKETS


def stray(network: FabricNetwork) -> Frame:
    """A packet of A to B that its endpoint knows nothing of, as a probe is."""
    frame = Frame(network.nics[A].number, network.nics[B].number, 50_000, Priority.DATA, b"h", bytes(957))
    frame.wire_bytes = frame.size + 42
    return frame


class Metronome(Talker):
    """Has a packet to B once in `interval_ns`, as a rate limiter lets it, and notes when each was taken."""

    def __init__(self, address: str, interval_ns: int) -> None:
        super().__init__(address)
        self.interval_ns = interval_ns
        self.due = 0
        self.taken: list[int] = []

    def transmit(self, now: int, limit: int = 64) -> list[Outgoing]:
        found = super().transmit(now, limit)
        self.taken += [now] * len(found)
        return found

    def next_timer(self) -> int | None:
        return self.due

    def handle_timer(self, now: int) -> None:
        self.due += self.interval_ns
        self.give(B, 1)


def test_what_waited_in_a_pause_does_not_hold_up_the_clock_of_a_rate_limiter() -> None:
    """A packet takes 0.8 us, one is due each us: what waited for 6 us takes 24 us to be sent, with the others."""
    a = Metronome(A, 1000)
    network, _ = incast(lossless=False, first=a)
    out = network.outputs[f"{A} up"]
    network.at(1500, lambda now: out.pause(now, DATA))
    network.at(7500, lambda now: out.resume(now, DATA))
    network.run(until=40_000)
    late = [taken - number * 1000 for number, taken in enumerate(a.taken)]
    assert len(late) == 41 and max(late) < 800, "each as the line gets free, at the latest"


def test_a_nic_that_was_full_takes_a_packet_for_each_that_it_sends() -> None:
    network, (a, b, _) = incast(lossless=False)
    out = network.outputs[f"{A} up"]
    out.pause(0, DATA)
    a.give(B, 40)
    network.at(100_000, lambda now: out.resume(now, DATA))
    network.run(until=99_999)
    assert out.waiting == NIC_PACKETS and len(a.data) == 40 - NIC_PACKETS
    network.run(until=100_000 + 4 * 800 + 1)
    assert out.waiting == NIC_PACKETS and len(a.data) == 40 - NIC_PACKETS - 5
    network.run()
    assert len(b.got) == 40


def test_a_packet_of_somebody_else_that_waits_in_a_nic_is_no_pause() -> None:
    network, (a, b, _) = incast(lossless=False)
    out = network.outputs[f"{A} up"]
    a.give(B, 40)
    network.at(100, lambda now: out.offer(now, stray(network), None))
    network.at(200, lambda now: network.nics[A].wake())
    network.run(until=300)
    assert out.waiting == 1 and len(a.data) == 39
    network.run()
    assert len(b.got) == 41


def test_an_address_that_is_not_there_is_counted_and_holds_nothing_up() -> None:
    network, a, b = two_ways(BalancingMode.FLOW)
    a.give("10.9.9.9", 3)
    a.give(B, 3)
    network.run()
    assert len(b.got) == 3 and network.nics[A].unroutable == 3 and network.accounted() == 6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda network: network.add_fabric_switch("left", SwitchSettings()), "two nodes named left"),
        (lambda network: network.connect("a", A, "left", LINK, out=port(), into=port()), "two lines a"),
        (lambda network: network.connect("x", "left", "east", LINK, out=port(), into=port()), "no node east"),
        (lambda network: network.connect("x", "east", "left", LINK, out=port(), into=port()), "no node east"),
    ],
)
def test_what_does_not_fit_together_is_refused(change: object, message: str) -> None:
    network, *_ = two_ways(BalancingMode.FLOW)
    with pytest.raises(ConfigurationError, match=message):
        change(network)  # type: ignore[operator]


def test_a_switch_without_a_route_says_so() -> None:
    network, a, _ = two_ways(BalancingMode.FLOW)
    network.route("left", B, [])
    a.give(B, 1)
    with pytest.raises(ConfigurationError, match="left has no route"):
        network.run()


def one_leaf_each(*, shared: bool) -> FabricNetwork:
    """Two leaves of two NICs each below a spine, whose NICs share their routes or have one each."""
    network = FabricNetwork([Talker(f"10.0.0.{number}") for number in range(1, 5)], seed=1, overhead_bytes=42)
    leaf_of = {address: f"leaf{number // 2}" for number, address in enumerate(network.nics)}
    if shared:
        network.share_routes(leaf_of)
    for name in ("leaf0", "leaf1", "spine"):
        network.add_fabric_switch(name, SwitchSettings(seed=1))
    for leaf in ("leaf0", "leaf1"):
        network.connect(f"{leaf} up", leaf, "spine", LINK, out=port(), into=port())
        network.connect(f"{leaf} down", "spine", leaf, LINK, out=port(), into=port())
    for address, leaf in leaf_of.items():
        network.connect(f"{address} up", address, leaf, LINK, out=port(), into=port())
        network.connect(f"{address} down", leaf, address, LINK, out=port(), into=port())
    for address, home in leaf_of.items():
        for leaf in ("leaf0", "leaf1"):
            network.route(leaf, address, [f"{address} down" if leaf == home else f"{leaf} up"])
        network.route("spine", address, [f"{home} down"])
    return network


@pytest.mark.parametrize("shared", [False, True])
def test_nics_that_share_their_routes_are_reached_each_by_its_own_port(shared: bool) -> None:
    network = one_leaf_each(shared=shared)
    addresses = list(network.nics)
    for sender in addresses:
        talker = network.nics[sender].endpoint
        assert isinstance(talker, Talker)
        for number, receiver in enumerate(addresses, start=1):
            if receiver != sender:
                talker.give(receiver, number)
    network.run()
    for number, address in enumerate(addresses, start=1):
        assert network.nics[address].delivered == 3 * number
    assert len(network.fabric_switches["spine"].routes) == (2 if shared else 4)
    assert len(network.fabric_switches["leaf0"].delivered) == (2 if shared else 0)


def test_groups_of_routes_come_before_switches() -> None:
    network = one_leaf_each(shared=False)
    with pytest.raises(ConfigurationError, match="come before the switches"):
        network.share_routes({})


def test_payload_is_not_copied_before_it_arrives() -> None:
    """A sender leaves it as it is until it knows of its arrival: so it may be looked at as late as that."""
    network, a, b = two_ways(BalancingMode.FLOW)
    memory = bytearray(b"early" * 100)
    a.data.append(Outgoing(B, 50_000, Priority.DATA, b"header ", memoryview(memory)))
    network.run(until=100)
    memory[:5] = b"later"
    network.run()
    [incoming] = b.got
    assert bytes(incoming.data) == b"header later" + b"early" * 99


def test_a_frame_in_two_parts_is_cut_and_damaged_as_one() -> None:
    frame = Frame(0, 1, 5, 0, b"head", memoryview(b"payload"))
    assert (frame.size, frame.length, frame.data) == (11, 11, b"headpayload")
    again = frame.copy()
    frame.trim(6, False)
    assert (frame.size, frame.length, frame.data) == (6, 11, b"headpa")
    frame.trim(3, False)
    assert frame.data == b"hea"
    again.data = b"other"
    assert (again.size, again.data, again.header) == (5, b"other", b"other")
