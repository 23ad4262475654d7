"""Routes while links fail and come back: what is used, what is withdrawn from whom, and when."""

from collections.abc import Sequence

from testbed.base.datapath.abi import BalancingMode
from testbed.base.datapath.traffic_class import ClassPlan
from testbed.protocols.datagram import Incoming, Outgoing, Priority
from testbed.protocols.simulation import FabricNetwork, FabricPortSettings, LinkSettings, SwitchSettings
from testbed.protocols.simulation.routing import AGAIN_NS, FabricRouting

A, B = "10.0.0.1", "10.0.0.2"
LINK = LinkSettings(rate_bps=10**9, delay_ns=1000)
PORT = FabricPortSettings(classes=(ClassPlan(priority=3),), priority_of=(3, 3, 3, 3, 3))
REACTION_NS = 500
UPDATE_NS = REACTION_NS + LINK.delay_ns
LEAVES, SPINES = ("leaf1", "leaf2"), ("spine1", "spine2")
NICS = dict(zip(LEAVES, (A, B), strict=True))


class Talker:
    """Sends so many packets of 1,000 bytes, each of a flow of its own, and counts what it gets."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.remote = ""
        self.left = 0
        self.got = 0

    def give(self, remote: str, count: int) -> None:
        self.remote, self.left = remote, count

    def receive(self, datagrams: Sequence[Incoming], now: int) -> None:
        self.got += len(datagrams)

    def transmit(self, now: int, limit: int = 64) -> list[Outgoing]:
        if not self.left:
            return []
        self.left -= 1
        return [Outgoing(self.remote, 50_000 + self.left, Priority.DATA, b"h", bytes(957))]

    def next_timer(self) -> int | None:
        return None

    def handle_timer(self, now: int) -> None: ...


def fabric(
    announced: tuple[str, ...] = (), homed: Talker | None = None
) -> tuple[FabricNetwork, FabricRouting, Talker, Talker]:
    """Two leaves with a NIC each, and two spines. `homed`: a host of both leaves."""
    a, b = Talker(A), Talker(B)
    network = FabricNetwork([a, b, *([homed] if homed else [])], seed=1, overhead_bytes=42)
    for name in (*LEAVES, *SPINES):
        network.add_fabric_switch(name, SwitchSettings(balancing=BalancingMode.FLOW, seed=3))
    pairs = [*NICS.items(), *((leaf, spine) for leaf in LEAVES for spine in SPINES)]
    pairs += [(leaf, homed.address) for leaf in LEAVES if homed]
    ends = {f"{one}>{other}": (one, other) for pair in pairs for one, other in (pair, pair[::-1])}
    for name, (source, target) in ends.items():
        network.connect(name, source, target, LINK, out=PORT, into=PORT)
    planned: dict[str, dict[str, tuple[str, ...]]]
    planned = {spine: {address: (f"{spine}>{leaf}",) for leaf, address in NICS.items()} for spine in SPINES}
    for leaf, address in NICS.items():
        other = next(one for one in NICS.values() if one != address)
        planned[leaf] = {address: (f"{leaf}>{address}",), other: tuple(f"{leaf}>{spine}" for spine in SPINES)}
    if homed:
        for spine in SPINES:
            planned[spine][homed.address] = tuple(f"{spine}>{leaf}" for leaf in LEAVES)
        for leaf in LEAVES:
            planned[leaf][homed.address] = (f"{leaf}>{homed.address}",)
    for switch, table in planned.items():
        for address, lines in table.items():
            network.route(switch, address, lines)
    return network, FabricRouting(network, planned, ends, reaction_ns=REACTION_NS, announced=announced), a, b


def test_a_lost_line_is_used_no_more_at_once_and_others_hear_of_it_by_an_update() -> None:
    network, routing, _, _ = fabric()
    routing.lose("spine1>leaf2")
    assert routing.routes("spine1", B) == ()
    assert routing.routes("leaf1", B) == ("leaf1>spine1", "leaf1>spine2"), "nobody has told it yet"
    network.run(until=UPDATE_NS - 1)
    assert routing.routes("leaf1", B) == ("leaf1>spine1", "leaf1>spine2") and not routing.updates
    network.run(until=UPDATE_NS)
    assert routing.routes("leaf1", B) == ("leaf1>spine2",) and routing.updates == 1, "leaf2 does not come by it"
    assert routing.routes("leaf2", A) == ("leaf2>spine1", "leaf2>spine2"), "which is another one's to lose"


def test_packets_without_a_route_are_counted_and_go_on_when_it_is_back() -> None:
    network, routing, a, b = fabric()
    routing.lose("spine1>leaf2")
    a.give(B, 200)  # half of the flows take spine1 until the update is there
    network.run(until=UPDATE_NS + 40_000)
    lost = network.fabric_switches["spine1"].no_route_packets
    assert lost == 0, "a packet takes longer to the spine than the update to the leaf"
    network, routing, a, b = fabric()
    a.give(B, 200)
    network.at(100_000, lambda now: routing.lose("spine1>leaf2"))
    network.at(600_000, lambda now: routing.regain("spine1>leaf2"))
    network.run()
    lost = network.fabric_switches["spine1"].no_route_packets
    assert 0 < lost < 5 and b.got == 200 - lost
    assert network.nics[A].sent == network.accounted(), "sent = delivered + dropped by reason"
    assert routing.routes("leaf1", B) == ("leaf1>spine1", "leaf1>spine2")
    assert min(network.lines[f"leaf1>{spine}"].frames for spine in SPINES) > 30, "both are used again"


def test_a_switch_that_has_lost_all_lines_is_reached_by_nobody_and_announces_all_when_it_is_back() -> None:
    network, routing, _, _ = fabric()
    links = [f"{leaf}>spine1" for leaf in LEAVES] + [f"spine1>{leaf}" for leaf in LEAVES]
    for line in links:
        routing.lose(line)
    network.run(until=10 * UPDATE_NS)
    assert routing.routes("leaf1", B) == ("leaf1>spine2",) and routing.routes("leaf2", A) == ("leaf2>spine2",)
    for line in links:
        routing.regain(line)
    network.run(until=20 * UPDATE_NS)
    assert routing.routes("leaf1", B) == ("leaf1>spine1", "leaf1>spine2")
    assert routing.routes("spine1", A) == ("spine1>leaf1",)


def test_no_update_arrives_by_a_line_that_is_lost_and_what_was_missed_is_known_with_the_session() -> None:
    network, routing, _, _ = fabric()
    for line in ("leaf1>spine1", "spine1>leaf1", "spine1>leaf2"):
        routing.lose(line)
    network.run(until=10 * UPDATE_NS)
    routing.regain("spine1>leaf1")
    routing.regain("leaf1>spine1")
    assert routing.routes("leaf1", B) == ("leaf1>spine2",), "spine1 says at once that it does not reach leaf2"
    routing.regain("spine1>leaf2")
    network.run(until=20 * UPDATE_NS)
    assert routing.routes("leaf1", B) == ("leaf1>spine1", "leaf1>spine2")


def test_an_update_that_met_a_silent_link_is_sent_again() -> None:
    network, routing, _, _ = fabric()
    network.set_up("spine1>leaf1", up=False)
    routing.lose("spine1>leaf2")
    network.at(3 * AGAIN_NS // 2, lambda now: network.set_up("spine1>leaf1", up=True))
    network.run(until=3 * AGAIN_NS // 2)
    assert routing.routes("leaf1", B) == ("leaf1>spine1", "leaf1>spine2") and not routing.updates
    network.run(until=2 * AGAIN_NS + UPDATE_NS)
    assert routing.routes("leaf1", B) == ("leaf1>spine2",) and routing.updates == 1
    network.run(until=10 * AGAIN_NS)
    assert routing.updates == 1, "once is enough"


def test_a_leaf_goes_on_to_announce_the_subnet_of_a_port_that_is_down_but_not_a_host_route() -> None:
    for announced, left in (((), ("leaf1>spine1", "leaf1>spine2")), ((B,), ())):
        network, routing, _, _ = fabric(announced)
        routing.lose(f"leaf2>{B}")
        network.run(until=10 * UPDATE_NS)
        assert routing.routes("leaf2", B) == () and routing.routes("leaf1", B) == left


C = "10.0.0.3"


def test_a_leaf_comes_to_a_host_of_another_leaf_by_its_spines_when_its_own_line_is_lost() -> None:
    """Of both spines leaf1 is the best way to the host: it hears of the other one when it has withdrawn its own."""
    c = Talker(C)
    network, routing, a, _ = fabric((C,), c)
    routing.lose(f"leaf1>{C}")
    assert routing.routes("leaf1", C) == (), "nobody has told it of another"
    network.run(until=2 * UPDATE_NS - 1)
    assert routing.routes("spine1", C) == ("spine1>leaf2",) and routing.routes("leaf1", C) == ()
    network.run(until=2 * UPDATE_NS)
    assert routing.routes("leaf1", C) == ("leaf1>spine1", "leaf1>spine2")
    a.give(C, 50)
    network.nics[A].wake()
    network.run()
    assert c.got == 50 and network.lines[f"leaf2>{C}"].frames == 50
    routing.regain(f"leaf1>{C}")
    assert routing.routes("leaf1", C) == (f"leaf1>{C}",)
    network.run(until=network.now + 4 * UPDATE_NS)
    assert routing.routes("spine1", C) == ("spine1>leaf1", "spine1>leaf2")
    routing.lose(f"leaf1>{C}")
    assert routing.routes("leaf1", C) == (), "the spines have taken back what they said"


def test_a_leaf_that_is_not_the_best_way_has_another_one_at_once_and_loses_it_with_its_session() -> None:
    network, routing, _, _ = fabric((C,), Talker(C))
    routing.lose(f"leaf2>{C}")
    assert routing.routes("leaf2", C) == ("leaf2>spine1", "leaf2>spine2")
    routing.lose("leaf2>spine1")
    assert routing.routes("leaf2", C) == ("leaf2>spine2",)
    routing.lose(f"leaf1>{C}")
    network.run(until=10 * UPDATE_NS)
    assert all(routing.routes(switch, C) == () for switch in (*LEAVES, *SPINES)), "no leaf is told of its own way"
    routing.regain("leaf2>spine1")
    routing.regain(f"leaf1>{C}")
    network.run(until=20 * UPDATE_NS)
    assert routing.routes("leaf2", C) == ("leaf2>spine1", "leaf2>spine2")


def test_no_leaf_makes_a_detour_to_a_subnet() -> None:
    network, routing, _, _ = fabric((), Talker(C))
    routing.lose(f"leaf2>{C}")
    network.run(until=10 * UPDATE_NS)
    assert routing.routes("leaf2", C) == ()
