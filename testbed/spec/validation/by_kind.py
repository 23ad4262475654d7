"""Sections whose keys depend on their `kind`: read by the parameters that a registry declares, with every problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from pydantic.json_schema import JsonSchemaValue
from pydantic_core import PydanticCustomError

from testbed.errors import Problem
from testbed.names import nearest
from testbed.spec.validation.engine import refusal
from testbed.spec.validation.fields import Checked, OneOf, Text, TrueOrFalse, Whole
from testbed.spec.validation.quantities import NumberOrPercent, Size, Span
from testbed.spec.yaml.document import Document
from testbed.spec.yaml.paths import Path, quote
from testbed.workload.parameters import Parameter, ParameterType
from testbed.workload.registry import KINDS

MAX_LIST = 4096
MAX_RANK = 1_000_000
_LONGEST_TEXT = 200
_LONGEST_PATH = 1024


@dataclass(frozen=True, slots=True)
class RanksField(Checked):
    """How many ranks, or a list of different ones."""

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


def checked(parameter: Parameter) -> Checked | None:
    """What checks a value of a parameter; None for one that has parts of its own."""
    low, high = parameter.low or 0, parameter.high
    match parameter.type:
        case ParameterType.SIZE:
            return Size(int(low))
        case ParameterType.DURATION:
            return Span(int(low))
        case ParameterType.WHOLE:
            return Whole(int(low), MAX_RANK if high is None else int(high))
        case ParameterType.NUMBER:
            return NumberOrPercent(low, float("inf") if high is None else high)
        case ParameterType.CHOICE:
            return OneOf(parameter.choices)
        case ParameterType.FLAG:
            return TrueOrFalse()
        case ParameterType.TEXT:
            return Text(_LONGEST_TEXT)
        case ParameterType.FILE:
            return Text(_LONGEST_PATH)
        case ParameterType.RANK:
            return Whole(0, MAX_RANK)
        case ParameterType.RANKS:
            return RanksField()
    return None


@dataclass(slots=True, kw_only=True)
class ParameterReader:
    """Reads sections of one document and keeps the problems. `directory` is what paths are relative to."""

    document: Document
    directory: FilePath
    problems: list[Problem] = field(default_factory=list)

    def read_section(
        self,
        path: Path,
        parameters: Sequence[Parameter],
        *,
        besides: Sequence[str] = (),
        elsewhere: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """The values written at `path`, by name. `besides` are keys that somebody else reads.

        `elsewhere` are hints for keys that would have a meaning under other circumstances.
        """
        data = self.document.get(path)
        if not isinstance(data, dict):
            known = ", ".join([*besides, *(parameter.name for parameter in parameters)])
            self._add(
                "wrong-type", path, f"must be a mapping of keys to values, not {quote(data)}", f"its keys are {known}"
            )
            return {}
        by_name = {parameter.name: parameter for parameter in parameters}
        values: dict[str, Any] = {}
        for key in data:
            if key in by_name:
                value = self.read_value((*path, key), by_name[key])
                if value is not None:
                    values[key] = value
            elif key not in besides:
                self._unknown_key((*path, key), [*besides, *by_name], elsewhere or {})
        for parameter in parameters:
            if parameter.required and parameter.name not in data:
                self.problems.append(
                    self.document.problem(
                        "missing-key",
                        (*path, parameter.name),
                        f"the key '{parameter.name}' is missing in this section",
                        hint=f"add '{parameter.name}: ...', {parameter.description}",
                        key=True,
                    )
                )
        return values

    def read_value(self, path: Path, parameter: Parameter) -> Any:
        """The value at `path`; None where there is a problem with it."""
        raw = self.document.get(path)
        if raw is None:
            self._add("no-value", path, "the key has no value", "give it one or remove the key")
            return None
        match parameter.type:
            case ParameterType.LIST:
                return self._read_list(path, parameter, raw)
            case ParameterType.SECTION:
                before = len(self.problems)
                section = self.read_section(path, parameter.fields)
                return section if len(self.problems) == before else None
            case ParameterType.WORKLOAD:
                before = len(self.problems)
                kind, values = self.read_kind(path, WORKLOAD_SECTION)
                return {"kind": kind, **values} if len(self.problems) == before else None
        check = checked(parameter)
        assert check is not None
        value = self.check(path, check)
        if parameter.type is ParameterType.FILE and value is not None:
            return str(self.directory / value)
        return value

    def read_kind(self, path: Path, section: KindSection) -> tuple[str, dict[str, Any]]:
        """The kind of a section and its values; "" and none where the kind is missing or unknown."""
        data = self.document.get(path)
        if not isinstance(data, dict):
            self._add(
                "wrong-type", path, f"must be a mapping of keys to values, not {quote(data)}", f"{section.example}"
            )
            return "", {}
        if "kind" not in data:
            if section.default:
                kind: object = section.default
            else:
                hint = f"add 'kind: ...', one of {', '.join(section.kinds)}"
                where = (*path, "kind")
                self.problems.append(
                    self.document.problem(
                        "missing-key", where, "the key 'kind' is missing in this section", hint=hint, key=True
                    )
                )
                return "", {}
        else:
            kind = self.check((*path, "kind"), OneOf(tuple(section.kinds), noun=section.noun))
        if not isinstance(kind, str):
            return "", {}
        return kind, self.read_section(
            path, section.kinds[kind], besides=("kind", *section.besides), elsewhere=section.elsewhere(kind)
        )

    def check(self, path: Path, check: Checked) -> Any:
        """The value at `path` as `check` keeps it; None, and a problem kept, where it refuses it."""
        try:
            return check.check(self.document.get(path))
        except PydanticCustomError as error:
            context = error.context or {}
            self._add(context["code"], path, context["message"], context["hint"] or None)
            return None

    def _read_list(self, path: Path, parameter: Parameter, raw: object) -> tuple[Any, ...] | None:
        assert parameter.item is not None
        if not isinstance(raw, list):
            self._add(
                "wrong-type", path, f"must be a list, not {quote(raw)}", "write [a, b], or one '- ' line for each"
            )
            return None
        low, high = int(parameter.low or 0), int(parameter.high or MAX_LIST)
        if not low <= len(raw) <= high:
            many = f"{low}" if low == high else f"from {low} to {high}"
            self._add("wrong-type", path, f"must have {many} entries, not {len(raw)}", parameter.description)
            return None
        values = [self.read_value((*path, index), parameter.item) for index in range(len(raw))]
        return None if any(value is None for value in values) else tuple(values)

    def _unknown_key(self, path: Path, known: Sequence[str], elsewhere: Mapping[str, str]) -> None:
        key = str(path[-1])
        meant = nearest(key, known) or nearest(key.lower(), known)
        hint = f"did you mean '{meant}'?" if meant else f"known here: {', '.join(known)}"
        self.problems.append(
            self.document.problem(
                "unknown-key", path, f"unknown key {quote(key)}", hint=elsewhere.get(key, hint), key=True
            )
        )

    def _add(self, code: str, path: Path, message: str, hint: str | None = None) -> None:
        self.problems.append(self.document.problem(code, path, message, hint=hint))


@dataclass(frozen=True, slots=True, kw_only=True)
class KindSection:
    """A section whose other keys depend on its `kind`. `besides` are keys of every kind that somebody else reads."""

    noun: str
    kinds: Mapping[str, tuple[Parameter, ...]]
    besides: tuple[str, ...] = ()
    default: str = ""
    example: str = ""

    def elsewhere(self, kind: str) -> dict[str, str]:
        """For keys that only other kinds have: which."""
        found: dict[str, list[str]] = {}
        for other, parameters in self.kinds.items():
            for parameter in parameters:
                found.setdefault(parameter.name, []).append(other)
        own = {parameter.name for parameter in self.kinds[kind]}
        return {
            name: f"{name} is a key of the {self.noun} {', '.join(kinds[:4])}{', ...' if len(kinds) > 4 else ''}"
            for name, kinds in found.items()
            if name not in own
        }

    def json_schema(self, besides: Mapping[str, JsonSchemaValue], description: str) -> JsonSchemaValue:
        """All kinds as alternatives, told apart by `kind`."""
        alternatives = []
        for kind, parameters in self.kinds.items():
            named: JsonSchemaValue = {"const": kind, "description": f"which {self.noun}"}
            required = [parameter.name for parameter in parameters if parameter.required]
            if kind != self.default:
                required.insert(0, "kind")
            alternatives.append(
                {
                    "type": "object",
                    "properties": {"kind": named, **besides, **section_schema(parameters)["properties"]},
                    "additionalProperties": False,
                    "required": required,
                }
            )
        return {"oneOf": alternatives, "description": description}


WORKLOAD_SECTION = KindSection(
    noun="workload",
    kinds={name: kind.parameters for name, kind in KINDS.items()},
    example="workload: {kind: permutation, bytes: 64bdp}",
)
"""Of a tenant: kind and parameters alone."""


def section_schema(parameters: Sequence[Parameter]) -> JsonSchemaValue:
    """The JSON Schema of a section with these keys."""
    return {
        "type": "object",
        "properties": {parameter.name: parameter_schema(parameter) for parameter in parameters},
        "additionalProperties": False,
        "required": [parameter.name for parameter in parameters if parameter.required],
    }


def parameter_schema(parameter: Parameter) -> JsonSchemaValue:
    match parameter.type:
        case ParameterType.LIST:
            assert parameter.item is not None
            schema: JsonSchemaValue = {"type": "array", "items": parameter_schema(parameter.item)}
            if parameter.low:
                schema["minItems"] = int(parameter.low)
        case ParameterType.SECTION:
            schema = section_schema(parameter.fields)
        case ParameterType.WORKLOAD:
            # its parameters are those of the whole file's workload
            kinds = {"enum": list(KINDS), "description": "which workload"}
            schema = {"type": "object", "properties": {"kind": kinds}, "required": ["kind"]}
        case _:
            check = checked(parameter)
            assert check is not None
            schema = check.json_schema()
    return {**schema, "description": parameter.description}
