"""The shared maps of the data path as numpy types, made of `programs/layout.h` and, of the rules of queues,
`programs/rules.h`, which declare and explain the fields.

A map value is `numpy.ndarray` of the type below over the map's memory; index a queue with `port * CLASSES + priority`.
All counters grow for ever and are little-endian like every machine we run on.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

_HEADERS = [Path(__file__).parent / "programs" / name for name in ("layout.h", "rules.h")]
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_NUMBER = re.compile(r"^#define (\w+) (\d+)\s*$", re.MULTILINE)
_STRUCT = re.compile(r"^struct (\w+) \{\n(.*?)^\};", re.DOTALL | re.MULTILINE)
_FIELDS = re.compile(r"(?:struct )?(\w+) ([^;]+);")
_FIELD = re.compile(r"(\w+)(?:\[(\w+)\])?")
_INTEGERS = {"__u8": "u1", "__u16": "<u2", "__u32": "<u4", "__u64": "<u8"}


def _read_structs(header: str) -> dict[str, np.dtype[np.void]]:
    """The structures of headers in C. They have numbers, and arrays of them and of structures that stand before."""
    text = _COMMENT.sub("", header)
    numbers = {name: int(value) for name, value in _NUMBER.findall(text)}
    found: dict[str, np.dtype[np.void]] = {}
    for name, body in _STRUCT.findall(text):
        fields: list[tuple[Any, ...]] = []
        for kind, declared in _FIELDS.findall(body):
            for field, length in _FIELD.findall(declared):
                what, count = _INTEGERS.get(kind) or found[kind], numbers.get(length) or int(length or 0)
                fields.append((field, what, (count,)) if count else (field, what))
        found[name] = np.dtype(fields)
    return found


STRUCTS = _read_structs("".join(header.read_text() for header in _HEADERS))
"""All structures, by the names of the headers."""
QUEUE, INGRESS, PAUSE, EVENT = (STRUCTS[name] for name in ("queue", "ingress", "pause", "event"))

MAPS = {
    "lab": STRUCTS["lab_config"],
    "profiles": STRUCTS["profile"],
    "ports": STRUCTS["port_config"],
    "buffers": STRUCTS["buffer"],
    "queues": QUEUE,
    "ingress": INGRESS,
    "pauses": PAUSE,
    "curves": STRUCTS["curve"],
}
"""The array maps by name, one value type each. Those of `abi.QUEUE_MAPS` have CLASSES values a port."""
