"""Types of what workloads are told: sizes that may be in BDP, spans that may be zero, shares, ranks, paths of files."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated

from pydantic.json_schema import JsonSchemaValue

from testbed.base.units import BDPS, BYTES, COUNT, TIME, ByteCount, Duration, parse_bdp, split_quantity
from testbed.base.validation.fields import MAX_DURATION, Checked, Quantity, Text, Whole, read_quantity
from testbed.base.validation.model import refusal
from testbed.base.yaml.paths import quote

MAX_SIZE = ByteCount.parse("1000GB")
MAX_BDP = 1_000_000.0
MAX_RANK = 1_000_000
MAX_FABRIC_TIME = Duration.parse("1s")
"""The longest time that a real network can be meant to have: the way to a satellite and back is half of it."""
_NS_A_METRE = 5
"""The time of light in a metre of fibre or copper."""
_LONGEST_PATH = 1024
_PLAIN_BYTES = BYTES.counted_in("B").called("size", "16MB or 64bdp")
_RANKS = COUNT.called("number of ranks", "4, or a list such as [0, 1]")


@dataclass(frozen=True, slots=True)
class Size(Checked):
    """A number of bytes: an integer, text with a unit, or text in `bdp`, which stays text."""

    low: int = 1

    def check(self, value: object) -> ByteCount | str:
        if isinstance(value, str) and (bdps := parse_bdp(value)) is not None:
            if not 0 < bdps <= MAX_BDP:
                raise refusal(
                    "out-of-range", f"the size must be more than zero and at most {MAX_BDP:.0f}bdp, not {quote(value)}"
                )
            return f"{split_quantity(value)[0]}bdp"
        size = read_quantity(value, ByteCount, _PLAIN_BYTES)
        if size.bytes < self.low or size > MAX_SIZE:
            least = "more than zero" if self.low == 1 else f"at least {ByteCount(self.low)}"
            raise refusal("out-of-range", f"the size must be {least} and at most {MAX_SIZE}, not {size}")
        return size

    def json_schema(self) -> JsonSchemaValue:
        text = {"type": "string", "pattern": _PLAIN_BYTES.pattern(), "examples": ["16MB", "64bdp"]}
        bdps = {"type": "string", "pattern": BDPS.pattern(bare=False)}
        return {"anyOf": [{"type": "integer", "minimum": self.low}, text, bdps]}


@dataclass(frozen=True, slots=True)
class Span(Checked):
    """A duration with its unit; zero where `low` is."""

    low_ns: int = 0
    highest: Duration = MAX_DURATION

    def check(self, value: object) -> Duration:
        duration = read_quantity(value, Duration)
        if not self.low_ns <= duration.ns <= self.highest.ns:
            least = f"at least {Duration(self.low_ns)}" if duration < self.highest else f"at most {self.highest}"
            raise refusal("out-of-range", f"the duration must be {least}, not {duration}")
        return duration

    def json_schema(self) -> JsonSchemaValue:
        text = {"type": "string", "pattern": TIME.pattern(), "examples": ["200ms"]}
        return text if self.low_ns else {"anyOf": [text, {"enum": [0, "0"]}]}


@dataclass(frozen=True, slots=True)
class FabricTime(Checked):
    """A time of the real network with its unit, such as a link's delay; zero where `zero` says so."""

    zero: bool = False

    @property
    def type_name(self) -> str:
        return "Span" if self.zero else Duration.__name__

    def check(self, value: object) -> Duration:
        time = read_quantity(value, Duration)
        if not time and not self.zero:
            raise refusal("out-of-range", "the duration must be more than zero")
        if time > MAX_FABRIC_TIME:
            message = f"a time of the real network is at most {MAX_FABRIC_TIME}, not {quote(value)}"
            raise refusal(
                "out-of-range",
                message,
                lambda _, path: fabric_time_hint(str(value), of_cable=path[-1:] in (("delay",), ("value",))),
            )
        return time

    def json_schema(self) -> JsonSchemaValue:
        return Span().json_schema() if self.zero else Quantity(Duration, MAX_DURATION).json_schema()


def fabric_time_hint(text: str, *, of_cable: bool) -> str:
    """Return what to write instead of a time too long for a real network; `of_cable`: a length may be meant."""
    number, unit = split_quantity(text)
    if unit == "m":
        cable = Duration(max(1, round(Fraction(number) * _NS_A_METRE)))
        written, ms = str(cable).replace(" ", ""), Fraction(number) * 10**6
        of_ms = f", such as {number}ms" if ms <= MAX_FABRIC_TIME.ns else ""
        by_length = f"; for {number} m of cable, 5 ns a metre, write {written}"
        return f"m is minutes{by_length if of_cable else ''}; milliseconds are ms{of_ms}"
    return "links and devices take from ns to ms, such as 500ns; the lab's longer times follow from the time scale"


FabricTimeField = Annotated[Duration, FabricTime()]


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
class RankList(Checked):
    """A number of ranks, or a list of different ones."""

    def check(self, value: object) -> int | tuple[int, ...]:
        if not isinstance(value, list):
            if isinstance(value, int | float | str) and not isinstance(value, bool):
                return Whole(1, MAX_RANK, measure=_RANKS).check(value)
            raise refusal("wrong-type", f"must be a number of ranks, or a list of them, not {quote(value)}")
        ranks = tuple(Whole(0, MAX_RANK).check(item) for item in value)
        if not ranks:
            raise refusal("out-of-range", "the list of ranks is empty", "write a number, or name some")
        if len(set(ranks)) != len(ranks):
            raise refusal("contradiction", "a rank stands twice in the list")
        return ranks

    def json_schema(self) -> JsonSchemaValue:
        ranks = {"type": "array", "items": Whole(0, MAX_RANK).json_schema(), "minItems": 1}
        return {"anyOf": [Whole(1, MAX_RANK).json_schema(), ranks]}


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
