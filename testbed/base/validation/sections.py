"""Models of sections whose keys are declared at the fields of a data class (`testbed.base.keys`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, create_model
from pydantic.json_schema import JsonSchemaValue

from testbed.base.keys import Key, keys_of, types_of
from testbed.base.units import SHARE, Duration, Rate
from testbed.base.validation.fields import (
    DurationField,
    Flag,
    NotNull,
    Number,
    OneOf,
    OrShort,
    RateField,
    Section,
    Share,
    Whole,
    switch_schema,
    switch_word,
    written_switch,
)
from testbed.base.validation.model import SpecModel, refusal
from testbed.base.validation.quantities import FabricTimeField
from testbed.base.yaml.paths import quote

Model = TypeVar("Model", bound=SpecModel)
_SECTION: Any = Section
_LITERAL: Any = Literal
Types = Mapping[Any, Callable[[Key], Any]]
"""The readers of keys whose fields are of a type that is not everybody's: by that type, with its default of None."""


@dataclass(frozen=True, slots=True)
class OrWord(OrShort):
    """A mapping for `model`, or `word` for none of it (`false`) or for all by default (`auto`); kept as it is.

    `hint` is for those who wrote neither.
    """

    model: type[SpecModel]
    word: object
    keys: str
    hint: str

    def read(self, value: object) -> object:
        value = written_switch(value, (self.word,))
        if value == self.word and isinstance(value, bool) == isinstance(self.word, bool):
            return value
        word = self.word if isinstance(self.word, str) else quote(self.word)
        hint = f"write {word}" if switch_word(value) and self.word == "auto" else self.hint
        raise refusal("wrong-type", f"must be {word} or a mapping with {self.keys}, not {quote(value)}", hint)

    def short_schema(self) -> list[JsonSchemaValue]:
        return [{"const": self.word} if isinstance(self.word, str) else switch_schema(False)]


def declared_by(kind: type, types: Types) -> Callable[[type[Model]], type[Model]]:
    """Give a section the keys that a data class declares, behind its own. What reads a type besides, `types` says."""

    def with_keys(section: type[Model]) -> type[Model]:
        keys: dict[str, Any] = {
            item.name: _read(item, types_of(kind)[name], types) for name, item in keys_of(kind).items()
        }
        return create_model(
            section.__name__, __base__=section, __doc__=section.__doc__, __module__=section.__module__, **keys
        )

    return with_keys


def _read(item: Key, kind: Any, types: Types) -> tuple[Any, Any]:
    """Return how pydantic is to read a key, and its default and description."""
    if keys_of(kind):
        section: Any = declared_by(kind, types)(type(kind.__name__, (SpecModel,), {"__doc__": kind.__doc__}))
        if item.word is None:
            return _SECTION[section], Field(default=section.model_construct(), description=item.description)
        either: Any = section | _LITERAL[item.word]
        read: Any = written(Annotated[either, OrWord(section, item.word, _listed(kind), item.hint)])
    else:
        read = types[kind](item) if kind in types else written(_value(item, kind))
    return read, Field(default=None, description=item.description)


def written(kind: Any) -> Any:
    """Return `Written[kind]` of a type that is known at run time alone."""
    return Annotated[kind | None, NotNull()]


def _value(item: Key, kind: Any) -> Any:
    """Return the type of a key that holds one value."""
    words = tuple(kind) if issubclass(kind, StrEnum) else item.words
    if words:
        return Annotated[int if kind is int else str, OneOf(words, later=item.later, noun=item.noun)]
    if kind is float:
        share = item.measure is SHARE
        return Annotated[float, Share(item.low, item.high) if share else Number(item.low, item.high)]
    time = FabricTimeField if item.of_fabric else DurationField
    return {bool: Flag, Duration: time, Rate: RateField, int: Annotated[int, whole(item)]}[kind]


def whole(item: Key) -> Whole:
    """Return what reads a whole number within the bounds of a key."""
    return Whole(int(item.low), int(item.high), measure=item.measure)


def _listed(kind: type) -> str:
    """List the keys that such a section has to have, or all where it has to have none."""
    needed = [one.name for one in fields(kind) if one.default is MISSING]
    *first, last = (item.name for name, item in keys_of(kind).items() if name in needed or not needed)
    return f"{', '.join(first)} and {last}"
