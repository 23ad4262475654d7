"""Parameters of a workload as a user may write them: name, type, default, bounds, and one line on each.

A kind of workload (`registry`) declares its parameters with these; readers of files check what was written against
them, and the kind's builder takes the values from `Values`, in bytes and nanoseconds, which are within the bounds:
generators do not check that again. A generator with many parameters is asked for them by one object. Its class declares
them, and nothing else does:

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Checkpoint:
        stripes: int = asked(whole("stripes", 1, "Says in how many parts a file is written."))
        period_ns: int = asked(duration("period", "0ns", "Gives the time from one checkpoint to the next."))

The kind has `parameters_of(Checkpoint)`, and `Values.make` makes the object of what was written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar, assert_never

from testbed.base.errors import WorkloadError
from testbed.base.units import COUNT, NUMBER, PERCENT, ByteCount, Duration, Measure, measure_of_key, parse_bdp
from testbed.workload.choices import check_choice

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_PARAMETER = "parameter"
"""In the metadata of a field: the parameter by which a user gives it."""

Asked = TypeVar("Asked", bound="DataclassInstance")
"""A dataclass whose fields declare parameters."""


class ParameterType(StrEnum):
    SIZE = "size"
    """A `ByteCount`, or text in `bdp` until the lab is known."""
    DURATION = "duration"
    """A `Duration` of the real fabric; the lab's time scale multiplies it."""
    WHOLE = "whole number"
    NUMBER = "number"
    CHOICE = "choice"
    FLAG = "true or false"
    TEXT = "text"
    FILE = "file"
    """A path: in a file of a user relative to that file, here one that exists from the caller's directory."""
    RANK = "rank"
    """The number of a rank, from 0."""
    RANKS = "ranks"
    """A number of ranks, or a list of them."""
    LIST = "list"
    """Values as `item` declares them."""
    SECTION = "section"
    """A mapping with the keys of `fields`."""
    WORKLOAD = "workload"
    """A workload of its own: `kind` and its parameters."""
    TRANSPORT = "transport"
    """A transport: its name, or `kind` and its parameters. Generators take no notice of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter. `default` None: what it is then, `description` says. `low` and `high` are in its base unit.

    The base units are bytes and nanoseconds. A list has from `low` to `high` entries.
    """

    name: str
    type: ParameterType
    description: str
    default: Any = None
    required: bool = False
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    item: Parameter | None = None
    fields: tuple[Parameter, ...] = ()
    percent: bool = False
    """A whole number counts percent, though its name does not say so."""

    @property
    def measure(self) -> Measure:
        """Return how text is read as a number: by the unit at the end of the name, such as `_us`, where it has one."""
        if self.percent:
            return PERCENT
        return measure_of_key(self.name, NUMBER if self.type is ParameterType.NUMBER else COUNT)

    @property
    def range(self) -> str:
        """Return what values there may be, for people: "1 to 64", "ring, tree"; empty where the type says it all."""
        if self.choices:
            return ", ".join(self.choices)
        if self.fields:
            return ", ".join(field.name for field in self.fields)
        if self.item is not None:
            return self.item.range or self.item.type.value
        low, high = self._shown(self.low), self._shown(self.high)
        if low and high:
            return f"{low} to {high}"
        return f"from {low}" if low else f"up to {high}" if high else ""

    def check(self, value: Any) -> None:
        """Raise `WorkloadError` for a value, or an entry of a list, that the bounds or the choices do not have."""
        amount: float = self.low or 0
        given = shown(value)
        match value:
            case ByteCount(bytes=amount) | Duration(ns=amount):
                pass
            case str() if self.choices:
                check_choice(value, self.choices, self.name)
            case tuple() | list():
                amount, given = len(value), f"{len(value)} entries"
                if self.item is not None:
                    for one in value:
                        self.item.check(one)
            case int() | float() if not isinstance(value, bool):
                amount = value
        if not (self.low is None or self.low <= amount) or not (self.high is None or amount <= self.high):
            raise WorkloadError(f"{self.name} cannot be {given}: {self.range}", field=self.name)

    def as_json(self) -> dict[str, Any]:
        data: dict[str, Any] = {
            "name": self.name,
            "type": self.type.value,
            "default": shown(self.default),
            "range": self.range,
            "description": self.description,
            "required": self.required,
        }
        if self.item is not None:
            data["item"] = self.item.as_json()
        if self.fields:
            data["fields"] = [field.as_json() for field in self.fields]
        return data

    def _shown(self, bound: float | None) -> str:
        match self.type:
            case _ if bound is None:
                return ""
            case ParameterType.SIZE:
                return str(ByteCount(int(bound)))
            case ParameterType.DURATION:
                return str(Duration(int(bound)))
        return f"{bound:g}" if abs(bound) < 1e-3 or bound != int(bound) else str(int(bound))


def shown(value: Any) -> Any:
    """A value of a parameter as a file has it."""
    match value:
        case ByteCount() | Duration():
            return str(value).replace(" ", "")
        case tuple() | list():
            return [shown(item) for item in value]
        case Mapping():
            return {key: shown(item) for key, item in value.items()}
    return value


def size(name: str, default: str | None, description: str, *, low: int = 1) -> Parameter:
    """`default` as one writes it: "64bdp", "16MB"."""
    given = default if default is None or parse_bdp(default) is not None else ByteCount.parse(default)
    return Parameter(name=name, type=ParameterType.SIZE, description=description, default=given, low=low)


def duration(name: str, default: str | None, description: str, *, low: int = 0) -> Parameter:
    given = None if default is None else Duration.parse(default)
    return Parameter(name=name, type=ParameterType.DURATION, description=description, default=given, low=low)


def whole(
    name: str, default: int | None, description: str, *, low: int = 1, high: int = 1_000_000, percent: bool = False
) -> Parameter:
    return Parameter(
        name=name,
        type=ParameterType.WHOLE,
        description=description,
        default=default,
        low=low,
        high=high,
        percent=percent,
    )


def number(name: str, default: float | None, description: str, *, low: float, high: float) -> Parameter:
    return Parameter(name=name, type=ParameterType.NUMBER, description=description, default=default, low=low, high=high)


def choice(name: str, default: str | None, choices: Sequence[str], description: str) -> Parameter:
    return Parameter(
        name=name,
        type=ParameterType.CHOICE,
        description=description,
        default=default,
        choices=tuple(str(one) for one in choices),
    )


def text(name: str, description: str) -> Parameter:
    """Return a parameter that is a text, without one by default."""
    return Parameter(name=name, type=ParameterType.TEXT, description=description)


def flag(name: str, description: str, *, default: bool | None = False) -> Parameter:
    return Parameter(name=name, type=ParameterType.FLAG, description=description, default=default)


def rank(name: str, default: int | None, description: str) -> Parameter:
    return Parameter(name=name, type=ParameterType.RANK, description=description, default=default, low=0)


def some_ranks(name: str, default: int | None, description: str) -> Parameter:
    """Return how many ranks, or which."""
    return Parameter(name=name, type=ParameterType.RANKS, description=description, default=default, low=1)


def asked(parameter: Parameter) -> Any:
    """Declare a field of a dataclass that a user gives by `parameter`, in bytes or nanoseconds, with its default.

    A field has no default where the parameter is required, or is a size in BDP: the lab is not known yet.
    """
    match parameter.default:
        case _ if parameter.required:
            default: Any = MISSING
        case ByteCount(bytes=plain) | Duration(ns=plain):
            default = plain
        case str() if parameter.type is ParameterType.SIZE:
            default = MISSING
        case value:
            default = value
    return field(default=default, metadata={_PARAMETER: parameter})


def parameters_of(asked_for: type[DataclassInstance]) -> tuple[Parameter, ...]:
    """Return the parameters that the fields of a dataclass declare by `asked`, in their order."""
    return tuple(one.metadata[_PARAMETER] for one in fields(asked_for) if _PARAMETER in one.metadata)


def listed(which: int | Sequence[int] | None, candidates: Sequence[int], name: str) -> list[int]:
    """List the ranks that a parameter of type `ranks` means: the first so many candidates, those it names, or all."""
    if which is None:
        return list(candidates)
    if not isinstance(which, int):
        return list(which)
    if which > len(candidates):
        raise WorkloadError(f"{which} ranks are asked for; there are {len(candidates)}", field=name)
    return list(candidates[:which])


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """The values that were written of some parameters, and the defaults of the others.

    `written` has types as `ParameterType` says. Raises `WorkloadError` for a name that is not declared, and a value
    beyond its bounds.
    """

    parameters: Mapping[str, Parameter]
    written: Mapping[str, Any]
    bdp_bytes: int

    def __post_init__(self) -> None:
        for name, value in self.written.items():
            if name not in self.parameters:
                raise WorkloadError(f"there is no parameter {name!r}", field=name)
            self.parameters[name].check(value)
        for parameter in self.parameters.values():
            if parameter.required and self.written.get(parameter.name) is None:
                raise WorkloadError(f"the parameter {parameter.name} is missing", field=parameter.name)

    def given(self, name: str) -> bool:
        """Tell whether it was written, and is not None."""
        return self.written.get(name) is not None

    def value(self, name: str) -> Any:
        written = self.written.get(name)
        return self.parameters[name].default if written is None else written

    def bytes(self, name: str, *, unit: int = 1) -> int:
        """A size in bytes; one in BDP is rounded down to a multiple of `unit`, but to one at least."""
        value = self.value(name)
        match value:
            case ByteCount():
                return value.bytes
            case str() if (bdps := parse_bdp(value)) is not None:
                return max(unit, round(bdps * self.bdp_bytes) // unit * unit)
        raise WorkloadError(f"{name} is {value!r}, which is no size", field=name)

    def ns(self, name: str) -> int:
        value = self.value(name)
        if not isinstance(value, Duration):
            raise WorkloadError(f"{name} is {value!r}, which is no duration", field=name)
        return value.ns

    def whole(self, name: str) -> int:
        value = self.value(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise WorkloadError(f"{name} is {value!r}, which is no whole number", field=name)
        return value

    def optional_whole(self, name: str) -> int | None:
        return None if self.value(name) is None else self.whole(name)

    def number(self, name: str) -> float:
        value = self.value(name)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise WorkloadError(f"{name} is {value!r}, which is no number", field=name)
        return float(value)

    def text(self, name: str) -> str:
        value = self.value(name)
        if not isinstance(value, str):
            raise WorkloadError(f"{name} is {value!r}, which is no text", field=name)
        return value

    def optional_text(self, name: str) -> str | None:
        return None if self.value(name) is None else self.text(name)

    def flag(self, name: str) -> bool:
        return bool(self.value(name))

    def some_ranks(self, name: str) -> int | tuple[int, ...] | None:
        """Return how many ranks, which, or None."""
        value = self.value(name)
        return tuple(value) if isinstance(value, tuple | list) else value

    def make(self, asked_for: type[Asked], **resolved: Any) -> Asked:
        """Make what a generator is asked for: its fields have the values of the parameters that they declare.

        `resolved` are the values of other fields, and of those that take more than one parameter's value. A field
        whose parameter the kind does not have keeps its default.
        """
        for one in fields(asked_for):
            parameter = one.metadata.get(_PARAMETER)
            if parameter is not None and one.name not in resolved and parameter.name in self.parameters:
                resolved[one.name] = self.plain(parameter.name)
        return asked_for(**resolved)

    def plain(self, name: str) -> Any:
        """Return the value of a parameter: a size in bytes, a duration in nanoseconds, a list's entries as written."""
        if self.value(name) is None:
            return None
        match self.parameters[name].type:
            case ParameterType.SIZE:
                return self.bytes(name)
            case ParameterType.DURATION:
                return self.ns(name)
            case ParameterType.WHOLE | ParameterType.RANK:
                return self.whole(name)
            case ParameterType.NUMBER:
                return self.number(name)
            case ParameterType.CHOICE | ParameterType.TEXT | ParameterType.FILE:
                return self.text(name)
            case ParameterType.FLAG:
                return self.flag(name)
            case ParameterType.RANKS:
                return self.some_ranks(name)
            case ParameterType.LIST:
                return tuple(self.value(name))
            case ParameterType.SECTION | ParameterType.WORKLOAD | ParameterType.TRANSPORT:
                return self.value(name)
            case _ as never:
                assert_never(never)
