"""Types of what workloads are told: sizes that may be in BDP, spans that may be zero, shares, ranks, paths of files."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from pydantic.json_schema import JsonSchemaValue

from testbed.spec.validation.fields import MAX_DURATION, Checked, Text, Whole, parse_quantity
from testbed.spec.validation.model import refusal
from testbed.spec.yaml.paths import quote
from testbed.units import ByteCount, Duration
from testbed.workload.parameters import BDP

MAX_SIZE = ByteCount.parse("1000GB")
MAX_BDP = 1_000_000.0
MAX_RANK = 1_000_000
_LONGEST_PATH = 1024
PERCENT = re.compile(r"\s*(-?[0-9]{1,9}(?:\.[0-9]{1,9})?)\s*%\s*")
_ZERO = re.compile(r"\s*0+(\.0+)?\s*[a-zµ]+\s*")


@dataclass(frozen=True, slots=True)
class Size(Checked):
    """A number of bytes: an integer, text with a unit, or text in `bdp`, which stays text."""

    low: int = 1

    def check(self, value: object) -> ByteCount | str:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise refusal("wrong-type", f"must be a size such as 16MB or 64bdp, not {quote(value)}")
        if isinstance(value, str) and (match := BDP.fullmatch(value)):
            if not 0 < float(match[1]) <= MAX_BDP:
                raise refusal(
                    "out-of-range", f"the size must be more than zero and at most {MAX_BDP:.0f}bdp, not {quote(value)}"
                )
            return f"{match[1]}bdp"
        try:
            size = ByteCount.parse(str(value))
        except ValueError as error:
            raise refusal("bad-quantity", f"{error}, or bdp") from error
        if size.bytes < self.low or size > MAX_SIZE:
            least = "more than zero" if self.low == 1 else f"at least {ByteCount(self.low)}"
            raise refusal("out-of-range", f"the size must be {least} and at most {MAX_SIZE}, not {size}")
        return size

    def json_schema(self) -> JsonSchemaValue:
        units = "|".join([*(unit for unit in ByteCount.SUFFIXES if unit), "[bB][dD][pP]"])
        text = {"type": "string", "pattern": rf"^\s*\d+(\.\d+)?\s*({units})?\s*$", "examples": ["16MB", "64bdp"]}
        return {"anyOf": [{"type": "integer", "minimum": self.low}, text]}


@dataclass(frozen=True, slots=True)
class Span(Checked):
    """A duration with its unit; zero where `low` is."""

    low_ns: int = 0
    highest: Duration = MAX_DURATION

    def check(self, value: object) -> Duration:
        if not self.low_ns and isinstance(value, str) and _ZERO.fullmatch(value):
            return Duration.parse(value)
        duration = parse_quantity(value, Duration, self.highest)
        if duration.ns < self.low_ns:
            raise refusal("out-of-range", f"the duration must be at least {Duration(self.low_ns)}, not {duration}")
        return duration

    def json_schema(self) -> JsonSchemaValue:
        units = "|".join(unit for unit in Duration.SUFFIXES if unit)
        return {"type": "string", "pattern": rf"^\s*\d+(\.\d+)?\s*({units})\s*$", "examples": ["200ms"]}


@dataclass(frozen=True, slots=True)
class WholeSeconds(Checked):
    """A duration of whole seconds: what iperf3 can run for."""

    highest: Duration

    def check(self, value: object) -> Duration:
        duration = Span(1, self.highest).check(value)
        if duration.ns % 10**9:
            raise refusal(
                "out-of-range", f"the duration must be whole seconds, not {duration}", "iperf3 counts in seconds"
            )
        return duration

    def json_schema(self) -> JsonSchemaValue:
        return Span().json_schema() | {"examples": ["5s"]}


@dataclass(frozen=True, slots=True)
class NumberOrPercent(Checked):
    """A number from `low` to `high`, or a percentage as text: "20%" is 0.2."""

    low: float
    high: float

    def check(self, value: object) -> float:
        number: object = value
        if isinstance(value, str) and (match := PERCENT.fullmatch(value)):
            number = float(match[1]) / 100
        if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
            raise refusal("wrong-type", f"must be a number or a percentage, not {quote(value)}")
        if not self.low <= number <= self.high:
            raise refusal("out-of-range", f"must be from {self.low:g} to {self.high:g}, not {quote(value)}")
        return number if isinstance(number, int) else float(number)

    def json_schema(self) -> JsonSchemaValue:
        number = {"type": "number", "minimum": self.low, "maximum": self.high}
        return {"anyOf": [number, {"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*%\s*$"}]}


@dataclass(frozen=True, slots=True)
class RankList(Checked):
    """A number of ranks, or a list of different ones."""

    def check(self, value: object) -> int | tuple[int, ...]:
        if not isinstance(value, list):
            if isinstance(value, int) and not isinstance(value, bool):
                return Whole(1, MAX_RANK).check(value)
            raise refusal("wrong-type", f"must be a number of ranks, or a list of them, not {quote(value)}")
        ranks = tuple(Whole(0, MAX_RANK).check(item) for item in value)
        if not ranks:
            raise refusal("out-of-range", "the list of ranks is empty", "write a number, or name some")
        if len(set(ranks)) != len(ranks):
            raise refusal("contradiction", "a rank stands twice in the list")
        return ranks

    def json_schema(self) -> JsonSchemaValue:
        rank = {"type": "integer", "minimum": 0}
        return {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "array", "items": rank, "minItems": 1}]}


class RelativePath(str):
    """A path of a file, relative to the one that names it until `declared.written_values` has joined them."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class FileName(Checked):
    """The path of a file."""

    def check(self, value: object) -> RelativePath:
        return RelativePath(Text(_LONGEST_PATH).check(value))

    def json_schema(self) -> JsonSchemaValue:
        return Text(_LONGEST_PATH).json_schema()
