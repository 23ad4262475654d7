"""Data classes that cost little to declare: their methods are made when they are first used.

`dataclasses.dataclass` writes and compiles the source of up to eight methods for each class, which takes most of a
millisecond. A command imports two hundred such classes and makes values of a few, so that this was a quarter of its
time. `install` has the classes that are declared from then on in this process made by `dataclass` here: the fields are
those of the standard library, `__init__` is compiled when it is called first, and the others need no source of their
own. Whatever is more than a plain class of fields (order, `InitVar`, a base that is a data class), and a class of a
compiled module, whose fields are no attributes of Python's, is left to the standard library.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any

_STANDARD: Any = dataclasses.dataclass
_KNOWN = frozenset({"frozen", "slots", "kw_only"})
_FROZEN = ("__setattr__", "__delattr__")


def install() -> None:
    """Have data classes of this process be made here. A program does this as a whole, and first of all."""
    dataclasses.dataclass = dataclass


def dataclass(cls: type | None = None, /, **options: Any) -> Any:
    """Make a data class, as `dataclasses.dataclass` does."""

    def make(plain: type) -> type:
        return _quick(plain, **options) if _is_simple(plain, options) else _STANDARD(plain, **options)

    return make if cls is None else make(cls)


def _is_simple(cls: type, options: Mapping[str, Any]) -> bool:
    """Tell whether a class is nothing but fields, and has a docstring, which would be made of its signature else."""
    source = getattr(sys.modules.get(cls.__module__), "__file__", None) or ""  # a compiled module has none so far
    return (
        source.endswith(".py")
        and options.keys() <= _KNOWN
        and bool(cls.__doc__)
        and "__slots__" not in cls.__dict__
        and not any(hasattr(base, "__dataclass_fields__") for base in cls.__mro__[1:])
        and not any("InitVar" in str(kind) for kind in inspect.get_annotations(cls).values())
        and not (options.get("frozen") and any(name in cls.__dict__ for name in _FROZEN))
    )


def _quick(cls: type, *, frozen: bool = False, slots: bool = False, kw_only: bool = False) -> type:
    own = dict(cls.__dict__)
    made: Any = _STANDARD(cls, init=False, repr=False, eq=False, kw_only=kw_only)  # its fields, and no method
    fields: Sequence[Field[Any]] = dataclasses.fields(made)
    for name, value in (("init", True), ("repr", True), ("eq", True), ("frozen", frozen)):
        setattr(made.__dataclass_params__, name, value)

    def final() -> Any:
        return result

    methods = {name: method for name, method in _methods(fields, final, frozen=frozen).items() if name not in own}
    if not frozen and "__hash__" not in own:
        methods["__hash__"] = None
    if slots:
        result = _with_slots(made, fields, methods, frozen=frozen)
    else:
        for name, method in methods.items():
            setattr(made, name, method)
        result = made
    return result


def _methods(fields: Sequence[Field[Any]], final: Callable[[], Any], *, frozen: bool) -> dict[str, Any]:
    """The methods of a class that `final` returns once it is there."""
    names = frozenset(item.name for item in fields)
    compared = _getter([item.name for item in fields if item.compare])
    hashed = _getter([item.name for item in fields if (item.compare if item.hash is None else item.hash)])
    shown = [item.name for item in fields if item.repr]

    def __init__(self: Any, *arguments: Any, **keywords: Any) -> None:  # noqa: N807
        kind: Any = final()
        kind.__init__ = compiled = _compiled_init(kind, fields, frozen=frozen)
        compiled(self, *arguments, **keywords)

    def __eq__(self: Any, other: object) -> bool:  # noqa: N807
        return compared(self) == compared(other) if other.__class__ is self.__class__ else NotImplemented

    @recursive_repr()
    def __repr__(self: Any) -> str:  # noqa: N807
        return f"{self.__class__.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    found: dict[str, Any] = {"__init__": __init__, "__eq__": __eq__, "__repr__": __repr__}
    if not frozen:
        return found

    def __hash__(self: Any) -> int:  # noqa: N807
        return hash(hashed(self))

    def __setattr__(self: Any, name: str, value: object) -> None:  # noqa: N807
        if type(self) is final() or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        object.__setattr__(self, name, value)

    def __delattr__(self: Any, name: str) -> None:  # noqa: N807
        if type(self) is final() or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        object.__delattr__(self, name)

    return found | {"__hash__": __hash__, "__setattr__": __setattr__, "__delattr__": __delattr__}


def _getter(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return what gives the values of these attributes as a tuple."""
    match names:
        case []:
            return lambda _: ()
        case [name]:
            return lambda value: (getattr(value, name),)
    return attrgetter(*names)


def _compiled_init(kind: type, fields: Sequence[Field[Any]], *, frozen: bool) -> Callable[..., None]:
    scope: dict[str, Any] = {"_set": object.__setattr__, "_missing": MISSING}
    positional: list[str] = []
    keywords: list[str] = []
    lines: list[str] = []
    for item in fields:
        name, default = item.name, f"_default_{item.name}"
        value, parameter = name, name
        if item.default_factory is not MISSING:
            scope[default] = item.default_factory
            parameter = f"{name}=_missing"
            value = f"{default}() if {name} is _missing else {name}" if item.init else f"{default}()"
        elif item.default is not MISSING:
            scope[default] = item.default
            parameter = f"{name}={default}"
            value = name if item.init else default
        elif not item.init:
            continue
        if item.init:
            (keywords if item.kw_only else positional).append(parameter)
        lines.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(kind, "__post_init__"):
        lines.append("self.__post_init__()")
    taken = ", ".join(["self", *positional, *(["*", *keywords] if keywords else [])])
    exec(f"def __init__({taken}):\n " + "\n ".join(lines or ["pass"]), scope)
    made: Callable[..., None] = scope["__init__"]
    return made


def _with_slots(made: type, fields: Sequence[Field[Any]], methods: Mapping[str, Any], *, frozen: bool) -> type:
    """The class once more, with its fields as slots."""
    body = dict(made.__dict__)
    inherited = {name for base in made.__mro__[1:] for name in getattr(base, "__slots__", ())}
    for item in fields:
        body.pop(item.name, None)
    for name in ("__dict__", "__weakref__"):
        body.pop(name, None)
    body |= methods
    body["__slots__"] = tuple(item.name for item in fields if item.name not in inherited)
    if frozen:
        body.setdefault("__getstate__", _state)
        body.setdefault("__setstate__", _set_state)
    result = type(made)(made.__name__, made.__bases__, body)
    result.__qualname__ = made.__qualname__
    return result


def _state(self: Any) -> list[Any]:
    """Return what is pickled of a frozen value with slots, as the standard library does: it may be at the other end."""
    return [getattr(self, item.name) for item in dataclasses.fields(self)]


def _set_state(self: Any, state: Sequence[Any]) -> None:
    for item, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, item.name, value)
