"""Options of the tools: perftest's letters where it has them, and what only UET has."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from testbed.transport.errors import UsageError
from testbed.transport.uet.congestion.registry import CONTROLLERS, DEFAULT_CONTROLLER
from testbed.transport.uet.packets.codes import Mode
from testbed.transport.uet.paths import DEFAULT_PATHS, PathKind
from testbed.transport.uet.security.key_derivation import DomainKey, load_key

DEFAULT_PORT = 18515
DEFAULT_JSON = "perftest_out.json"
LONGEST_MESSAGE = 1 << 28
ALL_SIZES = tuple(1 << power for power in range(1, 24))
"""Of `-a`."""
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)")
_BYTE_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_RATE_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
_TIME_UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}


class Verb(StrEnum):
    """The operation that is measured."""

    WRITE = "write"
    READ = "read"
    SEND = "send"
    ATOMIC = "atomic"


class Tool(NamedTuple):
    """One of the programs."""

    name: str
    """Without `uet_`."""
    verb: Verb
    latency: bool

    @property
    def title(self) -> str:
        return f"UET_{self.verb.capitalize()} {'Latency' if self.latency else 'BW'} Test"


TOOLS = {
    tool.name: tool
    for tool in (
        Tool("write_bw", Verb.WRITE, False),
        Tool("read_bw", Verb.READ, False),
        Tool("send_bw", Verb.SEND, False),
        Tool("send_lat", Verb.SEND, True),
        Tool("write_lat", Verb.WRITE, True),
        Tool("atomic_lat", Verb.ATOMIC, True),
    )
}
_MODES = {"rud": Mode.RUD, "rod": Mode.ROD, "rudi": Mode.RUDI}
_RUDI_VERBS = (Verb.WRITE, Verb.READ)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """This is what a tool was asked to do."""

    tool: Tool
    host: str | None
    """The server to measure against; None: be the server."""
    port: int
    address: str | None
    """Of this side: where it listens, and its fabric address; None: see `exchange`."""
    sizes: tuple[int, ...]
    """Bytes of a message."""
    iterations: int
    duration_s: float
    """Instead of `iterations` where it is not 0."""
    pdcs: int
    bidirectional: bool
    tx_depth: int
    """Operations under way."""
    gbits: bool
    json_file: Path | None
    mode: Mode
    cc: str
    paths: str
    tss: DomainKey | None
    payload_bytes: int
    link_rate_bps: int
    base_rtt_ns: int
    trimming: bool
    events: bool
    """Sleep for what comes. Without it latency tools look out for it without a pause; bandwidth tools sleep anyway."""
    timeout_ns: int
    """How long nothing may happen."""

    @property
    def server(self) -> bool:
        return self.host is None

    def compared(self) -> dict[str, Any]:
        """Return what both sides must agree on, by the name of its option."""
        return {
            "-s/-a": list(self.sizes),
            "-n": 0 if self.duration_s else self.iterations,
            "-D": self.duration_s,
            "-q": self.pdcs,
            "-b": self.bidirectional,
            "--mode": self.mode.name.lower(),
            "--cc": self.cc,
            "--mtu": self.payload_bytes,
            "--tss": "" if self.tss is None else self.tss.fingerprint()[:4].hex(),
        }


def _quantity(text: str, units: dict[str, int], what: str) -> int:
    match = _NUMBER.fullmatch(text.strip())
    unit = None if match is None else units.get(match[2]) or units.get(match[2].lower())
    if match is None or unit is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no {what}")
    return round(float(match[1]) * unit)


def parse_bytes(text: str) -> int:
    """`64k`: bytes, in binary multiples. Raises `argparse.ArgumentTypeError`, as the next two do."""
    return _quantity(text, _BYTE_UNITS, "number of bytes (65536, 64k, 1M)")


def parse_rate(text: str) -> int:
    """`10G`: bit/s, in decimal multiples."""
    return _quantity(text.removesuffix("bit").removesuffix("bps"), _RATE_UNITS, "rate (500M, 10G)")


def parse_time(text: str) -> int:
    """`100us`: ns."""
    return _quantity(text, _TIME_UNITS, "time (100us, 1ms, 2s)")


def _in_range(low: int, high: int) -> Any:
    def parse(text: str) -> int:
        value = int(text) if text.isascii() and text.isdecimal() else -1
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {low} to {high}")
        return value

    return parse


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 86_400:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return value


def read_key(path: str) -> DomainKey:
    """The key in a file, as `load_key` has it. Raises `argparse.ArgumentTypeError`."""
    try:
        return load_key(Path(path).read_text(encoding="ascii"))
    except OSError as error:
        raise argparse.ArgumentTypeError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise argparse.ArgumentTypeError(f"{path}: a domain key is written in hexadecimal digits") from None
    except UsageError as error:
        raise argparse.ArgumentTypeError(f"{path}: {error}") from None


def make_parser(tool: Tool) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"uet_{tool.name}",
        description=f"{tool.title} over Ultra Ethernet Transport. Without HOST: wait for a client.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="exit codes: 0 measured, 1 failed, 2 wrong options, 130 interrupted",
    )
    add = parser.add_argument
    add("host", nargs="?", metavar="HOST", help="the server to measure against")
    add("-p", "--port", type=_in_range(1, 65535), default=DEFAULT_PORT, help="TCP port of the exchange (%(default)s)")
    add("-i", "--bind-source-ip", "--address", dest="address", metavar="IP", help="address of this side")
    default_size = 8 if tool.verb is Verb.ATOMIC else 2 if tool.latency else 65536
    size_help = "bytes of a message (%(default)s)"
    add("-s", "--size", type=parse_bytes, default=default_size, metavar="BYTES", help=size_help)
    add("-a", "--all", action="store_true", help="sizes from 2 to 2^23")
    add("-n", "--iters", type=_in_range(1, 10**9), default=1000, help="messages of each size (%(default)s)")
    add("-D", "--duration", type=_seconds, default=0.0, metavar="SECONDS", help="measure for so long instead")
    add("-q", "--qp", type=_in_range(1, 64), default=1, metavar="PDCS", help="packet delivery contexts (%(default)s)")
    if not tool.latency:
        add("-b", "--bidirectional", action="store_true", help="both sides send")
        depth_help = "messages under way (%(default)s)"
        add("-t", "--tx-depth", type=_in_range(1, 1 << 14), default=128, metavar="DEPTH", help=depth_help)
        add("--report_gbits", action="store_true", help="Gbit/s instead of MiB/s")
    add("--out_json", action="store_true", help=f"write the results to {DEFAULT_JSON} too")
    add("--out_json_file", metavar="FILE", help="write the results to this file too")
    add("-F", "--CPU-freq", action="store_true", help="accepted for perftest's sake: there is no frequency warning")
    add("-e", "--events", action="store_true", help="sleep for what comes; latency tools look out for it a while")
    add("--timeout", type=_seconds, default=10.0, metavar="SECONDS", help="how long nothing may happen (%(default)s)")
    uet = parser.add_argument_group("Ultra Ethernet Transport")
    add = uet.add_argument
    add("--mode", choices=_MODES, default="rud", help="delivery mode (%(default)s)")
    add("--cc", choices=tuple(CONTROLLERS), default=DEFAULT_CONTROLLER, help="congestion control (%(default)s)")
    path_kinds = [kind.value for kind in PathKind]
    add("--paths", choices=path_kinds, default=DEFAULT_PATHS, help="path selection (%(default)s)")
    add("--tss", type=read_key, metavar="KEYFILE", help="encrypt, with the key (64 hexadecimal digits) in this file")
    add("-m", "--mtu", type=_in_range(64, 16_383), default=4096, metavar="BYTES", help="payload of a full packet")
    add("--rate", type=parse_rate, default=10**10, help="of this side's link (10G)")
    add("--base-rtt", type=parse_time, default=10**6, help="round trip through the empty fabric (1ms)")
    add("--trimming", action="store_true", help="the switches trim")
    return parser


def parse_options(tool: Tool, argv: Sequence[str]) -> Options:
    """Raises `SystemExit` with 2 after telling the user, as argparse does."""
    parser = make_parser(tool)
    given = parser.parse_args(argv)
    mode = _MODES[given.mode]
    bidirectional = getattr(given, "bidirectional", False)
    if mode is Mode.RUDI and tool.verb not in _RUDI_VERBS:
        parser.error(f"--mode rudi is for idempotent operations, and {tool.verb} is none")
    if mode is Mode.RUDI and given.qp != 1:
        parser.error("--mode rudi has no packet delivery contexts: -q does not apply")
    if tool.verb is Verb.ATOMIC and (given.all or given.size != 8):
        parser.error("an atomic operation has 8 bytes")
    if not 1 <= given.size <= LONGEST_MESSAGE:
        parser.error(f"-s must be 1 to {LONGEST_MESSAGE}")
    if given.all and given.duration:
        parser.error("-a and -D exclude each other")
    json_file = given.out_json_file or (DEFAULT_JSON if given.out_json else None)
    return Options(
        tool=tool,
        host=given.host,
        port=given.port,
        address=given.address,
        sizes=ALL_SIZES if given.all else (given.size,),
        iterations=given.iters,
        duration_s=given.duration,
        pdcs=given.qp,
        bidirectional=bidirectional,
        tx_depth=getattr(given, "tx_depth", 1),
        gbits=getattr(given, "report_gbits", False),
        json_file=None if json_file is None else Path(json_file),
        mode=mode,
        cc=given.cc,
        paths=given.paths,
        tss=given.tss,
        payload_bytes=given.mtu,
        link_rate_bps=given.rate,
        base_rtt_ns=given.base_rtt,
        trimming=given.trimming,
        events=given.events,
        timeout_ns=round(given.timeout * 1e9),
    )
