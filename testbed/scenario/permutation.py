"""Random permutations of NICs: who sends to whom. Pure; the same seed gives the same flows everywhere.

A NIC only ever talks to one on its own rail (and plane). Within a rail the permutation is a random
derangement of blocks: no NIC sends into its own block, where a block is a segment (`inter-segment`)
or a host (`any`).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from testbed.errors import ScenarioError
from testbed.model import Lab
from testbed.model.scenario import Scope
from testbed.plan.operations import LabPlan, PortPlan

Item = TypeVar("Item")

DESTINATION_PORT = 5201
"""iperf3's own."""
_SOURCE_PORTS = (20000, 32000)
"""Below Linux's ephemeral range (ip_local_port_range), so that no control connection sits on one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """One flow to be: `id` counts from 1. The ports are fixed so that ECMP hashes the same each time."""

    id: int
    source: PortPlan
    destination: PortPlan
    source_port: int
    destination_port: int = DESTINATION_PORT

    def __str__(self) -> str:
        a, b = self.source, self.destination
        return f"flow {self.id} ({a.node}:{a.name} -> {b.node}:{b.name})"


def plan_permutation(lab: Lab, plan: LabPlan, *, scope: Scope, seed: int) -> tuple[Transfer, ...]:
    """The transfers of one run, in the order of the plan's NICs.

    Raises `ScenarioError` where a rail has too few NICs in other blocks to draw from.
    """
    rng = random.Random(seed)
    blocks = _blocks(lab, scope)
    rails: dict[tuple[int, str], list[PortPlan]] = {}
    for host in plan.hosts:
        for nic in host.nics:
            if nic.address is not None:
                rails.setdefault((nic.rail, nic.name if nic.rail else ""), []).append(nic)
    pairs: dict[tuple[str, str], PortPlan] = {}
    for (rail, _), nics in rails.items():
        _check_feasible(nics, blocks, scope=scope, rail=rail)
        targets = derange(nics, [blocks[nic.node] for nic in nics], rng)
        pairs |= {(nic.node, nic.name): target for nic, target in zip(nics, targets, strict=True)}
    sources = [nic for host in plan.hosts for nic in host.nics if (nic.node, nic.name) in pairs]
    if not sources:
        raise ScenarioError("this lab has no NIC with an address to send from")
    return tuple(
        Transfer(
            id=number,
            source=nic,
            destination=pairs[nic.node, nic.name],
            source_port=_SOURCE_PORTS[0] + _below(rng, _SOURCE_PORTS[1] - _SOURCE_PORTS[0]),
        )
        for number, nic in enumerate(sources, start=1)
    )


def derange(items: Sequence[Item], blocks: Sequence[Hashable], rng: random.Random) -> list[Item]:
    """A random permutation of `items` in which none lands on a position of its own block.

    `blocks[i]` is the block of position and item i; none may hold more than half of all. A shuffle is
    repaired by swaps: if position i wrongly holds an item of its own block b, any j outside b that
    holds an item outside b may swap with it, and mends i without harming j. Of n positions at most
    2 n_b - 1 < n are in b or hold one of b (i is both), so such a j always exists.
    """
    # sorted by random() and not shuffle(): only the former's sequence is promised across versions
    order = sorted(range(len(items)), key=lambda _: rng.random())
    for i in range(len(items)):
        if blocks[order[i]] == blocks[i]:
            choices = [j for j in range(len(items)) if blocks[j] != blocks[i] and blocks[order[j]] != blocks[i]]
            j = choices[_below(rng, len(choices))]
            order[i], order[j] = order[j], order[i]
    return [items[index] for index in order]


def _below(rng: random.Random, limit: int) -> int:
    return int(rng.random() * limit)


def _blocks(lab: Lab, scope: Scope) -> dict[str, Hashable]:
    """The block of every host. A hand-written host has no place: it is a segment of its own."""
    if scope is Scope.ANY:
        return {host.name: host.name for host in lab.hosts}
    return {host.name: host.name if host.place is None else (host.place.pod, host.place.segment) for host in lab.hosts}


def _check_feasible(nics: Sequence[PortPlan], blocks: dict[str, Hashable], *, scope: Scope, rail: int) -> None:
    counts = Counter(blocks[nic.node] for nic in nics)
    largest = max(counts.values())
    if 2 * largest <= len(nics):
        return
    where = f"rail {rail}" if rail else "the hosts without a rail"
    what = "segment" if scope is Scope.INTER_SEGMENT else "host"
    raise ScenarioError(
        f"no {scope} permutation on {where}: {largest} of its {len(nics)} NICs are in one {what}",
        hint="scope: any allows pairs inside a segment"
        if scope is Scope.INTER_SEGMENT
        else "give the fabric more hosts, all alike",
    )
