"""Data classes in files of JSON, read back by the types of their fields: what daemons are told, and tell others."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from testbed.base.files import write_atomically
from testbed.base.typed_json import encode, from_text

_T = TypeVar("_T")


def decode(content: bytes, kind: type[_T]) -> _T:
    """Read what `encode` wrote. Raises `ValueError` for anything else, and for what the class refuses."""
    return msgspec.json.decode(content, type=kind, dec_hook=from_text)


def convert(document: object, kind: type[_T]) -> _T:
    """Do as `decode`, with JSON that is read already."""
    return msgspec.convert(document, kind, dec_hook=from_text)


def write(path: Path, value: object, *, mode: int = 0o666) -> None:
    """Write a file that `read` reads, in one step: a reader finds all of it or nothing. Raises `OSError`."""
    write_atomically(path, encode(value), mode=mode, durable=False)


def read(path: Path, kind: type[_T]) -> _T:
    """Read a file that `write` wrote. Raises `OSError`, and `ValueError` for any other."""
    try:
        return decode(path.read_bytes(), kind)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
