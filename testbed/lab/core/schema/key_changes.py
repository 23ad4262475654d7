"""The keys in which a topology file says something else than it did before, each with its place in the file.

An entry that is put into the middle of a list leaves those behind it what they were: entries are found again by what
they say, not by their number.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path as FilePath
from typing import Any, Final

from testbed.base.errors import Position, SpecError
from testbed.base.yaml.document import OVERRIDE_FILE, Document
from testbed.base.yaml.paths import Path, format_path
from testbed.base.yaml.reader import load_document, read_text
from testbed.lab.core.model import Lab
from testbed.lab.core.model.written import WrittenLab
from testbed.lab.core.schema.load import topology_document

SETTINGS: Final = "--set"
"""The place of a key that no file says."""
_LONGEST_VALUE = 40
_PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./% ")


class _Nothing:
    """The value of a key that is not there."""


_NOTHING: Final = _Nothing()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyChange:
    """A key that says something else than before.

    `key` leads to it in the file as it is now, or as it was where it is gone. `old` and `new` are its values as one
    would write them, "" where it is not there. `file` is where it stands, `position` None where nobody knows the line.
    """

    key: str
    old: str
    new: str
    file: str
    position: Position | None
    _at: Path
    _value: Any
    _inserted: bool = False

    @property
    def place(self) -> str:
        """The file and the line: `lab.yml:7`."""
        return self.file if self.position is None else f"{self.file}:{self.position.line}"

    def __str__(self) -> str:
        if not self.old:
            said = f"{self.key} is new: {self.new}"
        else:
            said = f"{self.key}: {self.old} -> {self.new}" if self.new else f"{self.key} is gone"
        return f"{said} ({self.place})"

    def alone(self, before: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the file would say if it had changed in this key alone."""
        data: dict[str, Any] = deepcopy(dict(before))
        within: Any = data
        for part in self._at[:-1]:
            within = within[part]
        last: Any = self._at[-1]
        if self._value is _NOTHING:
            del within[last]
        elif self._inserted:
            within.insert(last, deepcopy(self._value))
        else:
            within[last] = deepcopy(self._value)
        return data


def key_changes(before: Mapping[str, Any], now: Document, *, placed: bool = True) -> list[KeyChange]:
    """Return the keys that `now` says otherwise than `before`, those that are there in their order, then those that are
    gone. Unless `placed`, `now` has no positions."""
    found = [_located(edit, now, placed=placed) for edit in _edits(before, now.data, (), ())]
    return [change for change in found if change.new] + [change for change in found if not change.new]


def lab_key_changes(before: WrittenLab | None, now: Lab) -> list[KeyChange]:
    """Return the keys that the file of `now` says otherwise than what was read `before`; none where one is from no
    file."""
    if before is None or now.written is None or before.keys == now.written.keys:
        return []
    document = _read_again(now)
    if document is None:
        document = document_of(now.written.data, now.source)
        return key_changes(before.data, document, placed=False)
    return key_changes(before.data, document)


def document_of(keys: Mapping[str, Any], file: str) -> Document:
    """Return keys as a document that no text has: it has no positions."""
    return load_document("{}", file).with_overrides({format_path((key,)): value for key, value in keys.items()})


def _read_again(lab: Lab) -> Document | None:
    """The document of a lab with its positions; None where it was in no file, or where that is another one by now."""
    written = lab.written
    if written is None or not written.file:
        return None
    try:
        document = topology_document(read_text(FilePath(written.file)), lab.source)
        document = document.with_overrides(written.overrides)
    except SpecError:
        return None
    return document if _same(document.data, written.data) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Edit:
    """A value at `at` of the old document is another one, at `to` of the new one."""

    at: Path
    to: Path
    old: Any
    new: Any
    inserted: bool = False


def _edits(old: Any, new: Any, at: Path, to: Path) -> Iterator[_Edit]:
    if _same(old, new):
        return
    match old, new:
        case Mapping(), Mapping():
            for key, value in new.items():
                if key in old:
                    yield from _edits(old[key], value, (*at, key), (*to, key))
                else:
                    yield _Edit(at=(*at, key), to=(*to, key), old=_NOTHING, new=value)
            for key in old:
                if key not in new:
                    yield _Edit(at=(*at, key), to=(*to, key), old=old[key], new=_NOTHING)
        case list(), list() if any(isinstance(entry, dict) for entry in (*old, *new)):
            yield from _list_edits(old, new, at, to)
        case _:
            yield _Edit(at=at, to=to, old=old, new=new)


def _list_edits(old: list[Any], new: list[Any], at: Path, to: Path) -> Iterator[_Edit]:
    matcher = SequenceMatcher(
        a=[_canonical(entry) for entry in old], b=[_canonical(entry) for entry in new], autojunk=False
    )
    for tag, old_begin, old_end, new_begin, new_end in matcher.get_opcodes():
        if tag == "equal":
            continue
        both = min(old_end - old_begin, new_end - new_begin)
        for step in range(both):
            here, there = old_begin + step, new_begin + step
            yield from _edits(old[here], new[there], (*at, here), (*to, there))
        for here in range(old_begin + both, old_end):
            yield _Edit(at=(*at, here), to=(*to, here), old=old[here], new=_NOTHING)
        for there in range(new_begin + both, new_end):
            yield _Edit(at=(*at, old_end), to=(*to, there), old=_NOTHING, new=new[there], inserted=True)


def _located(edit: _Edit, now: Document, *, placed: bool) -> KeyChange:
    is_gone = edit.new is _NOTHING
    file, position = now.file, None
    if placed:
        # Of a key that is gone the section is told that it was in; that of the whole file tells nobody anything.
        place = now.problem("", edit.to[:-1] if is_gone else edit.to, "", key=True)
        file = SETTINGS if place.file == OVERRIDE_FILE else place.file
        position = None if is_gone and len(edit.to) == 1 else place.position
    return KeyChange(
        key=format_path(edit.to),
        old="" if edit.old is _NOTHING else shown_value(edit.old),
        new="" if is_gone else shown_value(edit.new),
        file=file,
        position=position,
        _at=edit.at,
        _value=edit.new,
        _inserted=edit.inserted,
    )


def shown_value(value: Any) -> str:
    """Return a value as one would write it, on one line, and cut where it is long."""
    text = _flow(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def _flow(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case Mapping():
            return "{" + ", ".join(f"{key}: {_flow(entry)}" for key, entry in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(_flow, value)) + "]"
        case str() if value and set(value) <= _PLAIN and value.strip() == value:
            return value
        case str():
            return json.dumps(value)
    return str(value)


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _same(old: Any, new: Any) -> bool:
    """Tell whether two values are written the same: true is not 1."""
    return _canonical(old) == _canonical(new)
