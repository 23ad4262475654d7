"""Plain YAML scalars as the core schema of YAML 1.2.2 (section 10.3.2) resolves them.

Differences from YAML 1.1, which PyYAML resolves by default: `on`, `off`, `yes` and `no` are strings, `1:30`
is a string and not 90, `1_000` and `2024-01-01` are strings. `010` is 8 in YAML 1.1 and 10 in YAML 1.2: we
refuse it rather than guess.
"""

from __future__ import annotations

import re

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_DECIMAL = re.compile(r"[-+]?[0-9]+")
_LEADING_ZERO = re.compile(r"([-+]?)0+([0-9]+)")
_OCTAL = re.compile(r"0o[0-7]+")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_INFINITE = re.compile(r"([-+]?)\.(?:inf|Inf|INF)")
_NAN = frozenset({".nan", ".NaN", ".NAN"})

MAX_NUMBER_LENGTH = 40
"""Characters of a number. The largest that means anything here, an AS number, has ten."""

Scalar = str | int | float | bool | None


class ScalarError(ValueError):
    """A plain scalar that is refused. `hint` says what to write instead."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def resolve_plain_scalar(text: str) -> Scalar:
    """The value of a scalar written without quotes.

    Raises `ScalarError` for a number with a leading zero and for one of absurd length.
    """
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if text[0] not in "+-.0123456789":
        return text
    if text in _NAN:
        return float("nan")
    if match := _INFINITE.fullmatch(text):
        return float(f"{match[1]}inf")
    is_decimal = _DECIMAL.fullmatch(text) is not None
    octal_or_hex = _OCTAL.fullmatch(text) or _HEX.fullmatch(text)
    if not (is_decimal or octal_or_hex or _FLOAT.fullmatch(text)):
        return text
    if len(text) > MAX_NUMBER_LENGTH:
        raise ScalarError(f"a number of {len(text)} characters", hint="if it is meant as text, quote it")
    if octal_or_hex:
        return int(text, 0)
    if not is_decimal:
        return float(text)
    if match := _LEADING_ZERO.fullmatch(text):
        decimal = f"{match[1].replace('+', '')}{match[2].lstrip('0') or '0'}"
        raise ScalarError(
            f"{text} begins with a zero: 8-based to some readers of YAML, 10-based to others",
            hint=f'write {decimal} for the number, "{text}" in quotes for text',
        )
    return int(text)
