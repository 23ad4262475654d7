"""Programs as JSON: steps in columns, so that ten thousand of them are one short line; strictly read back.

A program comes from the runner, but a worker listens to whoever holds its standard input: what it reads is data, and
everything that does not fit together is a `ProgramError` with its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address

from testbed.base.json_values import (
    Json,
    check_keys,
    read_list,
    read_member,
    read_object,
    read_row,
    read_text,
    read_whole,
)
from testbed.base.program_errors import ProgramError
from testbed.endpoints.worker.program import (
    LARGEST_TRANSFER,
    VERSION,
    Channel,
    Endpoint,
    Piece,
    Program,
    Request,
    Step,
)
from testbed.endpoints.worker.scale_up_json import decode_scale_up, encode_scale_up
from testbed.endpoints.worker.transport_registry import decode_settings, encode_settings
from testbed.workload.builder import MAX_STEPS
from testbed.workload.collectives.datatype import DataType
from testbed.workload.collectives.operation import ROOTED, Kind
from testbed.workload.steps import Collective, Combine, InSwitch

MOST_RANKS = 65_536
MOST_CHANNELS = 65_536
MOST_COLLECTIVES = 65_536
MEMORY_LIMIT = 16 << 30
"""The most bytes that the arrays of one host's ranks may take together."""
MOST_VCS = 8
"""Virtual channels of a scale-up link."""
MOST_REQUESTS = 1_000_000
MOST_REQUEST_BYTES = 1 << 20
MOST_TOKENS = 1 << 20
MOST_CHUNK_BYTES = 1 << 16
_TIME_LIMIT = 1 << 62
_COMBINES = tuple(Combine)
_PIECE = ("collective", "offset", "length", "target", "combine")
_COLUMNS = (
    "number", "source", "destination", "size_bytes", "duration_ns", "start_ns", "after", "channel", "acknowledged",
    "pulled", "restores", "operation", "members", "multicast", "vc", *_PIECE,
)  # fmt: skip

_REQUEST_LIMITS = {
    "number": (0, MOST_REQUESTS),
    "client": (0, MOST_RANKS),
    "server": (0, MOST_RANKS),
    "start_ns": (0, _TIME_LIMIT),
    "size_bytes": (1, MOST_REQUEST_BYTES + 1),
    "prefill_ns": (0, _TIME_LIMIT),
    "tpot_ns": (0, _TIME_LIMIT),
    "tokens": (1, MOST_TOKENS + 1),
    "chunk_bytes": (16, MOST_CHUNK_BYTES + 1),
}
"""The columns of requests, and from and below what their values are."""


def encode_program(program: Program) -> dict[str, Json]:
    """Return a program as JSON has it; -1 stands for None in columns."""
    steps = program.steps
    pieces = [step.piece for step in steps]
    parts = [step.in_switch for step in steps]
    columns: dict[str, list[Json]] = {
        "number": [step.number for step in steps],
        "source": [step.source for step in steps],
        "destination": [_number(step.destination) for step in steps],
        "size_bytes": [step.size_bytes for step in steps],
        "duration_ns": [step.duration_ns for step in steps],
        "start_ns": [step.start_ns for step in steps],
        "after": [step.after for step in steps],
        "channel": [_number(step.channel) for step in steps],
        "acknowledged": [int(step.acknowledged) for step in steps],
        "pulled": [int(step.pulled) for step in steps],
        "restores": [_number(step.restores) for step in steps],
        "operation": [-1 if part is None else part.operation for part in parts],
        "members": [0 if part is None else part.members for part in parts],
        "multicast": [0 if part is None else int(part.multicast) for part in parts],
        "vc": [_number(step.vc) for step in steps],
        "collective": [-1 if piece is None else piece.collective for piece in pieces],
        "offset": [-1 if piece is None else piece.offset for piece in pieces],
        "length": [-1 if piece is None else piece.length for piece in pieces],
        "target": [-1 if piece is None else piece.target for piece in pieces],
        "combine": [-1 if piece is None else _COMBINES.index(piece.combine) for piece in pieces],
    }
    return {
        "version": VERSION,
        "transport": encode_settings(program.transport),
        "endpoints": [[item.rank, item.host, item.interface, item.address] for item in program.endpoints],
        "own": sorted(program.own),
        "channels": [[c.index, c.source, c.destination, c.source_port, c.destination_port] for c in program.channels],
        "steps": columns,
        "collectives": [
            [c.kind, c.algorithm, c.ranks, c.size_bytes, c.elements, _number(c.root), c.staging]
            for c in program.collectives
        ],
        "datatypes": [datatype.value for datatype in program.datatypes],
        "seed": program.seed,
        "scale_up": encode_scale_up(program.scale_up),
        "sample_ns": program.sample_ns,
        "requests": {name: [getattr(one, name) for one in program.requests] for name in _REQUEST_LIMITS},
    }


def decode_program(document: Json) -> Program:
    """Read back what `encode_program` wrote. Raises `ProgramError` alone, with the place of what is wrong."""
    whole = read_object(document, "program")
    if whole.get("version") != VERSION:
        raise ProgramError("version", f"{whole.get('version')!r} is not {VERSION}, the version of this worker")
    del whole["version"]
    check_keys(whole, "program", [*Program.__dataclass_fields__])
    endpoints = tuple(_endpoint(item, f"endpoints[{n}]") for n, item in enumerate(_list(whole, "endpoints")))
    by_rank = {endpoint.rank: endpoint for endpoint in endpoints}
    _distinct("endpoints", [endpoint.rank for endpoint in endpoints])
    own = frozenset(read_whole(rank, f"own[{n}]", MOST_RANKS) for n, rank in enumerate(_list(whole, "own")))
    if not own <= by_rank.keys():
        raise ProgramError("own", "a rank has no endpoint")
    channels = tuple(_channel(item, f"channels[{n}]") for n, item in enumerate(_list(whole, "channels")))
    _distinct("channels", [channel.index for channel in channels])
    for n, channel in enumerate(channels):
        _check_ends(f"channels[{n}]", channel.source, channel.destination, by_rank.keys(), own)
    collectives = tuple(_collective(item, f"collectives[{n}]") for n, item in enumerate(_list(whole, "collectives")))
    datatypes = tuple(
        read_member(DataType, name, f"datatypes[{n}]") for n, name in enumerate(_list(whole, "datatypes"))
    )
    if len(datatypes) != len(collectives):
        raise ProgramError("datatypes", f"has {len(datatypes)} entries for {len(collectives)} collectives")
    memory = sum(
        (collective.elements + collective.staging) * len(own.intersection(collective.ranks)) * datatype.size_bytes
        for collective, datatype in zip(collectives, datatypes, strict=True)
    )
    if memory > MEMORY_LIMIT:
        raise ProgramError("collectives", f"their arrays take {memory} bytes, more than {MEMORY_LIMIT}")
    program = Program(
        transport=decode_settings(whole.get("transport")),
        endpoints=endpoints,
        own=own,
        channels=channels,
        steps=tuple(_steps(read_object(whole.get("steps"), "steps"))),
        collectives=collectives,
        datatypes=datatypes,
        seed=read_whole(whole.get("seed"), "seed", 1 << 63),
        scale_up=decode_scale_up(whole.get("scale_up"), own, by_rank.keys() - own),
        sample_ns=1 + read_whole(_minus_one(whole.get("sample_ns")), "sample_ns", _TIME_LIMIT),
        requests=_requests(read_object(whole.get("requests"), "requests")),
    )
    _check_steps(program, by_rank)
    _check_requests(program, by_rank)
    return program


# --- parts -----------------------------------------------------------------------------------------------


def _endpoint(item: Json, path: str) -> Endpoint:
    rank, host, interface, address = read_row(item, path, 4)
    try:
        parsed = str(IPv4Address(read_text(address, path)))
    except ValueError:
        raise ProgramError(path, f"{address!r} is no IPv4 address") from None
    return Endpoint(
        rank=read_whole(rank, path, MOST_RANKS),
        host=read_text(host, path),
        interface=read_text(interface, path),
        address=parsed,
    )


def _channel(item: Json, path: str) -> Channel:
    index, source, destination, source_port, destination_port = read_row(item, path, 5)
    return Channel(
        index=read_whole(index, path, MOST_CHANNELS),
        source=read_whole(source, path, MOST_RANKS),
        destination=read_whole(destination, path, MOST_RANKS),
        source_port=read_whole(source_port, path, 1 << 16),
        destination_port=read_whole(destination_port, path, 1 << 16),
    )


def _collective(item: Json, path: str) -> Collective:
    kind, algorithm, ranks, size_bytes, elements, root, staging = read_row(item, path, 7)
    members = [read_whole(rank, f"{path}.ranks", MOST_RANKS) for rank in read_list(ranks, f"{path}.ranks")]
    _distinct(f"{path}.ranks", members)
    known = read_member(Kind, kind, f"{path}.kind")
    found = Collective(
        kind=known.value,
        algorithm=read_text(algorithm, path),
        ranks=tuple(members),
        size_bytes=read_whole(size_bytes, path, MEMORY_LIMIT),
        elements=read_whole(elements, path, MEMORY_LIMIT),
        steps=range(0),
        root=None if root == -1 else read_whole(root, f"{path}.root", MOST_RANKS),
        staging=read_whole(staging, path, MEMORY_LIMIT),
    )
    if not members or (known in ROOTED and found.root not in members):
        raise ProgramError(path, "a collective has ranks, and its root is one of them")
    if known is Kind.ALL_TO_ALL and found.elements % (2 * len(members)):
        raise ProgramError(path, f"{found.elements} elements are not two buffers of equal blocks")
    return found


def _steps(columns: dict[str, Json]) -> Iterable[Step]:
    check_keys(columns, "steps", _COLUMNS)
    length = len(read_list(columns["number"], "steps.number"))
    if length > MAX_STEPS:
        raise ProgramError("steps", f"there are more than {MAX_STEPS}")
    limits = {
        "number": (0, MAX_STEPS),
        "source": (0, MOST_RANKS),
        "destination": (-1, MOST_RANKS),
        "size_bytes": (0, LARGEST_TRANSFER + 1),
        "duration_ns": (0, _TIME_LIMIT),
        "start_ns": (0, _TIME_LIMIT),
        "channel": (-1, MOST_CHANNELS),
        "acknowledged": (0, 2),
        "pulled": (0, 2),
        "restores": (-1, MAX_STEPS),
        "operation": (-1, MAX_STEPS),
        "members": (0, MOST_RANKS),
        "multicast": (0, 2),
        "vc": (-1, MOST_VCS),
        "collective": (-1, MOST_COLLECTIVES),
        "offset": (-1, MEMORY_LIMIT),
        "length": (-1, MEMORY_LIMIT),
        "target": (-1, MEMORY_LIMIT),
        "combine": (-1, len(_COMBINES)),
    }
    _check_columns(columns, "steps", limits, length)
    after = read_list(columns["after"], "steps.after")
    if len(after) != length:
        raise ProgramError("steps.after", f"has {len(after)} entries for {length} steps")
    for n, before in enumerate(after):
        if not isinstance(before, list) or any(type(number) is not int for number in before):
            raise ProgramError(f"steps.after[{n}]", "is no list of numbers")
    return (_step(columns, n) for n in range(length))


def _check_columns(columns: dict[str, Json], path: str, limits: dict[str, tuple[int, int]], length: int) -> None:
    """Accept columns of `length` whole numbers, each from the first of its limits to below the second."""
    for name, (low, high) in limits.items():
        column = read_list(columns[name], f"{path}.{name}")
        if len(column) != length:
            raise ProgramError(f"{path}.{name}", f"has {len(column)} entries for {length} {path}")
        for n, value in enumerate(column):
            if type(value) is not int or not low <= value < high:
                raise ProgramError(f"{path}.{name}[{n}]", f"{value!r} is no whole number from {low} to {high - 1}")


def _requests(columns: dict[str, Json]) -> tuple[Request, ...]:
    check_keys(columns, "requests", [*_REQUEST_LIMITS])
    length = len(read_list(columns["number"], "requests.number"))
    if length > MOST_REQUESTS:
        raise ProgramError("requests", f"there are more than {MOST_REQUESTS}")
    _check_columns(columns, "requests", _REQUEST_LIMITS, length)
    _distinct("requests.number", columns["number"])
    return tuple(Request(**{name: columns[name][n] for name in _REQUEST_LIMITS}) for n in range(length))


def _step(columns: dict[str, Json], n: int) -> Step:
    destination, channel, restores, collective = (
        None if columns[name][n] == -1 else columns[name][n]
        for name in ("destination", "channel", "restores", "collective")
    )
    piece = None
    if collective is not None:
        _, offset, length, target, combine = (columns[name][n] for name in _PIECE)
        if combine == -1:
            raise ProgramError(f"steps.combine[{n}]", "is missing")
        piece = Piece(collective=collective, offset=offset, length=length, target=target, combine=_COMBINES[combine])
    in_switch = None
    if columns["operation"][n] != -1:
        in_switch = InSwitch(
            operation=columns["operation"][n],
            members=columns["members"][n],
            multicast=bool(columns["multicast"][n]),
        )
    return Step(
        number=columns["number"][n],
        source=columns["source"][n],
        destination=destination,
        size_bytes=columns["size_bytes"][n],
        duration_ns=columns["duration_ns"][n],
        start_ns=columns["start_ns"][n],
        after=tuple(columns["after"][n]),
        channel=channel,
        piece=piece,
        acknowledged=bool(columns["acknowledged"][n]),
        pulled=bool(columns["pulled"][n]),
        restores=restores,
        in_switch=in_switch,
        vc=None if columns["vc"][n] == -1 else columns["vc"][n],
    )


# --- what must fit together ------------------------------------------------------------------------------


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


# --- values ----------------------------------------------------------------------------------------------


def _number(value: int | None) -> int:
    return -1 if value is None else value


def _minus_one(value: Json) -> Json:
    return value - 1 if type(value) is int else value


def _list(whole: dict[str, Json], name: str) -> list[Json]:
    return read_list(whole.get(name), name)


def _distinct(path: str, values: Sequence[int]) -> None:
    if len(set(values)) != len(values):
        raise ProgramError(path, "one stands there twice")
