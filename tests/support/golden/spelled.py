"""Data classes as text, field by field, for golden files that leave nothing out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum


def spelled(value: object) -> str:
    """A value on one line: of a data class its name, and the fields that are not what they are by default."""
    if is_dataclass(value) and type(value).__str__ is object.__str__:
        return f"{type(value).__name__}({', '.join(f'{name}={spelled(item)}' for name, item in own_fields(value))})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {spelled(item)}' for key, item in value.items())}}}"
    if isinstance(value, list | tuple | frozenset):
        return f"[{', '.join(map(spelled, value))}]"
    return str(value.value if isinstance(value, Enum) else value)


def own_fields(value: object) -> Iterator[tuple[str, object]]:
    """The fields of a data class that are not what they are by default."""
    for field in fields(value):  # type: ignore[arg-type]
        item = getattr(value, field.name)
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if item != default:
            yield field.name, item


def spelled_lines(value: object, name: str, indent: str = "") -> Iterator[str]:
    """A value on lines of its own: each element of a list or a mapping has one, or several where it has elements."""
    if isinstance(value, Mapping):
        yield f"{indent}{name}:"
        for key, item in value.items():
            yield from spelled_lines(item, str(key), f"{indent}  ")
    elif isinstance(value, list | tuple) and any(map(is_dataclass, value)):
        yield f"{indent}{name}:"
        for item in value:
            yield from spelled_lines(item, "-", f"{indent}  ")
    elif is_dataclass(value) and any(_is_long(item) for _, item in own_fields(value)):
        short = (f"{key}={spelled(item)}" for key, item in own_fields(value) if not _is_long(item))
        yield f"{indent}{name} {' '.join([type(value).__name__, *short])}"
        for key, item in own_fields(value):
            if _is_long(item):
                yield from spelled_lines(item, key, f"{indent}  ")
    else:
        short = (f"{key}={spelled(item)}" for key, item in own_fields(value)) if is_dataclass(value) else ()
        yield f"{indent}{name} {' '.join([type(value).__name__, *short]) if is_dataclass(value) else spelled(value)}"


def _is_long(value: object) -> bool:
    """Tell whether a value is or has data classes, so that it gets lines of its own."""
    if isinstance(value, Mapping):
        return True
    return is_dataclass(value) if not isinstance(value, list | tuple) else any(map(is_dataclass, value))
