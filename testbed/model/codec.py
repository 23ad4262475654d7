"""A resolved lab as JSON data and back: what the state directory keeps, so that no verb needs the file again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from testbed.model.lab import Lab

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_adapter: TypeAdapter[Lab] | None = None


def _lab_adapter() -> TypeAdapter[Lab]:
    """Built on first use: pydantic takes 0.2 s to import."""
    global _adapter  # noqa: PLW0603 - a cache of one
    if _adapter is None:
        from pydantic import TypeAdapter

        _adapter = TypeAdapter(Lab)
    return _adapter


def encode_lab(lab: Lab) -> dict[str, Any]:
    """JSON-ready data from which `decode_lab` rebuilds an equal `Lab`. Needs no schema, and so no pydantic."""
    from pydantic_core import to_jsonable_python

    data: dict[str, Any] = to_jsonable_python(lab)
    return data


def decode_lab(data: Mapping[str, Any]) -> Lab:
    """The lab that `encode_lab` wrote. Raises `ValueError` for anything else."""
    return _lab_adapter().validate_python(data)
