"""A resolved lab as JSON data and back: what the state directory keeps, so that no verb needs the file again.

Data is read by the types of the fields. Pydantic would do it, too, but importing it and making a schema of `Lab` take
longer than all else that a verb such as `list` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from ipaddress import IPv4Network, IPv6Network
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from testbed.lab.core.model.lab import Lab

_Decode = Callable[[Any], Any]


def encode_lab(lab: Lab) -> dict[str, Any]:
    """JSON-ready data from which `decode_lab` rebuilds an equal `Lab`. Needs no schema, and so no pydantic."""
    from pydantic_core import to_jsonable_python

    data: dict[str, Any] = to_jsonable_python(lab)
    return data


def decode_lab(data: Mapping[str, Any]) -> Lab:
    """The lab that `encode_lab` wrote. Raises `ValueError` for anything else."""
    lab: Lab = _decoder(Lab)(data)
    return lab


@cache
def _decoder(kind: Any) -> _Decode:
    """Return what makes values of this type from JSON data. Raises `TypeError` for one that a `Lab` does not have."""
    origin, arguments = get_origin(kind), get_args(kind)
    if is_dataclass(kind):
        return _dataclass_decoder(kind)
    if origin in (Union, UnionType):
        (present,) = (argument for argument in arguments if argument is not NoneType)
        return _optional_decoder(_decoder(present))
    if origin is tuple or origin is frozenset:
        if origin is tuple and arguments[1:] != (Ellipsis,):
            raise TypeError(f"no decoder for {kind}")
        return _sequence_decoder(origin, _decoder(arguments[0]))
    if origin is Mapping:
        return _mapping_decoder(*map(_decoder, arguments))
    if kind in (str, int, float, bool):
        return _scalar_decoder(kind)
    if isinstance(kind, type) and issubclass(kind, Enum | IPv4Network | IPv6Network):
        of_text = _scalar_decoder(str)
        return lambda data: kind(of_text(data))
    raise TypeError(f"no decoder for {kind}")


def _dataclass_decoder(kind: Any) -> _Decode:
    types = get_type_hints(kind)
    decoders = {item.name: _decoder(types[item.name]) for item in fields(kind)}
    required = {item.name for item in fields(kind) if item.default is MISSING and item.default_factory is MISSING}

    def decode(data: Any) -> Any:
        if not isinstance(data, Mapping):
            raise ValueError(f"{kind.__name__}: expected a mapping, got {data!r}")
        if missing := required - data.keys():
            raise ValueError(f"{kind.__name__}: no {', '.join(sorted(missing))}")
        # Fields that are unknown are another version's.
        return kind(**{name: decode(data[name]) for name, decode in decoders.items() if name in data})

    return decode


def _optional_decoder(decode_present: _Decode) -> _Decode:
    return lambda data: None if data is None else decode_present(data)


def _sequence_decoder(kind: Callable[[Any], Any], decode_item: _Decode) -> _Decode:
    def decode(data: Any) -> Any:
        if not isinstance(data, list):
            raise ValueError(f"expected a list, got {data!r}")
        return kind(map(decode_item, data))

    return decode


def _mapping_decoder(decode_key: _Decode, decode_value: _Decode) -> _Decode:
    def decode(data: Any) -> Any:
        if not isinstance(data, Mapping):
            raise ValueError(f"expected a mapping, got {data!r}")
        return {decode_key(key): decode_value(value) for key, value in data.items()}

    return decode


def _scalar_decoder(kind: type) -> _Decode:
    accepted = (int, float) if kind is float else (kind,)

    def decode(data: Any) -> Any:
        if type(data) not in accepted:
            raise ValueError(f"expected {kind.__name__}, got {data!r}")
        return kind(data)

    return decode
