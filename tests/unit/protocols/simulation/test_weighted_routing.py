"""Shares of lines by the bandwidth behind them, while links of a bundle fail and come back."""

from collections import Counter
from collections.abc import Sequence

from testbed.base.datapath.traffic_class import ClassPlan
from testbed.protocols.datagram import Incoming, Outgoing
from testbed.protocols.simulation import FabricNetwork, FabricPortSettings, LinkSettings, SwitchSettings
from testbed.protocols.simulation.routing import AGAIN_NS
from testbed.protocols.simulation.weighted_routing import WeightedRouting

A, B = "10.0.0.1", "10.0.0.2"
LINK = LinkSettings(rate_bps=10**9, delay_ns=1000)
PORT = FabricPortSettings(classes=(ClassPlan(priority=3),), priority_of=(3, 3, 3, 3, 3))
REACTION_NS = 500
UPDATE_NS = REACTION_NS + LINK.delay_ns
NICS = {"leaf1": A, "leaf2": B}
SPINES = ("spine1", "spine2")


class Silent:
    def __init__(self, address: str) -> None:
        self.address = address

    def receive(self, datagrams: Sequence[Incoming], now: int) -> None: ...

    def transmit(self, now: int, limit: int = 64) -> list[Outgoing]:
        return []

    def next_timer(self) -> int | None:
        return None

    def handle_timer(self, now: int) -> None: ...


def fabric() -> tuple[FabricNetwork, WeightedRouting]:
    """Two leaves with a NIC each, two spines, and bundles of two links between each leaf and spine."""
    network = FabricNetwork([Silent(A), Silent(B)], seed=1, overhead_bytes=42)
    for name in (*NICS, *SPINES):
        network.add_fabric_switch(name, SwitchSettings(seed=3))
    ends = {}
    for leaf, address in NICS.items():
        ends |= {f"{leaf}>{address}": (leaf, address), f"{address}>{leaf}": (address, leaf)}
        for spine in SPINES:
            for number in (1, 2):
                ends[f"{leaf}>{spine}.{number}"] = (leaf, spine)
                ends[f"{spine}>{leaf}.{number}"] = (spine, leaf)
    for name, (source, target) in ends.items():
        network.connect(name, source, target, LINK, out=PORT, into=PORT)
    planned: dict[str, dict[str, tuple[str, ...]]] = {
        spine: {address: (f"{spine}>{leaf}.1", f"{spine}>{leaf}.2") for leaf, address in NICS.items()}
        for spine in SPINES
    }
    for leaf, address in NICS.items():
        other = next(one for one in NICS.values() if one != address)
        ups = tuple(f"{leaf}>{spine}.{number}" for spine in SPINES for number in (1, 2))
        planned[leaf] = {address: (f"{leaf}>{address}",), other: ups}
    for switch, table in planned.items():
        for destination, lines in table.items():
            network.route(switch, destination, lines)
    told = {name: (1 if target in NICS else 0, 0) for name, (source, target) in ends.items() if source in SPINES}
    return network, WeightedRouting(network, planned, ends, told, reaction_ns=REACTION_NS)


def shares(routing: WeightedRouting) -> dict[str, int]:
    return dict(Counter(routing.routes("leaf1", B)))


ALIKE = {f"leaf1>{spine}.{number}": 1 for spine in SPINES for number in (1, 2)}
UNEVEN = {"leaf1>spine1.1": 33, "leaf1>spine1.2": 33, "leaf1>spine2.1": 16, "leaf1>spine2.2": 16}


def test_where_nothing_failed_all_lines_have_the_same_share() -> None:
    _, routing = fabric()
    assert shares(routing) == ALIKE


def test_a_spine_that_loses_a_link_of_a_bundle_gets_half_once_the_leaf_has_heard() -> None:
    network, routing = fabric()
    network.at(10, lambda now: routing.lose("spine2>leaf2.1"))
    network.run(until=10 + UPDATE_NS - 1)
    assert shares(routing) == ALIKE
    network.run(until=10 + UPDATE_NS)
    assert shares(routing) == UNEVEN
    installed = [port.name for port in network.fabric_switches["leaf1"].routes[network.nics[B].number]]
    assert Counter(installed) == UNEVEN and installed[0] == "leaf1>spine2.1", "the least stand first"


def test_what_comes_back_is_told_as_well() -> None:
    network, routing = fabric()
    network.at(10, lambda now: routing.lose("spine2>leaf2.1"))
    network.at(10_000, lambda now: routing.regain("spine2>leaf2.1"))
    network.run(until=10_000 + UPDATE_NS)
    assert shares(routing) == ALIKE


def test_a_spine_that_loses_the_whole_bundle_gets_nothing() -> None:
    network, routing = fabric()
    network.at(10, lambda now: (routing.lose("spine2>leaf2.1"), routing.lose("spine2>leaf2.2"))[0])
    network.run(until=10_000)
    assert shares(routing) == {"leaf1>spine1.1": 1, "leaf1>spine1.2": 1}


def test_sums_that_met_a_silent_link_are_told_again() -> None:
    network, routing = fabric()
    silent = ["spine2>leaf1.1", "spine2>leaf1.2"]
    network.set_up(silent, up=False)
    network.at(10, lambda now: routing.lose("spine2>leaf2.1"))
    network.at(10_000, lambda now: network.set_up(silent, up=True))
    network.run(until=20_000)
    assert shares(routing) == ALIKE
    network.run(until=AGAIN_NS + 20_000)
    assert shares(routing) == UNEVEN


def test_over_a_bundle_whose_first_link_is_lost_the_others_tell() -> None:
    network, routing = fabric()
    for line in ("leaf1>spine2.1", "spine2>leaf1.1"):
        routing.lose(line)
    network.run(until=10_000)
    network.at(10_001, lambda now: routing.lose("spine2>leaf2.1"))
    network.run(until=20_000)
    assert shares(routing) == {"leaf1>spine1.1": 40, "leaf1>spine1.2": 40, "leaf1>spine2.2": 20}
    network.at(20_001, lambda now: routing.lose("spine2>leaf2.2"))
    network.run(until=30_000)
    assert shares(routing) == {"leaf1>spine1.1": 1, "leaf1>spine1.2": 1}, "spine2 has withdrawn what is behind leaf2"


def test_a_link_of_the_leafs_own_is_one_path_less() -> None:
    network, routing = fabric()
    network.at(10, lambda now: routing.lose("leaf1>spine2.1"))
    network.run(until=10_000)
    assert shares(routing) == {"leaf1>spine1.1": 1, "leaf1>spine1.2": 1, "leaf1>spine2.2": 1}
