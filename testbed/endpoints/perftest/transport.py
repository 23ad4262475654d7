"""A transport as it can be measured: options of its own, and an endpoint that does the verbs.

A transport is a module of `transports` with a `MeasuredTransport`, and its line in `registry`. Everything else (the
exchange, the measurements, tables, JSON, exit codes) is the same for all of them.
"""

from __future__ import annotations

import argparse
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from testbed.endpoints.agent import Agent
from testbed.endpoints.gpus.gpu_agent import GpuAgent
from testbed.endpoints.perftest.results import BandwidthResult
from testbed.endpoints.perftest.tool import USUAL, Tool, Verb

if TYPE_CHECKING:
    from testbed.endpoints.perftest.options import Options

SPIN_NS = 200_000
"""The time for which the latency tools look for work before they sleep (perftest: for ever)."""
RECEIVES = 16
"""Receives that a latency tool posts at a time."""


class ToolMemory(NamedTuple):
    """The memory of one side, as long as the longest message."""

    local: memoryview
    """Memory that is sent from, and read into."""
    remote: memoryview
    """Memory that the peer writes, reads and sends into."""


MeasuringAgent = Agent | GpuAgent
"""The driver of a transport's endpoints."""


class MeasuredEndpoint(ABC):
    """This side's end of the transport. It knows from the options which verb is measured, and does nothing else.

    As it stands here, it is one-sided and without a connection. Methods that are given words of the other side raise
    `MismatchError` where they make no sense.
    """

    def __init__(self, options: Options, address: str) -> None:
        """`address`: of this side, in the transport."""
        self.address = address
        self._options = options
        self._verb = options.tool.verb

    @property
    @abstractmethod
    def introduction(self) -> dict[str, Any]:
        """Return for JSON all that the other side must know to reach this one."""

    @abstractmethod
    def connect(self, peer: str, introduction: Mapping[str, Any]) -> None:
        """Take up what the other side, at the address `peer`, says of itself."""

    @property
    @abstractmethod
    def ends(self) -> tuple[Sequence[str], Sequence[str]]:
        """The names of this side's ends and the other's in the table of addresses, once they are connected."""

    @property
    def depth(self) -> int:
        """The most operations that may be under way."""
        return self._options.tx_depth

    @property
    def one_sided(self) -> bool:
        """Tell whether a round trip ends with our own operation, and the peer's program has nothing to answer."""
        return True

    def prepare(self) -> None:  # noqa: B027 - most have nothing to do
        """Post receives, where the peer's messages need them: once, before the first size."""

    @abstractmethod
    def post(self, data: memoryview, now: int) -> None:
        """Begin an operation: there must be less than `depth` under way, unless it answers the peer's."""

    @abstractmethod
    def take(self, finished_ns: list[int]) -> int:
        """Append when each of our operations has ended that ended since the last call; return how many messages of the
        peer have arrived since then. Raises `PerftestError` for one that failed."""

    def replenish(self, at_least: int = 1) -> None:  # noqa: B027
        """Post receives anew for those that have met messages, if there are so many."""

    def begin_closing(self, now: int) -> None:  # noqa: B027
        """Begin to end the connection while both sides still answer."""

    @property
    def closed(self) -> bool:
        """Tell whether nothing of this side's is under way any longer."""
        return True

    @property
    def remarks(self) -> Sequence[str]:
        """The lines to be printed of this side, once it is prepared, before the results."""
        return ()

    def found(self) -> dict[str, Any]:
        """Return what the JSON document says of this side's run besides results."""
        return {}

    @property
    def objection(self) -> str:
        """Why results of this run are not to be trusted; "": nothing is known against them."""
        return ""


class TransportOptions(ABC):
    """The options that only one transport has, and what is printed of them."""

    __slots__ = ()

    @property
    @abstractmethod
    def connection_type(self) -> str: ...

    @property
    @abstractmethod
    def details(self) -> tuple[tuple[str, str], tuple[str, str], tuple[str, str]]:
        """Three lines of the header block: what they are called, and say."""

    @abstractmethod
    def compared(self) -> dict[str, Any]:
        """Return what both sides must agree on, by the name of its option; secrets as their fingerprints."""

    @abstractmethod
    def test_info(self) -> dict[str, Any]:
        """Return what the JSON document says of the test besides what it says for every transport."""

    @property
    def latency_unit(self) -> tuple[str, float, int]:
        """The unit of latencies: its name, how many us it has, and the decimals that are printed."""
        return "usec", 1.0, 2

    @property
    def bandwidth_columns(self) -> tuple[str, ...]:
        """Columns of a table of bandwidths beyond perftest's."""
        return ()

    def bandwidth_cells(self, result: BandwidthResult, directions: int) -> tuple[str, ...]:
        """Return the cells of these columns, for a result that has the bytes of so many directions."""
        return ()

    def bandwidth_fields(self, result: BandwidthResult, directions: int) -> dict[str, Any]:
        """Return for JSON what `bandwidth_cells` says."""
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTransport(ABC):
    """A transport, as the tools see it."""

    prefix: str
    """The names of its tools begin with it: `uet`."""
    name: str
    """In full."""
    short_name: str
    """In titles and JSON."""
    queues: tuple[str, str] | None
    """The placeholder and the noun of what `-q` counts; None where there is nothing to count."""
    controllers: tuple[str, ...]
    """The values of `--cc`, the default first; empty: there are neither these nor options of a fabric's paths."""
    tools: tuple[tuple[Verb, bool], ...] = USUAL
    """The measurements that there are: the verb, and True for its latency."""
    depths: int = 1 << 14
    """The most operations that may be under way."""

    def default_size(self, tool: Tool) -> int:
        """Bytes of a message where `-s` is not given."""
        return 8 if tool.verb is Verb.ATOMIC else 2 if tool.latency else 65536

    def default_depth(self, tool: Tool) -> int:
        """Operations under way where `-t` is not given."""
        return 128

    @abstractmethod
    def add_options(self, add: Any, tool: Tool) -> None:
        """`add` is `add_argument` of its group. One option must be `-m`, which becomes `mtu`, or `read_options` sets
        it."""

    @abstractmethod
    def read_options(self, given: argparse.Namespace, tool: Tool, parser: argparse.ArgumentParser) -> TransportOptions:
        """The options as they were given. What does not go together ends in `parser.error`.

        A transport without `controllers` sets `cc`, `rate` and `base_rtt` in `given`.
        """

    def open_agent(self, options: Options) -> MeasuringAgent:
        """Return the driver of the endpoint. Raises `PerftestError`."""
        return Agent(spin_ns=SPIN_NS if options.tool.latency and not options.events else 0)

    def check_link(self, options: Options, link_mtu: int, ip_bytes: int) -> None:  # noqa: B027
        """Raise `PerftestError` for what can never work, before an endpoint is opened.

        `link_mtu`: of this host's link to the other side; `ip_bytes`: how much of it the IP header takes.
        """

    @abstractmethod
    def open(
        self,
        options: Options,
        agent: MeasuringAgent,
        address: str,
        memory: ToolMemory,
        theirs: Mapping[str, Any] | None,
    ) -> MeasuredEndpoint:
        """Open an endpoint on an address of this host. `agent`: that of `open_agent`. `theirs`: what the client has
        said; None: this is the client.

        Raises `PerftestError`.
        """
