"""The paths of a run's flows: the links that each channel uses, by the lab's own hash or its spraying, and the links
into scale-up domains.

A hashed flow has the links of its one path. One that is sprayed obliviously has all its paths, each with the share that
every node on the way gives it. One that adapts is held back only by what it cannot avoid: all links of a tier out of a
switch, or into one, together.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from testbed.base.datapath.flow_hash import FiveTuple, port_hash
from testbed.base.errors import ScenarioError
from testbed.lab.core.model import BalancingMode, HashEngine
from testbed.lab.core.plan.lab_plan import LabPlan, PortPlan
from testbed.run.flows.bundles import even_bundles
from testbed.run.ideals.fabric_graph import fabric_graph
from testbed.run.placed.lab import LiveLab
from testbed.run.placed.placed_workload import PlacedWorkload
from testbed.run.transports.lab_transport import LabTransport, PathChoice
from testbed.workload.oracles.fabric_graph import DirectedLink, FabricGraph, NoPath
from testbed.workload.oracles.max_min import Floats, Indexes

if TYPE_CHECKING:
    from testbed.endpoints.worker.program import Channel


@dataclass(frozen=True, slots=True, eq=False)
class Route:
    """The links that hold a flow back, and how much of each it uses for each unit of its rate."""

    links: Indexes
    weights: Floats


NOWHERE = Route(np.empty(0, dtype=np.int64), np.empty(0))
"""The route of what takes no time on links."""


class FlowPaths:
    """The links of a lab with the routes of all channels of a run.

    `capacity` has first what holds flows back in the fabric, then two links for each rank into its scale-up domain.
    Raises `ScenarioError` where two ranks have no path.
    """

    def __init__(
        self,
        lab: LiveLab,
        transport: LabTransport,
        choice: PathChoice,
        placement: PlacedWorkload,
        slowed: Mapping[str, int],
    ) -> None:
        """`slowed` has the rates of links that a fault has changed, by the port that sends."""
        self.graph = slowed_graph(fabric_graph(lab.model, lab.plan, by_gateway=True), slowed)
        self._placement = placement
        channels = placement.channels.channels
        try:
            if choice is PathChoice.HASHED:
                self._hash(lab.plan, transport, channels)
            else:
                self._spray(channels, adaptive=choice is PathChoice.ADAPTIVE)
        except NoPath as error:
            raise ScenarioError(str(error)) from error
        self._first_inside = len(self._fabric)
        inside = float(placement.domains.links.rate_bps) or np.inf
        self.capacity: Floats = np.concatenate((self._fabric, np.full(2 * len(placement.ranks), inside)))

    def over_fabric(self, channel: int) -> Route:
        """Return the route of a channel."""
        return self._routes[channel]

    def inside(self, source: int, destination: int) -> tuple[int, int]:
        """Return the links of two ranks of one scale-up domain: out of the one, and into the other."""
        return self._first_inside + 2 * source, self._first_inside + 2 * destination + 1

    def link_bytes(self, carried: Mapping[int, float]) -> Floats:
        """Return the bytes that each link of the graph has carried, by those of each channel."""
        loads = np.zeros(self._loaded)
        for channel, size in carried.items():
            route = self._shares[channel]
            np.add.at(loads, route.links, route.weights * size)
        return loads[self._of_link]

    # --- one path -----------------------------------------------------------------------------------------

    def _hash(self, plan: LabPlan, transport: LabTransport, channels: Sequence[Channel]) -> None:
        seeds = switch_seeds(plan, self._placement.seed)
        stripes = int(transport.transport.options.get("qps", 1))
        self._routes = [self._hashed(channel, transport.protocol, seeds, stripes) for channel in channels]
        self._fabric: Floats = np.array(self.graph.capacities)
        self._shares, self._loaded = self._routes, len(self.graph.links)
        self._of_link: Indexes = np.arange(self._loaded)

    def _hashed(self, channel: Channel, protocol: int, seeds: Mapping[str, int], stripes: int) -> Route:
        """The route of a channel whose messages are cut into `stripes`, each from a port of its own."""
        source, destination = (self._placement.ranks[rank] for rank in (channel.source, channel.destination))
        assert source.address is not None and destination.address is not None
        drawn: random.Random | None = None
        used: defaultdict[int, float] = defaultdict(float)
        for stripe in range(stripes):
            five = FiveTuple(
                source=source.address.ip,
                destination=destination.address.ip,
                protocol=protocol,
                source_port=channel.source_port + stripe,
                destination_port=channel.destination_port,
            )

            def choose(node: str, links: int, five: FiveTuple = five) -> int:
                nonlocal drawn
                seed = seeds.get(node)
                if seed is not None:
                    return (port_hash(five, seed) & 0xFFFFFFFF) * links >> 32
                drawn = drawn or random.Random(f"{self._placement.seed} {channel.index}")
                return drawn.randrange(links)

            for link in self.graph.path(_place(source), _place(destination), choose):
                used[link] += 1 / stripes
        return _route(used)

    # --- all paths ----------------------------------------------------------------------------------------

    def _spray(self, channels: Sequence[Channel], *, adaptive: bool) -> None:
        ranks = self._placement.ranks
        ends = [(_place(ranks[one.source]), _place(ranks[one.destination])) for one in channels]
        places = {pair: place for place, pair in enumerate(dict.fromkeys(ends))}
        bundles, splits = even_bundles(self.graph, list(places))
        divided = [_route(split) for split in splits]
        held = [_route(bundles.pools(split)) for split in splits] if adaptive else divided
        self._routes = [held[places[pair]] for pair in ends]
        self._shares = [divided[places[pair]] for pair in ends]
        self._fabric = bundles.pool_capacities if adaptive else np.array(bundles.capacities)
        self._loaded, self._of_link = bundles.count, bundles.of_link


def _route(shares: Mapping[int, float]) -> Route:
    return Route(np.array(list(shares), dtype=np.int64), np.array(list(shares.values())))


def _place(nic: PortPlan) -> str:
    return f"{nic.node}:{nic.name}"


def switch_seeds(plan: LabPlan, run: int) -> dict[str, int]:
    """Return the seeds of the switches whose hash is known in the run of this seed: those that hash in their ports."""
    if plan.qos is None:
        return {}
    return {
        buffer.node: buffer.seed_in(run)
        for buffer in plan.qos.buffers
        if buffer.node and buffer.hash is HashEngine.EBPF and buffer.mode is BalancingMode.FLOW
    }


def slowed_graph(graph: FabricGraph, rates: Mapping[str, int]) -> FabricGraph:
    """Return the graph with other rates of some links, by the port that sends; routes stay as they are."""
    if not rates:
        return graph
    links = tuple(
        DirectedLink(
            source=link.source,
            destination=link.destination,
            capacity_bps=float(rates[link.name]),
            name=link.name,
            tier=link.tier,
        )
        if link.name in rates
        else link
        for link in graph.links
    )
    return FabricGraph(links=links, routes=graph.routes, group_of=graph.group_of)
