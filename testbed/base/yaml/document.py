"""A YAML document as plain data, with the position of every key and value.

Values set by an override (`--set`, a scenario's `set:`) have no position; problems in them name
`OVERRIDE_FILE` instead of the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from testbed.base.errors import Position, Problem, SpecError
from testbed.base.yaml.paths import Path, format_path, parse_path, quote

OVERRIDE_FILE = "<override>"


@dataclass(slots=True)
class Tree:
    """A value and where it stands: a scalar, a mapping or a list. `position` is None where an override has set it.

    `file` is the one it stands in where that is not the document's. `written` is how a file writes a scalar that is no
    text: `0.50`.
    """

    content: Any
    position: Position | None
    key_position: Position | None = None
    file: str | None = None
    written: str | None = None

    @property
    def data(self) -> Any:
        """The value as plain data, anew each time."""
        match self.content:
            case dict():
                return {key: child.data for key, child in self.content.items()}
            case list():
                return [child.data for child in self.content]
        return self.content

    def child(self, part: str | int) -> Tree | None:
        found: Tree | None = None
        match self.content:
            case dict() if isinstance(part, str):
                found = self.content.get(part)
            case list() if isinstance(part, int) and 0 <= part < len(self.content):
                found = self.content[part]
        return found

    def copied(self) -> Tree:
        """A copy that shares no mapping or list with this one."""
        match self.content:
            case dict():
                return replace(self, content={key: child.copied() for key, child in self.content.items()})
            case list():
                return replace(self, content=[child.copied() for child in self.content])
        return replace(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One mapping read from a file. Paths are tuples, or text such as `topology.links[0].rate`."""

    file: str
    root: Tree

    @property
    def data(self) -> dict[str, Any]:
        found = self.root.data
        assert isinstance(found, dict)
        return found

    def has(self, path: Path | str) -> bool:
        """Tell whether a value is written (or set by an override) at `path`."""
        path = _as_path(path)
        return len(self._down(path)) == len(path) + 1

    def get(self, path: Path | str, default: Any = None) -> Any:
        """The plain value at `path`."""
        path = _as_path(path)
        way = self._down(path)
        return way[-1].data if len(way) == len(path) + 1 else default

    def position(self, path: Path | str) -> Position | None:
        """Return where the value at `path` begins; of the nearest enclosing value where there is none."""
        return self._down(_as_path(path))[-1].position

    def key_position(self, path: Path | str) -> Position | None:
        """Return where the key at `path` begins; for an entry of a list, where the entry does."""
        tree = self._down(_as_path(path))[-1]
        return tree.key_position or tree.position

    def problem(
        self, code: str, path: Path | str, message: str, *, hint: str | None = None, key: bool = False
    ) -> Problem:
        """A problem with the value (or the key) at `path`, or with what is missing there."""
        path = _as_path(path)
        way = self._down(path)
        missing = len(way) < len(path) + 1
        position = way[-1].key_position or way[-1].position if key or missing else way[-1].position
        overridden = way[-1].position is None
        file = next((tree.file for tree in reversed(way) if tree.file is not None), self.file)
        return Problem(
            code=code,
            file=OVERRIDE_FILE if overridden else file,
            path=format_path(path),
            message=message,
            position=None if overridden else position,
            hint=hint,
        )

    def with_overrides(self, overrides: Mapping[str, object]) -> Document:
        """A copy in which each dotted key has the given value; missing sections are made.

        Raises `SpecError` with all the keys that are none, or that lead through a value.
        """
        return self.with_trees({dotted: _overridden(value) for dotted, value in overrides.items()})

    def with_trees(self, trees: Mapping[str, Tree]) -> Document:
        """Return a copy with values that stand somewhere, as `with_overrides`; problems with them name that place."""
        root = self.root.copied()
        problems = []
        for dotted, tree in trees.items():
            try:
                _set(root, parse_path(dotted), tree)
            except ValueError as error:
                problems.append(
                    Problem(
                        code="bad-override",
                        file=OVERRIDE_FILE if tree.position is None else tree.file or self.file,
                        message=str(error),
                        position=tree.position,
                        hint="write dotted keys of the file: fabric.hosts=4, topology.links[0].rate=100G",
                    )
                )
        if problems:
            raise SpecError(problems)
        return Document(file=self.file, root=root)

    def tree(self, path: Path | str) -> Tree | None:
        """The value at `path` and where it stands, as `with_trees` takes it."""
        path = _as_path(path)
        way = self._down(path)
        if len(way) < len(path) + 1:
            return None
        return replace(way[-1], file=way[-1].file or self.file)

    def _down(self, path: Path) -> list[Tree]:
        way = [self.root]
        for part in path:
            child = way[-1].child(part)
            if child is None:
                break
            way.append(child)
        return way


def _as_path(path: Path | str) -> Path:
    if isinstance(path, tuple):
        return path
    return parse_path(path) if path else ()


def _overridden(value: object) -> Tree:
    """A tree of a value that stands in no file."""
    match value:
        case Mapping():
            return Tree({str(key): _overridden(entry) for key, entry in value.items()}, None)
        case list() | tuple():
            return Tree([_overridden(entry) for entry in value], None)
    return Tree(value, None)


def _set(root: Tree, path: Path, leaf: Tree) -> None:
    tree = root
    for depth, part in enumerate(path):
        here = format_path(path[: depth + 1])
        child = tree.child(part)
        content = tree.content
        if isinstance(content, list) and isinstance(part, int):
            if child is None:
                raise ValueError(f"{here} does not exist: the list has {len(content)} entries")
        elif not (isinstance(content, dict) and isinstance(part, str)):
            inside = format_path(path[:depth]) or "the file"
            raise ValueError(f"{here} cannot be set: {inside} is {quote(tree.data)}")
        if depth == len(path) - 1:
            tree.content[part] = leaf
        elif child is None or child.content is None:
            tree.content[part] = child = Tree({}, leaf.position, file=leaf.file)
        tree = child or leaf
