"""A strict reader of YAML that keeps positions: text in, `Document` or `SpecError` out.

PyYAML's event parser (libyaml where it is built in) does the scanning; what events mean is decided here: one
document, plain scalars of YAML 1.2 (`scalars`), no duplicate keys, no anchors, aliases or tags, bounded size
and depth. Nothing here recurses, so no input can exhaust the stack.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any, NoReturn

import yaml
from yaml import events
from yaml.error import MarkedYAMLError, YAMLError

from testbed.base.errors import Position, Problem, SpecError
from testbed.base.yaml.document import Document, Tree
from testbed.base.yaml.paths import Path, format_path, quote
from testbed.base.yaml.scalars import Scalar, ScalarError, resolve_plain_scalar
from testbed.base.yaml.syntax import explain_syntax_error

MAX_BYTES = 1 << 20
"""Size of a file. The largest fabric we know of, written by hand link by link, has a third of it."""
MAX_VALUES = 100_000
"""Values of a file, lists and mappings included: about 15,000 links written by hand."""
MAX_DEPTH = 32
MAX_PROBLEMS = 20
"""Problems shown of one file that have no hint of their own: a file with more is not what the user thinks it is."""
MOST_PROBLEMS = 100
"""Problems shown of one file, each with a hint that no other has: a file of another tool needs many."""

_DEEPER_THAN_LIBYAML_READS = "exceeded maximum nesting depth"
"""Of brackets that are 1,000 deep, since its version 0.2.6; it scans ahead, so that this may come before our limit."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_UNPRINTABLE = re.compile("[^\t\n\r -~\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_UNPRINTABLE_VALUE = re.compile("[\x00-\x08\x0b-\x1f\x7f]")
_LINE_BREAK = re.compile("\r\n|\n|\r|\x85|\u2028|\u2029")


def load_document(text: str, file: str) -> Document:
    """Read `text`; `file` names it in messages. Raises `SpecError` unless it is one mapping."""
    tree = parse_value(text, file)
    if not isinstance(tree.data, dict):
        what = {list: "a list", type(None): "empty", str: "plain text"}.get(type(tree.data), "a single value")
        problem = Problem(
            code="empty" if tree.data is None else "not-a-mapping",
            file=file,
            message=f"the file is {what}" + ("" if tree.data is None else ", not a mapping of keys to values"),
            position=tree.position,
            hint="begin with 'name: ' and a name",
        )
        raise SpecError([problem])
    return Document(file=file, root=tree)


def read_document(path: FilePath) -> Document:
    """Read a file. Raises `SpecError`, also when the file cannot be read or is not UTF-8."""
    return load_document(read_text(path), str(path))


def read_text(path: FilePath) -> str:
    """The text of a file of at most `MAX_BYTES`. Raises `SpecError`."""
    file = str(path)
    try:
        with path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise SpecError(
            [Problem(code="unreadable", file=file, message=f"cannot read the file: {reason}", hint="check the path")]
        ) from error
    return decode(raw, file)


def decode(raw: bytes, file: str) -> str:
    """UTF-8 bytes as text. Raises `SpecError` with the position of the first byte that is not UTF-8."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8")
        problem = Problem(
            code="not-utf-8",
            file=file,
            message=f"byte 0x{raw[error.start]:02x} is not UTF-8",
            position=_position_after(before),
            hint="a topology is a text file in UTF-8",
        )
        if len(raw) > MAX_BYTES and error.start >= MAX_BYTES - 3:
            problem = _too_big(file)  # the cut-off, not the file, broke the character
        raise SpecError([problem]) from error


def parse_value(text: str, file: str) -> Tree:
    """Read one YAML value of any shape. Raises `SpecError`."""
    if len(text) > MAX_BYTES:
        raise SpecError([_too_big(file)])
    text = text.removeprefix("\ufeff")
    if match := _UNPRINTABLE.search(text):
        problem = Problem(
            code="control-character",
            file=file,
            message=f"the character U+{ord(match[0]):04X} is not allowed in a text file",
            position=_position_after(text[: match.start()]),
            hint="remove it; is this a text file?",
        )
        raise SpecError([problem])
    reader = _Reader(file)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            reader.on_event(event)
    except MarkedYAMLError as error:
        if error.problem == _DEEPER_THAN_LIBYAML_READS and (mark := error.problem_mark):
            reader.fail(_too_deep(file, Position(line=mark.line + 1, column=mark.column + 1)))
        reader.fail(explain_syntax_error(error, text, file))
    except YAMLError as error:
        reader.fail(Problem(code="syntax", file=file, message=f"not YAML: {quote(str(error), 100)}"))
    return reader.result()


def cap_problems(problems: Iterable[Problem], left_out: int = 0) -> list[Problem]:
    """All with a hint of their own and the first `MAX_PROBLEMS` others, `MOST_PROBLEMS` at most, and a line that tells
    how many more there are (`left_out` beside these)."""
    kept: list[Problem] = []
    hints: set[str | None] = {None}
    others = 0
    for problem in problems:
        is_other = problem.hint in hints
        hints.add(problem.hint)
        others += is_other
        if (is_other and others > MAX_PROBLEMS) or len(kept) == MOST_PROBLEMS:
            left_out += 1
        else:
            kept.append(problem)
    if not left_out:
        return kept
    more = Problem(
        code="more-problems",
        file=kept[0].file,
        message=f"{left_out} more like these are not shown",
        hint="mend the first ones and try again",
    )
    return [*kept, more]


@dataclass(slots=True)
class _Frame:
    """A collection that is being read.

    `at` is the entry that is being read (None: a key is), `key_position` the position of that key, and
    `expects_value` whether a mapping's key has been read and its value has not.
    """

    tree: Tree
    at: str | int | None = None
    key_position: Position | None = None
    expects_value: bool = False

    @property
    def expects_key(self) -> bool:
        return isinstance(self.tree.children, dict) and not self.expects_value

    def begin_entry(self) -> None:
        if isinstance(self.tree.children, list):
            self.at = len(self.tree.children)
        elif not self.expects_value:
            self.at = None


@dataclass(slots=True)
class _Reader:
    """Builds a `Tree` from parser events."""

    file: str
    problems: list[Problem] = field(default_factory=list)
    stack: list[_Frame] = field(default_factory=list)
    root: Tree | None = None
    values: int = 0
    end: Position | None = None

    def on_event(self, event: events.Event) -> None:
        """Take the next event. Raises `SpecError` where reading on makes no sense."""
        if self.stack and isinstance(event, events.NodeEvent):
            self.stack[-1].begin_entry()
        match event:
            case events.ScalarEvent():
                if event.anchor is not None or event.tag is not None:
                    self._refuse_decoration(event)
                self._on_scalar(event)
            case events.MappingStartEvent():
                self._refuse_decoration(event)
                self._open(event, {}, {})
            case events.SequenceStartEvent():
                self._refuse_decoration(event)
                self._open(event, [], [])
            case events.MappingEndEvent() | events.SequenceEndEvent():
                self.stack.pop()
            case events.AliasEvent():
                self._once(
                    "alias",
                    event,
                    f"aliases such as *{event.anchor} are not accepted",
                    "write the value out, in quotes if the '*' is part of it",
                )
                self._add(None, event)
            case events.DocumentStartEvent():
                self._on_document(event)
            case events.StreamEndEvent():
                self.end = _position(event)

    def fail(self, problem: Problem) -> NoReturn:
        """Stop here: the problems so far and this one."""
        raise SpecError([*cap_problems(self.problems), problem])

    def result(self) -> Tree:
        if self.problems:
            raise SpecError(cap_problems(self.problems))
        return self.root or Tree(data=None, position=self.end or Position(line=1, column=1))

    def _on_document(self, event: events.DocumentStartEvent) -> None:
        where = _position(event)
        if self.root is not None:
            self.fail(
                Problem(
                    code="second-document",
                    file=self.file,
                    message="a second document begins here; a file holds one",
                    position=where,
                    hint="remove the '---' line, or put what follows into a file of its own",
                )
            )
        if event.version not in (None, (1, 2)):
            self._problem("version", event, "the file is read as YAML 1.2", "remove the %YAML line")
        if event.tags:
            self._problem("tag", event, "tags are not accepted", "remove the %TAG line")

    def _on_scalar(self, event: events.ScalarEvent) -> None:
        value: Scalar = event.value
        if not event.style:  # plain; quoted and block scalars are always text
            try:
                value = resolve_plain_scalar(event.value)
            except ScalarError as error:
                self._problem("bad-number", event, str(error), error.hint)
        if isinstance(value, str) and (found := _UNPRINTABLE_VALUE.search(value)):
            self._problem(
                "control-character",
                event,
                f"the value holds the control character U+{ord(found[0]):04X}",
                "remove the backslash and what belongs to it",
            )
        frame = self.stack[-1] if self.stack else None
        if frame is None or not frame.expects_key:
            self._add(value, event)
            return
        if not isinstance(value, str):
            if value is None and not event.value:
                self._problem("bad-key", event, "a key is missing before ':'", "write 'key: value'")
            else:
                self._problem(
                    "bad-key",
                    event,
                    f"the key {event.value} is not text",
                    f'put it in quotes, "{event.value}"; names begin with a letter',
                )
            value = event.value
        self._on_key(frame, str(value), event)

    def _on_key(self, frame: _Frame, key: str, event: events.Event) -> None:
        position = _position(event)
        assert isinstance(frame.tree.children, dict)
        first = frame.tree.children.get(key)
        if first is not None and first.key_position is not None:
            self._problem(
                "duplicate-key",
                event,
                f"{quote(key)} is given twice; first at line {first.key_position.line},"
                f" column {first.key_position.column}",
                "keep one of the two",
                key,
            )
        frame.at, frame.key_position, frame.expects_value = key, position, True

    def _open(self, event: events.CollectionStartEvent, data: Any, children: Any) -> None:
        if self.stack and self.stack[-1].expects_key:
            self.fail(
                Problem(
                    code="bad-key",
                    file=self.file,
                    path=format_path(self._path()),
                    message="a key is a list or a mapping, not text",
                    position=_position(event),
                    hint="write 'key: value'; put text that begins with '[', '{' or '?' in quotes",
                )
            )
        if len(self.stack) >= MAX_DEPTH:
            self.fail(_too_deep(self.file, _position(event)))
        self.stack.append(_Frame(self._add(data, event, children)))

    def _add(self, data: Any, event: events.Event, children: Any = None) -> Tree:
        tree = Tree(data=data, position=_position(event), children=children)
        self.values += 1
        if self.values > MAX_VALUES:
            self.fail(_too_big(self.file, f"more than {MAX_VALUES:,} values", tree.position))
        if not self.stack:
            self.root = tree
            return tree
        frame = self.stack[-1]
        siblings = frame.tree.children
        if isinstance(siblings, list):
            siblings.append(tree)
            frame.tree.data.append(data)
        elif isinstance(siblings, dict) and frame.expects_value and isinstance(frame.at, str):
            tree.key_position = frame.key_position
            siblings.setdefault(frame.at, tree)
            frame.tree.data.setdefault(frame.at, data)
            frame.expects_value = False
        else:  # an alias as a key, which is a problem already
            frame.at, frame.key_position, frame.expects_value = "*", tree.position, True
        return tree

    def _refuse_decoration(self, event: events.ScalarEvent | events.CollectionStartEvent) -> None:
        if event.anchor is not None:
            self._once(
                "anchor",
                event,
                f"anchors such as &{event.anchor} are not accepted",
                "remove it; what nodes share belongs under topology.groups, kinds or defaults",
            )
        if event.tag is not None:
            self._problem(
                "tag",
                event,
                f"tags such as {quote(event.tag.replace('tag:yaml.org,2002:', '!!'))} are not accepted",
                'remove the tag; "quotes" make text of a number',
            )

    def _problem(self, code: str, event: events.Event, message: str, hint: str, *below: str) -> None:
        path = format_path((*self._path(), *below))
        self.problems.append(
            Problem(code=code, file=self.file, path=path, message=message, position=_position(event), hint=hint)
        )

    def _once(self, code: str, event: events.Event, message: str, hint: str) -> None:
        """A problem that would be the same at every place."""
        if all(problem.code != code for problem in self.problems):
            self._problem(code, event, message, hint)

    def _path(self) -> Path:
        """The path of what is being read."""
        return tuple(frame.at for frame in self.stack if frame.at is not None)


def _position(event: events.Event) -> Position:
    mark = event.start_mark
    assert mark is not None  # libyaml and PyYAML mark every event
    return Position(line=mark.line + 1, column=mark.column + 1)


def _position_after(text: str) -> Position:
    lines = _LINE_BREAK.split(text.removeprefix("\ufeff"))
    return Position(line=len(lines), column=len(lines[-1]) + 1)


def _too_deep(file: str, where: Position) -> Problem:
    return Problem(
        code="too-deep",
        file=file,
        message=f"more than {MAX_DEPTH} levels of nesting",
        position=where,
        hint="no section goes deeper than six levels: is a bracket or a '-' repeated?",
    )


def _too_big(file: str, what: str = f"more than {MAX_BYTES >> 20} MiB", where: Position | None = None) -> Problem:
    return Problem(
        code="too-big",
        file=file,
        message=f"the file has {what}",
        position=where,
        hint="is this a topology? let a fabric: section generate what repeats",
    )
