"""Physical quantities as types: `Rate`, `Duration`, `ByteCount`.

Inside the package a quantity is one of these; at an edge (JSON, kernel, command line) it is a
plain number whose name carries the unit (`rate_bps`, `delay_ns`, `mtu_bytes`). All three are
integers of their base unit (bit/s, ns, byte), so that plans compare and hash exactly.

Decimal prefixes are powers of 1000 (IEC 80000-13); `KiB`, `MiB`, `GiB` are powers of 1024.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Self

_NUMBER = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([A-Za-zµ/]*)\s*$")


@dataclass(frozen=True, slots=True, order=True)
class _Quantity:
    """A non-negative integer count of a base unit."""

    value: int

    SUFFIXES: ClassVar[dict[str, Fraction]] = {}
    EXAMPLE: ClassVar[str] = ""

    def __post_init__(self) -> None:
        if self.value < 0:
            raise ValueError(f"{type(self).__name__} cannot be negative: {self.value}")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `text` such as "400G", "500ns" or "16MB".

        Raises `ValueError` with a sentence fit for the user.
        """
        match = _NUMBER.match(text)
        if match is None:
            raise ValueError(f"{text!r} is not a {cls.__name__.lower()} such as {cls.EXAMPLE}")
        number, suffix = match.groups()
        factor = cls.SUFFIXES.get(suffix)
        if factor is None:
            known = ", ".join(key for key in cls.SUFFIXES if key)
            raise ValueError(f"{text!r} has an unknown unit {suffix!r} (one of {known})")
        value = Fraction(number) * factor
        if value.denominator != 1:
            raise ValueError(f"{text!r} is finer than the smallest unit kept")
        return cls(int(value))

    def __bool__(self) -> bool:
        return self.value != 0


@dataclass(frozen=True, slots=True, order=True)
class Rate(_Quantity):
    """A data rate in bit/s."""

    SUFFIXES: ClassVar[dict[str, Fraction]] = {
        "": Fraction(1),
        "bps": Fraction(1),
        "bit/s": Fraction(1),
        "k": Fraction(10**3),
        "K": Fraction(10**3),
        "kbps": Fraction(10**3),
        "kbit/s": Fraction(10**3),
        "M": Fraction(10**6),
        "Mbps": Fraction(10**6),
        "Mbit/s": Fraction(10**6),
        "G": Fraction(10**9),
        "Gbps": Fraction(10**9),
        "Gbit/s": Fraction(10**9),
        "T": Fraction(10**12),
        "Tbps": Fraction(10**12),
        "Tbit/s": Fraction(10**12),
    }
    EXAMPLE: ClassVar[str] = "400G"

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

    SUFFIXES: ClassVar[dict[str, Fraction]] = {
        "ns": Fraction(1),
        "us": Fraction(10**3),
        "µs": Fraction(10**3),
        "ms": Fraction(10**6),
        "s": Fraction(10**9),
        "m": Fraction(60 * 10**9),
        "min": Fraction(60 * 10**9),
        "h": Fraction(3600 * 10**9),
    }
    EXAMPLE: ClassVar[str] = "500ns"

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

    SUFFIXES: ClassVar[dict[str, Fraction]] = {
        "": Fraction(1),
        "B": Fraction(1),
        "k": Fraction(10**3),
        "kB": Fraction(10**3),
        "KB": Fraction(10**3),
        "M": Fraction(10**6),
        "MB": Fraction(10**6),
        "G": Fraction(10**9),
        "GB": Fraction(10**9),
        "T": Fraction(10**12),
        "TB": Fraction(10**12),
        "KiB": Fraction(2**10),
        "MiB": Fraction(2**20),
        "GiB": Fraction(2**30),
        "TiB": Fraction(2**40),
    }
    EXAMPLE: ClassVar[str] = "16MB"

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
