"""The command line of an agent, and the file that its keys are in.

Rates and times are written as in topology files, which this package does not read: `400M`, `25G`; `2ms`, `500us`.
"""

from __future__ import annotations

import argparse
import json
import re
import stat
import time
from pathlib import Path

from testbed.transport.uet.config import UetConfig
from testbed.transport.uet.congestion.registry import CONTROLLERS
from testbed.transport.uet.errors import UsageError
from testbed.transport.uet.paths import PathKind
from testbed.transport.uet.security.tss import SecureDomain, SecurityMode, first_counter

_NUMBER = re.compile(r"(\d+(?:\.\d+)?)([A-Za-z]*)", re.ASCII)
_RATES = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_TIMES_NS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
_KEY_FIELDS = {"sdi", "key", "mode", "ssi", "an", "epoch"}


def _scaled(text: str, units: dict[str, int], example: str) -> int:
    match = _NUMBER.fullmatch(text)
    if match is None or match[2] not in units:
        raise argparse.ArgumentTypeError(f"{text!r} is not like {example}")
    return round(float(match[1]) * units[match[2]])


def parse_rate(text: str) -> int:
    """Bits per second. Raises `ArgumentTypeError`."""
    return _scaled(text, _RATES, "400M")


def parse_time(text: str) -> int:
    """Nanoseconds. Raises `ArgumentTypeError`."""
    return _scaled(text, _TIMES_NS, "2ms")


def parse_delay(text: str) -> int | dict[str, int]:
    """`1ms` for all sources, or `10.0.4.0/24=1ms,10.0.5.0/24=2ms` by prefix. Raises `ArgumentTypeError`."""
    if "=" not in text:
        return parse_time(text)
    delays: dict[str, int] = {}
    for part in text.split(","):
        prefix, _, delay = part.partition("=")
        delays[prefix] = parse_time(delay)
    return delays


def make_parser() -> argparse.ArgumentParser:
    """What `python -m testbed.agent` takes."""
    parser = argparse.ArgumentParser(
        prog="python -m testbed.agent",
        description="Ultra Ethernet endpoints of this host, driven over a control socket. Ends with SIGTERM or SIGINT.",
    )
    defaults = UetConfig()
    add = parser.add_argument
    add("--address", action="append", default=[], help="open a FEP on this address; may be given several times")
    add("--control", required=True, metavar="PATH", help="Unix socket to listen at")
    add("--job", action="append", type=int, default=[], help="open an endpoint of this job on every FEP")
    add("--rate", type=parse_rate, default=defaults.link_rate_bps, help="of the port, bit/s: 400M")
    add("--base-rtt", type=parse_time, default=defaults.base_rtt_ns, help="of the fabric: 2ms")
    add("--delay", type=parse_delay, default=0, help="what the kernel does not delay: 1ms, or PREFIX=1ms,...")
    add("--cc", choices=tuple(CONTROLLERS), default=defaults.cc, help="congestion control")
    add("--paths", choices=[kind.value for kind in PathKind], default=defaults.paths, help="path selection")
    add("--payload", type=int, default=defaults.payload_bytes, help="bytes of a full packet")
    add("--trimming", action="store_true", help="the switches trim")
    add("--tss", metavar="KEYFILE", help="encrypt: a JSON file with sdi, key (hex) and optionally mode, ssi, an, epoch")
    return parser


def make_config(arguments: argparse.Namespace) -> UetConfig:
    """The settings of the FEPs. Raises `UsageError`."""
    return UetConfig(
        link_rate_bps=arguments.rate,
        base_rtt_ns=arguments.base_rtt,
        payload_bytes=arguments.payload,
        trimming=arguments.trimming,
        cc=arguments.cc,
        paths=arguments.paths,
    )


def load_domain(path: str, *, alone: bool) -> SecureDomain:
    """A secure domain of one FEP by a key file that others cannot read. Raises `UsageError`, `OSError`.

    `alone`: it is the only FEP with this file, so that the file may have an SSI, by which senders under one key differ.
    """
    from testbed.transport.uet.security.key_derivation import DomainKey

    file = Path(path)
    if stat.S_IMODE(file.stat().st_mode) & 0o077:
        raise UsageError(f"{path} can be read by others: chmod 600 {path}")
    try:
        values = json.loads(file.read_text())
        if not isinstance(values, dict) or not {"sdi", "key"} <= set(values) <= _KEY_FIELDS:
            raise ValueError(
                f"an object with sdi, key and optionally {', '.join(sorted(_KEY_FIELDS - {'sdi', 'key'}))}"
            )
        if "ssi" in values and not alone:
            raise ValueError("an SSI is one FEP's own, and several addresses are given")
        key = DomainKey(bytes.fromhex(values["key"]))
        return SecureDomain(
            int(values["sdi"]),
            key,
            first_counter=first_counter(time.time_ns()),
            mode=SecurityMode(values.get("mode", "direct")),
            ssi=values.get("ssi"),
            an=int(values.get("an", 0)),
            epoch=int(values.get("epoch", 0)),
        )
    except (ValueError, TypeError, AttributeError) as error:
        raise UsageError(f"{path} is no key file: {error}") from None
