"""The meaning of options' arguments: quantities with units, numbers in a range, and options that are refused."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any

_NUMBER = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)")
_BYTE_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_RATE_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
_TIME_UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}


def _quantity(text: str, units: dict[str, int], what: str) -> int:
    match = _NUMBER.fullmatch(text.strip())
    unit = None if match is None else units.get(match[2]) or units.get(match[2].lower())
    if match is None or unit is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no {what}")
    return round(float(match[1]) * unit)


def parse_bytes(text: str) -> int:
    """`64k`: bytes, in binary multiples. Raises `argparse.ArgumentTypeError`, as all of these do."""
    return _quantity(text, _BYTE_UNITS, "number of bytes (65536, 64k, 1M)")


def parse_rate(text: str) -> int:
    """`10G`: bit/s, in decimal multiples."""
    return _quantity(text.removesuffix("bit").removesuffix("bps"), _RATE_UNITS, "rate (500M, 10G)")


def parse_time(text: str) -> int:
    """`100us`: ns."""
    return _quantity(text, _TIME_UNITS, "time (100us, 1ms, 2s)")


def parse_seconds(text: str) -> float:
    """`2.5`: seconds, up to a day."""
    return _positive(text, 86_400, "number of seconds")


def parse_scale(text: str) -> float:
    """`200`: a factor of 1 or more."""
    value = _positive(text, 1e9, "time scale of 1 or more")
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time scale of 1 or more")
    return value


def _positive(text: str, most: float, what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is not a {what}")
    return value


def in_range(low: int, high: int) -> Any:
    """A decimal number from `low` to `high`."""

    def parse(text: str) -> int:
        value = int(text) if text.isascii() and text.isdecimal() else -1
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {low} to {high}")
        return value

    return parse


class Refused(argparse.Action):
    """An option that perftest has and that means nothing here: its `help` says why, to whoever gives it."""

    def __init__(self, option_strings: Sequence[str], dest: str, reason: str, nargs: int | str | None = "?") -> None:
        super().__init__(option_strings, dest, nargs=nargs, help=argparse.SUPPRESS, default=None)
        self._reason = reason

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        parser.error(f"{option_string}: {self._reason}")
