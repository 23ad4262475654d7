"""A strict reader of YAML that keeps positions: text in, `Document` or `SpecError` out.

PyYAML's event parser (libyaml where it is built in) does the scanning; what events mean is decided here: one
document, plain scalars of YAML 1.2 (`scalars`), no duplicate keys, no anchors, aliases or tags, bounded size
and depth. A file of another tool is read with `lenient`: its aliases and merge keys are written out, within the same
bounds, and a key may be a number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path as FilePath
from typing import Any, NoReturn

import yaml
from yaml import events
from yaml.error import MarkedYAMLError, YAMLError

from testbed.base.errors import Position, Problem, SpecError
from testbed.base.files import SHIPPED_FOLDERS
from testbed.base.names import nearest
from testbed.base.yaml.document import Document, Tree
from testbed.base.yaml.paths import format_path, quote
from testbed.base.yaml.scalars import Scalar, ScalarError, resolve_plain_scalar
from testbed.base.yaml.syntax import explain_syntax_error

SUFFIXES = frozenset({".yml", ".yaml"})
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
"""Its error for brackets 1,000 deep, since version 0.2.6; it scans ahead, so that this may come before our limit."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_UNPRINTABLE = re.compile("[^\t\n\r -~\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_UNPRINTABLE_VALUE = re.compile("[\x00-\x08\x0b-\x1f\x7f]")
_LINE_BREAK = re.compile("\r\n|\n|\r|\x85|\u2028|\u2029")


NAMED = "begin with 'name: ' and a name"


def load_document(text: str, file: str, *, lenient: bool = False, begin: str = NAMED) -> Document:
    """Read `text`; `file` names it in messages, `begin` says how such a file begins.

    Raises `SpecError` unless it is one mapping.
    """
    tree = parse_value(text, file, lenient=lenient)
    if not isinstance(tree.data, dict):
        what = {list: "a list", type(None): "empty", str: "plain text"}.get(type(tree.data), "a single value")
        problem = Problem(
            code="empty" if tree.data is None else "not-a-mapping",
            file=file,
            message=f"the file is {what}" + ("" if tree.data is None else ", not a mapping of keys to values"),
            position=tree.position,
            hint=begin,
        )
        raise SpecError([problem])
    return Document(file=file, root=tree)


def read_document(path: FilePath, *, begin: str = NAMED) -> Document:
    """Read a file that begins so. Raises `SpecError`, also when the file cannot be read or is not UTF-8."""
    return load_document(read_text(path), str(path), begin=begin)


def read_text(path: FilePath) -> str:
    """The text of a file of at most `MAX_BYTES`. Raises `SpecError`."""
    file = str(path)
    try:
        with path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        hint = "check the path"
        if isinstance(error, FileNotFoundError):
            hint = _file_hint(path)
        elif isinstance(error, IsADirectoryError):
            hint = f"name files in it, as {path / 'NAME.yml'}"
        raise SpecError(
            [Problem(code="unreadable", file=file, message=f"cannot read the file: {reason}", hint=hint)]
        ) from error
    return decode(raw, file)


def meant_file(path: FilePath) -> FilePath | None:
    """Find the file that is called alike beside one that is not there, or in the folders of shipped files."""
    there: dict[str, FilePath] = {}
    for directory in (path.parent, *map(FilePath, SHIPPED_FOLDERS)):
        with suppress(OSError):
            for one in sorted(directory.iterdir()):
                if one.suffix in SUFFIXES and one.name[0] != ".":
                    there.setdefault(one.stem, one)
    wanted = path.name if path.name in there else path.stem
    meant = wanted if wanted in there else nearest(wanted, there)
    return None if meant is None or there[meant] == path else there[meant]


def _file_hint(path: FilePath) -> str:
    if (meant := meant_file(path)) is not None:
        return f"did you mean {meant}?"
    return "`testbed examples .` writes what is shipped" if path.parts[0] in SHIPPED_FOLDERS else "check the path"


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


def parse_value(text: str, file: str, *, lenient: bool = False) -> Tree:
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
    reader = _Reader(text, file, lenient)
    try:
        return reader.read()
    except MarkedYAMLError as error:
        if error.problem == _DEEPER_THAN_LIBYAML_READS and (mark := error.problem_mark):
            reader.fail(_too_deep(file, Position(line=mark.line + 1, column=mark.column + 1)))
        reader.fail(explain_syntax_error(error, text, file))
    except YAMLError as error:
        reader.fail(Problem(code="syntax", file=file, message=f"not YAML: {quote(str(error), 100)}"))


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


class _Reader:
    """Composes the tree of a text from the parser's events. It calls itself `MAX_DEPTH` times at most."""

    def __init__(self, text: str, file: str, lenient: bool) -> None:
        self._events = yaml.parse(text, Loader=_LOADER)
        self._file = file
        self._lenient = lenient
        self._anchored: dict[str, Tree] = {}
        """The values at anchors of a file that is read leniently, once they are whole."""
        self._path: list[str | int] = []
        """The place of the value that is being read."""
        self._problems: list[Problem] = []
        self._values = 0

    def read(self) -> Tree:
        """Raises `SpecError` with all that is wrong, and `YAMLError` where the text is no YAML."""
        root: Tree | None = None
        for event in self._events:
            match event:
                case events.DocumentStartEvent():
                    self._begin_document(event, second=root is not None)
                    root = self._value(next(self._events), 0)
                case events.StreamEndEvent():
                    root = root or Tree(None, _position(event))
        if self._problems:
            raise SpecError(cap_problems(self._problems))
        return root or Tree(None, Position(line=1, column=1))

    def fail(self, problem: Problem) -> NoReturn:
        """Stop here: the problems so far and this one."""
        raise SpecError([*cap_problems(self._problems), problem])

    def _begin_document(self, event: events.DocumentStartEvent, *, second: bool) -> None:
        if second:
            self.fail(
                Problem(
                    code="second-document",
                    file=self._file,
                    message="a second document begins here; a file holds one",
                    position=_position(event),
                    hint="remove the '---' line, or put what follows into a file of its own",
                )
            )
        if event.version not in (None, (1, 2)):
            self._problem("version", event, "the file is read as YAML 1.2", "remove the %YAML line")
        if event.tags:
            self._problem("tag", event, "tags are not accepted", "remove the %TAG line")

    def _value(self, event: events.Event, depth: int) -> Tree:
        """The value that an event is, or begins, `depth` levels below the document."""
        match event:
            case events.AliasEvent() if self._lenient and event.anchor in self._anchored:
                return self._repeated(self._anchored[event.anchor], event, depth)
            case events.AliasEvent():
                self._refuse_alias(event)
                return self._counted(None, event)
            case events.ScalarEvent():
                self._refuse_decoration(event)
                return self._kept(self._counted(self._scalar(event), event), event)
        assert isinstance(event, events.CollectionStartEvent)
        self._refuse_decoration(event)
        if depth >= MAX_DEPTH:
            self.fail(_too_deep(self._file, _position(event)))
        if isinstance(event, events.MappingStartEvent):
            tree = self._counted({}, event)
            self._fill_mapping(tree.content, depth)
        else:
            tree = self._counted([], event)
            self._fill_list(tree.content, depth)
        return self._kept(tree, event)

    def _kept(self, tree: Tree, event: events.ScalarEvent | events.CollectionStartEvent) -> Tree:
        """Remember what stands at an anchor."""
        if event.anchor is not None:
            self._anchored[event.anchor] = tree
        return tree

    def _repeated(self, tree: Tree, event: events.AliasEvent, depth: int) -> Tree:
        """Write out what an alias names: each of its values counts, and so does its depth."""
        if depth >= MAX_DEPTH:
            self.fail(_too_deep(self._file, _position(event)))
        copy = self._counted(tree.content, event)
        copy.position = tree.position
        match tree.content:
            case dict():
                copy.content = {key: self._repeated(child, event, depth + 1) for key, child in tree.content.items()}
                for key, child in copy.content.items():
                    child.key_position = tree.content[key].key_position
            case list():
                copy.content = [self._repeated(child, event, depth + 1) for child in tree.content]
        return copy

    def _fill_list(self, entries: list[Tree], depth: int) -> None:
        while not isinstance(event := next(self._events), events.SequenceEndEvent):
            self._path.append(len(entries))
            entries.append(self._value(event, depth + 1))
            self._path.pop()

    def _fill_mapping(self, entries: dict[str, Tree], depth: int) -> None:
        while not isinstance(event := next(self._events), events.MappingEndEvent):
            key = self._key(event)
            if (first := entries.get(key)) is not None and (where := first.key_position) is not None:
                message = f"{quote(key)} is given twice; first at line {where.line}, column {where.column}"
                self._problem("duplicate-key", event, message, "keep one of the two", key)
            self._path.append(key)
            tree = self._value(next(self._events), depth + 1)
            self._path.pop()
            tree.key_position = _position(event)
            entries.setdefault(key, tree)
        if self._lenient and "<<" in entries:
            self._merge(entries)

    def _merge(self, entries: dict[str, Tree]) -> None:
        """Put the keys of the mappings behind a merge key in, where they are not written (yaml.org/type/merge.html)."""
        merged = entries.pop("<<")
        for tree in merged.content if isinstance(merged.content, list) else [merged]:
            if isinstance(tree.content, dict):
                for key, child in tree.content.items():
                    entries.setdefault(key, child)

    def _key(self, event: events.Event) -> str:
        if isinstance(event, events.AliasEvent):
            named = self._anchored.get(event.anchor or "") if self._lenient else None
            if named is not None and isinstance(named.content, str):
                return named.content
            self._refuse_alias(event)
            self._counted(None, event)
            return "*"
        assert isinstance(event, events.ScalarEvent | events.CollectionStartEvent)
        self._refuse_decoration(event)
        if isinstance(event, events.CollectionStartEvent):
            self.fail(
                Problem(
                    code="bad-key",
                    file=self._file,
                    path=format_path(tuple(self._path)),
                    message="a key is a list or a mapping, not text",
                    position=_position(event),
                    hint="write 'key: value'; put text that begins with '[', '{' or '?' in quotes",
                )
            )
        if self._lenient:
            self._kept(Tree(str(event.value), _position(event)), event)
            return str(event.value)
        key = self._scalar(event)
        if isinstance(key, str):
            return key
        if isinstance(key, int) and not isinstance(key, bool) and str(key) == event.value:
            return event.value  # `{0: 64}`: a table by number
        if key is None and not event.value:
            self._problem("bad-key", event, "a key is missing before ':'", "write 'key: value'")
        else:
            hint = f'put it in quotes, "{event.value}"; names begin with a letter'
            self._problem("bad-key", event, f"the key {event.value} is not text", hint)
        return str(event.value)

    def _scalar(self, event: events.ScalarEvent) -> Scalar:
        value: Scalar = event.value
        if not event.style:  # plain; quoted and block scalars are always text
            try:
                value = resolve_plain_scalar(event.value)
            except ScalarError as error:
                if not self._lenient:
                    self._problem("bad-number", event, str(error), error.hint)
        if isinstance(value, str) and (found := _UNPRINTABLE_VALUE.search(value)):
            message = f"the value holds the control character U+{ord(found[0]):04X}"
            self._problem("control-character", event, message, "remove the backslash and what belongs to it")
        return value

    def _counted(self, content: Any, event: events.Event) -> Tree:
        tree = Tree(content, _position(event))
        if isinstance(event, events.ScalarEvent) and not isinstance(content, str):
            tree.written = event.value
        self._values += 1
        if self._values > MAX_VALUES:
            self.fail(_too_big(self._file, f"more than {MAX_VALUES:,} values", tree.position))
        return tree

    def _refuse_alias(self, event: events.AliasEvent) -> None:
        message = f"aliases such as *{event.anchor} are not accepted"
        self._once("alias", event, message, "write the value out, in quotes if the '*' is part of it")

    def _refuse_decoration(self, event: events.ScalarEvent | events.CollectionStartEvent) -> None:
        if event.anchor is not None and not self._lenient:
            message = f"anchors such as &{event.anchor} are not accepted"
            hint = "remove it; what nodes share belongs under topology.groups, kinds or defaults"
            self._once("anchor", event, message, hint)
        if event.tag is not None:
            message = f"tags such as {quote(event.tag.replace('tag:yaml.org,2002:', '!!'))} are not accepted"
            self._problem("tag", event, message, 'remove the tag; "quotes" make text of a number')

    def _problem(self, code: str, event: events.Event, message: str, hint: str, *below: str) -> None:
        path = format_path((*self._path, *below))
        self._problems.append(
            Problem(code=code, file=self._file, path=path, message=message, position=_position(event), hint=hint)
        )

    def _once(self, code: str, event: events.Event, message: str, hint: str) -> None:
        """A problem that would be the same at every place."""
        if all(problem.code != code for problem in self._problems):
            self._problem(code, event, message, hint)


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
