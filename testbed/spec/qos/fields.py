"""Types of the fields of `qos:`: depths of queues, DSCPs by number or name, sizes, shares; and `false` for "none"."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from testbed.model import Depth, DepthUnit
from testbed.names import nearest
from testbed.spec.validation.fields import Checked
from testbed.spec.validation.model import SpecModel, refusal
from testbed.spec.yaml.paths import quote
from testbed.units import ByteCount

MAX_BYTES = 4_000_000_000
"""Counters of the data path have 32 bits."""
MAX_BDP = 10_000.0
_SIZE = re.compile(r"\s*(\d{1,12}(?:\.\d{1,9})?)\s*([A-Za-z]+)\s*")
_BARE_NUMBER = re.compile(r"\s*\d{1,12}(\.\d{1,9})?\s*")
_BYTE_UNITS = ("B", "kB", "KB", "MB", "GB", "KiB", "MiB", "GiB")

DSCP_NAMES = {
    **{f"cs{n}": 8 * n for n in range(8)},
    **{f"af{n}{drop}": 8 * n + 2 * drop for n in range(1, 5) for drop in range(1, 4)},
    "be": 0,
    "ef": 46,
    "le": 1,
}
"""RFC 2474 section 4.2.2 (cs), RFC 2597 (af), RFC 3246 (ef), RFC 8622 (le); be is the default, 0."""


def _amount(value: object, noun: str, units: tuple[str, ...], example: str) -> tuple[float, str]:
    """The number and the unit of text such as "150KB"."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        shown = quote(value)
        raise refusal("no-unit", f"the {noun} {shown} has no unit", f"write the unit, such as {example}")
    if not isinstance(value, str):
        raise refusal("wrong-type", f"must be a {noun} such as {example}, not {quote(value)}")
    if _BARE_NUMBER.fullmatch(value):
        raise refusal("no-unit", f"the {noun} {value.strip()} has no unit", f"write the unit, such as {example}")
    match = _SIZE.fullmatch(value)
    if match is None:
        raise refusal("bad-quantity", f"{quote(value)} is not a {noun} such as {example}")
    number, unit = match.groups()
    known = next((name for name in units if name == unit or (name == "bdp" and unit.lower() == "bdp")), None)
    if known is None:
        raise refusal("bad-quantity", f"{quote(value)} has an unknown unit {unit!r} (one of {', '.join(units)})")
    return float(number), known


def _bytes(value: object, number: float, unit: str, noun: str) -> int:
    count = number * float(ByteCount.SUFFIXES[unit])
    if count != int(count):
        raise refusal("bad-quantity", f"{quote(value)} is not a whole number of bytes")
    if count > MAX_BYTES:
        raise refusal("out-of-range", f"the {noun} must be at most {ByteCount(MAX_BYTES)}, not {quote(value)}")
    return int(count)


@dataclass(frozen=True, slots=True)
class DepthOf(Checked):
    """A queue depth: "150KB" or "0.2bdp". `auto`: the word is a value too, None."""

    auto: bool = False
    example: str = "150KB or 0.2bdp"

    def check(self, value: object) -> Depth | None:
        if self.auto and value == "auto":
            return None
        example = f"auto, {self.example}" if self.auto else self.example
        number, unit = _amount(value, "queue depth", (*_BYTE_UNITS, "bdp"), example)
        if unit != "bdp":
            return Depth(float(_bytes(value, number, unit, "queue depth")))
        if number > MAX_BDP:
            raise refusal("out-of-range", f"the queue depth must be at most {MAX_BDP:g}bdp, not {quote(value)}")
        return Depth(number, DepthUnit.BDP)

    def json_schema(self) -> JsonSchemaValue:
        auto = "auto|" if self.auto else ""
        units = "|".join((*_BYTE_UNITS, "bdp", "BDP"))
        return {
            "type": "string",
            "pattern": rf"^({auto}\s*\d+(\.\d+)?\s*({units})\s*)$",
            "examples": [self.example.split()[0], "0.2bdp"],
        }


@dataclass(frozen=True, slots=True)
class SizeInBytes(Checked):
    """An amount of memory: "16MB"."""

    example: str = "16MB"

    def check(self, value: object) -> int:
        number, unit = _amount(value, "size", _BYTE_UNITS, self.example)
        size = _bytes(value, number, unit, "size")
        if not size:
            raise refusal("out-of-range", "the size must be more than zero")
        return size

    def json_schema(self) -> JsonSchemaValue:
        units = "|".join(_BYTE_UNITS)
        return {"type": "string", "pattern": rf"^\s*\d+(\.\d+)?\s*({units})\s*$", "examples": [self.example]}


@dataclass(frozen=True, slots=True)
class Number(Checked):
    """A number from `low` to `high`. `hint` is for one that is out of range."""

    low: float
    high: float
    hint: str | None = None

    def check(self, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise refusal("wrong-type", f"must be a number, not {quote(value)}")
        if not self.low <= value <= self.high or not math.isfinite(value):
            raise refusal("out-of-range", f"must be from {self.low:g} to {self.high:g}, not {quote(value)}", self.hint)
        return float(value)

    def json_schema(self) -> JsonSchemaValue:
        return {"type": "number", "minimum": self.low, "maximum": self.high}


@dataclass(frozen=True, slots=True)
class _Dscp(Checked):
    """A differentiated services code point (RFC 2474): 0..63, or its name."""

    def check(self, value: object) -> int:
        if isinstance(value, str):
            code_point = DSCP_NAMES.get(value.lower())
            if code_point is None:
                meant = nearest(value.lower(), DSCP_NAMES)
                known = "known are cs0 to cs7, af11 to af43, ef, be and le; or write a number from 0 to 63"
                hint = f"did you mean {meant}?" if meant else known
                if value.isascii() and value.isdigit():
                    hint = f"write {value} without quotes"
                raise refusal("unknown-dscp", f"there is no DSCP {quote(value)}", hint)
            return code_point
        if isinstance(value, bool) or not isinstance(value, int):
            raise refusal("wrong-type", f"must be a DSCP such as 26 or ef, not {quote(value)}")
        if not 0 <= value <= 63:
            hint = "a DSCP has six bits (RFC 2474); the TOS byte is 4 times it"
            raise refusal("unknown-dscp", f"a DSCP is from 0 to 63, not {quote(value)}", hint)
        return value

    def json_schema(self) -> JsonSchemaValue:
        return {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 63}, {"enum": sorted(DSCP_NAMES)}]}


DscpField = Annotated[int, _Dscp()]
DepthField = Annotated[Depth, DepthOf()]
AutoDepthField = Annotated[Depth | None, DepthOf(auto=True)]
SizeField = Annotated[int, SizeInBytes()]


@dataclass(frozen=True, slots=True)
class OrWord:
    """A mapping for `model`, or `word` for none of it (`false`) or for all by default (`auto`); kept as it is."""

    model: type[SpecModel]
    word: object
    keys: str

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        def read(value: object, read_mapping: core_schema.ValidatorFunctionWrapHandler) -> Any:
            if isinstance(value, dict):
                return read_mapping(value)
            if value == self.word and isinstance(value, bool) == isinstance(self.word, bool):
                return value
            word = self.word if isinstance(self.word, str) else quote(self.word)
            raise refusal("wrong-type", f"must be {word} or a mapping with {self.keys}, not {quote(value)}")

        return core_schema.no_info_wrap_validator_function(read, handler.generate_schema(self.model))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"const": self.word}, handler(schema)]}
