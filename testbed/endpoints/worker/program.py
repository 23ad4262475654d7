"""A program: the part of a workload that one host executes, resolved to addresses, ports and lab time. Plain data.

Every step's `after` names only steps in which its rank takes part, so that a host needs nobody to execute its part
(`workload.builder.check_local`). Times are in ns of lab time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from testbed.protocols.scale_up.domain.endpoint import Gpu
from testbed.workload.collectives.datatype import DataType
from testbed.workload.steps import Collective, Combine, InSwitch

VERSION = 7
"""Of the shape of a program as JSON (`program_json`). A worker refuses any other."""
LARGEST_TRANSFER = (1 << 32) - 1
"""The most bytes of a transfer: UET's `request_length` has 32 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A rank and the NIC that it sends from."""

    rank: int
    host: str
    interface: str
    address: str
    """Its IPv4 address."""

    def __str__(self) -> str:
        return f"rank {self.rank} ({self.host}:{self.interface})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """This is what carries transfers from one rank to another, one after another: a TCP connection, or a pair of
    endpoints.

    `source_port` is the source's; 0 where a transport chooses it from packet to packet.
    """

    index: int
    source: int
    destination: int
    source_port: int
    destination_port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Part of a collective's arrays that a transfer carries: elements from `offset` at the source, to `target`."""

    collective: int
    """Index in `Program.collectives`."""
    offset: int
    length: int
    target: int
    combine: Combine


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A transfer, or a rank's computing (`destination` None)."""

    number: int
    source: int
    destination: int | None = None
    size_bytes: int = 0
    duration_ns: int = 0
    """How long the rank computes."""
    start_ns: int = 0
    """It begins no earlier than this time after the begin."""
    after: tuple[int, ...] = ()
    channel: int | None = None
    """Index of the channel that carries it; None for computing, and for a transfer inside the scale-up domain."""
    piece: Piece | None = None
    """The data that it carries; None for a transfer that is traffic alone."""
    acknowledged: bool = False
    """A later step of the source waits for its end, so that the receiver tells of it."""
    pulled: bool = False
    """Its destination begins it, by asking the source for the bytes, and so `after` has steps of the destination."""
    restores: int | None = None
    """Where it is pulled: the number of the transfer that wrote these bytes, which the source has kept."""
    in_switch: InSwitch | None = None
    """Of a transfer inside the domain: its part in an operation of the switch."""
    vc: int | None = None
    """Of a transfer inside the domain that is frames: their virtual channel; None: that of requests."""

    @property
    def begins_at(self) -> int:
        """The rank that begins it."""
        return self.destination if self.pulled and self.destination is not None else self.source


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request over HTTP from one rank to another, which answers it token by token."""

    number: int
    client: int
    server: int
    start_ns: int
    """It begins at this time after the begin."""
    size_bytes: int
    prefill_ns: int
    """How long the server computes until the first token."""
    tpot_ns: int
    """How long it computes from one token to the next."""
    tokens: int
    chunk_bytes: int
    """Of each token in the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """This tells how one transport is to carry a program: the base class of what each transport can be told."""

    kind: ClassVar[str]
    """Name of the transport (`transport_registry`)."""
    carries_http: ClassVar[bool] = False
    """Requests may go over its connections."""
    pulls: ClassVar[bool] = False
    """The destination of a transfer may begin it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleUpPlace:
    """The GPU of an own rank in its scale-up domain."""

    rank: int
    name: str
    """What messages call it: `p1-s1-h1:gpu1`."""
    gpu: Gpu


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleUpPackets:
    """This tells how transfers inside a scale-up domain are carried as frames through its switch."""

    library: str
    """Path of the compiled library (`testbed.protocols.scale_up.domain.endpoint`)."""
    name: str
    """What messages call the domain."""
    rtt_ns: int
    """Of a smallest transaction, as modelled, in the lab's time."""
    timeout_ns: int = 5_000_000_000
    """A domain in which nothing moves though transfers wait is given up after this lab time."""
    counts_errors: bool = False
    """A transfer that fails is counted, and the program goes on; else it ends the program."""
    places: Sequence[ScaleUpPlace] = ()
    """The GPUs of own ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleUpLinks:
    """The links that each rank has into the switches of its scale-up domain, in the lab's rates and times."""

    rate_bps: int = 0
    """Of a rank's links together, each way; 0: transfers take no time."""
    in_switch_bps: int = 0
    """The same for operations in the switch; 0: as `rate_bps`."""
    one_way_ns: int = 0
    """From the last bit of a transfer at its source to its arrival."""
    domain: str = ""
    """What the domain is called by all workers of a process that share it; "": it is this host alone."""
    neighbours: frozenset[int] = frozenset()
    """Ranks of other hosts in the domain, with which the host's own ones exchange anything."""
    packets: ScaleUpPackets | None = None
    """None: transfers are copies in memory that take the links' time."""

    @property
    def timing(self) -> tuple[object, ...]:
        """What all members of a domain have in common."""
        packets = None if self.packets is None else replace(self.packets, places=())
        return self.rate_bps, self.in_switch_bps, self.one_way_ns, packets


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """This is what one host executes. `program_json.decode_program` checks a program that comes from elsewhere."""

    transport: Settings
    endpoints: tuple[Endpoint, ...]
    """The host's own ranks, and those with which they exchange anything."""
    own: frozenset[int]
    """The ranks that this host executes."""
    channels: tuple[Channel, ...]
    """The channels that begin or end at this host."""
    steps: tuple[Step, ...]
    """The steps in which an own rank takes part, in order of their numbers."""
    collectives: tuple[Collective, ...] = ()
    """The collectives whose data is carried, and checked at the end. Their `steps` have no meaning here."""
    datatypes: tuple[DataType, ...] = ()
    """The data type of each collective's elements."""
    seed: int = 0
    """Draws the collectives' data, and a transport's random numbers."""
    scale_up: ScaleUpLinks = ScaleUpLinks()
    """The links of transfers inside the host, or inside the scale-up domain that it is part of."""
    sample_ns: int = 25_000_000
    """How often a channel's state is sampled."""
    requests: tuple[Request, ...] = ()
    """The requests whose client or server is an own rank, in the order of their begins."""
