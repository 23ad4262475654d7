"""Paths of gNMI (section 2.2.2 of its specification): elements with keys, and patterns of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Element = tuple[str, tuple[tuple[str, str], ...]]
"""A name, and its keys in the order of their names."""
TreePath = tuple[Element, ...]
ANY, ANY_DEPTH = "*", "..."
MAX_ELEMENTS = 32


class PathError(ValueError):
    """A path that is none."""


def element(name: str, keys: Mapping[str, str] | None = None) -> Element:
    """Make an element. Raises `PathError` for one without a name."""
    if not name:
        raise PathError("an element of a path has no name")
    return name.rpartition(":")[2], tuple(sorted((keys or {}).items()))


def path_text(path: Iterable[Element]) -> str:
    """Write a path for a person."""
    return "".join(f"/{name}{''.join(f'[{key}={value}]' for key, value in keys)}" for name, keys in path) or "/"


def covers(pattern: TreePath, path: TreePath) -> int | None:
    """Return how many elements of a path a pattern stands for, whatever follows them; None: it is another path.

    An element without keys, or with a key `*`, stands for all entries of a list.
    """
    return _covers(pattern, path, 0)


def _covers(pattern: TreePath, path: TreePath, at: int) -> int | None:
    for place, wanted in enumerate(pattern):
        if wanted[0] == ANY_DEPTH:
            rest = pattern[place + 1 :]
            found = (_covers(rest, path, start) for start in range(at, len(path) + 1))
            return next((count for count in found if count is not None), None)
        if at >= len(path) or not _same(wanted, path[at]):
            return None
        at += 1
    return at


def _same(wanted: Element, there: Element) -> bool:
    if wanted[0] not in (ANY, there[0]):
        return False
    keys = dict(there[1])
    return all(value == ANY or keys.get(key) == value for key, value in wanted[1])
