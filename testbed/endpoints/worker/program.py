"""A program: the part of a workload that one host executes, resolved to addresses, ports and lab time. Plain data.

Every step's `after` names only steps in which its rank takes part, so that a host needs nobody to execute its part
(`workload.builder.check_local`). Times are in ns of lab time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Self

from msgspec import Meta, Struct, structs

from testbed.base.typed_json import Nanoseconds, Text
from testbed.protocols.scale_up.domain.endpoint import Gpu
from testbed.workload.builder import MAX_STEPS
from testbed.workload.collectives.datatype import DataType
from testbed.workload.steps import Collective, Combine, InSwitch

VERSION = 9
"""The version of a program's shape as JSON (`program_json`). A worker refuses any other."""
LARGEST_TRANSFER = (1 << 32) - 1
"""The most bytes of a transfer: UET's `request_length` has 32 bits."""
MOST_REQUESTS = 1_000_000
MEMORY_LIMIT = 16 << 30
"""The most bytes that the arrays of one host's ranks may take together."""
Rank = Annotated[int, Meta(ge=0, lt=65_536)]
Number = Annotated[int, Meta(ge=0, lt=MAX_STEPS)]
"""The number of a step."""
ChannelNumber = Annotated[int, Meta(ge=0, lt=65_536)]
Port = Annotated[int, Meta(ge=0, lt=1 << 16)]
Elements = Annotated[int, Meta(ge=0, lt=MEMORY_LIMIT)]
Bits = Annotated[int, Meta(ge=0, lt=1 << 62)]
"""Per second."""


class ProgramRow(Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """A part of a program that is a row in JSON, without the names of its fields: a program may have a million."""

    def changed(self, **changes: object) -> Self:
        """Return a copy with other values for some of its fields."""
        return structs.replace(self, **changes)


class Endpoint(ProgramRow, frozen=True, kw_only=True):
    """A rank and the NIC that it sends from."""

    rank: Rank
    host: Text
    interface: Text
    address: Text
    """Its IPv4 address."""

    def __str__(self) -> str:
        return f"rank {self.rank} ({self.host}:{self.interface})"


class Channel(ProgramRow, frozen=True, kw_only=True):
    """A channel carries transfers from one rank to another, one after another: a TCP connection, or a pair of
    endpoints.

    `source_port` is the source's; 0 where a transport chooses it from packet to packet.
    """

    index: ChannelNumber
    source: Rank
    destination: Rank
    source_port: Port
    destination_port: Port


class Piece(ProgramRow, frozen=True, kw_only=True):
    """Part of a collective's arrays that a transfer carries: elements from `offset` at the source, to `target`."""

    collective: Annotated[int, Meta(ge=0, lt=65_536)]
    """Index in `Program.collectives`."""
    offset: Elements
    length: Elements
    target: Elements
    combine: Combine


class Step(ProgramRow, frozen=True, kw_only=True):
    """A transfer, or a rank's computing (`destination` None)."""

    number: Number
    source: Rank
    destination: Rank | None = None
    size_bytes: Annotated[int, Meta(ge=0, le=LARGEST_TRANSFER)] = 0
    duration_ns: Nanoseconds = 0
    """The time for which the rank computes."""
    start_ns: Nanoseconds = 0
    """It begins no earlier than this time after the begin."""
    after: tuple[Number, ...] = ()
    channel: ChannelNumber | None = None
    """Index of the channel that carries it; None for computing, and for a transfer inside the scale-up domain."""
    piece: Piece | None = None
    """The data that it carries; None for a transfer that is traffic alone."""
    acknowledged: bool = False
    """A later step of the source waits for its end, so that the receiver tells of it."""
    pulled: bool = False
    """Its destination begins it, by asking the source for the bytes, and so `after` has steps of the destination."""
    restores: Number | None = None
    """For one that is pulled, the number of the transfer that wrote these bytes, which the source has kept."""
    in_switch: InSwitch | None = None
    """The part that a transfer inside the domain has in an operation of the switch."""
    vc: Annotated[int, Meta(ge=0, lt=8)] | None = None
    """The virtual channel of the frames that a transfer inside the domain is; None: that of requests."""
    withdraws: bool = False
    """With its end, no other rank may read any more what the source keeps in the pooled memory that it goes to."""

    @property
    def begins_at(self) -> int:
        """The rank that begins it."""
        return self.destination if self.pulled and self.destination is not None else self.source


class RingPart(ProgramRow, frozen=True, kw_only=True):
    """The part of an own rank in a ring collective whose transfers are no steps: `worker.rings` makes them.

    The ring is one step, whose source and destination are the same rank. In each round the rank sends a block to the
    next one. Transfer number `first` + (round * chunks + chunk) * `members` + `index` is the one that begins at the
    rank with this index.
    """

    step: Number
    """The number of the ring's step."""
    first: Annotated[int, Meta(ge=MAX_STEPS, lt=1 << 32)]
    rank: Rank
    previous: Rank
    following: Rank
    index: Annotated[int, Meta(ge=0, lt=65_536)]
    """The place of the rank in the ring."""
    members: Annotated[int, Meta(ge=2, le=65_536)]
    rounds: Annotated[int, Meta(ge=1, le=1 << 20)]
    sizes: tuple[Annotated[int, Meta(ge=1, le=LARGEST_TRANSFER)], ...]
    """The bytes of each chunk of a block."""
    in_flight: Annotated[int, Meta(ge=1)] = 2
    """Chunks that may be under way to the next rank at once."""
    outgoing: ChannelNumber | None = None
    """Index of the channel to the next rank; None for one in the same scale-up domain."""
    incoming: ChannelNumber | None = None


class Request(ProgramRow, frozen=True, kw_only=True):
    """A request over HTTP from one rank to another, which answers it token by token."""

    number: Annotated[int, Meta(ge=0, lt=MOST_REQUESTS)]
    client: Rank
    server: Rank
    start_ns: Nanoseconds
    """It begins at this time after the begin."""
    size_bytes: Annotated[int, Meta(ge=1, le=1 << 20)]
    prefill_ns: Nanoseconds
    """The time for which the server computes until the first token."""
    tpot_ns: Nanoseconds
    """The time for which it computes from one token to the next."""
    tokens: Annotated[int, Meta(ge=1, le=1 << 20)]
    chunk_bytes: Annotated[int, Meta(ge=16, le=1 << 16)]
    """The bytes of each token in the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings that one transport is given for a program: the base class of those of each transport."""

    kind: ClassVar[str]
    """Name of the transport (`transport_registry`)."""
    carries_http: ClassVar[bool] = False
    """Requests may go over its connections."""
    carries_collectives: ClassVar[bool] = True
    pulls: ClassVar[bool] = False
    """The destination of a transfer may begin it."""


class PoolGrant(ProgramRow, frozen=True, kw_only=True):
    """Memory of a region that a rank may use: a window for its GPU, and one to read from for others."""

    rank: Rank
    gpu: Annotated[int, Meta(ge=0, lt=1024)]
    """The number of the rank's GPU in the domain."""
    size_bytes: Annotated[int, Meta(ge=1, lt=1 << 62)]
    rights: Annotated[int, Meta(ge=1, le=7)]
    """As of `testbed.protocols.scale_up.domain.windows`."""
    readers: tuple[Annotated[int, Meta(ge=0, lt=1024)], ...] = ()
    """The GPUs of the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPlace:
    """A region of pooled memory that a rank is."""

    devices: Annotated[Sequence[Gpu], Meta(min_length=1)]
    """The ends of its ways, in order."""
    granule_bytes: Annotated[int, Meta(ge=1, lt=1 << 35)]
    """The bytes of one way before the next one's."""
    capacity_bytes: Annotated[int, Meta(ge=1, lt=1 << 62)]
    grants: Sequence[PoolGrant] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleUpPlace:
    """The GPU of an own rank in its scale-up domain, or the region of pooled memory that the rank is there."""

    rank: Rank
    name: Text
    """The name of the GPU in messages: `p1-s1-h1:gpu1`."""
    gpu: Gpu
    """That of a region is its first device."""
    pool: PoolPlace | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleUpPackets:
    """Settings of transfers inside a scale-up domain that go as frames through its switch."""

    library: Annotated[str, Meta(min_length=1, max_length=4096)]
    """Path of the compiled library (`testbed.protocols.scale_up.domain.endpoint`)."""
    name: Text
    """The name of the domain in messages."""
    rtt_ns: Nanoseconds
    """The latency of a smallest transaction, as modelled, in the lab's time."""
    timeout_ns: Nanoseconds = 5_000_000_000
    """A domain in which nothing moves though transfers wait is given up after this lab time."""
    counts_errors: bool = False
    """A transfer that fails is counted, and the program goes on; else it ends the program."""
    places: Sequence[ScaleUpPlace] = ()
    """The GPUs of own ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleUpLinks:
    """The links that each rank has into the switches of its scale-up domain, in the lab's rates and times."""

    rate_bps: Bits = 0
    """The rate of a rank's links together, each way; 0: transfers take no time."""
    in_switch_bps: Bits = 0
    """The rate for operations in the switch; 0: as `rate_bps`."""
    one_way_ns: Nanoseconds = 0
    """From the last bit of a transfer at its source to its arrival."""
    domain: Text = ""
    """The name that all workers of a process which share the domain have for it; "": it is this host alone."""
    neighbours: frozenset[Rank] = frozenset()
    """Ranks of other hosts in the domain, with which the host's own ones exchange anything."""
    packets: ScaleUpPackets | None = None
    """None: transfers are copies in memory that take the links' time."""

    @property
    def timing(self) -> tuple[object, ...]:
        """The properties that all members of a domain have in common."""
        packets = None if self.packets is None else replace(self.packets, places=())
        return self.rate_bps, self.in_switch_bps, self.one_way_ns, packets


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One host executes a program. `program_json.decode_program` checks a program that comes from elsewhere."""

    transport: Settings
    endpoints: tuple[Endpoint, ...]
    """The host's own ranks, and those with which they exchange anything."""
    own: frozenset[Rank]
    """The ranks that this host executes."""
    channels: tuple[Channel, ...]
    """The channels that begin or end at this host."""
    steps: Annotated[tuple[Step, ...], Meta(max_length=MAX_STEPS)]
    """The steps in which an own rank takes part, in order of their numbers."""
    collectives: tuple[Collective, ...] = ()
    """The collectives whose data is carried, and checked at the end. Their `steps` have no meaning here."""
    datatypes: tuple[DataType, ...] = ()
    """The data type of each collective's elements."""
    seed: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)] = 0
    """Draws the collectives' data, and a transport's random numbers."""
    scale_up: ScaleUpLinks = ScaleUpLinks()
    """The links of transfers inside the host, or inside the scale-up domain that it is part of."""
    sample_ns: Annotated[int, Meta(ge=1, le=1 << 62)] = 25_000_000
    """The interval at which a channel's state is sampled."""
    requests: Annotated[tuple[Request, ...], Meta(max_length=MOST_REQUESTS)] = ()
    """The requests whose client or server is an own rank, in the order of their begins."""
    rings: tuple[RingPart, ...] = ()
    """The parts of own ranks in rings whose transfers are no steps. They do not stand in JSON: only the simulator has
    such."""
