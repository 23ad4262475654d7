"""Quantities: how users write them (`Measure`), and as types `Rate`, `Duration`, `ByteCount`.

Inside the package a quantity is one of these; at an edge (JSON, kernel, command line) it is a
plain number whose name carries the unit (`rate_bps`, `delay_ns`, `mtu_bytes`). All three are
integers of their base unit (bit/s, ns, byte), so that plans compare and hash exactly.

Decimal prefixes are powers of 1000, `Ki`, `Mi`, `Gi`, `Ti` powers of 1024 (IEC 80000-13); a capital B is a byte and a
small b a bit. A measure is the one reader of quantities of its kind, in files and on the command line.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import ClassVar, Self

Factors = dict[str, Fraction]
"""Spellings, and how many base units each stands for."""

_LONGEST = 40
"""The most characters that a quantity may have."""
_DIGITS = "[0-9]+(?:_[0-9]+)*"
_NUMBER = rf"[-+]?(?:{_DIGITS}(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][-+]?[0-9]{{1,2}})?"
_FRACTION = r"[0-9]+/0*[1-9][0-9]*"
_POWER = re.compile(r"\s*([1-9][0-9]?)\s*(?:\^|\*\*)\s*([-+]?[0-9]{1,2})\s*")
_RATIO = re.compile(r"\s*([0-9]{1,9})\s*:\s*([1-9][0-9]{0,8})\s*")
_WRITTEN = re.compile(rf"\s*({_FRACTION}(?![.\w])|{_NUMBER})\s*((?:[%‰]|[^\W\d_]).*?|)\s*", re.DOTALL)

_SI: Factors = {
    "k": Fraction(10**3),
    "K": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
}
_SMALL_SI: Factors = {"m": Fraction(10**6), "g": Fraction(10**9), "t": Fraction(10**12)}
"""As `tc` and iperf3 write a rate: thousandths of a bit there are not."""
_IEC: Factors = {"Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30), "Ti": Fraction(2**40)}
_NO_PREFIX: Factors = {"": Fraction(1)}


class QuantityError(ValueError):
    """Text that is no quantity of its kind: a stable code, a sentence for the user, and what to write instead."""

    def __init__(self, message: str, hint: str | None = None, *, code: str = "bad-quantity", unit: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code
        self.unit = unit
        """The unit that is none of the kind's, where that is what is wrong."""


Advice = Callable[[str, str], str | None]
"""Finds what was probably meant by a number and a unit that is none of a kind's."""


class Measure:
    """One kind of quantity: what may stand behind a number, and what that makes of it.

    `noun` and `example` are for messages, `usual` lists the units that they name. `groups` are pairs of prefixes and
    units that follow them. `bare`: a number without a unit is a quantity. `fractions`: so is 1/8. `advise` knows what
    people write who mean something else.
    """

    def __init__(
        self,
        noun: str,
        example: str,
        usual: str,
        groups: Iterable[tuple[Factors, Factors]],
        *,
        bare: bool = False,
        fractions: bool = False,
        advise: Advice = lambda number, unit: None,
    ) -> None:
        self.noun = noun
        self.example = example
        self.usual = usual
        self.bare = self._plain = bare
        self._groups = tuple(groups)
        self._fractions = fractions
        self._advise = advise
        self._scale = Fraction(1)
        self.units: Mapping[str, Fraction] = MappingProxyType(
            {
                prefix + unit: factor * size
                for prefixes, units in self._groups
                for prefix, factor in prefixes.items()
                for unit, size in units.items()
            }
        )

    def counted_in(self, unit: str) -> Measure:
        """Return the same kind for a key whose name has the unit: a plain number is so many, and so is what is read."""
        counted = copy.copy(self)
        counted.bare, counted._scale = True, self._scale / self.units[unit]
        return counted

    def called(self, noun: str, example: str, usual: str | None = None) -> Measure:
        """Return the same kind under another name in messages, which list the units of `usual`."""
        called = copy.copy(self)
        called.noun, called.example, called.usual = noun, example, usual or self.usual
        return called

    def read(self, text: str) -> Fraction:
        """Return how many base units (or those of `counted_in`) `text` says. Raises `QuantityError`."""
        shown = repr(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...")
        match = _WRITTEN.fullmatch(text) if len(text) <= _LONGEST else None
        if match is None or ("/" in match[1] and not self._fractions):
            hint = "a point stands before decimals, and nothing between thousands" if "," in text else None
            hint = hint or (_as_fraction(text) if self._fractions else None)
            noun = f"{'an' if self.noun == 'MTU' else 'a'} {self.noun}"
            if self._plain:
                raise QuantityError(
                    f"must be {noun}, not {shown}", hint or f"for example {self.example}", code="wrong-type"
                )
            raise QuantityError(f"{shown} is not {noun} such as {self.example}", hint)
        number, unit = match.groups()
        value = Fraction(number)
        if not unit:
            if self.bare or not value:
                return value
            number = number.removesuffix(".0")  # as YAML has 1.5e6
            *several, last = (number + one for one in self._units_for(value))
            wanted = f"{', '.join(several)} or {last}" if several else last
            message = f"the {self.noun} {number} has no unit"
            raise QuantityError(message, f"write the unit, such as {wanted}", code="no-unit")
        factor = self.units.get(unit)
        if factor is None:
            message = f"{shown} has an unknown unit {unit[:_LONGEST]!r} (one of {self.usual})"
            raise QuantityError(message, self._advise(number, unit) or self._meant(number, unit), unit=unit)
        return value * factor * self._scale

    def pattern(self, *, bare: bool | None = None) -> str:
        """The texts that are read, as the regular expression of a JSON Schema; `bare` is that of the kind if None."""
        units = "|".join(f"(?:{_either(prefixes)})(?:{_either(units)})" for prefixes, units in self._groups)
        optional = "?" if (self.bare if bare is None else bare) else ""
        number = f"(?:{_FRACTION}|{_NUMBER})" if self._fractions else _NUMBER
        return rf"^\s*{number}\s*(?:{units}){optional}\s*$"

    @property
    def prefixes(self) -> str:
        """Return the prefixes that stand before a unit, for people."""
        return ", ".join(dict.fromkeys(prefix for prefixes, _ in self._groups for prefix in prefixes if prefix))

    @property
    def words(self) -> list[str]:
        """Return the units without prefixes."""
        return list(dict.fromkeys(unit for _, units in self._groups for unit in units if unit))

    def _units_for(self, value: Fraction) -> Iterable[str]:
        """Units of a hint for a number without one: that of the example, of a huge number the smallest."""
        smallest, *others = self.units
        if value >= 10**4:
            return (smallest,)
        example = re.match(r"[0-9.]+([^\s,]+)", self.example)
        unit = smallest if example is None else example[1]
        return (unit, *(one for one in ("us", "ms", "s") if one in others))

    def _meant(self, number: str, unit: str) -> str:
        meant = next((known for known in self.units if known.lower() == unit.lower()), None)
        return f"for example {self.example}" if meant is None else f"write {number}{meant}"


def _as_fraction(text: str) -> str | None:
    """Return a hint for a power, as 2^-3, or a ratio, as 1:8, which are not read."""
    if found := _POWER.fullmatch(text):
        return f"write {Fraction(int(found[1])) ** int(found[2])}"
    if found := _RATIO.fullmatch(text):
        return f"write {found[1]}/{found[2]}"
    return None


def _either(spellings: Iterable[str]) -> str:
    return "|".join(re.escape(one) for one in spellings)


def split_quantity(text: str) -> tuple[str, str]:
    """The number and the unit of a quantity of any kind, as they are written; both empty where it is none."""
    match = _WRITTEN.fullmatch(text) if len(text) <= _LONGEST else None
    return ("", "") if match is None else (match[1], match[2])


def parse_bdp(text: str) -> float | None:
    """Return how many bandwidth-delay products a size such as "64bdp" has; None for a size in another unit."""
    number, unit = split_quantity(text)
    return float(Fraction(number)) if unit in BDPS.units and "/" not in number else None


def _decimal(number: Fraction) -> str:
    return f"{float(number):.12g}"


# --- the kinds -------------------------------------------------------------------------------------------

_BIT_WORDS = ("bps", "bit/s", "b/s", "bits/s", "bit/sec", "bits/sec", "Bit/s", "bit", "bits", "Bit", "b")
_BITS: Factors = dict.fromkeys(_BIT_WORDS, Fraction(1))
_PLAIN_BITS: Factors = dict.fromkeys(_BIT_WORDS[:-1], Fraction(1))
_BYTES_A_SECOND: Factors = dict.fromkeys(("B/s", "byte/s", "bytes/s", "Byte/s", "Bytes/s"), Fraction(8))
_ETHERNET: Factors = dict.fromkeys(("bE", "BE", "E", "be"), Fraction(1))


def _advise_rate(number: str, unit: str) -> str | None:
    """Bytes where bits are meant, or bytes a second."""
    found = re.fullmatch(r"([kKMGT]?i?)(?:B|Bps|[bB]ytes?)", unit)
    if found is None or "/" in number:
        return None
    prefix = found[1]
    bits = _decimal(Fraction(number) * 8)
    return f"write {number}{prefix}bps for bits; bytes are {number}{prefix}B/s, which is {bits}{prefix}bps"


RATE = Measure(
    "rate",
    "400G",
    "bps, k, M, G, T, Gbit/s, GB/s",
    (
        (_NO_PREFIX, _PLAIN_BITS | _BYTES_A_SECOND),
        (_SI | _IEC, {"": Fraction(1)} | _BITS | _BYTES_A_SECOND),
        (_SMALL_SI, {"": Fraction(1)} | _BITS),
        ({key: _SI[key] for key in "MGT"} | _SMALL_SI, _ETHERNET),
    ),
    advise=_advise_rate,
)


def part_of_rate_hint(text: str) -> str | None:
    """Return what to write for a rate of one at most and without a unit, which is a part of another; else None."""
    number, unit = split_quantity(text)
    if not number or unit or Fraction(number) <= 0 or ("/" not in number and Fraction(number) > 1):
        return None
    share = f"{_decimal(100 * Fraction(number))}%"
    return f"write {share}" if "/" in number else f"write {share} (of the link), or {number}G"


_TIMES = {
    1: ("ns", "nsec", "nanosecond", "nanoseconds"),
    10**3: ("us", "µs", "μs", "usec", "microsecond", "microseconds"),
    10**6: ("ms", "msec", "millisecond", "milliseconds"),
    10**9: ("s", "sec", "secs", "second", "seconds"),
    60 * 10**9: ("m", "min", "minute", "minutes"),
    3600 * 10**9: ("h", "hr", "hour", "hours"),
}


def _advise_time(number: str, unit: str) -> str | None:
    """Words cut elsewhere than usual: microsec, nanos, msecs."""
    found = re.fullmatch(r"(n|nano|u|µ|μ|micro|m|milli|)(?:s|secs?|seconds?)", unit.lower())
    words = {"nano": "n", "µ": "u", "μ": "u", "micro": "u", "milli": "m"}
    return None if found is None else f"write {number}{words.get(found[1], found[1])}s"


TIME = Measure(
    "duration",
    "500ns",
    "ns, us, ms, s, min, h",
    ((_NO_PREFIX, {spelling: Fraction(size) for size, spellings in _TIMES.items() for spelling in spellings}),),
    advise=_advise_time,
)


def _advise_bytes(number: str, unit: str) -> str | None:
    """Bits where bytes are meant, and small letters, which Docker reads as powers of 1024."""
    found = re.fullmatch(r"([kKMGTmgt]?)(i?)(b|bits?|B?)", unit)
    if found is None or "/" in number:
        return None
    prefix, binary, what = found.groups()
    prefix = prefix if prefix in "kK" else prefix.upper()
    if what.startswith("bit"):
        return f"a size is in bytes: write {_decimal(Fraction(number) / 8)}{prefix}{binary}B"
    if binary:
        return f"write {number}{prefix.upper()}iB"
    bigger = f", or {number}{prefix.upper()}iB, which counts by 1024" if prefix else ""
    return f"write {number}{prefix}B{bigger}"


_BYTE_WORDS: Factors = dict.fromkeys(("B", "byte", "bytes", "Byte", "Bytes"), Fraction(1))
BYTES = Measure(
    "size",
    "16MB",
    "B, kB, MB, GB, TB, KiB, MiB, GiB, TiB",
    ((_NO_PREFIX, _BYTE_WORDS), (_SI | _IEC, {"": Fraction(1)} | _BYTE_WORDS)),
    advise=_advise_bytes,
)

COUNT = Measure(
    "whole number",
    "8",
    "k, M, G, T",
    ((_SI, _NO_PREFIX),),
    bare=True,
    advise=lambda number, unit: f"write {number}" if unit in ("x", "X", "×") else None,
)
_PERCENT: Factors = {"%": Fraction(1, 100), "percent": Fraction(1, 100)}
NUMBER = Measure(
    "number", "0.5", "%, k, M, G, T", ((_NO_PREFIX, _PERCENT), (_SI, _NO_PREFIX)), bare=True, fractions=True
)
"""A number that may be written as a percentage, as a fraction, or with a prefix."""
SHARE = Measure(
    "share", "7%", "%, ppm", ((_NO_PREFIX, _PERCENT | {"ppm": Fraction(1, 10**6)}),), bare=True, fractions=True
)
"""A share or probability: 7% and 0.07 are one."""
PERCENT = SHARE.counted_in("%").called("number of percent", "40%")
"""A share in a key that counts percent: 40 and 40% are one."""
POINTS = Measure("number of percentage points", "8pp", "pp", ((_NO_PREFIX, {"pp": Fraction(1, 100)}),))
BDPS = Measure(
    "number of BDPs",
    "1bdp",
    "bdp",
    ((_NO_PREFIX, dict.fromkeys(("bdp", "bdps", "BDP", "BDPs", "Bdp"), Fraction(1))),),
    bare=True,
)
ROUND_TRIPS = Measure(
    "number of round trips",
    "2rtts",
    "rtt, rtts",
    ((_NO_PREFIX, dict.fromkeys(("rtt", "rtts", "RTT", "RTTs"), Fraction(1))),),
    bare=True,
)
PACKETS_A_SECOND = Measure(
    "number of packets a second",
    "100pps",
    "pps, k, M",
    ((_NO_PREFIX | _SI, dict.fromkeys(("pps", "packets/s"), Fraction(1))), (_SI, _NO_PREFIX)),
    bare=True,
)

MEASURES_OF_KEYS: Mapping[str, Measure] = {
    "_per_s": NUMBER,
    "_pps": PACKETS_A_SECOND,
    "_bps": RATE.counted_in("bps"),
    "_bytes": BYTES.counted_in("B"),
    "_ns": TIME.counted_in("ns"),
    "_us": TIME.counted_in("us"),
    "_ms": TIME.counted_in("ms"),
    "_s": TIME.counted_in("s"),
    "_rtts": ROUND_TRIPS,
    "_bdps": BDPS,
    "_mtu": BYTES.counted_in("B"),
}
"""The kind of a number by the unit at the end of its key's name."""


MEASURES = (RATE, TIME, BYTES, SHARE, NUMBER, COUNT, PERCENT, POINTS, ROUND_TRIPS, BDPS, PACKETS_A_SECOND)
"""Every kind, for the reference."""


def measure_of_key(name: str, otherwise: Measure) -> Measure:
    """The kind of a number whose key's name ends with the unit, such as `cnp_us`; `otherwise` where it has none."""
    return next((measure for ending, measure in MEASURES_OF_KEYS.items() if name.endswith(ending)), otherwise)


# --- types -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, order=True)
class _Quantity:
    """A non-negative integer count of a base unit."""

    value: int

    MEASURE: ClassVar[Measure]

    def __post_init__(self) -> None:
        if self.value < 0:
            raise ValueError(f"{type(self).__name__} cannot be negative: {self.value}")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `text` such as "400G", "500ns" or "16MB". Raises `QuantityError`."""
        return cls.of(cls.MEASURE.read(text), text)

    @classmethod
    def of(cls, value: Fraction, text: str) -> Self:
        """Return so many base units, as `text` says. Raises `QuantityError` where they are less than none, or parts."""
        noun = cls.MEASURE.noun
        if value < 0:
            raise QuantityError(f"a {noun} cannot be negative: {text.strip()}", code="out-of-range")
        if value.denominator != 1:
            hint = f"write {str(cls(round(value))).replace(' ', '')}" if round(value) else None
            raise QuantityError(f"{text!r} is finer than the smallest unit kept", hint)
        return cls(int(value))

    def __bool__(self) -> bool:
        return self.value != 0


@dataclass(frozen=True, slots=True, order=True)
class Rate(_Quantity):
    """A data rate in bit/s."""

    MEASURE = RATE

    @property
    def bps(self) -> int:
        return self.value

    def scaled(self, k: float) -> Rate:
        """The rate in lab time: divided by the time scale `k` (design: rates are divided)."""
        return Rate(max(1, round(self.value / k)))

    def __str__(self) -> str:
        return _with_prefix(self.value, (("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3))) + "bit/s"


@dataclass(frozen=True, slots=True, order=True)
class Duration(_Quantity):
    """A span of time in nanoseconds."""

    MEASURE = TIME

    @property
    def ns(self) -> int:
        return self.value

    @property
    def ms(self) -> float:
        return self.value / 1e6

    @property
    def seconds(self) -> float:
        return self.value / 1e9

    def scaled(self, k: float) -> Duration:
        """The span in lab time: multiplied by the time scale `k`."""
        return Duration(round(self.value * k))

    def __str__(self) -> str:
        for suffix, size in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
            if self.value >= size:
                return f"{_trim(self.value / size)} {suffix}"
        return f"{self.value} ns"


@dataclass(frozen=True, slots=True, order=True)
class ByteCount(_Quantity):
    """A number of bytes. Never scaled."""

    MEASURE = BYTES

    @property
    def bytes(self) -> int:
        return self.value

    def __str__(self) -> str:
        return _with_prefix(self.value, (("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3))) + "B"


def _with_prefix(value: int, prefixes: tuple[tuple[str, int], ...]) -> str:
    for prefix, size in prefixes:
        if value >= size:
            return f"{_trim(value / size)} {prefix}"
    return f"{value} "


def _trim(number: float) -> str:
    return f"{number:.3f}".rstrip("0").rstrip(".")
