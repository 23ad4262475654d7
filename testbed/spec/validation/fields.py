"""Types of the fields of files users write: each checks one value, says what is wrong, and has a JSON Schema."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, TypeVar

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from testbed.names import check_lab_name, check_node_name, nearest
from testbed.spec.validation.model import SpecModel, refusal
from testbed.spec.yaml.paths import quote
from testbed.units import ByteCount, Duration, Rate

T = TypeVar("T")

MAX_RATE = Rate.parse("1000T")
MAX_DURATION = Duration.parse("24h")
_LONGEST_QUANTITY = 32
_MOST_LISTED = 15
"""Of words where one of them was probably meant: more are no help."""
_PERCENT = re.compile(r"\s*([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*%\s*")


TYPE_NAME = "x-type"
"""Where a schema has the name of its type, until `schema.model_schema` has used it."""


class Checked(ABC):
    """Base of annotations that replace a type's validation by one function and one JSON Schema."""

    @abstractmethod
    def check(self, value: object) -> object:
        """The value as the model keeps it. Raises what pydantic reports."""

    @abstractmethod
    def json_schema(self) -> JsonSchemaValue:
        """Return what editors are told."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.check)

    @property
    def type_name(self) -> str:
        """Return what the JSON Schema calls the type, where several keys have it."""
        return type(self).__name__.lstrip("_")

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {TYPE_NAME: self.type_name, **self.json_schema()}


@dataclass(frozen=True, slots=True)
class Whole(Checked):
    """A whole number from `low` to `high`. `why_low` explains the lower bound where it is not obvious."""

    low: int
    high: int
    why_low: str | None = None

    def check(self, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            is_digits = isinstance(value, str) and value.isascii() and value.isdigit()
            hint = f"write {value} without quotes" if is_digits else None
            raise refusal("wrong-type", f"must be a whole number, not {quote(value)}", hint)
        if not self.low <= value <= self.high:
            why = self.why_low if value < self.low else None
            raise refusal("out-of-range", f"must be from {self.low} to {self.high}, not {quote(value)}", why)
        return value

    def json_schema(self) -> JsonSchemaValue:
        return {"type": "integer", "minimum": self.low, "maximum": self.high}


@dataclass(frozen=True, slots=True)
class OneOf(Checked):
    """One of some words, or of some whole numbers. `later` are values refused until they are built, with the reason."""

    values: tuple[str | int, ...]
    later: Mapping[str, str] = field(default_factory=dict, hash=False)
    noun: str = ""

    def check(self, value: object) -> str | int:
        for known in self.values:
            if value == known and isinstance(value, str) == isinstance(known, str) and not isinstance(value, bool):
                return known
        if isinstance(value, str) and value in self.later:
            one = "" if len(self.values) == 1 else "one of "
            raise refusal("not-built", self.later[value], f"write {one}{self._listed()}, or remove the key")
        words = [known for known in self.values if isinstance(known, str)]
        meant = nearest(value, words) if isinstance(value, str) else None
        if self.noun and isinstance(value, str):
            hint = f"did you mean {meant}?" if meant else ""
            if not meant or len(self.values) <= _MOST_LISTED:
                hint = f"{hint} known are {self._listed()}".lstrip()
            raise refusal(f"unknown-{self.noun.split()[-1]}", f"there is no {self.noun} {quote(value)}", hint)
        raise refusal(
            "unknown-value",
            f"must be one of {self._listed()}, not {quote(value)}",
            f"did you mean {meant}?" if meant else None,
        )

    def json_schema(self) -> JsonSchemaValue:
        return {"enum": [str(value) if isinstance(value, str) else value for value in self.values]}

    def _listed(self) -> str:
        return ", ".join(str(value) for value in self.values)


@dataclass(frozen=True, slots=True)
class TrueOrFalse(Checked):
    """A truth value: `true` or `false`, not `yes`, `on` or 1. `not_false` is why `false` is refused until built."""

    not_false: str | None = None

    def check(self, value: object) -> bool:
        if not isinstance(value, bool):
            raise refusal("wrong-type", f"must be true or false, not {quote(value)}")
        if not value and self.not_false:
            raise refusal("not-built", self.not_false, "write true or remove the key")
        return value

    def json_schema(self) -> JsonSchemaValue:
        return {"const": True} if self.not_false else {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Constant(Checked):
    """The one word that a key has where it stands."""

    word: str

    def check(self, value: object) -> str:
        if value != self.word:
            raise refusal("unknown-value", f"must be {self.word}, not {quote(value)}")
        return self.word

    def json_schema(self) -> JsonSchemaValue:
        return {"const": self.word}


Kind = TypeVar("Kind", Rate, Duration, ByteCount)


@dataclass(frozen=True, slots=True)
class Quantity(Checked, Generic[Kind]):
    """A quantity with its unit, as text: "400G", "500ns", "1TiB"."""

    kind: type[Kind]
    highest: Kind
    lowest: Kind | None = None

    @property
    def type_name(self) -> str:
        return self.kind.__name__

    def check(self, value: object) -> Kind:
        quantity = parse_quantity(value, self.kind, self.highest)
        if self.lowest is not None and quantity < self.lowest:
            noun = _noun(self.kind)
            raise refusal("out-of-range", f"the {noun} must be at least {self.lowest}, not {quantity}")
        return quantity

    def json_schema(self) -> JsonSchemaValue:
        units = "|".join(re.escape(unit) for unit in self.kind.SUFFIXES if unit)
        return {"type": "string", "pattern": rf"^\s*\d+(\.\d+)?\s*({units})\s*$", "examples": [self.kind.EXAMPLE]}


def _noun(kind: type[Kind]) -> str:
    return "size" if kind is ByteCount else kind.__name__.lower()


def parse_quantity(value: object, kind: type[Kind], highest: Kind) -> Kind:
    """A positive quantity from text with a unit. Raises a refusal."""
    noun = _noun(kind)
    unit = kind.EXAMPLE.lstrip("0123456789")
    bare = quote(value) if isinstance(value, int | float) and not isinstance(value, bool) else ""
    if isinstance(value, str) and re.fullmatch(r"\s*[0-9]{1,20}(\.[0-9]{1,20})?\s*", value):
        bare = value.strip()
    if bare:
        raise refusal("no-unit", f"the {noun} {bare} has no unit", f"write the unit, such as {bare}{unit}")
    if not isinstance(value, str):
        raise refusal("wrong-type", f"must be a {noun} such as {kind.EXAMPLE}, not {quote(value)}")
    if len(value) > _LONGEST_QUANTITY:
        raise refusal("bad-quantity", f"{quote(value)} is not a {noun} such as {kind.EXAMPLE}")
    try:
        quantity = kind.parse(value)
    except ValueError as error:
        raise refusal("bad-quantity", str(error)) from error
    if not quantity:
        raise refusal("out-of-range", f"the {noun} must be more than zero")
    if quantity > highest:
        raise refusal("out-of-range", f"the {noun} must be at most {highest}, not {quantity}")
    return quantity


@dataclass(frozen=True, slots=True)
class Text(Checked):
    """Text of at most `longest` characters."""

    longest: int = 4096

    def check(self, value: object) -> str:
        if not isinstance(value, str):
            shown = quote(value)
            hint = f'put it in quotes: "{shown}"' if isinstance(value, int | float) else None
            raise refusal("wrong-type", f"must be text, not {shown}", hint)
        if len(value) > self.longest:
            raise refusal("too-long", f"must have at most {self.longest} characters, not {len(value)}")
        return value

    def json_schema(self) -> JsonSchemaValue:
        return {"type": "string", "maxLength": self.longest}


@dataclass(frozen=True, slots=True)
class Name(Checked):
    """Text that a rule of `names` accepts. `rule` raises `ValueError` with a sentence for the user."""

    rule: Callable[[str], None]
    pattern: str

    def check(self, value: object) -> str:
        if not isinstance(value, str):
            raise refusal("wrong-type", f"must be text, not {quote(value)}", "put it in quotes")
        if len(value) > 200:
            raise refusal("bad-name", f"{quote(value)} is too long for a name")
        try:
            self.rule(value)
        except ValueError as error:
            raise refusal("bad-name", str(error)) from error
        return value

    def json_schema(self) -> JsonSchemaValue:
        return {"type": "string", "pattern": self.pattern}


@dataclass(frozen=True, slots=True)
class Share(Checked):
    """A share of packets: "0.1%", or a number from 0 to 1."""

    def check(self, value: object) -> float:
        if isinstance(value, str) and (match := _PERCENT.fullmatch(value)):
            share = float(match[1]) / 100
        elif isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise refusal("wrong-type", f"must be a share of packets such as 0.1%, not {quote(value)}")
        else:
            share = float(value)
        if not 0 <= share <= 1:
            raise refusal("out-of-range", f"must be from 0% to 100%, not {quote(value)}", "0.5 is 50%")
        return share

    def json_schema(self) -> JsonSchemaValue:
        text = {"type": "string", "pattern": rf"^{_PERCENT.pattern}$", "examples": ["0.1%"]}
        return {"anyOf": [{"type": "number", "minimum": 0, "maximum": 1}, text]}


@dataclass(frozen=True, slots=True)
class AutoOrFactor(Checked):
    """ "auto", or a number of at least 1 (result None or the number)."""

    def check(self, value: object) -> float | None:
        if value == "auto":
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise refusal("wrong-type", f"must be auto or a number, not {quote(value)}")
        if not 1 <= value <= 1e9 or not math.isfinite(value):
            raise refusal(
                "out-of-range",
                f"the time scale must be from 1 to 1000000000, not {quote(value)}",
                "a lab runs at a k-th of the speed of the real fabric",
            )
        return float(value)

    def json_schema(self) -> JsonSchemaValue:
        return {"anyOf": [{"const": "auto"}, {"type": "number", "minimum": 1, "maximum": 1e9}]}


@dataclass(frozen=True, slots=True)
class AutoOff:
    """A mapping for `model`, which has `keys`, or one of the words "auto" and "off".

    The hints are for those who write `on` and, if there is one, `false`.
    """

    model: type[SpecModel]
    keys: str
    on_hint: str
    off_hint: str | None = None

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        def read(value: object, read_mapping: core_schema.ValidatorFunctionWrapHandler) -> object:
            if isinstance(value, dict):
                return read_mapping(value)
            if value in ("auto", "off"):
                return value
            hint = self.on_hint if value in ("on", True) else self.off_hint if value is False else None
            raise refusal("unknown-value", f"must be auto, off or a mapping with {self.keys}, not {quote(value)}", hint)

        return core_schema.no_info_wrap_validator_function(read, handler.generate_schema(self.model))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"enum": ["auto", "off"]}, handler(schema)]}


@dataclass(frozen=True, slots=True)
class NotNull:
    """A key that may be absent but, where it is written, needs a value."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        def refuse_null(value: object) -> object:
            if value is None:
                raise refusal("no-value", "the key has no value", "give it one or remove the key")
            return value

        return core_schema.no_info_before_validator_function(refuse_null, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        found = handler(schema)
        alternatives = [choice for choice in found.get("anyOf", []) if choice != {"type": "null"}]
        return alternatives[0] if len(alternatives) == 1 else found


@dataclass(frozen=True, slots=True)
class Length:
    """A list of `low` to `high` entries."""

    low: int
    high: int

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        def check(value: object) -> object:
            if isinstance(value, list) and not self.low <= len(value) <= self.high:
                many = f"{self.low}" if self.low == self.high else f"from {self.low} to {self.high}"
                raise PydanticCustomError(
                    "length", "must have {many} entries, not {found}", {"many": many, "found": len(value)}
                )
            return value

        return core_schema.no_info_before_validator_function(check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        bounds = {"minItems": self.low} if self.low else {}
        return handler(schema) | bounds | {"maxItems": self.high}


@dataclass(frozen=True, slots=True)
class _NullIsEmpty:
    """A section: `key:` with nothing below it is an empty one."""

    empty: type[dict[str, Any]] | type[list[Any]]

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        def fill(value: object) -> object:
            return self.empty() if value is None else value

        return core_schema.no_info_before_validator_function(fill, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [handler(schema), {"type": "null"}]}


Written = Annotated[T | None, NotNull()]
"""`Written[X]`: an X, or None where the key is absent."""
Section = Annotated[T, _NullIsEmpty(dict)]
Entries = Annotated[T, _NullIsEmpty(list)]

RateField = Annotated[Rate, Quantity(Rate, MAX_RATE)]
DurationField = Annotated[Duration, Quantity(Duration, MAX_DURATION)]
Flag = Annotated[bool, TrueOrFalse()]
ShortText = Annotated[str, Text(4096)]
LabName = Annotated[str, Name(check_lab_name, r"^[a-z][a-z0-9-]{0,27}$")]
NodeName = Annotated[str, Name(check_node_name, r"^[a-z][a-z0-9-]{0,47}$")]
TimeScale = Annotated[float | None, AutoOrFactor()]
