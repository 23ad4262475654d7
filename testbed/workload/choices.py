"""A user's word as a member of an enumeration, and numbers that must be large enough."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

from testbed.base.errors import WorkloadError
from testbed.base.names import nearest

Name = TypeVar("Name", bound=StrEnum)


def choose(names: type[Name], value: str, field: str) -> Name:
    """The member with that value. Raises `WorkloadError` with those that there are, and the nearest, of `field`."""
    try:
        return names(value)
    except ValueError:
        guess = nearest(value, list(names))
        raise WorkloadError(
            f"no {field.replace('_', ' ')} is called {value!r} (one of {', '.join(names)})",
            field=field,
            hint=f"did you mean {guess}?" if guess else None,
        ) from None


def require_positive(**numbers: float) -> None:
    """Raise `WorkloadError` for the first number that is not over 0; keywords are the parameters' names."""
    for field, number in numbers.items():
        if not number > 0:
            raise WorkloadError(f"{field} must be over 0, not {number}", field=field)
