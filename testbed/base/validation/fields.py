"""Types of the fields of files users write: each checks one value, says what is wrong, and has a JSON Schema."""

from __future__ import annotations

import math
import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Annotated, Any, Generic, TypeVar

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from testbed.base.names import check_lab_name, check_node_name, first_few, fitting_name, nearest
from testbed.base.units import (
    COUNT,
    NUMBER,
    PERCENT,
    SHARE,
    ByteCount,
    Duration,
    Measure,
    QuantityError,
    Rate,
    split_quantity,
)
from testbed.base.validation.model import SpecModel, refusal
from testbed.base.yaml.paths import quote

T = TypeVar("T")

MAX_RATE = Rate.parse("1000T")
MAX_DURATION = Duration.parse("24h")
_MOST_LISTED = 15
"""The most words that a hint lists beside the one that was probably meant: more are no help."""
_MOST_MEANT = 4
"""The most words that a hint names as those that may be meant, because what is written is a part of them."""

TYPE_NAME = "x-type"
"""The key under which a schema has the name of its type, until `schema.model_schema` has used it."""


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


def read_number(
    value: object, measure: Measure, low: float = -math.inf, high: float = math.inf, *, parts: bool = False
) -> Fraction:
    """A number, or text that `measure` reads, in its base unit. The one way of every quantity in files.

    Raises a refusal, whose hint keeps to the bounds; `parts`: a number need not be whole.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str) or value in (math.inf, -math.inf):
        raise refusal("wrong-type", f"must be a {measure.noun} such as {measure.example}, not {quote(value)}")
    try:
        return measure.read(str(value))
    except QuantityError as error:
        hint = _hint_within(str(value), error, measure, (low, high), parts=parts)
        raise refusal(error.code, error.message, hint) from error


def _hint_within(
    text: str, error: QuantityError, measure: Measure, bounds: tuple[float, float], *, parts: bool
) -> str | None:
    """The hint of an unknown unit; where the value that it says to write is beyond the bounds, one that is not."""
    low, high = bounds
    rewritten = (error.hint or "").removeprefix("write ")
    number, unit = split_quantity(rewritten)
    if not error.unit or unit not in measure.units or low <= measure.read(f"{number}{unit}") <= high:
        return error.hint
    number, unit = split_quantity(text)
    if parts and unit == "m" and "/" not in number and low <= (thousandths := Fraction(number) / 1000) <= high:
        return f"write {float(thousandths):g}{f', or {float(100 * thousandths):g}%' if high <= 1 else ''}"
    return f"write a {measure.noun} from {low:.12g} to {high:.12g}"


def _number_schema(measure: Measure, number: JsonSchemaValue, bounds: JsonSchemaValue) -> JsonSchemaValue:
    """The JSON Schema of a number that may be text with a unit."""
    examples = {} if measure in (COUNT, NUMBER) else {"examples": [measure.example]}
    return {"anyOf": [number | bounds, {"type": "string", "pattern": measure.pattern(), **examples}]}


@dataclass(frozen=True, slots=True)
class Whole(Checked):
    """A whole number from `low` to `high`, or text that `measure` reads as one: 10k, 64KiB in a key that counts bytes.

    `why_low` and `why_high` explain a bound where it is not obvious.
    """

    low: int
    high: int
    why_low: str | None = None
    measure: Measure = COUNT
    why_high: str | None = None

    @property
    def type_name(self) -> str:
        return self.measure.noun.title().replace(" ", "")

    def check(self, value: object) -> int:
        number = read_number(value, self.measure, self.low, self.high)
        if number.denominator != 1:
            hint = f"write {round(100 * number)}" if self.measure is PERCENT and number < 1 else None
            raise refusal("wrong-type", f"must be a whole number, not {quote(value)}", hint)
        if not self.low <= number <= self.high:
            why = self.why_low if number < self.low else self.why_high
            raise refusal("out-of-range", f"must be from {self.low} to {self.high}, not {quote(value)}", why)
        return int(number)

    def json_schema(self) -> JsonSchemaValue:
        return _number_schema(self.measure, {"type": "integer"}, {"minimum": self.low, "maximum": self.high})


@dataclass(frozen=True, slots=True)
class Number(Checked):
    """A number from `low` to `high`, or text that `measure` reads as one: 12.5%, 1/8, 4us in a key that counts us.

    `hint` is for one that is out of range.
    """

    low: float
    high: float
    hint: str | None = None
    measure: Measure = NUMBER

    def check(self, value: object) -> float:
        number = float(read_number(value, self.measure, self.low, self.high, parts=True))
        if not self.low <= number <= self.high:
            low, high = (f"{100 * one:g}%" if self.measure is SHARE else f"{one:.12g}" for one in (self.low, self.high))
            message = f"must be from {low} to {high}, not {quote(value)}"
            raise refusal("out-of-range", message, self.hint or share_hint(value, self.high))
        return value if isinstance(value, int) else number

    def json_schema(self) -> JsonSchemaValue:
        highest = {} if math.isinf(self.high) else {"maximum": self.high}
        return _number_schema(self.measure, {"type": "number"}, {"minimum": self.low, **highest})


def share_hint(value: object, most: float) -> str | None:
    """A hint for a number of percent that stands where a share is asked for."""
    if most > 1 or isinstance(value, str) or not isinstance(value, int | float) or not 1 < value <= 100:
        return None
    return f"write {value:g}%, or {value / 100:g}"


SWITCH_WORDS = {
    spelled: said
    for words, said in (
        (("true", "yes", "on", "enabled", "enable"), True),
        (("false", "no", "off", "disabled", "disable"), False),
    )
    for word in words
    for spelled in (word, word.title(), word.upper())
}
"""The words that readers of YAML 1.1 take for truth values, and those of configurations of switches; `on` and `off` are
words of many keys."""


def switch_schema(*said: bool) -> JsonSchemaValue:
    """The JSON Schema of a truth value that says one of `said`."""
    words = [word for word, meant in SWITCH_WORDS.items() if meant in said]
    truth: JsonSchemaValue = {"type": "boolean"} if len(said) > 1 else {"const": said[0]}
    text = {"type": "string", "pattern": f"^({'|'.join(words)})$", "examples": ["on" if True in said else "off"]}
    return {"anyOf": [truth, text]}


def switch_word(value: object) -> bool | None:
    """Return what a truth value, or a word for one, says; None for all else."""
    return SWITCH_WORDS.get(value) if isinstance(value, str) else value if isinstance(value, bool) else None


def written_switch(value: object, words: Iterable[object]) -> object:
    """That one of `words` that says "on" or "off" as `value` does in another word; else `value` itself."""
    said = None if value in list(words) and not isinstance(value, bool) else switch_word(value)
    return value if said is None else next((word for word in words if switch_word(word) is said), value)


_BETWEEN_WORDS = re.compile(r"[-_ ]+")


@dataclass(frozen=True, slots=True)
class OneOf(Checked):
    """One of some words, or of some whole numbers. `later` are values refused until they are built, with the reason."""

    values: tuple[str | int, ...]
    later: Mapping[str, str] = field(default_factory=dict, hash=False)
    noun: str = ""
    hints: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Hints that say which word to write instead of one that other tools have."""
    lists: str = ""
    """The command that lists the words, where they are too many for a hint."""

    def check(self, value: object) -> str | int:
        value = written_switch(value, self.values)
        for known in self.values:
            if value == known and isinstance(value, str) == isinstance(known, str) and not isinstance(value, bool):
                return known
        if isinstance(value, str) and value in self.later:
            one = "" if len(self.values) == 1 else "one of "
            raise refusal("not-built", self.later[value], f"write {one}{self._listed()}, or remove the key")
        words = [known for known in self.values if isinstance(known, str)]
        parts = set(_BETWEEN_WORDS.split(value.lower())) if isinstance(value, str) else set()
        within = [known for known in words if parts and parts <= set(known.split("_"))]
        meant = nearest(value.lower(), words) if isinstance(value, str) else None
        meant = meant or next((known for known in words if known.lower() in parts), None)
        if self.noun and isinstance(value, str):
            likely = first_few(within, _MOST_MEANT) or meant
            hint: str | None = f"did you mean {likely}?" if likely else ""
            if self.lists:
                hint = f"{hint} `{self.lists}` lists them all".lstrip()
            elif not meant or len(self.values) <= _MOST_LISTED:
                hint = f"{hint} known are {self._listed()}".lstrip()
            hint = self.hints.get(value, hint)
            raise refusal(f"unknown-{self.noun.split()[-1]}", f"there is no {self.noun} {quote(value)}", hint)
        hint = self.hints.get(str(value)) or (f"did you mean {meant}?" if meant else None)
        if value in [str(known) for known in self.values if isinstance(known, int)]:
            hint = f"write {value} without quotes"
        raise refusal("unknown-value", f"must be one of {self._listed()}, not {quote(value)}", hint)

    def json_schema(self) -> JsonSchemaValue:
        known = [str(value) if isinstance(value, str) else value for value in self.values]
        said = [said for said in (True, False) if written_switch(said, known) in known]
        words: JsonSchemaValue = {"enum": known}
        return {"anyOf": [words, switch_schema(*said)]} if said else words

    def _listed(self) -> str:
        return ", ".join(str(value) for value in self.values)


@dataclass(frozen=True, slots=True)
class TrueOrFalse(Checked):
    """A truth value: true or false, on or off, yes or no. `not_false` is why `false` is refused until built."""

    not_false: str | None = None

    def check(self, value: object) -> bool:
        said = switch_word(value)
        if said is None:
            hint = f"write {'true' if value else 'false'}" if value in (0, 1) else None
            raise refusal("wrong-type", f"must be true or false, not {quote(value)}", hint)
        if not said and self.not_false:
            raise refusal("not-built", self.not_false, "write true or remove the key")
        return said

    def json_schema(self) -> JsonSchemaValue:
        return switch_schema(True) if self.not_false else switch_schema(True, False)


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
            noun = self.kind.MEASURE.noun
            raise refusal("out-of-range", f"the {noun} must be at least {self.lowest}, not {quantity}")
        return quantity

    def json_schema(self) -> JsonSchemaValue:
        measure = self.kind.MEASURE
        return {"type": "string", "pattern": measure.pattern(), "examples": [measure.example]}


def read_quantity(value: object, kind: type[Kind], measure: Measure | None = None) -> Kind:
    """A quantity from text with a unit, zero too; a bare number only where `measure` takes one. Raises a refusal."""
    number = read_number(value, measure or kind.MEASURE)
    try:
        return kind.of(number, str(value))
    except QuantityError as error:
        raise refusal(error.code, error.message, error.hint) from error


def parse_quantity(value: object, kind: type[Kind], highest: Kind) -> Kind:
    """A positive quantity from text with a unit. Raises a refusal."""
    quantity = read_quantity(value, kind)
    noun = kind.MEASURE.noun
    if not quantity:
        raise refusal("out-of-range", f"the {noun} must be more than zero")
    if quantity > highest:
        raise refusal("out-of-range", f"the {noun} must be at most {highest}, not {quantity}")
    return quantity


@dataclass(frozen=True, slots=True)
class Text(Checked):
    """Text of at most `longest` characters, and where `blank` is False of one that can be read at least."""

    longest: int = 4096
    blank: bool = True

    def check(self, value: object) -> str:
        if not isinstance(value, str):
            shown = quote(value)
            hint = f'put it in quotes: "{shown}"' if isinstance(value, int | float) else None
            raise refusal("wrong-type", f"must be text, not {shown}", hint)
        if len(value) > self.longest:
            raise refusal("too-long", f"must have at most {self.longest} characters, not {len(value)}")
        if not self.blank and not value.strip():
            raise refusal("no-value", "the text is empty", "say in a few words what is to stand here")
        return value

    def json_schema(self) -> JsonSchemaValue:
        return {"type": "string", "maxLength": self.longest} | ({} if self.blank else {"pattern": r"\S"})


@dataclass(frozen=True, slots=True)
class Name(Checked):
    """Text that a rule of `names` accepts. `rule` raises `ValueError` with a sentence for the user."""

    rule: Callable[[str], None]
    pattern: str
    renamed: bool = True
    """A name like one that is refused may be chosen instead."""

    def check(self, value: object) -> str:
        if not isinstance(value, str):
            raise refusal("wrong-type", f"must be text, not {quote(value)}", "put it in quotes")
        if len(value) > 200:
            raise refusal("bad-name", f"{quote(value)} is too long for a name")
        try:
            self.rule(value)
        except ValueError as error:
            hint = renaming_hint(value, self.rule) if self.renamed else None
            raise refusal("bad-name", str(error), hint) from error
        return value

    def json_schema(self) -> JsonSchemaValue:
        return {"type": "string", "pattern": self.pattern}


def renaming_hint(name: str, rule: Callable[[str], None]) -> str | None:
    """Return a name like this one that the rule accepts, as a hint; None where that takes more than other letters."""
    other = fitting_name(name)
    try:
        rule(other)
    except ValueError:
        return None
    return f"write {other}, wherever it is named"


@dataclass(frozen=True, slots=True)
class Share(Number):
    """A share or probability: "0.1%", "1/8", or a number from 0 to 1."""

    low: float = 0
    high: float = 1
    measure: Measure = SHARE

    def check(self, value: object) -> float:
        return float(Number.check(self, value))


_BETWEEN_VALUES = re.compile(r"\s*(?:\.\.|,|;)\s*")


def as_list(value: object) -> str:
    """Return the hint for a value that stands where a list is wanted; 1, 2 and 1..2 are two values."""
    parts = _BETWEEN_VALUES.split(value.strip("[] ")) if isinstance(value, str) else []
    return f"write [{', '.join(parts)}]" if len(parts) > 1 and all(parts) else f"write [{quote(value)}]"


_SCALE_AS_RATIO = re.compile(r"1\s*[:/]\s*([1-9][0-9]*)")
_TIME_SCALE = Number(
    1, 1e9, "a lab runs at a k-th of the speed of the real fabric", NUMBER.called("time scale", "auto or 100")
)


@dataclass(frozen=True, slots=True)
class AutoOrFactor(Checked):
    """ "auto", or a number of at least 1 (result None or the number)."""

    def check(self, value: object) -> float | None:
        if value == "auto":
            return None
        if isinstance(value, str) and (found := _SCALE_AS_RATIO.fullmatch(value.strip())):
            raise refusal("wrong-type", f"must be a time scale, not {quote(value)}", f"write {found[1]}")
        return float(_TIME_SCALE.check(value))

    def json_schema(self) -> JsonSchemaValue:
        return {"anyOf": [{"const": "auto"}, _TIME_SCALE.json_schema()]}


class OrShort(ABC):
    """Base of annotations of a section that may be written shorter: a mapping for `model`, or something else."""

    model: type[SpecModel]

    @abstractmethod
    def read(self, value: object) -> object:
        """Return what a value that is no mapping means: a mapping, or what is kept. Raises a refusal."""

    @abstractmethod
    def short_schema(self) -> list[JsonSchemaValue]:
        """Return what editors are told of values that are no mappings."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        def read(value: object, read_mapping: core_schema.ValidatorFunctionWrapHandler) -> object:
            meant = value if isinstance(value, dict) else self.read(value)
            return read_mapping(meant) if isinstance(meant, dict) else meant

        return core_schema.no_info_wrap_validator_function(read, handler.generate_schema(self.model))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [*self.short_schema(), handler(schema)]}


@dataclass(frozen=True, slots=True)
class AutoOff(OrShort):
    """A mapping for `model`, which has `keys`, or one of the words "auto" and "off".

    `on_hint` is for those who write `on`.
    """

    model: type[SpecModel]
    keys: str
    on_hint: str

    def read(self, value: object) -> object:
        value = written_switch(value, ("off",))
        if value in ("auto", "off"):
            return value
        meant = nearest(value, ("auto", "off")) if isinstance(value, str) else None
        hint = f"did you mean {meant}?" if meant else self.on_hint
        if self.keys in self.model.model_fields and isinstance(value, str):
            with suppress(ValidationError):
                self.model.model_validate({self.keys: value})
                hint = f"write {{{self.keys}: {value}}}"
        raise refusal("unknown-value", f"must be auto, off or a mapping with {self.keys}, not {quote(value)}", hint)

    def short_schema(self) -> list[JsonSchemaValue]:
        return [{"const": "auto"}, switch_schema(False)]


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


@dataclass(frozen=True, slots=True)
class _Command(Checked):
    """A command as text, split like a shell does but run without one, or as a list of arguments."""

    def check(self, value: object) -> tuple[str, ...]:
        if isinstance(value, list) and all(isinstance(argument, str) for argument in value):
            arguments = tuple(value)
        elif isinstance(value, str):
            try:
                arguments = tuple(shlex.split(value))
            except ValueError as error:
                raise refusal("bad-command", f"{quote(value)}: {str(error).lower()}", "close the quotes") from error
        else:
            raise refusal("bad-command", f"must be a command such as 'ip route', not {quote(value)}")
        if not arguments or not arguments[0]:
            raise refusal("bad-command", "the command is empty", "remove it or write a command such as 'ip route'")
        return arguments

    def json_schema(self) -> JsonSchemaValue:
        return {
            "anyOf": [{"type": "string", "minLength": 1}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]
        }


CommandField = Annotated[tuple[str, ...], _Command()]
