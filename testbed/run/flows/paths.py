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

from testbed.base.datapath.abi import BalancingMode
from testbed.base.datapath.flow_hash import FiveTuple
from testbed.base.errors import ScenarioError
from testbed.lab.core.plan.lab_plan import LabPlan, PortPlan
from testbed.run.flows.bundles import even_bundles
from testbed.run.ideals.fabric_graph import fabric_graph
from testbed.run.ideals.switch_choices import lab_choice
from testbed.run.placed.lab import LiveLab
from testbed.run.placed.placed_workload import PlacedWorkload
from testbed.run.transports.lab_transport import LabTransport, PathChoice
from testbed.workload.oracles.ecmp import FlowChoice, place_flows
from testbed.workload.oracles.fabric_graph import DirectedLink, FabricGraph, NoPath
from testbed.workload.oracles.max_min import Floats, Indexes
from testbed.workload.oracles.prediction import Flow

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
        """Place all channels; a message of one is cut into stripes, each from a port of its own, where it has `qps`."""
        stripes = int(transport.transport.options.get("qps", 1))
        fives = [self._five(channel, transport.protocol, stripe) for channel in channels for stripe in range(stripes)]
        placed = place_flows(
            self.graph, [self._flow(one) for one in channels for _ in range(stripes)], self._choice(plan, fives)
        )
        self._routes = []
        for number in range(len(channels)):
            used: defaultdict[int, float] = defaultdict(float)
            for path in placed[number * stripes : (number + 1) * stripes]:
                for link in path:
                    used[link] += 1 / stripes
            self._routes.append(_route(used))
        self._fabric: Floats = np.array(self.graph.capacities)
        self._shares, self._loaded = self._routes, len(self.graph.links)
        self._of_link: Indexes = np.arange(self._loaded)

    def _choice(self, plan: LabPlan, fives: Sequence[FiveTuple]) -> FlowChoice:
        """The lab's own choice of a path, by hash or by destination; a drawn one where that is not known.

        Raises `ScenarioError` where some switches pin destinations and the hash of others is not known.
        """
        run = self._placement.seed
        buffers = [] if plan.qos is None else [buffer for buffer in plan.qos.buffers if buffer.node]
        switches = {buffer.node for buffer in buffers}
        try:
            own = lab_choice(plan, fives, run=run)
        except ScenarioError:
            if any(buffer.mode is BalancingMode.STATIC for buffer in buffers):
                raise
            own = None

        def choose(flow: int, node: str, links: int) -> int:
            if own is not None and node.partition(" ")[0] in switches:
                return own(flow, node, links)
            return random.Random(f"{run} {flow} {node}").randrange(links)

        return choose

    def _five(self, channel: Channel, protocol: int, stripe: int) -> FiveTuple:
        source, destination = (self._placement.ranks[rank] for rank in (channel.source, channel.destination))
        assert source.address is not None and destination.address is not None
        return FiveTuple(
            source=source.address.ip,
            destination=destination.address.ip,
            protocol=protocol,
            source_port=channel.source_port + stripe,
            destination_port=channel.destination_port,
        )

    def _flow(self, channel: Channel) -> Flow:
        ranks = self._placement.ranks
        return Flow(source=_place(ranks[channel.source]), destination=_place(ranks[channel.destination]))

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
