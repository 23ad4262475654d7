"""Switches that adapt to their queues, pin destinations, or hash chosen fields."""

from collections import Counter, deque
from collections.abc import Sequence
from ipaddress import IPv4Address
from random import Random

import pytest

from testbed.base.datapath.abi import FIVE_TUPLE, BalancingMode, HashField
from testbed.base.datapath.flow_hash import ROCE_PORT, FiveTuple, port_hash
from testbed.base.datapath.traffic_class import ClassPlan
from testbed.protocols.datagram import Incoming, Outgoing, Priority
from testbed.protocols.roce.packets.headers import encode_bth
from testbed.protocols.simulation import FabricNetwork, FabricPortSettings, LinkSettings, SwitchSettings
from testbed.protocols.simulation.switch import FlowHash

GBPS = 10**9
LINK = LinkSettings(rate_bps=GBPS, delay_ns=1000)
FAST = LinkSettings(rate_bps=10 * GBPS, delay_ns=1000)
SLOW = LinkSettings(rate_bps=GBPS // 10, delay_ns=1000)
HOSTS = [f"10.0.0.{number}" for number in range(1, 9)]
PORT = FabricPortSettings(classes=(ClassPlan(priority=0),), priority_of=(0, 0, 0, 0, 0))
PACKET = 1000


class Talker:
    """Sends what it was given to send, and counts what it gets."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.waiting: deque[Outgoing] = deque()
        self.got = 0

    def give(self, remote: str, count: int, entropy: int, header: bytes = b"h") -> None:
        for _ in range(count):
            payload = bytes(PACKET - 42 - len(header))
            self.waiting.append(Outgoing(remote, entropy, Priority.DATA, header, payload))

    def receive(self, datagrams: Sequence[Incoming], now: int) -> None:
        self.got += len(datagrams)

    def transmit(self, now: int, limit: int = 64) -> list[Outgoing]:
        return [self.waiting.popleft()] if self.waiting else []

    def next_timer(self) -> int | None:
        return None

    def handle_timer(self, now: int) -> None: ...


def fabric(
    settings: SwitchSettings, ways: Sequence[LinkSettings], *, senders: int = 1, destination_port: int = 4793
) -> tuple[FabricNetwork, list[Talker]]:
    """Hosts that send at 10 Gbit/s to a switch, and ways from it to another one with all of them as well."""
    talkers = [Talker(address) for address in HOSTS]
    network = FabricNetwork(talkers, seed=1, overhead_bytes=42, destination_port=destination_port)
    network.add_fabric_switch("left", settings)
    network.add_fabric_switch("right", SwitchSettings())
    for address in HOSTS[:senders]:
        network.connect(f"{address} up", address, "left", FAST, out=PORT, into=PORT)
    names = [f"way{number}" for number in range(len(ways))]
    for name, link in zip(names, ways, strict=True):
        network.connect(name, "left", "right", link, out=PORT, into=PORT)
    for address in HOSTS[senders:]:
        network.connect(f"{address} down", "right", address, FAST, out=PORT, into=PORT)
        network.connect(f"{address} up", address, "right", FAST, out=PORT, into=PORT)
        network.route("left", address, names)
        network.route("right", address, [f"{address} down"])
    return network, talkers


def loads(network: FabricNetwork) -> list[int]:
    return [line.frames for name, line in network.lines.items() if name.startswith("way")]


def adaptive(**settings: int | bool) -> SwitchSettings:
    return SwitchSettings(balancing=BalancingMode.ADAPTIVE, seed=77, **settings)  # type: ignore[arg-type]


def test_packets_of_one_flow_go_where_the_least_waits() -> None:
    network, talkers = fabric(adaptive(), [LINK, LINK, LINK, LINK])
    talkers[0].give(HOSTS[7], 400, 50_001)
    network.run()
    assert talkers[7].got == 400 and max(loads(network)) - min(loads(network)) <= 2
    deepest = [network.outputs[f"way{number}"].queues[0].max_bytes for number in range(4)]
    assert max(deepest) - min(deepest) <= 2 * PACKET


def test_a_slow_way_gets_as_much_as_it_carries() -> None:
    """Spraying gives it half, and waits for it."""
    times = {}
    for mode in (BalancingMode.ADAPTIVE, BalancingMode.SPRAY):
        network, talkers = fabric(SwitchSettings(balancing=mode, seed=77), [LINK, SLOW])
        talkers[0].give(HOSTS[7], 440, 50_001)
        network.run()
        times[mode] = network.now
        if mode is BalancingMode.ADAPTIVE:
            # queues are alike while packets come, so that the fast way has more what it could send meanwhile
            assert loads(network)[0] - loads(network)[1] == pytest.approx(40, abs=15)
    assert times[BalancingMode.ADAPTIVE] < times[BalancingMode.SPRAY]


def test_where_nothing_waits_packets_are_divided_evenly() -> None:
    network, talkers = fabric(adaptive(), [FAST, FAST, FAST, FAST])
    for _ in range(100):
        talkers[0].give(HOSTS[7], 1, 50_001)
        network.run()
        network.at(network.now + 100_000, lambda now: None)
        network.run()
    assert min(loads(network)) >= 20


def test_a_flow_with_a_hysteresis_stays_until_another_way_has_so_much_less() -> None:
    moves = []
    for hysteresis in (1, 10 * PACKET, 1000 * PACKET):
        network, talkers = fabric(adaptive(hysteresis_bytes=hysteresis), [LINK, LINK])
        talkers[0].give(HOSTS[7], 100, 50_001)
        network.run()
        moves.append(loads(network))
    assert min(moves[0]) > 40 and 0 < min(moves[1]) < 60
    assert sorted(moves[2]) == [0, 100], "it never has so much less"


def test_by_flowlets_a_flow_moves_after_a_gap_alone_and_to_where_less_waits() -> None:
    network, talkers = fabric(adaptive(flowlets=True, gap_ns=50_000), [LINK, LINK], senders=2)
    talkers[0].give(HOSTS[7], 200, 50_001)  # 1.6 ms at 1 Gbit/s
    talkers[1].give(HOSTS[6], 20, 50_002)
    network.run(until=300_000)
    first = loads(network)
    assert min(first) > 0, "the second flow goes beside the first"
    waiting = [network.outputs[f"way{number}"].queues[0].bytes for number in range(2)]
    assert max(waiting) > 50 * PACKET, "no packet of the first flow went beside its flowlet"
    network.run()
    assert talkers[7].got == 200 and sorted(loads(network)) == [20, 200]


def test_a_flow_without_a_gap_is_never_reordered_by_flowlets() -> None:
    network, talkers = fabric(adaptive(flowlets=True, gap_ns=50_000), [LINK, LINK])
    for entropy in range(50_000, 50_016):
        talkers[0].give(HOSTS[7], 10, entropy)
    network.run()
    assert talkers[7].got == 160 and min(loads(network)) == 80, "16 flows, each whole, on the shorter queue"


def static(stride: int = 1) -> SwitchSettings:
    return SwitchSettings(balancing=BalancingMode.STATIC, seed=77, stride=stride)


def test_each_destination_has_its_way_whatever_the_flow() -> None:
    network, talkers = fabric(static(), [LINK] * 3)
    for host, ports in ((1, 30), (2, 20), (3, 10)):
        for number in range(ports):
            talkers[0].give(HOSTS[host], 1, 50_000 + number)
    network.run()
    assert loads(network) == [10, 30, 20], "host 1 is on way 1, host 2 on way 2, host 3 on way 0"


def test_behind_a_tier_that_has_divided_them_destinations_are_pinned_in_runs() -> None:
    network, talkers = fabric(static(stride=2), [LINK] * 2)
    for host in range(1, 8):
        talkers[0].give(HOSTS[host], host, 50_000)
    network.run()
    assert loads(network) == [1 + 4 + 5, 2 + 3 + 6 + 7]


@pytest.mark.parametrize("number", range(40))
def test_the_hash_of_some_fields_is_that_of_the_emulated_switches(number: int) -> None:
    random = Random(number)
    fields = tuple(field for field in HashField if random.random() < 0.6)
    source, destination = IPv4Address(random.getrandbits(32)), IPv4Address(random.getrandbits(32))
    port, seed, pair = random.randrange(1, 65536), random.getrandbits(32), random.getrandbits(24)
    destination_port = ROCE_PORT if number % 2 else 4793
    five = FiveTuple(
        source=source,
        destination=destination,
        protocol=17,
        source_port=port,
        destination_port=destination_port,
        queue_pair=pair,
    )
    header = encode_bth(0x0A, pair, 7)
    found = FlowHash(fields, seed, destination_port).of(source.packed, destination.packed, port, header)
    assert found >> 32 == port_hash(five, seed, fields)


def test_what_is_not_heeded_changes_nothing() -> None:
    fields = {"source": IPv4Address("10.0.0.1"), "destination": IPv4Address("10.0.0.2"), "protocol": 17}
    ports = {"source_port": 50_000, "destination_port": ROCE_PORT, "queue_pair": 5}
    other = {"source": IPv4Address("10.9.9.9"), "destination": IPv4Address("10.8.8.8"), "protocol": 6}
    other |= {"source_port": 1, "destination_port": 2, "queue_pair": 6}  # type: ignore[dict-item]
    names = dict(zip(HashField, (*fields, *ports), strict=True))
    for field in HashField:
        heeded = tuple(HashField)
        without = tuple(one for one in HashField if one is not field)
        one = FiveTuple(**fields, **ports)  # type: ignore[arg-type]
        changed = FiveTuple(**{**fields, **ports, names[field]: other[names[field]]})  # type: ignore[arg-type]
        if field in (HashField.PROTOCOL, HashField.DESTINATION_PORT):
            heeded, without = FIVE_TUPLE, tuple(one for one in FIVE_TUPLE if one is not field)
        assert port_hash(one, 9, heeded) != port_hash(changed, 9, heeded)
        assert port_hash(one, 9, without) == port_hash(changed, 9, without)


def test_queue_pairs_of_one_pair_of_ports_take_several_ways_where_they_are_hashed() -> None:
    ways = {}
    for fields in (FIVE_TUPLE, tuple(HashField)):
        settings = SwitchSettings(seed=77, hash_fields=fields)
        network, talkers = fabric(settings, [LINK] * 4, destination_port=ROCE_PORT)
        for pair in range(64):
            talkers[0].give(HOSTS[7], 1, 50_001, encode_bth(0x0A, 0x100 + pair, 0))
        network.run()
        ways[fields] = Counter(loads(network))
    assert ways[FIVE_TUPLE] == Counter({0: 3, 64: 1})
    assert 0 not in ways[tuple(HashField)], "E-ECMP: 64 queue pairs over all of them"


@pytest.mark.parametrize("mode", [BalancingMode.FLOW, BalancingMode.SPRAY])
def test_a_way_that_stands_in_a_route_twice_has_twice_as_much(mode: BalancingMode) -> None:
    network, talkers = fabric(SwitchSettings(balancing=mode, seed=77), [FAST, FAST])
    network.route("left", HOSTS[7], ["way0", "way0", "way1"])
    for entropy in range(49_000, 49_900):
        talkers[0].give(HOSTS[7], 1, entropy)
    network.run()
    assert loads(network)[0] == pytest.approx(600, rel=0.07)
