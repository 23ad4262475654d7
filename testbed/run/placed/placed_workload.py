"""A workload placed on the NICs of a lab, and the program that follows from it for each host. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from testbed.base.errors import ScenarioError
from testbed.endpoints.worker import program
from testbed.endpoints.worker.program import (
    LARGEST_TRANSFER,
    Channel,
    Endpoint,
    Piece,
    Program,
    ScaleUpLinks,
    ScaleUpPackets,
    Settings,
)
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.run.placed.channels import ChannelPlan
from testbed.run.placed.rings import ranks_of, ring_parts, transfers_of, waits_by_worker
from testbed.run.scale_up.domains import DomainPackets, ScaleUpDomains
from testbed.workload.builder import MAX_STEPS
from testbed.workload.collectives.datatype import DataType
from testbed.workload.collectives.operation import OUT_OF_PLACE
from testbed.workload.steps import Collective, Combine, Compute, FoldedRing, Transfer, Workload

DATA_LIMIT_BYTES = 4 << 30
"""The bytes that all collectives' arrays on all hosts may take by default; what does not fit is carried as traffic
alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedWorkload:
    """A workload on NICs: `ranks[i]` is the NIC of rank i. Its times are multiplied by `k`."""

    workload: Workload
    ranks: Sequence[PortPlan]
    channels: ChannelPlan
    k: float
    seed: int
    domains: ScaleUpDomains = field(default_factory=ScaleUpDomains)
    parts: Sequence[str] = ()
    """By rank, the name of the part of the traffic that it is in; none, where one transport carries all of it."""

    def worker(self, rank: int) -> str:
        """Return the name of the worker that executes a rank: that of its host, which has one for each part."""
        host = self.ranks[rank].node
        return f"{host} over {self.parts[rank]}" if self.parts else host


def datatype_of(collective: Collective) -> DataType:
    """The type of a collective's elements, which follows from their number and its size."""
    arrays = 2 if collective.kind in OUT_OF_PLACE else 1
    size = arrays * collective.size_bytes // collective.elements if collective.elements else 0
    return DataType.BFLOAT16 if size == DataType.BFLOAT16.size_bytes else DataType.FLOAT32


def _check_elements(step: Transfer, workload: Workload) -> None:
    """Accept what the switch of a domain adds up in frames."""
    for collective in workload.collectives:
        if step.number in collective.steps and datatype_of(collective) is not DataType.FLOAT32:
            raise ScenarioError(
                f"step {step.number} ({step.label}) is of a switch that adds up packets of float32 alone",
                hint="workload: {datatype: float32}, or transport: {scale_up: time}",
            )


def choose_checked(workload: Workload, limit_bytes: int = DATA_LIMIT_BYTES) -> tuple[int, ...]:
    """Chooses the collectives whose data is carried and checked: the first ones, as far as their arrays fit."""
    chosen: list[int] = []
    used = 0
    folded = {step.number for step in workload.steps if isinstance(step, FoldedRing)}
    for index, collective in enumerate(workload.collectives):
        if any(number in collective.steps for number in folded):
            continue  # nobody says which part of an array its transfers carry
        used += (collective.elements + collective.staging) * datatype_of(collective).size_bytes * len(collective.ranks)
        if used > limit_bytes:
            break
        chosen.append(index)
    return tuple(chosen)


class _HostParts:
    """The parts of each host's program, by worker, as they are gathered."""

    def __init__(self) -> None:
        self.steps: defaultdict[str, list[program.Step]] = defaultdict(list)
        self.met: defaultdict[str, set[int]] = defaultdict(set)
        """Its own ranks, and those with which they exchange anything."""
        self.neighbours: defaultdict[str, set[int]] = defaultdict(set)
        """Ranks of other hosts in its scale-up domain."""
        self.inside: defaultdict[str, set[int]] = defaultdict(set)
        """Its ranks that use the links of the domain."""
        self.rings: defaultdict[str, list[program.RingPart]] = defaultdict(list)


def compile_programs(
    placement: PlacedWorkload,
    settings: Callable[[str], Settings],
    *,
    pulled: Callable[[Transfer], bool] = lambda step: False,
    checked: Sequence[int] = (),
    sample_ns: int = 25_000_000,
) -> dict[str, Program]:
    """The programs by worker, of those that take part. `settings` are the transport's, by worker; `pulled` tells which
    transfers their destinations begin.

    `checked` are the collectives (by index) whose data is carried; the transfers of others are traffic alone.
    Raises `ScenarioError` for a transfer that is too large, or that its destination cannot begin.
    """
    workload, worker = placement.workload, placement.worker
    data = _DataOf(workload, checked)
    waited_for = _waited_for(workload)
    parts = _HostParts()
    steps, met, neighbours, inside = parts.steps, parts.met, parts.neighbours, parts.inside
    first = MAX_STEPS
    for step in workload.steps:
        if isinstance(step, FoldedRing):
            _add_ring(step, placement, parts, first)
            first += transfers_of(step)
            continue
        if isinstance(step, Compute):
            host = worker(step.rank)
            met[host].add(step.rank)
            steps[host].append(
                program.Step(
                    number=step.number,
                    source=step.rank,
                    duration_ns=round(step.duration_ns * placement.k),
                    start_ns=round(step.start_ns * placement.k),
                    after=step.after,
                )
            )
            continue
        if step.size_bytes > LARGEST_TRANSFER:
            raise ScenarioError(f"step {step.number} carries {step.size_bytes} bytes; the most is {LARGEST_TRANSFER}")
        hosts = (worker(step.source), worker(step.destination))
        over_fabric = step.number in placement.channels.of_step
        asked = pulled(step) if over_fabric else step.pulled and placement.domains.packets is not None
        if step.pulled and not asked:
            raise ScenarioError(
                f"step {step.number} ({step.label}) is read by rank {step.destination}, and the transport has no reads"
            )
        if asked:
            _check_pulled(step, workload)
        if not over_fabric and hosts[0] != hosts[1]:
            _check_domain(step, step.source, step.destination, placement)
            neighbours[hosts[0]].add(step.destination)
            neighbours[hosts[1]].add(step.source)
        if not over_fabric:
            if step.in_switch is not None and placement.domains.packets is not None:
                _check_elements(step, workload)
            inside[hosts[0]].add(step.source)
            inside[hosts[1]].add(step.destination)
        for host in dict.fromkeys(hosts):
            met[host] |= {step.source, step.destination}
            steps[host].append(
                program.Step(
                    number=step.number,
                    source=step.source,
                    destination=step.destination,
                    size_bytes=step.size_bytes,
                    start_ns=round(step.start_ns * placement.k),
                    after=step.after if host == hosts[asked] else (),
                    channel=placement.channels.of_step.get(step.number),
                    piece=data.piece(step),
                    acknowledged=step.number in waited_for,
                    pulled=asked,
                    restores=step.restores if asked else None,
                    in_switch=step.in_switch,
                    vc=step.vc,
                    withdraws=step.withdraws,
                )
            )
    requests = _requests_by_host(placement)
    for host, mine in requests.items():
        met[host] |= {rank for request in mine for rank in (request.client, request.server)}
    checking = {rank for collective in data.collectives for rank in collective.ranks}
    channels = _channels_by_worker(placement)
    return {
        host: Program(
            transport=settings(host),
            endpoints=tuple(_endpoint(rank, placement.ranks[rank]) for rank in sorted(met[host])),
            own=frozenset(rank for rank in met[host] if worker(rank) == host),
            channels=tuple(channels.get(host, ())),
            steps=tuple(steps.get(host, ())),
            collectives=data.collectives if checking & met[host] else (),
            datatypes=data.datatypes if checking & met[host] else (),
            seed=placement.seed,
            scale_up=_links(placement, neighbours[host], inside[host]),
            sample_ns=sample_ns,
            requests=tuple(requests.get(host, ())),
            rings=tuple(parts.rings.get(host, ())),
        )
        for host in dict.fromkeys((*steps, *requests))
    }


def _channels_by_worker(placement: PlacedWorkload) -> Mapping[str, Sequence[Channel]]:
    """Return the channels that begin or end at the ranks of each worker, in order."""
    found: defaultdict[str, list[Channel]] = defaultdict(list)
    for channel in placement.channels.channels:
        ends = (placement.worker(channel.source), placement.worker(channel.destination))
        for worker in dict.fromkeys(ends):
            found[worker].append(channel)
    return found


def _add_ring(ring: FoldedRing, placement: PlacedWorkload, parts: _HostParts, first: int) -> None:
    """Add a ring whose transfers have the numbers from `first` on: to each host one step, and the parts of its ranks.

    Raises `ScenarioError` for what has no links to go over, or too many transfers.
    """
    waits = waits_by_worker(ring, placement.workload, placement)
    told: set[str] = set()
    for host, part in ring_parts(ring, placement, first):
        parts.met[host] |= {part.rank, part.previous, part.following}
        parts.rings[host].append(part)
        if host not in told:
            told.add(host)
            parts.steps[host].append(_step_of_ring(ring, part.rank, waits.get(host, ()), placement.k))
        if part.outgoing is not None:
            continue
        _check_domain(ring, part.rank, part.following, placement)
        other = placement.worker(part.following)
        parts.inside[host].add(part.rank)
        parts.inside[other].add(part.following)
        if host != other:
            parts.neighbours[host].add(part.following)
            parts.neighbours[other].add(part.rank)


def _step_of_ring(ring: FoldedRing, rank: int, waits: Sequence[int], k: float) -> program.Step:
    """Return the step that a whole ring is to the host of a rank: from the rank to itself."""
    return program.Step(
        number=ring.number, source=rank, destination=rank, start_ns=round(ring.start_ns * k), after=tuple(waits)
    )


def _check_domain(step: Transfer | FoldedRing, a: int, b: int, placement: PlacedWorkload) -> None:
    """Raise `ScenarioError` where a transfer over scale-up links has its ends in different domains."""
    source, destination = (placement.ranks[rank].node for rank in (a, b))
    if placement.domains.of(source) != placement.domains.of(destination):
        raise ScenarioError(
            f"step {step.number} ({step.label}) goes over scale-up links from {source} to {destination}, which are not"
            " in one domain"
        )


def _links(placement: PlacedWorkload, neighbours: set[int], inside: set[int]) -> ScaleUpLinks:
    """Return the links of one worker's ranks, of which those of `inside` use them."""
    known, packets = placement.domains.links, placement.domains.packets
    links = ScaleUpLinks(rate_bps=known.rate_bps, in_switch_bps=known.in_switch_bps, one_way_ns=known.one_way_ns)
    if packets is not None and inside:
        links = replace(links, packets=_packets_of(packets, placement, inside))
    if not neighbours:
        return links
    other = placement.domains.of(placement.ranks[next(iter(neighbours))].node)
    return replace(links, domain=other, neighbours=frozenset(neighbours))


def _packets_of(packets: DomainPackets, placement: PlacedWorkload, inside: set[int]) -> ScaleUpPackets:
    nics = {rank: placement.ranks[rank] for rank in inside}
    return packets.of(nics, placement.workload, placement.ranks)


def _check_pulled(step: Transfer, workload: Workload) -> None:
    """Raise `ScenarioError` where a transfer waits for what its destination does not see."""
    for number in step.after:
        before = workload.steps[number]
        if step.destination not in ranks_of(before):
            raise ScenarioError(
                f"step {step.number} ({step.label}) is read by rank {step.destination}, and waits for step {number}, in"
                " which that rank takes no part"
            )


def _requests_by_host(placement: PlacedWorkload) -> dict[str, list[program.Request]]:
    """The requests that each worker sends or answers. Raises `ScenarioError` for one that would stay inside a host."""
    found: defaultdict[str, list[program.Request]] = defaultdict(list)
    k, ranks = placement.k, placement.ranks
    for request in placement.workload.requests:
        client, server = ranks[request.client].node, ranks[request.server].node
        if client == server:
            raise ScenarioError(
                f"ranks {request.client} and {request.server} are client and server on one host, {client}",
                hint="clients: [0, 1], servers: [2, 3], with ranks of different hosts",
            )
        asked = program.Request(
            number=request.number,
            client=request.client,
            server=request.server,
            start_ns=round(request.start_ns * k),
            size_bytes=request.request_bytes,
            prefill_ns=round(request.prefill_ns * k),
            tpot_ns=round(request.tpot_ns * k),
            tokens=request.output_tokens,
            chunk_bytes=request.chunk_bytes,
        )
        for rank in (request.client, request.server):
            found[placement.worker(rank)].append(asked)
    return found


class _DataOf:
    """Knows which of the data-carrying collectives a transfer belongs to."""

    def __init__(self, workload: Workload, checked: Sequence[int]) -> None:
        self.collectives = tuple(workload.collectives[index] for index in checked)
        self.datatypes = tuple(datatype_of(collective) for collective in self.collectives)
        self._of_step = {
            number: position for position, collective in enumerate(self.collectives) for number in collective.steps
        }

    def piece(self, step: Transfer) -> Piece | None:
        position = self._of_step.get(step.number)
        if position is None or step.piece is None or step.combine is Combine.NONE:
            return None
        target = step.target or step.piece
        return Piece(
            collective=position,
            offset=step.piece.offset,
            length=step.piece.length,
            target=target.offset,
            combine=step.combine,
        )


def _waited_for(workload: Workload) -> set[int]:
    """The transfers for whose end a later step waits that their source begins."""
    found: set[int] = set()
    for step in workload.steps:
        if isinstance(step, FoldedRing):
            continue
        rank = step.rank if isinstance(step, Compute) else step.begun_by
        for number in step.after:
            before = workload.steps[number]
            if isinstance(before, Transfer) and before.source == rank:
                found.add(number)
    return found


def _endpoint(rank: int, nic: PortPlan) -> Endpoint:
    assert nic.address is not None
    return Endpoint(rank=rank, host=nic.node, interface=nic.name, address=str(nic.address.ip))
