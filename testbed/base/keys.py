"""Keys of a file's section, declared at the fields of the data class that the section becomes, and nowhere else.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Watchdog:
        detect: Duration = key("Frees a queue that is paused for so long.", Duration.parse("200ms"))

`testbed.base.validation.sections` makes of such a class what reads the section. A field without a key is none of the
file's. Where several places of a file say something of one section, they are laid over each other key by key: `said_in`
takes a section apart into keys and values, those of a section in it beside its own, and `made_of` puts it together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_type_hints

from testbed.base.units import COUNT, Measure

_KEY = "key"
"""In the metadata of a field: the key that gives it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key of a section. `description` is a whole sentence whose subject is the key."""

    description: str
    name: str = ""
    """As files have it; "": as the field is called."""
    low: float = 0
    high: float = 0
    """Bounds of a number, in what `measure` counts."""
    measure: Measure = COUNT
    words: tuple[str | int, ...] = ()
    """The words or numbers that it may have, where its type is no `StrEnum` of them."""
    later: Mapping[str, str] = field(default_factory=dict)
    """Words that are refused until they are built, with the reason."""
    noun: str = ""
    """The noun by which a message calls one of the words that the key may have."""
    word: str | bool | None = None
    """A word that may stand instead of a value: `false` for none of it, or "auto"."""
    hint: str = ""
    """For those who write neither a section nor `word`."""
    of_switch: bool = False
    """Only a switch has it."""
    of_fabric: bool = False
    """It is a time of the real network, which has none above a second."""


def key(description: str, default: Any = MISSING, **options: Any) -> Any:
    """Declare a field of a data class that a key gives; `options` are those of `Key`."""
    return field(default=default, metadata={_KEY: Key(description=description, **options)})


@cache
def keys_of(kind: Any) -> Mapping[str, Key]:
    """Return the keys that the fields of a data class declare, by field; none for any other type."""
    if not hasattr(kind, "__dataclass_fields__"):
        return {}
    known = {one.name: one.metadata[_KEY] for one in fields(kind) if _KEY in one.metadata}
    return {name: item if item.name else replace(item, name=name) for name, item in known.items()}


@cache
def types_of(kind: type) -> Mapping[str, Any]:
    """Return the type of each field with a key, without None."""
    hints = get_type_hints(kind)
    return {name: _without_none(hints[name]) for name in keys_of(kind)}


def _without_none(hint: Any) -> Any:
    return next(one for one in get_args(hint) if one is not NoneType) if isinstance(hint, UnionType) else hint


def said_in(section: object, wanted: Callable[[Key], bool] = lambda _: True) -> Iterator[tuple[str, Any]]:
    """Yield what a section says by keys that are `wanted`, but for what is as by default. A section in it is true."""
    kind: Any = type(section)
    declared = keys_of(kind)
    for one in fields(kind) if declared else ():
        value = getattr(section, one.name)
        if one.name in declared and value != one.default and wanted(declared[one.name]):
            inside: Any = type(value)
            yield declared[one.name].name, True if keys_of(inside) else value
            yield from said_in(value, wanted)


def made_of(kind: type, said: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a data class from what was said, by key; what was not said is left out."""
    made = {}
    for name, item in keys_of(kind).items():
        inside = types_of(kind)[name]
        if keys_of(inside) and (item.word is None or said.get(item.name)):
            made[name] = inside(**made_of(inside, said))
        elif item.name in said and not keys_of(inside):
            value = said[item.name]
            made[name] = tuple(value) if isinstance(value, list) else value
    return made
