"""Programs as JSON, strictly read back: the fields' types say which values they may have, and what follows here, what
must fit together.

A program comes from the runner, but a worker listens to whoever holds its standard input: what it reads is data, and
everything that does not fit together is a `ProgramError` with its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from ipaddress import IPv4Address
from typing import Any, get_type_hints

import msgspec

from testbed.base.program_errors import ProgramError
from testbed.base.typed_json import Text, read_as, to_json
from testbed.endpoints.worker.program import (
    MEMORY_LIMIT,
    VERSION,
    Channel,
    Elements,
    Endpoint,
    Program,
    ProgramRow,
    Rank,
    ScaleUpLinks,
    Step,
)
from testbed.endpoints.worker.transport_registry import decode_settings, encode_settings
from testbed.protocols.errors import TransportError
from testbed.workload.collectives.operation import ROOTED, CollectiveKind
from testbed.workload.steps import Collective, Combine, InSwitch

_TYPES = {
    name: kind
    for name, kind in get_type_hints(Program, include_extras=True).items()
    if name not in ("transport", "collectives", "rings")
}
"""The parts of a program that stand in JSON as they are."""


class ProgramCollective(ProgramRow, frozen=True, kw_only=True):
    """A collective, without the steps that it was made of."""

    kind: CollectiveKind
    algorithm: Text
    ranks: tuple[Rank, ...]
    size_bytes: Elements
    elements: Elements
    root: Rank | None
    staging: Elements


def encode_program(program: Program) -> dict[str, Any]:
    """Return a program as JSON has it."""
    collectives = [msgspec.convert(item, ProgramCollective, from_attributes=True) for item in program.collectives]
    return {
        "version": VERSION,
        "transport": encode_settings(program.transport),
        "collectives": to_json(collectives),
        **{name: to_json(getattr(program, name)) for name in _TYPES},
    }


def decode_program(document: object) -> Program:
    """Read back what `encode_program` wrote. Raises `ProgramError` alone, with the place of what is wrong."""
    if not isinstance(document, dict):
        raise ProgramError("program", "is no object")
    if document.get("version") != VERSION:
        raise ProgramError("version", f"{document.get('version')!r} is not {VERSION}, the version of this worker")
    odd = document.keys() ^ {"version", "transport", "collectives", *_TYPES}
    if odd:
        raise ProgramError(f"program.{min(odd)}", "is unknown" if min(odd) in document else "is missing")
    try:
        parts = {name: read_as(kind, document[name], name) for name, kind in _TYPES.items()}
    except TransportError as error:
        raise ProgramError("scale_up.packets", f"has no GPU of a scale-up domain: {error}") from None
    rows: tuple[ProgramCollective, ...] = read_as(tuple[ProgramCollective, ...], document["collectives"], "collectives")
    program = Program(
        transport=decode_settings(document["transport"]),
        collectives=tuple(_collective(row, f"collectives[{n}]") for n, row in enumerate(rows)),
        **parts,
    )
    by_rank = _check_endpoints(program)
    _check_memory(program)
    _check_scale_up(program.scale_up, program.own, by_rank.keys() - program.own)
    _check_steps(program, by_rank)
    _check_requests(program, by_rank)
    return program


def _collective(row: ProgramCollective, path: str) -> Collective:
    ranks = row.ranks
    _distinct(f"{path}.ranks", ranks)
    if not ranks or (row.kind in ROOTED and row.root not in ranks):
        raise ProgramError(path, "a collective has ranks, and its root is one of them")
    if row.kind is CollectiveKind.ALL_TO_ALL and row.elements % (2 * len(ranks)):
        raise ProgramError(path, f"{row.elements} elements are not two buffers of equal blocks")
    return Collective(**msgspec.structs.asdict(row) | {"kind": row.kind.value, "steps": range(0)})


# --- what must fit together ------------------------------------------------------------------------------


def _check_endpoints(program: Program) -> dict[int, Endpoint]:
    """Accept endpoints with addresses, and channels between them. Return the endpoint of each rank."""
    for n, endpoint in enumerate(program.endpoints):
        try:
            IPv4Address(endpoint.address)
        except ValueError:
            raise ProgramError(f"endpoints[{n}]", f"{endpoint.address!r} is no IPv4 address") from None
    by_rank = {endpoint.rank: endpoint for endpoint in program.endpoints}
    _distinct("endpoints", [endpoint.rank for endpoint in program.endpoints])
    if not program.own <= by_rank.keys():
        raise ProgramError("own", "a rank has no endpoint")
    _distinct("channels", [channel.index for channel in program.channels])
    for n, channel in enumerate(program.channels):
        _check_ends(f"channels[{n}]", channel.source, channel.destination, by_rank.keys(), program.own)
    return by_rank


def _check_memory(program: Program) -> None:
    collectives, datatypes = program.collectives, program.datatypes
    if collectives and not program.transport.carries_collectives:
        raise ProgramError("collectives", f"{program.transport.kind} does not carry them")
    if len(datatypes) != len(collectives):
        raise ProgramError("datatypes", f"has {len(datatypes)} entries for {len(collectives)} collectives")
    memory = sum(
        (collective.elements + collective.staging)
        * len(program.own.intersection(collective.ranks))
        * datatype.size_bytes
        for collective, datatype in zip(collectives, datatypes, strict=True)
    )
    if memory > MEMORY_LIMIT:
        raise ProgramError("collectives", f"their arrays take {memory} bytes, more than {MEMORY_LIMIT}")


def _check_scale_up(links: ScaleUpLinks, own: AbstractSet[int], others: AbstractSet[int]) -> None:
    if links.neighbours and (not links.domain or not links.neighbours <= others):
        message = "neighbours are other hosts' ranks, with endpoints, of a domain that has a name"
        raise ProgramError("scale_up", message)
    places = () if links.packets is None else links.packets.places
    if any(place.rank not in own for place in places):
        raise ProgramError("scale_up.packets", "one of its GPUs is that of another host's rank")
    if len({place.rank for place in places}) != len(places) or len({place.gpu.gpu for place in places}) != len(places):
        raise ProgramError("scale_up.packets.places", "a rank or a GPU stands there twice")


def _check_steps(program: Program, by_rank: dict[int, Endpoint]) -> None:
    channels = {channel.index: channel for channel in program.channels}
    seen: dict[int, Step] = {}
    operations: dict[int, tuple[InSwitch, int | None, int]] = {}
    last = -1
    for n, step in enumerate(program.steps):
        path = f"steps[{n}]"
        if step.number <= last:
            raise ProgramError(path, f"step {step.number} stands behind step {last}")
        last = step.number
        destination = step.source if step.destination is None else step.destination
        if step.source not in by_rank or destination not in by_rank:
            raise ProgramError(path, "one of its ranks has no endpoint")
        if step.destination is not None:
            _check_transfer(program, step, path, channels)
        elif step.source not in program.own:
            raise ProgramError(path, "it is another host's computing")
        _check_in_switch(step, path, operations)
        if step.pulled and not _can_pull(program, step):
            raise ProgramError(path, f"{program.transport.kind} has no transfer that its destination begins")
        if step.restores is not None and not (step.pulled and step.restores < step.number):
            raise ProgramError(path, f"it cannot restore step {step.restores}")
        if step.begins_at in program.own:
            _check_after(step, path, seen)
        elif step.after:
            raise ProgramError(path, "what another host's step waits for is no part of this program")
        seen[step.number] = step


def _can_pull(program: Program, step: Step) -> bool:
    """Tell whether the destination of a transfer can begin it: its transport has that, or the domain's frames."""
    return program.scale_up.packets is not None if step.channel is None else program.transport.pulls


def _check_in_switch(step: Step, path: str, operations: dict[int, tuple[InSwitch, int | None, int]]) -> None:
    """Accept a part of an operation in the switch that fits the parts before it: they have one end and one size."""
    part = step.in_switch
    if part is None:
        return
    if step.destination is None or step.channel is not None or part.members < 1:
        raise ProgramError(path, "it is no transfer inside the domain, and part of an operation in its switch")
    end = step.source if part.multicast else step.destination
    if operations.setdefault(part.operation, (part, end, step.size_bytes)) != (part, end, step.size_bytes):
        raise ProgramError(path, f"it does not fit the other parts of operation {part.operation}")


def _check_requests(program: Program, by_rank: dict[int, Endpoint]) -> None:
    if program.requests and not program.transport.carries_http:
        raise ProgramError("requests", f"they go over HTTP, which {program.transport.kind} does not carry")
    _distinct("requests", [request.number for request in program.requests])
    began_ns = 0
    for n, request in enumerate(program.requests):
        _check_ends(f"requests[{n}]", request.client, request.server, by_rank.keys(), program.own)
        if request.start_ns < began_ns:
            raise ProgramError(f"requests[{n}]", "it begins before the one in front of it")
        began_ns = request.start_ns


def _check_after(step: Step, path: str, seen: dict[int, Step]) -> None:
    if len(set(step.after)) != len(step.after):
        raise ProgramError(path, "it waits twice for the same step")
    for number in step.after:
        before = seen.get(number)
        if before is None:
            raise ProgramError(path, f"it waits for step {number}, which does not stand before it")
        rank = step.begins_at
        if rank not in (before.source, before.destination):
            raise ProgramError(path, f"it waits for step {number}, in which rank {rank} takes no part")
        if before.source == rank and before.channel is not None and not before.acknowledged:
            raise ProgramError(path, f"it waits for step {number}, whose end nobody tells")


def _check_transfer(program: Program, step: Step, path: str, channels: dict[int, Channel]) -> None:
    own = program.own
    if step.size_bytes < 1:
        raise ProgramError(path, "a transfer carries at least one byte")
    if step.channel is None:
        inside = own | program.scale_up.neighbours
        if step.source not in inside or step.destination not in inside:
            raise ProgramError(path, "a transfer inside the domain has a rank that is not in it")
        if step.source not in own and step.destination not in own:
            raise ProgramError(path, "it is a transfer of other hosts")
    else:
        channel = channels.get(step.channel)
        if channel is None or (channel.source, channel.destination) != (step.source, step.destination):
            raise ProgramError(path, f"channel {step.channel} does not lead from its source to its destination")
    piece = step.piece
    if piece is None:
        return
    if piece.collective >= len(program.collectives):
        raise ProgramError(path, f"there is no collective {piece.collective}")
    collective = program.collectives[piece.collective]
    if step.source not in collective.ranks or step.destination not in collective.ranks:
        raise ProgramError(path, f"one of its ranks takes no part in collective {piece.collective}")
    memory = collective.elements + collective.staging
    if min(piece.offset, piece.target) < 0 or max(piece.offset, piece.target) + piece.length > memory:
        raise ProgramError(path, "its piece lies beyond the arrays")
    if (
        piece.length * program.datatypes[piece.collective].size_bytes != step.size_bytes
        or piece.combine is Combine.NONE
    ):
        raise ProgramError(path, "its piece is not what it carries")


def _check_ends(path: str, source: int, destination: int, known: Iterable[int], own: frozenset[int]) -> None:
    ends = {source, destination}
    if len(ends) != 2 or not ends <= set(known) or len(ends & own) != 1:
        raise ProgramError(path, f"ranks {source} and {destination} are no ends of a channel or request of this host")


def _distinct(path: str, values: Sequence[int]) -> None:
    if len(set(values)) != len(values):
        raise ProgramError(path, "one stands there twice")
