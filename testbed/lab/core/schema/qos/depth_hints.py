"""Hints for queue depths in units that depend on the file: percent of its buffer, and time at the rate of its NICs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import TypeVar

from testbed.base.units import TIME, ByteCount, QuantityError, Rate, split_quantity
from testbed.base.yaml.document import Document
from testbed.base.yaml.paths import Path
from testbed.lab.core.fabric import QOS_PRESETS

Parsed = TypeVar("Parsed", Rate, ByteCount)
Hint = Callable[[Document, Path], str | None]

_EXAMPLE_RATE = Rate.parse("400G")
"""The rate of a hint for a file that has none."""
_EXAMPLE_BUFFER = ByteCount.parse("16MB")
"""The buffer of a profile that has none (`testbed.lab.core.model.Buffer`)."""
_NS_A_METRE = 5
"""The time of light in a metre of fibre or copper."""
_OF_BDP = re.compile(
    r"\s*([0-9]+(?:\.[0-9]+)?\s*%?|[0-9]+/[1-9][0-9]*)\s*(?:of\s+)?(?:an?\s+|the\s+)?bdps?\s*", re.IGNORECASE
)


def depth_hint(value: object) -> Hint | None:
    """Return what says what to write for a depth in percent, which may be of this or that, or in time, which differs by
    the port; None for any other value."""
    if (shares := _OF_BDP.fullmatch(str(value))) is not None:
        return lambda document, path: f"write {_share(shares[1]):g}bdp"
    number, unit = split_quantity(str(value))
    if unit == "%" and Fraction(number) >= 0:
        share = Fraction(number) / 100
        return lambda document, path: _hint_of_share(share, _buffer(document, path))
    if unit in TIME.units and "/" not in number and Fraction(number) >= 0:
        return lambda document, path: _hint_of_time(Fraction(number), unit, document, path)
    return None


def _share(text: str) -> float:
    percent = text.endswith("%")
    return float(Fraction(text.removesuffix("%").strip())) / (100 if percent else 1)


def _hint_of_share(share: Fraction, buffer: ByteCount) -> str:
    of_bdp = f"of what? of a BDP it is {float(share):g}bdp"
    if share > 1:
        return of_bdp
    part = _spelled(ByteCount(round(share * buffer.bytes)))
    return f"{of_bdp}; of the memory of a switch (buffer.shared) write its bytes, {part} of {_spelled(buffer)}"


def _hint_of_time(number: Fraction, unit: str, document: Document, path: Path) -> str:
    """Return the bytes of a time; of a length of cable, which `m` is more often than minutes, those there and back."""
    rate, buffer, key = _rate(document, path), _buffer(document, path), path[-1] if path else ""
    span_ns, what = number * TIME.units[unit], "that time"
    if unit == "m":
        span_ns, metres = number * 2 * _NS_A_METRE, f"{float(number):g} m"
        what = f"the time to the end of {metres} of cable and back (5 ns a metre each way)"
    sent = ByteCount(round(span_ns * rate.bps / 8 / 10**9))
    if sent > buffer:
        return "no port of a switch can hold what is sent in that time: write a size, such as 150KB"
    share = "" if key == "headroom" else "; or a share of a BDP, such as 0.2bdp"
    auto = "; or auto" if key in ("xoff", "xon", "headroom") else ""
    return f"write what a port sends in {what}: at {_spelled_rate(rate)}, {_spelled(sent)}{share}{auto}"


def _spelled(size: ByteCount) -> str:
    return str(size).replace(" ", "")


def _spelled_rate(rate: Rate) -> str:
    return str(rate).replace(" ", "").removesuffix("bit/s")


def _rate(document: Document, path: Path) -> Rate:
    """Return the rate of the file's NICs, or where it has none that of an example."""
    root = path[: path.index("qos")] if "qos" in path else ()
    return _parsed(Rate, document.get((*root, "fabric", "nic", "rate"))) or _EXAMPLE_RATE


def _buffer(document: Document, path: Path) -> ByteCount:
    """Return the buffer of the section that the value stands in, or of one around it, or of its preset."""
    for section in _around(path):
        written = _parsed(ByteCount, document.get((*section, "buffer", "shared")))
        if written:
            return written
        preset = QOS_PRESETS.get(str(document.get((*section, "preset"))))
        if preset is not None:
            return ByteCount(preset.profile.buffer.shared_bytes)
    return _EXAMPLE_BUFFER


def _around(path: Path) -> Iterator[Path]:
    while path:
        path = path[:-1]
        yield path


def _parsed(kind: type[Parsed], value: object) -> Parsed | None:
    try:
        return kind.parse(str(value)) if isinstance(value, str) else None
    except QuantityError:
        return None
