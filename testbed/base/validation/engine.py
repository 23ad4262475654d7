"""The one reader of files as models: `validate_model` gives a section as an instance of its class, or all its problems.

Problems are in our words and in the order of the file, each with position, code and hint. How sections are declared,
`model` says.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError

from testbed.base.errors import Position, Problem, SpecError
from testbed.base.names import NODE_NAME, nearest
from testbed.base.validation.by_kind import ByKind
from testbed.base.validation.fields import OneOf, as_list, switch_word
from testbed.base.validation.model import SpecModel
from testbed.base.validation.synonyms import key_called, said_otherwise
from testbed.base.yaml.document import Document
from testbed.base.yaml.paths import Path, format_path, quote
from testbed.base.yaml.reader import cap_problems

_MOST_LOOKED_AT = 1000
"""Problems of a file whose words are looked for."""
_MOST_LINES = 8
"""Lines that are told of a word that is wrong in many."""
_ABOUT_A_WORD = frozenset({"bad-name", "unknown-key", "unknown-kind", "unknown-node"})
"""Codes of problems that are the same wherever the same word stands: they are told once."""
_MOST_SECTIONS = 2
"""Sections that a hint names for a key that stands in another one."""
_LIKE = 0.65
"""The likeness above which an unknown key may have been meant as a known one: `window` is none of `kind`."""
_MISSPELT = 0.8
"""From this likeness on, an unknown key is taken for a misspelt one rather than for a key of another section."""
_DEEPEST = 4
"""The levels below a section on which a key is looked for."""
_LONG_HINT = 120
"""Characters from which a hint is said only once."""

Model = TypeVar("Model", bound=SpecModel)


def validate_model(model_class: type[Model], document: Document, path: Path = ()) -> Model:
    """The mapping at `path` of `document` as an instance of `model_class`.

    Raises `SpecError` with every problem, in the order of the file.
    """
    try:
        return model_class.model_validate(document.get(path))
    except ValidationError as error:
        levels: _Levels = {}
        places = [_Place.of(model_class, document, path, detail, levels) for detail in _details(error)]
    places.sort(key=lambda place: _order(place.position))
    problems = [place.problem() for place in places[:_MOST_LOOKED_AT]]
    raise SpecError(ready_to_show(problems, left_out=len(places) - len(problems)))


def validate_whole(model_class: type[Model], document: Document, path: Path = ()) -> Model | None:
    """Return the instance; None where there are problems, which are reported with the file as a whole."""
    try:
        return model_class.model_validate(document.get(path))
    except ValidationError:
        return None


def validate_partly(model_class: type[Model], document: Document, path: Path = ()) -> Model | None:
    """Return an instance of those keys whose values are right; None where that is not enough of a section.

    For checks of keys against each other: the wrong ones are reported by `validate_model`, with the whole file.
    """
    data = document.get(path)
    try:
        return model_class.model_validate(data)
    except ValidationError as error:
        wrong = {detail["loc"][0] for detail in _details(error) if detail["loc"]}
    if not isinstance(data, dict):
        return None
    try:
        return model_class.model_validate({key: value for key, value in data.items() if key not in wrong})
    except ValidationError:
        return None


def _details(error: ValidationError) -> list[ErrorDetails]:
    return error.errors(include_url=False, include_input=True)


def in_file_order(problems: Iterable[Problem]) -> list[Problem]:
    """Sorted by position; those of overrides, which have none, last."""
    return sorted(problems, key=lambda problem: _order(problem.position))


def _order(position: Position | None) -> tuple[bool, Position]:
    return position is None, position or Position(0, 0)


def ready_to_show(problems: Iterable[Problem], left_out: int = 0) -> list[Problem]:
    """Return the problems in the order of the file, capped, with long hints said once.

    `left_out` were not even looked at.
    """
    said: set[str] = set()
    shown = []
    for problem in cap_problems(_once_per_word(in_file_order(problems)), left_out):
        hint = problem.hint
        if hint is not None and len(hint) > _LONG_HINT:
            problem = replace(problem, hint=None if hint in said else hint)  # noqa: PLW2901
            said.add(hint)
        shown.append(problem)
    return shown


def _once_per_word(problems: Sequence[Problem]) -> Iterator[Problem]:
    """The problems, of those about one word the first, with the lines of the others."""
    others: dict[object, list[Problem]] = {}
    for problem in problems:
        others.setdefault(_word(problem), []).append(problem)
    for first, *more in others.values():
        lines = sorted({one.position.line for one in more if one.position and one.position != first.position})
        if lines:
            told = ", ".join(map(str, lines[:_MOST_LINES])) + (", ..." if len(lines) > _MOST_LINES else "")
            message = f"{first.message} (also in line{'s' if len(lines) > 1 else ''} {told})"
            yield replace(first, message=message)
        else:
            yield first


def _word(problem: Problem) -> object:
    """A key that problems about one word share; any other problem is its own key."""
    about_a_word = problem.code in _ABOUT_A_WORD
    return (problem.code, problem.file, problem.message, problem.hint) if about_a_word else problem


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """An error of pydantic, and the place of the file that it is about with the models that may stand there."""

    document: Document
    detail: ErrorDetails
    path: Path
    is_key: bool
    """It is about a key of a mapping of names to sections, not about what stands below."""
    models: tuple[type[SpecModel], ...]
    field: FieldInfo | None
    around: tuple[type[SpecModel], ...]
    root: type[SpecModel]
    """The model of all that was read."""
    levels: _Levels
    """The sections below those of the file, which all its errors share."""

    @classmethod
    def of(
        cls, model_class: type[SpecModel], document: Document, base: Path, detail: ErrorDetails, levels: _Levels
    ) -> _Place:
        location = detail["loc"]
        is_key = bool(location) and location[-1] == "[key]"
        path: list[str | int] = list(base)
        candidates: list[Any] = [model_class]
        around: tuple[type[SpecModel], ...] = ()
        field = None
        for part in location[:-1] if is_key else location:
            steps = [step for annotation in candidates for step in _unwrapped(annotation)]
            tagged = [step.model_tagged(part) for step in steps if isinstance(step, ByKind)]
            if any(tagged):
                candidates = [model for model in tagged if model is not None]
                continue
            path.append(part)
            around = _models(steps)
            fields = [found for model in around if (found := model.model_fields.get(str(part))) is not None]
            field = fields[0] if fields else None
            candidates = [_annotation(one) for one in fields]
            candidates += [get_args(step)[-1] for step in steps if get_origin(step) in (dict, list)]
        models = _models(step for annotation in candidates for step in _unwrapped(annotation))
        return cls(
            document=document,
            detail=detail,
            path=tuple(path),
            is_key=is_key,
            models=models,
            field=field,
            around=around,
            root=model_class,
            levels=levels,
        )

    @property
    def position(self) -> Position | None:
        return self.document.position(self.path)

    def problem(self) -> Problem:
        """Return what is wrong, in our words."""
        detail, context = self.detail, self.detail.get("ctx", {})
        match detail["type"]:
            case "refusal":
                path = (*self.path, context["key"]) if context["key"] else self.path
                hint = context["hint"]
                hint = (hint(self.document, self.path) if callable(hint) else hint) or None
                return self._problem(context["code"], context["message"], hint, path=path, key=self.is_key)
            case "extra_forbidden":
                return self._unknown_key()
            case "missing":
                where = "" if len(self.path) == 1 else " in this section"
                name = self.path[-1]
                said = f", which {described}" if (described := self._description()) else ""
                hint = f"add '{name}: ...'{said}"
                return self._problem("missing-key", f"the key '{name}' is missing{where}", hint, key=True)
            case "model_type" | "model_attributes_type" | "dict_type":
                message = f"must be a mapping of keys to values, not {quote(detail['input'])}"
                return self._problem("wrong-type", message, self._mapping_hint())
            case "list_type":
                message = f"must be a list, not {quote(detail['input'])}"
                return self._problem("wrong-type", message, self._list_hint())
            case "string_type":
                return self._problem("wrong-type", f"must be text, not {quote(detail['input'])}", "put it in quotes")
            case "length":
                return self._problem("wrong-type", detail["msg"], f"it {self._description()}")
            case _:
                return self._problem("wrong-type", detail["msg"])

    def _problem(
        self, code: str, message: str, hint: str | None = None, *, path: Path | None = None, key: bool = False
    ) -> Problem:
        return self.document.problem(code, self.path if path is None else path, message, hint=hint, key=key)

    def _mapping_hint(self) -> str:
        """Return what to write where keys and values are wanted: the value at the key that takes it, if one does."""
        value = self.detail["input"]
        if isinstance(value, str) and not any(letter.isspace() for letter in value):
            key, colon, _ = value.partition(":")
            if colon and key in (_known_keys(self.models) or (key,)):
                return "write a space after the colon"
        if (switch := switch_word(value)) is not None and self.models:
            if not switch:
                return f"leave {self.path[-1]} out for the default"
            if not any(field.is_required() for model in self.models for field in model.model_fields.values()):
                return f"write {self.path[-1]}: {{}}"
        if not isinstance(value, bool | list | None):
            for model in self.models:
                if taking := _taking(model, value):
                    return f"write {{{taking}: {quote(value)}}}"
        known = _known_keys(self.models)
        if isinstance(value, str) and {"rate", "count"} <= set(known) and (several := _SEVERAL.fullmatch(value)):
            return f"write {{rate: {several[2]}, count: {several[1]}}}"
        for model in self.models if isinstance(value, str) else ():
            if main := next((key for key in _MAIN_KEYS if key in model.model_fields), None):
                return f"write {{{main}: ...}}, one of {', '.join(_words(model.model_fields[main]))}"
        if known:
            needed = [
                f"; {key} {_sentence(field)}"
                for model in self.models
                for key, field in model.model_fields.items()
                if field.is_required()
            ]
            return f"its keys are {', '.join(known)}{''.join(needed)}"
        if isinstance(value, list) and value and all(isinstance(one, str) and NODE_NAME.match(one) for one in value):
            return f"write {{{', '.join(f'{entry}: {{}}' for entry in value[:_MOST_LINES])}}}"
        return "write 'key: value' on the lines below, indented"

    def _list_hint(self) -> str:
        """Return what to write where a list is wanted."""
        value = self.detail["input"]
        annotations = [] if self.field is None else [*_unwrapped(_annotation(self.field))]
        entries = _models(one for step in annotations for arg in get_args(step)[-1:] for one in _unwrapped(arg))
        if not isinstance(value, dict) and not entries:
            if value in _ALL and "default is all" in self._description():
                return f"leave {self.path[-1]} out: the default is all"
            return as_list(value) if isinstance(value, str | int | float) else "write [a, b]"
        needed = [key for model in entries for key, field in model.model_fields.items() if field.is_required()]
        example = f", such as - {{{', '.join(f'{key}: ...' for key in needed)}}}" if needed else ""
        return f"write one '- ' line for each entry{example}"

    def _unknown_key(self) -> Problem:
        key = str(self.path[-1])
        for model in self.around:
            if key in model.LATER:
                return self._problem("not-built", f"'{key}': {model.LATER[key]}", "remove the key", key=True)
        known = _known_keys(self.around)
        meant = key_called(key, known) or nearest(key, known, least=_LIKE) or nearest(key.lower(), known, least=_LIKE)
        hint = f"did you mean '{meant}'?" if meant else f"known here: {', '.join(known) or 'none'}"
        if key_called(key, known) is None and nearest(key, known, least=_MISSPELT) is None:
            hint = self._hint_elsewhere(key) or hint
        if (ours := said_otherwise(key, self.detail["input"])) is not None:
            where = "" if ours[0] in known else self._hint_elsewhere(ours[0])
            hint = f"write {': '.join(ours)}{f': {where}' if where else ''}"
        if ":" in key:
            hint = "write a space after the colon"
        if key == "<<":
            hint = "merge keys are not accepted; what nodes share belongs under topology.groups, kinds or defaults"
        said = quote(key)
        section, dot, rest = key.partition(".")
        if dot and section in known:
            hint = f"write {section}: {{{rest}: {quote(self.detail['input'])}}}: keys with dots are for --set only"
        match next(
            (model.ELSEWHERE[one] for one in (key, section) for model in self.around if one in model.ELSEWHERE), None
        ):
            case str(hint):
                pass
            case Mapping() as by_value:
                value = str(self.detail["input"])
                said, hint = f"{said}: {quote(value)}", by_value.get(value, by_value[""])
        return self._problem("unknown-key", f"unknown key {said}", hint, key=True)

    def _hint_elsewhere(self, key: str) -> str | None:
        """Return in which sections an unknown key belongs: those nearest below this one that have it, else of all."""
        if key in self.root.model_fields and self.root not in self.around and self.position is not None:
            return f"{key} is a section of its own: write it at the begin of a line"
        for models, below, path in ((self.around, True, self.path[:-1]), ((self.root,), False, ())):
            sections = self._sections_with(key, models, path)
            value = self.detail["input"]
            section, model = next(iter(sections.items()), (("NAME",), self.root))
            if len(sections) == 1 and below and "NAME" not in section and not isinstance(value, dict | list):
                if self.position is None:  # of the command line, where keys are written with dots
                    return f"write {format_path((*self.path[:-1], *section, key))}={value}"
                if _takes(model, key, value):
                    return f"write {': {'.join((*section, key))}: {quote(value)}{'}' * len(section)}"
            if 0 < len(sections) <= _MOST_SECTIONS:
                return f"it is a key of {' and of '.join('.'.join(section) for section in sections)}"
        return None

    def _sections_with(
        self, key: str, models: tuple[type[SpecModel], ...], path: Path
    ) -> dict[tuple[str, ...], type[SpecModel]]:
        """The sections nearest below these, of which the file has one at `path`, that have a key, by their paths."""
        levels = self.levels.get((models, path))
        if levels is None:
            levels = self.levels[models, path] = _levels_below(models, self.document.get(path))
        for level in levels:
            if found := {below: model for below, model, _ in level if key in model.model_fields}:
                return found
        return {}

    def _description(self) -> str:
        """Return what the key's description says of it, as the end of a sentence."""
        return "" if self.field is None else _sentence(self.field)


def _sentence(field: FieldInfo) -> str:
    text = field.description or ""
    return text[:1].lower() + text[1:].removesuffix(".")


_MAIN_KEYS = ("preset", "protocol", "mode")
"""Keys that say what a section is, where a single word stands in its place."""
_SEVERAL = re.compile(r"([1-9][0-9]{0,3})\s*x\s*([0-9]\S*)")
"""Some links of a rate: 2x400G."""
_ALL = ("all", "*", "any")
_NONSENSE = "?!"


def _taking(model: type[SpecModel], value: object) -> str | None:
    """Return the key of a section that has such a value, where one has; of several that have any text, none."""
    taking = [key for key in model.model_fields if _takes(model, key, value)]
    telling = [key for key in taking if not _takes(model, key, _NONSENSE)]
    return telling[0] if telling else taking[0] if len(taking) == 1 else None


def _words(field: FieldInfo) -> list[str]:
    """Return the words that a field may be, where it is one of some."""
    waiting, words = [_annotation(field)], list[object]()
    while waiting:
        step = waiting.pop()
        words += step.values if isinstance(step, OneOf) else ()
        waiting += get_args(step)
    return [str(word) for word in words]


def _takes(model: type[SpecModel], key: str, value: object) -> bool:
    """Tell whether a key of the section may have this value."""
    try:
        model.model_validate({key: value})
    except ValidationError as error:
        return all(detail["loc"][:1] != (key,) for detail in _details(error))
    return True


def _known_keys(models: Iterable[type[SpecModel]]) -> list[str]:
    return sorted({name for model in models for name in model.model_fields})


_Below = tuple[tuple[str, ...], type[SpecModel], object]
"""A section below another: its path, in which NAME stands for what a file calls entries of one, its model, and what the
file has there."""
_Levels = dict[tuple[tuple[type[SpecModel], ...], Path], list[list[_Below]]]
"""The sections below those that models read at a path of the file, by their depth."""


def _levels_below(models: Iterable[type[SpecModel]], written: object) -> list[list[_Below]]:
    """The sections below some, by their depth. `written` is what the file has there.

    A section whose keys depend on its kind has those of the kind that is written, or of all kinds.
    """
    levels: list[list[_Below]] = [[((), model, written) for model in models]]
    for _ in range(_DEEPEST):
        levels.append([below for one in levels[-1] for below in _sections_below(*one)])
    return levels[1:]


def _sections_below(path: tuple[str, ...], model: type[SpecModel], written: object) -> Iterator[_Below]:
    for name, named, steps in _steps_below(model):
        inner = written.get(name) if isinstance(written, dict) and not named else None
        yield from (((*path, name, *(["NAME"] if named else [])), one, inner) for one in _models_for(steps, inner))


@cache
def _steps_below(model: type[SpecModel]) -> list[tuple[str, bool, tuple[Any, ...]]]:
    """Each key of a section with whether entries of its value have names or places, and what may stand there."""
    found = []
    for name, field in model.model_fields.items():
        for step in _unwrapped(_annotation(field)):
            named = get_origin(step) in (dict, list)
            found.append((name, named, tuple(_unwrapped(get_args(step)[-1])) if named else (step,)))
    return found


def _models_for(steps: Iterable[Any], written: object) -> Iterator[type[SpecModel]]:
    """The models that what is written may be read by; of a section with a `kind` that of its own, if it has one."""
    for step in steps:
        if not isinstance(step, ByKind):
            yield from _models([step])
            continue
        try:
            yield step.choose(written)
        except PydanticCustomError:
            yield from step.models().values()


def _models(steps: Iterable[Any]) -> tuple[type[SpecModel], ...]:
    return tuple(step for step in steps if isinstance(step, type) and issubclass(step, SpecModel))


def _annotation(field: FieldInfo) -> Any:
    """The type of a field with what it is annotated with, which pydantic keeps apart."""
    return Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation


def _unwrapped(annotation: Any) -> Iterator[Any]:
    """The alternatives of an annotation, without `Annotated` and `None`; of a section with a `kind`, its `ByKind`."""
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *metadata = get_args(annotation)
        by_kind = [one for one in metadata if isinstance(one, ByKind)]
        if by_kind:
            yield from by_kind
        else:
            yield from _unwrapped(inner)
    elif origin in (Union, types.UnionType):
        for alternative in get_args(annotation):
            yield from _unwrapped(alternative)
    else:
        yield annotation
