"""Models of sections whose keys a registry declares: what a kind of workload or a transport may say of itself.

Registries stand below this package and know nothing of files: they declare keys as `Parameter`. Here each becomes a
field of a `SpecModel`, of the same types that sections with fixed keys are made of, so that one engine reads both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, create_model

from testbed.base.lazy import LazyMapping
from testbed.base.validation.by_kind import ByKind
from testbed.base.validation.fields import Checked, Constant, Length, NotNull, Number, OneOf, Text, TrueOrFalse, Whole
from testbed.base.validation.model import SpecModel
from testbed.base.validation.quantities import MAX_RANK, FileName, RankList, RelativePath, Size, Span
from testbed.workload.parameters import Parameter, ParameterType, shown

MAX_LIST = 4096
_LONGEST_TEXT = 4096
_MOST_KINDS_NAMED = 4

Nested = Callable[[ParameterType], ByKind]
"""Gives the model of a parameter that is a workload or a transport of its own."""


class _KeysElsewhere(Mapping[str, Any]):
    """The keys of other kinds of a section, each with a hint that says whose it is, beside those of `base`.

    They are looked at where a key is wrong: until then the other kinds need not be declared.
    """

    def __init__(self, noun: str, kind: str, kinds: Mapping[str, tuple[Parameter, ...]], base: type[SpecModel]) -> None:
        self._noun, self._kind, self._kinds, self._base = noun, kind, kinds, base

    @cached_property
    def _hints(self) -> Mapping[str, Any]:
        owners: dict[str, list[str]] = {}
        for kind, parameters in self._kinds.items():
            for parameter in parameters:
                owners.setdefault(parameter.name, []).append(kind)
        own = {parameter.name for parameter in self._kinds[self._kind]}
        return dict(self._base.ELSEWHERE) | {
            name: f"{name} is a key of the {self._noun}{'s' if len(others) > 1 else ''}"
            f" {', '.join(others[:_MOST_KINDS_NAMED])}" + (", ..." if len(others) > _MOST_KINDS_NAMED else "")
            for name, others in owners.items()
            if name not in own
        }

    def __getitem__(self, key: str) -> Any:
        return self._hints[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._hints)

    def __len__(self) -> int:
        return len(self._hints)


def models_by_kind(
    noun: str,
    kinds: Mapping[str, tuple[Parameter, ...]],
    *,
    base: type[SpecModel] = SpecModel,
    default: str = "",
    nested: Nested | None = None,
    prefix: str = "",
    descriptions: Mapping[str, str] | None = None,
) -> Mapping[str, type[SpecModel]]:
    """Make for each kind a model with its keys and those of `base`, when it is first asked for.

    `noun` is what messages call such a section, `prefix` (default: `noun`) what the JSON Schema calls its models.
    """

    def make(kind: str) -> type[SpecModel]:
        model = declared_model(
            f"{prefix or noun}-{kind}",
            kinds[kind],
            base=base,
            nested=nested,
            kind=_kind_field(noun, kind, default),
        )
        model.ELSEWHERE = _KeysElsewhere(noun, kind, kinds, base)
        model.__doc__ = (descriptions or {}).get(kind)
        return model

    return LazyMapping(kinds, make)


def declared_model(
    name: str,
    parameters: Sequence[Parameter],
    *,
    base: type[SpecModel] = SpecModel,
    nested: Nested | None = None,
    **more: Any,
) -> type[SpecModel]:
    """A model with these keys, those of `base`, and `more` fields as pydantic takes them."""
    fields = {parameter.name: _field(name, parameter, nested) for parameter in parameters}
    return create_model(name, __base__=base, **more, **fields)


def written_values(section: SpecModel, directory: Path, *, without: Sequence[str] = ()) -> dict[str, Any]:
    """Return what a file says in a section of declared keys, by key: lists as tuples, sections as mappings.

    Relative paths become paths below `directory`.
    """
    return {
        name: _plain(getattr(section, name), directory)
        for name in type(section).model_fields
        if name in section.model_fields_set and name not in without
    }


def _plain(value: Any, directory: Path) -> Any:
    match value:
        case SpecModel():
            return written_values(value, directory)
        case list():
            return tuple(_plain(item, directory) for item in value)
        case RelativePath():
            return str(directory / value)
    return value


def _kind_field(noun: str, kind: str, default: str) -> Any:
    description = f"Says which {noun} this is."
    if kind == default:
        return Annotated[str, Constant(kind)], Field(default=kind, description=description)
    return Annotated[str, Constant(kind)], Field(description=description)


def _field(model: str, parameter: Parameter, nested: Nested | None) -> Any:
    annotation = _annotation(model, parameter, nested)
    if parameter.required:
        return Annotated[annotation, NotNull()], Field(description=parameter.description)
    # left out, a key is None, so that what is written can be told from it; editors see the default all the same
    default = {"default": shown(parameter.default)}
    return Annotated[annotation | None, NotNull()], Field(
        default=None, description=parameter.description, json_schema_extra=default
    )


def _annotation(model: str, parameter: Parameter, nested: Nested | None) -> Any:
    match parameter.type:
        case ParameterType.LIST:
            assert parameter.item is not None
            item: Any = Annotated[_annotation(model, parameter.item, nested), NotNull()]
            return Annotated[list[item], Length(int(parameter.low or 0), int(parameter.high or MAX_LIST))]
        case ParameterType.SECTION:
            return declared_model(f"{model}-{parameter.name}", parameter.fields, nested=nested)
        case ParameterType.WORKLOAD | ParameterType.TRANSPORT:
            assert nested is not None
            return Annotated[SpecModel, nested(parameter.type)]
    return Annotated[Any, type_of(parameter)]


def type_of(parameter: Parameter) -> Checked:
    """The type of a parameter that has no parts of its own."""
    low, high = parameter.low or 0, parameter.high
    match parameter.type:
        case ParameterType.SIZE:
            return Size(int(low))
        case ParameterType.DURATION:
            return Span(int(low))
        case ParameterType.WHOLE:
            return Whole(int(low), MAX_RANK if high is None else int(high), measure=parameter.measure)
        case ParameterType.NUMBER:
            return Number(low, float("inf") if high is None else high, measure=parameter.measure)
        case ParameterType.CHOICE:
            return OneOf(parameter.choices)
        case ParameterType.FLAG:
            return TrueOrFalse()
        case ParameterType.TEXT:
            return Text(_LONGEST_TEXT)
        case ParameterType.FILE:
            return FileName()
        case ParameterType.RANK:
            return Whole(0, MAX_RANK)
        case ParameterType.RANKS:
            return RankList()
    raise TypeError(f"{parameter.type} has parts of its own")
