"""ECMP of switch ports on a real lab with three tiers: who takes which path, and when a flow moves.

The hosts of pods a, p, f and k send to the one of pod z. A packet passes two choices: leaf to one of two spines, and
that spine to one of two super-spines. Pod a has a seed for each switch, pod p the same one everywhere, the leaf of pod
f balances flowlets, and the switches of pod k leave hashing to the kernel.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from switch_ports import RDMA, PortLab, port_lab, ports_topology
from waiting import until

from testbed.lab.core.deploy.hash_seeds import set_hash_seeds

pytestmark = [pytest.mark.netns, pytest.mark.frr]

PODS = "apfk"
GAP_S = 0.2
FLOWS = 64
FIRST_PORT = 20_000
SEED = Path("/proc/sys/net/ipv4/fib_multipath_hash_seed")
NEEDS_SEED = pytest.mark.skipif(not SEED.exists(), reason="this kernel has no fib_multipath_hash_seed (Linux 6.11)")


def topology() -> str:
    nodes, links = [], []
    for number, pod in enumerate(PODS, 1):
        nodes += [f"    {pod}-leaf: {{kind: switch, role: rail, pod: {number}}}", f"    {pod}-h: {{kind: host}}"]
        nodes += [f"    {pod}-spine{spine}: {{kind: switch, role: spine, pod: {number}}}" for spine in (1, 2)]
        links.append(f'    - {{endpoints: ["{pod}-h:eth1", "{pod}-leaf:eth10"], rate: 50M}}')
        for spine in (1, 2):
            links.append(f'    - {{endpoints: ["{pod}-leaf:eth{spine}", "{pod}-spine{spine}:eth1"], rate: 50M}}')
            links += [
                f'    - {{endpoints: ["{pod}-spine{spine}:eth{1 + top}", "ss{top}:{pod}{spine}"], rate: 50M}}'
                for top in (1, 2)
            ]
    nodes += [
        "    ss1: {kind: switch, role: super-spine}",
        "    ss2: {kind: switch, role: super-spine}",
        "    z-spine: {kind: switch, role: spine, pod: 9}",
        "    z-leaf: {kind: switch, role: rail, pod: 9}",
        "    z-h: {kind: host}",
    ]
    links += [
        '    - {endpoints: ["ss1:z", "z-spine:eth2"], rate: 50M}',
        '    - {endpoints: ["ss2:z", "z-spine:eth3"], rate: 50M}',
        '    - {endpoints: ["z-spine:eth1", "z-leaf:eth1"], rate: 50M}',
        '    - {endpoints: ["z-leaf:eth10", "z-h:eth1"], rate: 50M}',
    ]
    balancing = (
        "p-*: {load_balancing: {polarised: true}}",
        f"f-leaf: {{load_balancing: {{mode: flowlet, gap: {GAP_S * 1000:g}ms}}}}",
        "k-*: {load_balancing: {hash: kernel}}",
    )
    return ports_topology(nodes, links, balancing)


@pytest.fixture(scope="module")
def lab(shared_sandbox: Any) -> Iterator[PortLab]:
    with port_lab(shared_sandbox, topology()) as lab:
        yield lab
        lab.reconciles()


class Pod:
    """Flows from the host of a pod to z-h, and the way of each packet: (spine, super-spine), each 1 or 2."""

    def __init__(self, lab: PortLab, pod: str, stack: ExitStack) -> None:
        self._lab = lab
        stack.enter_context(lab.sink("z-h"))
        self._sockets = [
            stack.enter_context(lab.sender(f"{pod}-h", "z-h", RDMA, source_port=FIRST_PORT + flow))
            for flow in range(FLOWS)
        ]
        self._spines = {spine: stack.enter_context(lab.tap(f"{pod}-spine{spine}", "eth1")) for spine in (1, 2)}
        self._tops = {
            (spine, top): stack.enter_context(lab.tap(f"ss{top}", f"{pod}{spine}"))
            for spine in (1, 2)
            for top in (1, 2)
        }

    def send(self, flows: Sequence[int]) -> None:
        for flow in flows:
            self._sockets[flow].send(b"a packet of some bytes")

    def ways(self, packets: int) -> dict[int, list[tuple[int, int]]]:
        """By flow: the ways of its packets since the last call, in no order; as many in all as are said."""
        spines: dict[int, Counter[int]] = {}
        found: dict[int, list[tuple[int, int]]] = {}

        def arrived() -> bool:
            for way, tap in self._tops.items():
                for packet in tap.udp():
                    found.setdefault(packet.source_port - FIRST_PORT, []).append(way)
            return sum(map(len, found.values())) >= packets

        until(arrived, f"{packets} packets at the super-spines")
        for spine, tap in self._spines.items():
            for packet in tap.udp():
                spines.setdefault(packet.source_port - FIRST_PORT, Counter())[spine] += 1
        for flow, ways in found.items():
            assert Counter(spine for spine, _ in ways) == spines[flow], "a packet keeps to the path it was given"
        return found


def placement(lab: PortLab, pod: str) -> dict[int, tuple[int, int]]:
    """The way of each flow, which all of its packets must take."""
    with ExitStack() as stack:
        item = Pod(lab, pod, stack)
        for _ in range(5):
            item.send(range(FLOWS))
        ways = item.ways(5 * FLOWS)
    assert sorted(ways) == list(range(FLOWS))
    assert {len(of_flow) for of_flow in ways.values()} == {5}
    assert all(len(set(of_flow)) == 1 for of_flow in ways.values()), "the same 5-tuple takes the same way"
    return {flow: of_flow[0] for flow, of_flow in ways.items()}


def test_with_a_seed_for_each_switch_all_paths_of_both_tiers_are_used(lab: PortLab) -> None:
    ways = Counter(placement(lab, "a").values())
    assert len(ways) == 4
    assert min(ways.values()) >= 4, "16 of 64 flows a path: fewer than 4 in one of 10,000 choices of seeds"
    again = placement(lab, "a")
    assert Counter(again.values()) == ways, "nothing but the 5-tuple and the seed decides"


def test_with_the_same_seed_everywhere_the_second_tier_uses_half_of_its_paths(lab: PortLab) -> None:
    ways = placement(lab, "p")
    assert len(set(ways.values())) == 2, "a spine sees only flows that its leaf hashed alike"
    assert {spine for spine, _ in ways.values()} == {1, 2}, "the first tier is no worse than without"
    seeds = {int(lab.maps.ports[lab.number(node, "eth1")]["seed"]) for node in ("p-leaf", "p-spine1", "p-spine2")}
    assert len(seeds) == 1


def test_another_seed_places_flows_differently(lab: PortLab) -> None:
    """The same ports towards the same address; the senders' addresses differ, so compare the seed alone, live."""
    before = placement(lab, "a")
    uplink = lab.number("a-leaf", "eth10")
    seed = int(lab.maps.ports[uplink]["seed"])
    assert seed != int(lab.maps.ports[lab.number("a-spine1", "eth1")]["seed"])
    try:
        lab.maps.ports[uplink]["seed"] = seed ^ 0x5A5A5A5A
        after = placement(lab, "a")
    finally:
        lab.maps.ports[uplink]["seed"] = seed
    moved = sum(before[flow][0] != after[flow][0] for flow in range(FLOWS))
    assert FLOWS / 8 < moved < FLOWS * 7 / 8, "half of them, at random"
    assert placement(lab, "a") == before


@pytest.mark.parametrize("pod", ["a", pytest.param("k", marks=NEEDS_SEED)])
def test_each_run_places_flows_by_its_own_seeds(lab: PortLab, pod: str) -> None:
    """Of our hash and of the kernel's, without another deploy, which leaves the seeds of the run with seed 1."""
    first = placement(lab, pod)
    try:
        set_hash_seeds(lab.running, 2)
        second = placement(lab, pod)
    finally:
        set_hash_seeds(lab.running, 1)
    for tier in (0, 1):
        moved = sum(first[flow][tier] != second[flow][tier] for flow in range(FLOWS))
        assert FLOWS / 8 < moved < FLOWS * 7 / 8, "half of them, at random"
    assert placement(lab, pod) == first


def test_a_flow_moves_in_a_pause_longer_than_the_gap_and_only_then(lab: PortLab) -> None:
    flows, rounds = range(8), 30
    with ExitStack() as stack:
        pod = Pod(lab, "f", stack)

        def burst() -> tuple[dict[int, list[tuple[int, int]]], float]:
            """The ways of packets in quick succession, and the longest pause between two of a flow."""
            longest, last = 0.0, time.monotonic()
            for _ in range(rounds):
                pod.send(flows)
                now = time.monotonic()
                longest, last = max(longest, now - last), now
            return pod.ways(rounds * len(flows)), longest

        def quick_burst() -> dict[int, list[tuple[int, int]]]:
            while True:
                ways, longest = burst()
                if longest < GAP_S / 4:  # else the machine made pauses of its own
                    return ways

        moved = total = 0
        current = {flow: ways[0][0] for flow, ways in quick_burst().items()}
        for _ in range(4):
            time.sleep(1.2 * GAP_S)
            ways = quick_burst()
            assert all(len({spine for spine, _ in of_flow}) == 1 for of_flow in ways.values()), "a flowlet stays"
            now = {flow: of_flow[0][0] for flow, of_flow in ways.items()}
            moved += sum(now[flow] != current[flow] for flow in flows)
            total += len(flows)
            current = now
    assert total / 8 < moved < total * 7 / 8, "each pause is a new choice: half of them change"


@NEEDS_SEED
def test_the_kernels_own_hash_agrees(lab: PortLab) -> None:
    """`hash: kernel` as a cross-check: all paths are used, and the seeds of the tiers differ."""
    ways = Counter(placement(lab, "k").values())
    assert len(ways) == 4
    seeds = {node: lab.inside(node, SEED.read_text).strip() for node in ("k-leaf", "k-spine1", "k-spine2")}
    assert len(set(seeds.values())) == 3
