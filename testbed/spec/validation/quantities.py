"""Types of the fields of scenario files: sizes that may be in BDP, spans that may be zero, numbers with a unit."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from pydantic.json_schema import JsonSchemaValue

from testbed.model.scenario import Scalar
from testbed.spec.validation.engine import refusal
from testbed.spec.validation.fields import MAX_DURATION, Checked, parse_quantity
from testbed.spec.yaml.paths import quote
from testbed.units import ByteCount, Duration, Rate
from testbed.workload.metrics import MetricUnit
from testbed.workload.parameters import BDP

MAX_SIZE = ByteCount.parse("1000GB")
MAX_BDP = 1_000_000.0
MAX_VALUES = 100
"""Of one key of a matrix."""
_PERCENT = re.compile(r"\s*(-?[0-9]{1,9}(?:\.[0-9]{1,9})?)\s*%\s*")
_POINTS = re.compile(r"\s*([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*pp\s*")
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
        if isinstance(value, str) and (match := _PERCENT.fullmatch(value)):
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
class Value(Checked):
    """A single value: no list and no mapping. What a key may be set to, or a bound of a metric in its unit."""

    def check(self, value: object) -> Scalar:
        if not isinstance(value, str | int | float | bool):
            raise refusal("wrong-type", f"must be a single value, not {quote(value)}")
        if isinstance(value, float) and not math.isfinite(value):
            raise refusal("wrong-type", f"must be a number that is one, not {quote(value)}")
        return value

    def json_schema(self) -> JsonSchemaValue:
        return {"type": ["string", "number", "boolean"]}


@dataclass(frozen=True, slots=True)
class MatrixValues(Checked):
    """The values of a key of the matrix: a list of different single values."""

    def check(self, value: object) -> tuple[Scalar, ...]:
        if not isinstance(value, list):
            raise refusal("wrong-type", f"must be a list, not {quote(value)}", "write [a, b]")
        if not 1 <= len(value) <= MAX_VALUES:
            raise refusal("out-of-range", f"a key of the matrix has 1 to {MAX_VALUES} values, not {len(value)}")
        values = tuple(Value().check(item) for item in value)
        if len({(type(item) is bool, item) for item in values}) != len(values):
            raise refusal("contradiction", "a value stands twice in the list")
        return values

    def json_schema(self) -> JsonSchemaValue:
        return {"type": "array", "items": Value().json_schema(), "minItems": 1, "maxItems": MAX_VALUES}


def parse_bound(value: Scalar, unit: MetricUnit) -> float:
    """A bound of a metric, in its unit: a number, a percentage, or a quantity such as 900ms where the unit is one.

    Raises a refusal.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    kind = {MetricUnit.SECONDS: Duration, MetricUnit.BYTES: ByteCount, MetricUnit.BITS_PER_S: Rate}.get(unit)
    examples = {MetricUnit.SECONDS: "900ms", MetricUnit.BYTES: "150KB", MetricUnit.BITS_PER_S: "90M"}
    dimensionless = unit in (MetricUnit.SHARE, MetricUnit.RATIO)
    if isinstance(value, str):
        if dimensionless and (match := _PERCENT.fullmatch(value)):
            return float(match[1]) / 100
        if kind is not None:
            try:
                quantity = kind.parse(value)
            except ValueError as error:
                message = f"{quote(value)} is no number of {unit.value} and no quantity such as {examples[unit]}"
                raise refusal("bad-quantity", message) from error
            return quantity.value / 1e9 if isinstance(quantity, Duration) else float(quantity.value)
    what = "a number or a percentage" if dimensionless else "a number"
    if unit in examples:
        what += f" of {unit.value}, or a quantity such as {examples[unit]}"
    raise refusal("wrong-type", f"must be {what}, not {quote(value)}")


def parse_tolerance(value: Scalar, unit: MetricUnit) -> tuple[float, bool]:
    """How far from an oracle, and whether that is a share of what it says: "8%" is, "8pp" are points of a share.

    Raises a refusal.
    """
    if isinstance(value, str) and (match := _PERCENT.fullmatch(value)):
        number, relative = float(match[1]) / 100, True
    elif isinstance(value, str) and (match := _POINTS.fullmatch(value)):
        if unit is not MetricUnit.SHARE:
            raise refusal("bad-quantity", f"only shares have percentage points; this metric's unit is {unit.value}")
        number, relative = float(match[1]) / 100, False
    else:
        try:
            number, relative = parse_bound(value, unit), False
        except ValueError as error:
            raise refusal(
                "wrong-type", f"must be a tolerance, not {quote(value)}", "8% of what the oracle says, or 8pp"
            ) from error
    if number < 0:
        raise refusal("out-of-range", f"a tolerance cannot be negative: {quote(value)}")
    return number, relative
