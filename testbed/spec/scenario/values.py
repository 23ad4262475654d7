"""Single values in scenario files: what keys of a matrix are set to, and bounds of metrics in their units."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from pydantic.json_schema import JsonSchemaValue

from testbed.model.scenario import Scalar
from testbed.spec.validation.fields import Checked
from testbed.spec.validation.model import refusal
from testbed.spec.validation.quantities import PERCENT
from testbed.spec.yaml.paths import quote
from testbed.units import ByteCount, Duration, Rate
from testbed.workload.metrics import MetricUnit

MAX_VALUES = 100
"""Of one key of a matrix."""
_POINTS = re.compile(r"\s*([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*pp\s*")


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
        if dimensionless and (match := PERCENT.fullmatch(value)):
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
    """Return how far from an oracle, and whether that is a share of what it says: "8%" is, "8pp" are points of a share.

    Raises a refusal.
    """
    if isinstance(value, str) and (match := PERCENT.fullmatch(value)):
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
