"""A user's word among those that there are."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TypeVar

from testbed.base.errors import WorkloadError
from testbed.base.names import nearest

Name = TypeVar("Name", bound=StrEnum)


def choose(names: type[Name], value: str, field: str) -> Name:
    """Return the member with that value, else raise `WorkloadError` as `check_choice` does."""
    check_choice(value, list(names), field)
    return names(value)


def check_choice(value: str, known: Sequence[str], field: str) -> None:
    """Raise `WorkloadError` of `field` with the values that there are, and the nearest, if `value` is none of them."""
    if value not in known:
        guess = nearest(value, known)
        raise WorkloadError(
            f"no {field.replace('_', ' ')} is called {value!r} (one of {', '.join(known)})",
            field=field,
            hint=f"did you mean {guess}?" if guess else None,
        )
