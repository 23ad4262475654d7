"""A file of a workload being read: its bytes, its words with their places, and the faults found in it.

Every reader of this package collects its faults in a `Faults` and raises them together as one `SpecError`. Sizes are
bounded here, so that no file can exhaust memory: bytes of a file, waits between steps, ranks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice, takewhile
from pathlib import Path
from typing import NoReturn

from testbed.base.errors import Position, Problem, SpecError

MAX_TEXT_BYTES = 64 << 20
"""A text file has no more. A connection matrix of a 1,024-node all-to-all, a million rows, has about 50 MB."""
MAX_WAITS = 5_000_000
"""The steps that all steps together may wait for."""
MAX_WORDS = 100_000
"""More words of a line are not read, and no format has so many."""
MAX_RANKS = 1 << 17
MAX_NUMBER = (1 << 63) - 1
MAX_PROBLEMS = 20
"""Faults shown of one file: a file with more is not what the user thinks it is."""

_WORD = re.compile(r"[^ \t\r\n\v\f]+")
_INTEGER = re.compile(r"[0-9]{1,19}\Z")
_DECIMAL = re.compile(r"[0-9]{1,19}(?:\.[0-9]{0,30})?(?:[eE][+-]?[0-9]{1,2})?\Z")


@dataclass(frozen=True, slots=True)
class Word:
    """A run of characters without white space, and where it begins (1-based)."""

    text: str
    line: int
    column: int

    @property
    def position(self) -> Position:
        return Position(self.line, self.column)


def shown(text: str) -> str:
    """`text` as a message quotes it: one line, at most 40 characters."""
    return repr(text if len(text) <= 40 else text[:37] + "...")


class Faults:
    """The problems of one file, in the order in which they were found."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._problems: list[Problem] = []

    def add(
        self, code: str, message: str, *, at: Word | Position | None = None, path: str = "", hint: str | None = None
    ) -> None:
        """Keep a problem; raises `SpecError` when there are more than `MAX_PROBLEMS`."""
        if len(self._problems) == MAX_PROBLEMS:
            self._problems.append(
                Problem(code="more", file=self.file, message=f"and more: the first {MAX_PROBLEMS} are shown")
            )
            raise SpecError(self._problems)
        position = at.position if isinstance(at, Word) else at
        self._problems.append(
            Problem(code=code, file=self.file, message=message, path=path, position=position, hint=hint)
        )

    def stop(
        self, code: str, message: str, *, at: Word | Position | None = None, path: str = "", hint: str | None = None
    ) -> NoReturn:
        """Keep a problem after which reading on makes no sense, and raise all."""
        self.add(code, message, at=at, path=path, hint=hint)
        raise SpecError(self._problems)

    def check(self) -> None:
        """Raise `SpecError` if there is any problem."""
        if self._problems:
            raise SpecError(self._problems)

    def integer(
        self, word: Word, what: str, *, low: int = 0, high: int = MAX_NUMBER, hint: str | None = None
    ) -> int | None:
        """`word` as a whole number within bounds; None, and a problem kept, if it is none."""
        value = int(word.text) if _INTEGER.match(word.text) else None
        if value is None:
            self.add("not-a-number", f"{what} is {shown(word.text)}, not a whole number", at=word, hint=hint)
            return None
        if not low <= value <= high:
            self.add("out-of-range", f"{what} is {value}: it must be from {low} to {high}", at=word)
            return None
        return value

    def decimal(self, word: Word, what: str, *, hint: str | None = None) -> Fraction | None:
        """`word` as a non-negative decimal number (`2`, `0.5`, `1e6`), exact; None if it is none."""
        if not _DECIMAL.match(word.text):
            self.add("not-a-number", f"{what} is {shown(word.text)}, not a number of 0 or more", at=word, hint=hint)
            return None
        return Fraction(word.text)


def word_lines(text: str) -> Iterator[list[Word]]:
    """The words of every line, the first `MAX_WORDS` of them, for lines that have any; one line at a time in memory.

    A word that begins with `#` begins a comment, which ends with its line.
    """
    start, number = 0, 0
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        number += 1
        found = takewhile(lambda match: not match.group().startswith("#"), _WORD.finditer(text, start, end))
        matches = islice(found, MAX_WORDS)
        if words := [Word(match.group(), number, match.start() - start + 1) for match in matches]:
            yield words
        start = end + 1


def read_bytes(path: Path, limit: int = MAX_TEXT_BYTES) -> bytes:
    """The bytes of a regular file. Raises `SpecError` when it cannot be read or has more than `limit` bytes."""
    faults = Faults(str(path))
    try:
        if not path.exists():
            faults.stop("unreadable", "there is no such file", hint="a path begins at the folder of the scenario")
        if path.is_dir():
            first = min((one.name for one in path.glob("*.et*")), default="FILE")
            hint = f"name a file of it, such as {path / first}; of ranks that have one each, any of them"
            faults.stop("unreadable", "this is a folder", hint=hint)
        if not path.is_file():
            faults.stop("unreadable", "this is no regular file")
        with path.open("rb") as stream:
            data = stream.read(limit + 1)
    except (OSError, ValueError) as error:
        faults.stop("unreadable", f"the file cannot be read: {getattr(error, 'strerror', None) or error}")
    if len(data) > limit:
        faults.stop("too-large", f"the file has more than {limit} bytes", hint="cut the workload into smaller files")
    return data


def decode_text(data: bytes, file: str) -> str:
    """`data` as UTF-8, perhaps after a byte order mark. Raises `SpecError` with the first byte that is not."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        Faults(file).stop(
            "not-text",
            f"byte {data[error.start]:#04x} is not UTF-8 text",
            at=Position(line, column),
            hint="a Chakra execution trace ends in .<rank>.et; otherwise name the format",
        )
