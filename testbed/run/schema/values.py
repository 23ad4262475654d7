"""Single values in scenario files: what keys of a matrix are set to, and bounds of metrics in their units."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic.json_schema import JsonSchemaValue
from pydantic_core import PydanticCustomError

from testbed.base.metric import MetricUnit
from testbed.base.units import BYTES, COUNT, NUMBER, POINTS, RATE, SHARE, TIME, Measure, split_quantity
from testbed.base.validation.fields import Checked, as_list, read_number
from testbed.base.validation.model import refusal
from testbed.base.yaml.paths import quote
from testbed.run.schema.model import Scalar

MAX_VALUES = 100
"""One key of a matrix has no more."""


@dataclass(frozen=True, slots=True)
class MatrixValue(Checked):
    """A single value: no list and no mapping. What a key may be set to, or a bound of a metric in its unit."""

    def check(self, value: object) -> Scalar:
        if not isinstance(value, str | int | float | bool):
            hint = "write KEY.KEY: VALUE, one line for each" if isinstance(value, dict) else None
            if isinstance(value, list):
                hint = "some keys take a list as one text: 'source, destination', or '32, 32, 31'"
            raise refusal("wrong-type", f"must be a single value, not {quote(value)}", hint)
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
            raise refusal("wrong-type", f"must be a list, not {quote(value)}", as_list(value))
        if not 1 <= len(value) <= MAX_VALUES:
            hint = (
                f"leave out all but {MAX_VALUES}, or divide them among files"
                if value
                else "list one, or remove the key"
            )
            message = f"a key of the matrix has 1 to {MAX_VALUES} values, not {len(value)}"
            raise refusal("out-of-range", message, hint)
        values = tuple(MatrixValue().check(item) for item in value)
        if len({(type(item) is bool, item) for item in values}) != len(values):
            raise refusal("contradiction", "a value stands twice in the list")
        return values

    def json_schema(self) -> JsonSchemaValue:
        return {"type": "array", "items": MatrixValue().json_schema(), "minItems": 1, "maxItems": MAX_VALUES}


_MEASURES: Mapping[MetricUnit, Measure] = {
    MetricUnit.BITS_PER_S: RATE.counted_in("bps"),
    MetricUnit.BYTES_PER_S: RATE.counted_in("B/s"),
    MetricUnit.SECONDS: TIME.counted_in("s"),
    MetricUnit.BYTES: BYTES.counted_in("B"),
    MetricUnit.PACKETS: COUNT,
    MetricUnit.RATIO: NUMBER,
    MetricUnit.SHARE: SHARE,
    MetricUnit.COUNT: COUNT,
}
_LARGEST_PLAIN_SHARE = 2
"""A metric may exceed its ideal a little; a plain 7 is 7% to most people."""


def parse_bound(value: Scalar, unit: MetricUnit) -> float:
    """A bound of a metric, in its unit: a number, or text such as 900ms or 90% where the unit is one.

    Raises a refusal.
    """
    number = float(read_number(value, _MEASURES[unit]))
    if unit is MetricUnit.SHARE and "%" not in str(value) and abs(number) > _LARGEST_PLAIN_SHARE:
        hint = f"write {number:g}%, or {number / 100:g}"
        raise refusal("out-of-range", f"{quote(value)} may be a share or a number of percent", hint)
    return number


def parse_tolerance(value: Scalar, unit: MetricUnit) -> tuple[float, bool]:
    """Return how far from an oracle, and whether that is a share of what it says: "8%" is, "8pp" are points of a share.

    Raises a refusal.
    """
    spelled = split_quantity(str(value))[1]
    if spelled in SHARE.units:
        number, relative = float(read_number(value, SHARE)), True
    elif spelled == "pp":
        if unit is not MetricUnit.SHARE:
            raise refusal("bad-quantity", f"only shares have percentage points; this metric's unit is {unit.value}")
        number, relative = float(read_number(value, POINTS)), False
    else:
        try:
            number, relative = parse_bound(value, unit), False
        except PydanticCustomError as error:
            hint = (error.context or {})["hint"] or "8% of what the oracle says, or 8pp"
            raise refusal("wrong-type", f"must be a tolerance, not {quote(value)}", hint) from error
    if number < 0:
        raise refusal("out-of-range", f"a tolerance cannot be negative: {quote(value)}")
    return number, relative
