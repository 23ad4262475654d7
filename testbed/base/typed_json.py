"""Values as JSON and back into the types of their fields, by msgspec.

`convert` and `read_as` are for JSON that a stranger may have written: the place of what is wrong is told.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from testbed.base.program_errors import ProgramError

Text = Annotated[str, Meta(max_length=256)]
LONGEST_NS = (1 << 62) - 1
Nanoseconds = Annotated[int, Meta(ge=0, le=LONGEST_NS)]
Delays = dict[str, dict[str, Nanoseconds]]
"""Times of paths in ns, by own address and the peer's."""
_PLACE = re.compile(r"^(?P<reason>.*?)(?: - at `\$\.?(?P<place>.*)`)?$", re.DOTALL)


def encode(value: object) -> bytes:
    """Return a data class as JSON; what JSON has no type of, such as a path or an address, is text."""
    return msgspec.json.encode(value, enc_hook=str)


def from_text(kind: type, value: object) -> Any:
    """Return what `encode` wrote as text: the hook of msgspec's decoders. Raises `ValueError` for what is no text."""
    if not isinstance(value, str):
        raise ValueError(f"Expected `str`, got `{type(value).__name__}`")
    return kind(value)


def convert(kind: Any, value: object, path: str) -> Any:
    """Return a value that JSON had as one of type `kind`, such as a data class, whose fields may have limits.

    Fields with a default may be left out. Raises `ProgramError` with the place below `path`.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        match = _PLACE.match(str(error))
        assert match is not None
        place = match["place"] or ""
        below = path + (f".{place}" if path and place and place[0] != "[" else place)
        raise ProgramError(below, match["reason"]) from None


def read_as(kind: Any, value: object, path: str) -> Any:
    """Do as `convert`, with the whole of a value: no key may be missing, and none be there that the type does not know.

    It is for what was written by `to_json` of the same version. Raises `ProgramError` with the place below `path`.
    """
    found = convert(kind, value, path)
    try:
        known = to_json(found)
    except OverflowError:
        raise ProgramError(path, "a number in it has more than 64 bits") from None
    _compare(value, known, path)
    return found


def to_json(value: object) -> Any:
    """Return a value as JSON has it: objects, lists, texts and numbers. Sets are in order."""
    return msgspec.json.decode(msgspec.json.encode(value, order="sorted"))


def _compare(written: Any, known: Any, path: str) -> None:
    """Accept what was written if it is all that is known of the value, key by key."""
    if written == known:
        return
    if isinstance(written, dict) and isinstance(known, dict):
        odd = set(written) ^ set(known)
        if odd:
            raise ProgramError(f"{path}.{min(odd)}", "is unknown" if min(odd) in written else "is missing")
        for key, value in written.items():
            _compare(value, known[key], f"{path}.{key}")
    elif isinstance(written, list) and isinstance(known, list) and len(written) == len(known):
        for number, (one, other) in enumerate(zip(written, known, strict=True)):
            _compare(one, other, f"{path}[{number}]")
    else:
        raise ProgramError(path, "is not written as it should be: entries are missing, or stand there twice")
