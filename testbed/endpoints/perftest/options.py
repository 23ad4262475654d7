"""Options of the tools: perftest's letters where it has them, and those of the transport that is measured."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from testbed.endpoints.perftest.arguments import in_range, parse_bytes, parse_rate, parse_seconds, parse_time
from testbed.endpoints.perftest.tool import Tool, Verb
from testbed.endpoints.perftest.transport import TransportOptions

DEFAULT_PORT = 18515
DEFAULT_JSON = "perftest_out.json"
LONGEST_MESSAGE = 1 << 28
_T = TypeVar("_T", bound=TransportOptions)
ALL_SIZES = tuple(1 << power for power in range(1, 24))
"""The sizes of `-a`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The task that a tool was given."""

    tool: Tool
    host: str | None
    """The server to measure against; None: be the server."""
    port: int
    address: str | None
    """The address of this side: where it listens, and its own in the transport; None: see `exchange`."""
    sizes: tuple[int, ...]
    """Bytes of a message."""
    iterations: int
    duration_s: float
    """Instead of `iterations` where it is not 0."""
    queues: int
    """Queue pairs, or what a transport has instead."""
    bidirectional: bool
    tx_depth: int
    """Operations under way; of a transport with queue pairs, in each of them."""
    gbits: bool
    json_file: Path | None
    cc: str
    payload_bytes: int
    """The payload of a full packet."""
    link_rate_bps: int
    base_rtt_ns: int
    events: bool
    """Sleep for what comes. Without it latency tools look out for it without a pause; bandwidth tools sleep anyway."""
    timeout_ns: int
    """The time for which nothing may happen."""
    transport: TransportOptions
    """The options that only the tool's transport has."""

    def of(self, kind: type[_T]) -> _T:
        """Return the options that only the tool's transport has, which are of this kind."""
        assert isinstance(self.transport, kind)
        return self.transport

    @property
    def server(self) -> bool:
        return self.host is None

    @property
    def directions(self) -> int:
        """The directions that a printed bandwidth has: with `-b` both together, as perftest has it."""
        return 2 if self.bidirectional else 1

    def compared(self) -> dict[str, Any]:
        """Return what both sides must agree on, by the name of its option."""
        return {
            "-s/-a": list(self.sizes),
            "-n": 0 if self.duration_s else self.iterations,
            "-D": self.duration_s,
            "-q": self.queues,
            "-b": self.bidirectional,
            "--cc": self.cc,
            "--mtu": self.payload_bytes,
            **self.transport.compared(),
        }


def make_parser(tool: Tool) -> argparse.ArgumentParser:
    transport = tool.transport
    parser = argparse.ArgumentParser(
        prog=tool.name,
        description=f"{tool.title} over {transport.name}. Without HOST: wait for a client.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="exit codes: 0 measured, 1 failed, 2 wrong options, 130 interrupted",
    )
    add = parser.add_argument
    add("host", nargs="?", metavar="HOST", help="the server to measure against")
    add("-p", "--port", type=in_range(1, 65535), default=DEFAULT_PORT, help="TCP port of the exchange (%(default)s)")
    add("-i", "--bind-source-ip", "--address", dest="address", metavar="IP", help="address of this side")
    size_help = "bytes of a message (%(default)s)"
    add("-s", "--size", type=parse_bytes, default=transport.default_size(tool), metavar="BYTES", help=size_help)
    add("-a", "--all", action="store_true", help="sizes from 2 to 2^23")
    add("-n", "--iters", type=in_range(1, 10**9), default=1000, help="messages of each size (%(default)s)")
    add("-D", "--duration", type=parse_seconds, default=0.0, metavar="SECONDS", help="measure for so long instead")
    if transport.queues is not None:
        short, noun = transport.queues
        add("-q", "--qp", type=in_range(1, 64), default=1, metavar=short, help=f"{noun} (%(default)s)")
    if not tool.latency:
        add("-b", "--bidirectional", action="store_true", help="both sides send")
        depth_help = "messages under way (%(default)s)"
        depths, depth = in_range(1, transport.depths), transport.default_depth(tool)
        add("-t", "--tx-depth", type=depths, default=depth, metavar="DEPTH", help=depth_help)
        add("--report_gbits", action="store_true", help="Gbit/s instead of MiB/s")
    add("--out_json", action="store_true", help=f"write the results to {DEFAULT_JSON} too")
    add("--out_json_file", metavar="FILE", help="write the results to this file too")
    add("-F", "--CPU-freq", action="store_true", help="accepted for perftest's sake: there is no frequency warning")
    add("-e", "--events", action="store_true", help="sleep for what comes; latency tools look out for it a while")
    timeout_help = "how long nothing may happen (%(default)s)"
    add("--timeout", type=parse_seconds, default=10.0, metavar="SECONDS", help=timeout_help)
    add = parser.add_argument_group(transport.name).add_argument
    if controllers := transport.controllers:
        add("--cc", choices=controllers, default=controllers[0], help="congestion control (%(default)s)")
        add("--rate", type=parse_rate, default=10**10, help="of this side's link (10G)")
        add("--base-rtt", type=parse_time, default=10**6, help="round trip through the empty fabric (1ms)")
    transport.add_options(add, tool)
    return parser


def parse_options(tool: Tool, argv: Sequence[str]) -> Options:
    """Raises `SystemExit` with 2 after telling the user, as argparse does."""
    parser = make_parser(tool)
    given = parser.parse_args(argv)
    if tool.verb is Verb.ATOMIC and (given.all or given.size != 8):
        parser.error("an atomic operation has 8 bytes")
    if not 1 <= given.size <= LONGEST_MESSAGE:
        parser.error(f"-s must be 1 to {LONGEST_MESSAGE}")
    if given.all and given.duration:
        parser.error("-a and -D exclude each other")
    of_transport = tool.transport.read_options(given, tool, parser)
    json_file = given.out_json_file or (DEFAULT_JSON if given.out_json else None)
    return Options(
        tool=tool,
        host=given.host,
        port=given.port,
        address=given.address,
        sizes=ALL_SIZES if given.all else (given.size,),
        iterations=given.iters,
        duration_s=given.duration,
        queues=getattr(given, "qp", None) or 1,
        bidirectional=getattr(given, "bidirectional", False),
        tx_depth=getattr(given, "tx_depth", 1),
        gbits=getattr(given, "report_gbits", False),
        json_file=None if json_file is None else Path(json_file),
        cc=given.cc,
        payload_bytes=given.mtu,
        link_rate_bps=given.rate,
        base_rtt_ns=given.base_rtt,
        events=given.events,
        timeout_ns=round(given.timeout * 1e9),
        transport=of_transport,
    )
