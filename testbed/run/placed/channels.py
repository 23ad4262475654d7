"""Which transfers share a channel, and the ports of each: decided before a run, so that oracles can follow every hash.

Source ports are drawn from the run's seed, below the ephemeral range, so that the same seed hashes the same way each
time and another seed another way.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from testbed.base.errors import ScenarioError
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.workload.draws import draw_below
from testbed.workload.steps import FoldedRing, Transfer, Workload

if TYPE_CHECKING:
    from testbed.endpoints.worker.program import Channel

LISTENING_PORT = 18_515
"""The port on which receivers of connections listen: perftest's default."""
SOURCE_PORTS = (20_000, 32_000)
"""Source ports are drawn from this range, which lies below Linux's ephemeral range (ip_local_port_range)."""
_LOOK_BACK = 64
"""The number of steps back that a transfer is looked for whose channel can be used again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelRules:
    """The transfers of a transport that share a channel, and the ports that it has."""

    destination_port: int = LISTENING_PORT
    one_for_each_pair: bool = False
    """Each pair of ranks has one channel, from a port of the source's NIC; else channels have ports of their own."""
    keeps_port: bool = False
    """With one for each pair, the NIC keeps to one source port, rather than change it from packet to packet."""
    own_ports: bool = False
    """With one for each pair, it has a source port of its own, as a connection does."""
    source_ports: tuple[int, int] = SOURCE_PORTS
    """From the first of these up to below the second one source ports are drawn."""

    def is_shared(self, step: Transfer) -> bool:
        """Tell whether a transfer has the one channel of its ends, with whatever else goes that way."""
        return step.piece is not None or self.one_for_each_pair


CONNECTIONS = ChannelRules()
"""The rules of transports whose channels are connections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelPlan:
    """The channels of a workload.

    `of_step` has the index of the channel of every transfer over the fabric; transfers inside a scale-up domain
    have none. `between` has that of the collectives between two ranks.
    """

    channels: tuple[Channel, ...]
    of_step: Mapping[int, int]
    between: Mapping[tuple[int, int], int] = field(default_factory=dict)


def plan_channels(
    workload: Workload, ranks: Sequence[PortPlan], rules: ChannelRules = CONNECTIONS, *, seed: int
) -> ChannelPlan:
    """The channels of one run; `ranks[i]` is the NIC of rank i.

    A collective's transfers from one rank to another share a channel, as they do a connection of NCCL. Of traffic
    patterns, a transfer that waits for nothing has one of its own (a permutation's flows, each of the front-end's
    mice), and one that waits for a transfer of the same way follows it. By the `rules` of its transport, each pair has
    one instead, which sprays, or keeps to its source port. Transfers between ranks of one host, or of one scale-up
    domain where the workload knows of it, stay inside.

    Raises `ScenarioError` where the ranks do not fit.
    """
    if len(ranks) < workload.ranks:
        raise ScenarioError(f"{workload.name} has {workload.ranks} ranks, and {len(ranks)} NICs are given")
    for rank, nic in enumerate(ranks):
        if nic.address is None:
            raise ScenarioError(f"rank {rank} cannot be {nic.node}:{nic.name}: it has no address")
    pairs = _Assignment(workload)
    of_step: dict[int, int] = {}
    for step in workload.steps:
        if isinstance(step, FoldedRing):
            for ends in step.edges:
                if ends[0] not in step.inside:
                    pairs.shared(ends)
        if not isinstance(step, Transfer) or step.scale_up:
            continue
        if ranks[step.source].node != ranks[step.destination].node:
            shared = rules.is_shared(step)
            of_step[step.number] = pairs.shared((step.source, step.destination)) if shared else pairs.own(step)
    from testbed.endpoints.worker.program import Channel

    rng = random.Random(f"ports {seed}")
    ports = _ports_of_nics(rng, ranks, rules) if rules.one_for_each_pair and not rules.own_ports else None
    taken: set[tuple[str, str, int]] = set()
    channels = []
    for index, (source, destination) in enumerate(pairs.ends):
        source_port = (
            _draw_port(rng, ranks[source], ranks[destination], rules, taken) if ports is None else ports[source]
        )
        channels.append(
            Channel(
                index=index,
                source=source,
                destination=destination,
                source_port=source_port,
                destination_port=rules.destination_port,
            )
        )
    return ChannelPlan(channels=tuple(channels), of_step=of_step, between=pairs.between)


def join_channels(plans: Sequence[tuple[ChannelPlan, Sequence[int]]]) -> ChannelPlan:
    """Join the channels of parts of a workload; with each part's come the numbers that its steps have in the whole."""
    channels: list[Channel] = []
    of_step: dict[int, int] = {}
    for plan, steps in plans:
        first = len(channels)
        channels += [channel.changed(index=first + channel.index) for channel in plan.channels]
        of_step |= {steps[number]: first + index for number, index in plan.of_step.items()}
    return ChannelPlan(channels=tuple(channels), of_step=dict(sorted(of_step.items())))


class _Assignment:
    """Gives each transfer a channel between its ends, and remembers which step was the last on each."""

    def __init__(self, workload: Workload) -> None:
        self.ends: list[tuple[int, int]] = []
        self._workload = workload
        self.between: dict[tuple[int, int], int] = {}
        """The channel of all collectives between two ranks."""
        self._last: dict[int, int] = {}
        """The channel on which a step is the last, by the step's number."""
        self._first: dict[tuple[int, int], int] = {}
        self._begun = {(step.source, step.destination) for step in workload.transfers if not step.after}
        """The ends of transfers that wait for nothing, each of which has a channel of its own."""

    def shared(self, ends: tuple[int, int]) -> int:
        """The one channel that all collectives between these ranks share."""
        if ends not in self.between:
            self.between[ends] = self._open(ends)
        return self.between[ends]

    def own(self, step: Transfer) -> int:
        """The channel of a transfer before this one; a transfer that waits for nothing gets a channel of its own."""
        ends = step.source, step.destination
        if ends not in self._begun:  # they have one channel, whatever a transfer follows
            if ends not in self._first:
                self._first[ends] = self._open(ends)
            return self._first[ends]
        channel = self._before(step) if step.after else None
        if channel is None:
            channel = self._first.get(ends) if step.after else None
        if channel is None:
            channel = self._open(ends)
            self._first.setdefault(ends, channel)
        self._last[step.number] = channel
        return channel

    def _open(self, ends: tuple[int, int]) -> int:
        self.ends.append(ends)
        return len(self.ends) - 1

    def _before(self, step: Transfer) -> int | None:
        """The channel of a transfer between the same ends that has ended when this one begins, and is its last."""
        seen = set(step.after)
        queue = sorted(seen)
        for number in queue:
            channel = self._last.get(number)
            if channel is not None and self.ends[channel] == (step.source, step.destination):
                del self._last[number]
                return channel
            for before in self._workload.steps[number].after:
                if before not in seen and len(seen) < _LOOK_BACK:
                    seen.add(before)
                    queue.append(before)
        return None


def _ports_of_nics(rng: random.Random, ranks: Sequence[PortPlan], rules: ChannelRules) -> list[int]:
    """The source port of each rank: one for each address, since the endpoint there has it.

    0 means that it varies from packet to packet.
    """
    by_address: dict[str, int] = {}
    for nic in ranks:
        by_address.setdefault(str(nic.address), _port(rng, rules) if rules.keeps_port else 0)
    return [by_address[str(nic.address)] for nic in ranks]


def _draw_port(
    rng: random.Random, source: PortPlan, to: PortPlan, rules: ChannelRules, taken: set[tuple[str, str, int]]
) -> int:
    """Draws a source port that no other channel between these addresses has."""
    least, most = rules.source_ports
    for _ in range(most - least):
        port = _port(rng, rules)
        key = (str(source.address), str(to.address), port)
        if key not in taken:
            taken.add(key)
            return port
    raise ScenarioError(f"{source.node}:{source.name} needs more than {most - least} channels to {to.node}:{to.name}")


def _port(rng: random.Random, rules: ChannelRules) -> int:
    least, most = rules.source_ports
    return least + draw_below(rng, most - least)
