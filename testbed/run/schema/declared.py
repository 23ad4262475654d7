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


class _OfOtherKinds(Mapping[str, Any]):
    """Words that other kinds of a section have, each with a hint that says whose it is, beside those of `base`.

    They are looked at where a word is wrong: until then the other kinds need not be declared.
    """

    def __init__(
        self,
        noun: str,
        kind: str,
        kinds: Mapping[str, tuple[Parameter, ...]],
        words_of: Callable[[Parameter], Sequence[str]],
        say: Callable[[str, str, bool], str],
        base: Mapping[str, Any],
    ) -> None:
        """`words_of` gives what a parameter has of such words. `say` makes a hint of a word, its owners, and whether
        they are several."""
        self._noun, self._kind, self._kinds = noun, kind, kinds
        self._words_of, self._say, self._base = words_of, say, base

    @cached_property
    def _hints(self) -> Mapping[str, Any]:
        owners: dict[str, dict[str, None]] = {}
        for kind, parameters in self._kinds.items():
            for parameter in parameters:
                for word in self._words_of(parameter):
                    owners.setdefault(word, {})[kind] = None
        return dict(self._base) | {
            word: self._say(word, self._named([*others]), len(others) > 1)
            for word, others in owners.items()
            if self._kind not in others
        }

    def _named(self, kinds: Sequence[str]) -> str:
        more = ", ..." if len(kinds) > _MOST_KINDS_NAMED else ""
        return f"the {self._noun}{'s' if len(kinds) > 1 else ''} {', '.join(kinds[:_MOST_KINDS_NAMED])}{more}"

    def __getitem__(self, key: str) -> Any:
        return self._hints[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._hints)

    def __len__(self) -> int:
        return len(self._hints)

    def __eq__(self, other: object) -> bool:
        return self is other  # to compare what is in it would declare all kinds

    def __hash__(self) -> int:
        return id(self)


Choices = Callable[[Parameter], Mapping[str, str]]
"""Gives hints for words that are no choice of a parameter."""


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
        def choices(of: Parameter) -> Mapping[str, str]:
            """The choices that parameters of this name have in other kinds."""

            def say(word: str, owners: str, several: bool) -> str:
                return f"{owners} {'have' if several else 'has'} {of.name}: {word}"

            return _OfOtherKinds(noun, kind, kinds, lambda one: one.choices if one.name == of.name else (), say, {})

        def say_key(word: str, owners: str, _: bool) -> str:
            return f"{word} is a key of {owners}"

        model = declared_model(
            f"{prefix or noun}-{kind}",
            kinds[kind],
            base=base,
            nested=nested,
            choices=choices,
            kind=_kind_field(noun, kind, default),
        )
        model.ELSEWHERE = _OfOtherKinds(noun, kind, kinds, lambda one: [one.name], say_key, base.ELSEWHERE)
        model.__doc__ = (descriptions or {}).get(kind)
        return model

    return LazyMapping(kinds, make)


def declared_model(
    name: str,
    parameters: Sequence[Parameter],
    *,
    base: type[SpecModel] = SpecModel,
    nested: Nested | None = None,
    choices: Choices | None = None,
    **more: Any,
) -> type[SpecModel]:
    """A model with these keys, those of `base`, and `more` fields as pydantic takes them."""
    fields = {parameter.name: _field(name, parameter, nested, choices) for parameter in parameters}
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


def _field(model: str, parameter: Parameter, nested: Nested | None, choices: Choices | None) -> Any:
    annotation = _annotation(model, parameter, nested)
    if parameter.type is ParameterType.CHOICE and choices is not None:
        annotation = Annotated[Any, OneOf(parameter.choices, hints=choices(parameter))]
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
