"""Puts what libyaml says about a file that is not YAML in words that tell what to do."""

from __future__ import annotations

import re

from yaml.error import MarkedYAMLError

from testbed.base.errors import Position, Problem

_UNCLOSED = "is never closed, or a ',' is missing in it"

_EXPLAINED: dict[str, tuple[str, str]] = {
    "found character that cannot start any token": ("this character cannot begin a value", "put the value in quotes"),
    "did not find expected node content": (
        "a value is missing here, or begins with a bracket or comma",
        "put text in quotes",
    ),
    "mapping values are not allowed in this context": (
        "a second ':' where none is expected",
        "put a value that holds ': ' in quotes; begin each key on its own line, at the column of its neighbours",
    ),
    "did not find expected key": (
        "this line does not fit the lines above",
        "keys of one section begin at the same column, each as 'key: value'",
    ),
    "did not find expected '-' indicator": (
        "this line does not fit the list above",
        "entries of one list begin with '-' at the same column",
    ),
    "did not find expected ',' or ']'": (f"a list in brackets {_UNCLOSED}", "close it with ']'"),
    "did not find expected ',' or '}'": (f"a mapping in braces {_UNCLOSED}", "close it with '}'"),
    "could not find expected ':'": ("a key without ':'", "write 'key: value', with a space after the colon"),
    "block sequence entries are not allowed in this context": (
        "a list entry where none is expected",
        "begin the list on the line below its key, '-' at or right of the key's column",
    ),
    "found unexpected end of stream": ("the file ends inside quotes", "close the quotes"),
    "found unexpected document indicator": ("a new document begins inside quotes", "close the quotes"),
    "found unknown escape character": (
        "a backslash in double quotes begins no escape that YAML knows",
        "write the text in single quotes",
    ),
    "did not find expected <document start>": (
        "text after the end of the document",
        "a file holds one mapping, each key at the same column",
    ),
    "found undefined tag handle": ("tags are not accepted", "remove the word that begins with '!'"),
    "did not find expected alphabetic or numeric character": (
        "'*' and '&' are not accepted at the start of a value",
        "put the value in quotes",
    ),
    "found incompatible YAML document": ("this YAML version is not read", "remove the %YAML line"),
}

_KEY_WITHOUT_SPACE = re.compile(r"\s*(- )?[A-Za-z0-9_-]+(:[^\s:{}\[\],#]+)?\s*")

_OPENED_EARLIER = frozenset(
    {
        "while parsing a flow sequence",
        "while parsing a flow mapping",
        "while scanning a quoted scalar",
        "while scanning a simple key",
    }
)
"""Contexts whose beginning is where the user has to look."""


def explain_syntax_error(error: MarkedYAMLError, text: str, file: str) -> Problem:
    """One problem for the first place at which `text` stops being YAML."""
    raw = error.problem or "not YAML"
    message, hint = _EXPLAINED.get(raw, (f"not YAML: {raw}", "check the indentation and quotes of this line"))
    mark, start = error.problem_mark, error.context_mark
    if mark is None:
        mark, start = start, None
    if mark is None:
        return Problem(code="syntax", file=file, message=message, hint=hint)
    character = text[mark.index : mark.index + 1]
    if raw == "mapping values are not allowed in this context":
        position = _unfinished_key(text, mark.line)
        if position is not None:
            message = "this key has no ': ' (a colon with a space after it)"
            return Problem(
                code="syntax", file=file, message=message, position=position, hint="write 'key: value', with the space"
            )
    if character == "\t":
        message, hint = "a tab in the indentation", "indent with spaces"
    elif raw == "found character that cannot start any token":
        message = f"{character!r} cannot begin a value"
    elif character == ":" and raw == "did not find expected key":
        message, hint = "a key is missing before ':'", "write 'key: value'"
    elif start is not None and error.context in _OPENED_EARLIER and start.index < mark.index:
        if mark.line != start.line:
            message += f" (noticed at line {mark.line + 1})"
        mark = start
    position = Position(line=mark.line + 1, column=mark.column + 1)
    return Problem(code="syntax", file=file, message=message, position=position, hint=hint)


def _unfinished_key(text: str, line: int) -> Position | None:
    """Return where the line before `line` (0-based) begins, if it is a word without ': ' that runs on into `line`."""
    before = text.splitlines()[:line]
    while before and not before[-1].strip():
        before.pop()
    if not before or not _KEY_WITHOUT_SPACE.fullmatch(before[-1]):
        return None
    return Position(line=len(before), column=len(before[-1]) - len(before[-1].lstrip()) + 1)
