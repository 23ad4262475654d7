"""The names of a scenario's points: the values that they have of its matrix, as the file writes them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping


def last_word(key: str) -> str:
    """Return the last word of a dotted key, `mode`; that of a number has the one before: `sl2vl.1`."""
    before, _, last = key.rpartition(".")
    return f"{before.rpartition('.')[2]}.{last}" if last.isdecimal() and before else last


def short_keys(keys: Iterable[str]) -> dict[str, str]:
    """Return what each key is called in a point's name: its last word, or the whole of it where two end alike."""
    keys = list(keys)
    last = [last_word(key) for key in keys]
    return {key: word if last.count(word) == 1 else key for key, word in zip(keys, last, strict=True)}


def point_name(
    values: Mapping[str, object], labels: Mapping[str, str], written: Mapping[str, str] | None = None
) -> str:
    """The values of a point in one line, each as `written` has it: `mode=spray rate=0.50`."""
    shown = written or {}
    return " ".join(f"{labels[key]}={shown.get(key) or show_value(value)}" for key, value in values.items())


def show_value(value: object) -> str:
    """Return a value of a matrix as a command line writes it."""
    return json.dumps(value) if isinstance(value, bool) else str(value)
