"""The floor of a simulation: packets put on lines per second of a core, between hosts that do nothing."""

from __future__ import annotations

import time
from collections.abc import Sequence

from testbed.base.datapath.abi import BalancingMode
from testbed.base.datapath.traffic_class import ClassPlan
from testbed.protocols.datagram import Incoming, Outgoing, Priority
from testbed.protocols.simulation import FabricNetwork, FabricPortSettings, LinkSettings, SwitchSettings, events
from testbed.run.simulated.execution import without_collector

COMPILED = not str(events.__file__).endswith(".py")
LEAVES, HOSTS, SPINES = 4, 8, 8
PACKETS = 2_000
LINK = LinkSettings(rate_bps=400 * 10**9, delay_ns=500)
PORT = FabricPortSettings(
    classes=(
        ClassPlan(priority=0, quantum_bytes=4_200),
        ClassPlan(priority=3, quantum_bytes=8_400, kmin_bytes=120_000, kmax_bytes=480_000, limit_bytes=600_000),
        ClassPlan(priority=6, strict=True),
    ),
    priority_of=(3, 3, 6, 6, 6),
    trimming=True,
)


class Talker:
    """An endpoint that costs as little as one can: all that is measured is the network."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.left = PACKETS
        self.datagram: list[Outgoing] = []
        self.got = 0

    def receive(self, datagrams: Sequence[Incoming], now: int) -> None:
        self.got += len(datagrams)

    def transmit(self, now: int, limit: int = 64) -> list[Outgoing]:
        if not self.left:
            return []
        self.left -= 1
        return self.datagram

    def next_timer(self) -> int | None:
        return None

    def handle_timer(self, now: int) -> None: ...


def permutation() -> tuple[FabricNetwork, list[Talker]]:
    """Every host sends to one under the next leaf, over switches that spray."""
    talkers = [Talker(f"10.0.{leaf}.{host}") for leaf in range(LEAVES) for host in range(1, HOSTS + 1)]
    network = FabricNetwork(talkers, seed=1, overhead_bytes=42)
    leaves, spines = [f"leaf{number}" for number in range(LEAVES)], [f"spine{number}" for number in range(SPINES)]
    for name in (*leaves, *spines):
        network.add_fabric_switch(name, SwitchSettings(balancing=BalancingMode.SPRAY, buffer_bytes=64_000_000))
    for one, other in [(leaf, spine) for leaf in leaves for spine in spines]:
        network.connect(f"{one} {other}", one, other, LINK, out=PORT, into=PORT)
        network.connect(f"{other} {one}", other, one, LINK, out=PORT, into=PORT)
    for number, talker in enumerate(talkers):
        address, home = talker.address, leaves[number // HOSTS]
        network.connect(f"{address} up", address, home, LINK, out=PORT, into=PORT)
        network.connect(f"{address} down", home, address, LINK, out=PORT, into=PORT)
        for leaf in leaves:
            network.route(leaf, address, [f"{address} down"] if leaf == home else [f"{leaf} {one}" for one in spines])
        for spine in spines:
            network.route(spine, address, [f"{spine} {home}"])
        remote = talkers[(number + HOSTS) % len(talkers)].address
        talker.datagram = [Outgoing(remote, 50_000, Priority.DATA, bytes(56), bytes(4096))]
    return network, talkers


def plain_hops_per_s() -> float:
    """Packets put on lines per second of a core, between hosts that do nothing."""
    network, talkers = permutation()
    begin = time.process_time()
    with without_collector():
        network.run()
    took = time.process_time() - begin
    assert sum(talker.got for talker in talkers) == len(talkers) * PACKETS
    assert network.hops == 4 * len(talkers) * PACKETS
    return network.hops / took
