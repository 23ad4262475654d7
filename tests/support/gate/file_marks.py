"""Which files of tests a run of some marks has to read: all whose text names marks that its expression can do with.

To read a file means to import all that it tests, in every process that runs tests. That takes longer than many a tier.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import combinations

from _pytest.mark.expression import Expression, ExpressionMatcher

_MARK = re.compile(r"\bmark\.(\w+)")
_NAME = re.compile(r"\w+")
GIVEN = frozenset({"gate"})
"""Marks that tests are given elsewhere (`tests/conftest.py`)."""


def may_have(expression: str, text: str) -> bool:
    """Tell whether a file may have a test that a mark expression (`-m`) chooses: one with any of the marks in its text.

    Its marks must be written there, as `mark.NAME`, for its own tests or for all of the file.
    """
    return _fits(expression, frozenset(_MARK.findall(text)) | GIVEN)


@cache
def _fits(expression: str, marks: frozenset[str]) -> bool:
    compiled = Expression.compile(expression)
    told = sorted(marks & {*_NAME.findall(expression)})
    chosen = (frozenset(some) for count in range(len(told) + 1) for some in combinations(told, count))
    return any(compiled.evaluate(_named_in(some)) for some in chosen)


def _named_in(marks: frozenset[str]) -> ExpressionMatcher:
    def is_named(name: str, /, **_: object) -> bool:
        return name in marks

    return is_named
