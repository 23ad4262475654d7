"""Validation of a document by pydantic models, in our words: every problem with position, code and hint.

`validate_model` is the one entry; models derive from `SpecModel` and take their field types from `fields`.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from testbed.errors import Position, Problem, SpecError
from testbed.names import nearest
from testbed.spec.yaml.document import Document
from testbed.spec.yaml.paths import Path, quote
from testbed.spec.yaml.reader import MAX_PROBLEMS, cap_problems


class SpecModel(BaseModel):
    """A mapping of a file as it is written. Unknown keys are errors.

    `LATER` names keys that will mean something one day, with the reason for refusing them today; `ELSEWHERE` those that
    belong into another section, with a hint that says where.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    LATER: ClassVar[Mapping[str, str]] = {}
    ELSEWHERE: ClassVar[Mapping[str, str]] = {}


_LONG_HINT = 80
"""Characters from which a hint is said only once."""

Model = TypeVar("Model", bound=SpecModel)


def refusal(code: str, message: str, hint: str | None = None) -> PydanticCustomError:
    """The exception by which a field's validator refuses a value, naming the code of the problem."""
    return PydanticCustomError("refusal", "{message}", {"code": code, "message": message, "hint": hint or ""})


def validate_model(model_class: type[Model], document: Document, path: Path = ()) -> Model:
    """The mapping at `path` of `document` as an instance of `model_class`.

    Raises `SpecError` with every problem, in the order of the file.
    """
    try:
        return model_class.model_validate(document.get(path))
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=True)
        details.sort(key=lambda detail: _order(document.position((*path, *detail["loc"]))))
        problems = [_problem(model_class, document, path, detail) for detail in details[:MAX_PROBLEMS]]
    raise SpecError(ready_to_show(problems, left_out=len(details) - len(problems)))


def in_file_order(problems: Iterable[Problem]) -> list[Problem]:
    """Sorted by position; those of overrides, which have none, last."""
    return sorted(problems, key=lambda problem: _order(problem.position))


def _order(position: Position | None) -> tuple[bool, Position]:
    return position is None, position or Position(0, 0)


def ready_to_show(problems: Iterable[Problem], left_out: int = 0) -> list[Problem]:
    """In the order of the file, capped, long hints said once. `left_out` were not even looked at."""
    said: set[str] = set()
    shown = []
    for problem in cap_problems(in_file_order(problems), left_out):
        hint = problem.hint
        if hint is not None and len(hint) > _LONG_HINT:
            problem = replace(problem, hint=None if hint in said else hint)  # noqa: PLW2901
            said.add(hint)
        shown.append(problem)
    return shown


def _problem(model_class: type[SpecModel], document: Document, base: Path, detail: ErrorDetails) -> Problem:
    location = detail["loc"]
    key = bool(location) and location[-1] == "[key]"
    if key:
        location = location[:-1]
    path = (*base, *location)
    context = detail.get("ctx", {})
    match detail["type"]:
        case "refusal":
            hint = context["hint"] or None
            return document.problem(context["code"], path, context["message"], hint=hint, key=key)
        case "extra_forbidden":
            return _unknown_key(model_class, document, path, location)
        case "missing":
            where = "" if len(path) == 1 else " in this section"
            message = f"the key '{path[-1]}' is missing{where}"
            description = _field_of(model_class, location)
            hint = f"add '{path[-1]}: ...', the {description}" if description else f"add '{path[-1]}: ...'"
            return document.problem("missing-key", path, message, hint=hint, key=True)
        case "model_type" | "model_attributes_type" | "dict_type":
            message = f"must be a mapping of keys to values, not {quote(detail['input'])}"
            known = _known_keys(_models_at(model_class, location))
            hint = f"its keys are {', '.join(known)}" if known else "write 'key: value' on the lines below, indented"
            if isinstance(detail["input"], str) and ":" in detail["input"]:
                hint = "write a space after the colon"
        case "list_type":
            message, hint = f"must be a list, not {quote(detail['input'])}", "write [a, b], or one '- ' line for each"
        case "string_type":
            message, hint = f"must be text, not {quote(detail['input'])}", "put it in quotes"
        case "too_short" | "too_long":
            wanted = context.get("min_length", context.get("max_length"))
            message = f"must have {wanted} entries, not {context['actual_length']}"
            hint = _field_of(model_class, location)
        case _:
            message, hint = detail["msg"], None
    return document.problem("wrong-type", path, message, hint=hint)


def _unknown_key(model_class: type[SpecModel], document: Document, path: Path, location: Path) -> Problem:
    key = str(location[-1])
    models = list(_models_at(model_class, location[:-1]))
    for model in models:
        if key in model.LATER:
            return document.problem("not-built", path, f"'{key}': {model.LATER[key]}", hint="remove the key", key=True)
    known = _known_keys(models)
    elsewhere = next((model.ELSEWHERE[key] for model in models if key in model.ELSEWHERE), None)
    meant = nearest(key, known) or nearest(key.lower(), known)
    hint = f"did you mean '{meant}'?" if meant else f"known here: {', '.join(known)}"
    hint = elsewhere or hint
    if key == "<<":
        hint = "merge keys are not accepted; what nodes share belongs under topology.groups, kinds or defaults"
    return document.problem("unknown-key", path, f"unknown key {quote(key)}", hint=hint, key=True)


def _known_keys(models: Iterable[type[SpecModel]]) -> list[str]:
    return sorted({name for model in models for name in model.model_fields})


def _field_of(model_class: type[SpecModel], location: Path) -> str | None:
    """What the description of a field says."""
    for model in _models_at(model_class, location[:-1]):
        field = model.model_fields.get(str(location[-1]))
        if field is not None and field.description:
            return field.description
    return None


def _models_at(model_class: type[SpecModel], location: Path) -> Iterator[type[SpecModel]]:
    """The models that may stand at `location` below `model_class`."""
    current: list[Any] = [model_class]
    for part in location:
        below: list[Any] = []
        for annotation in current:
            for step in _unwrapped(annotation):
                if isinstance(step, type) and issubclass(step, SpecModel):
                    field = step.model_fields.get(str(part))
                    if field is not None:
                        below.append(field.annotation)
                elif get_origin(step) in (dict, list):
                    below.append(get_args(step)[-1])
        current = below
    for annotation in current:
        for step in _unwrapped(annotation):
            if isinstance(step, type) and issubclass(step, SpecModel):
                yield step


def _unwrapped(annotation: Any) -> Iterator[Any]:
    """The alternatives of an annotation, without `Annotated` and `None`."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _unwrapped(get_args(annotation)[0])
    elif origin in (Union, types.UnionType):
        for alternative in get_args(annotation):
            yield from _unwrapped(alternative)
    else:
        yield annotation
