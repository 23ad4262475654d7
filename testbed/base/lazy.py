"""Mappings whose values are made when they are asked for first: registries that name a thing without importing it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

Value = TypeVar("Value")


class LazyMapping(Mapping[str, Value]):
    """A mapping of the names that are given, in their order. `make` is called once for each name that is looked up.

    Iterating over the names, counting them, and asking whether one is there make nothing.
    """

    def __init__(self, names: Iterable[str], make: Callable[[str], Value]) -> None:
        self._names = dict.fromkeys(names)
        self._make = make
        self._made: dict[str, Value] = {}

    def __getitem__(self, name: str) -> Value:
        if name not in self._made:
            if name not in self._names:
                raise KeyError(name)
            self._made[name] = self._make(name)
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
