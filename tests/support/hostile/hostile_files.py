"""Mistakes that anybody may make in a topology or scenario file, and the answers that they must get, for fuzz tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from testbed.base.errors import SpecError
from testbed.base.yaml.reader import MOST_PROBLEMS

FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
LONGEST_REPORT = 20_000
"""Characters of everything that is said about a file."""


def pieces(tokens: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Files that are nothing but tokens of the language."""
    return st.lists(tokens, max_size=40).map("".join)


def edited(seeds: Sequence[str], tokens: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Files in which up to four pieces are replaced by tokens."""
    edits = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 12), tokens), max_size=4)
    return st.builds(_replace, st.sampled_from(seeds), edits)


def _replace(text: str, edits: Sequence[tuple[int, int, str]]) -> str:
    for start, length, token in edits:
        at = start % (len(text) + 1)
        text = text[:at] + token + text[at + length :]
    return text


def values(tokens: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    """Whatever YAML can hold, most of all what has a meaning somewhere else."""
    return st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | tokens,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10) | tokens, inner, max_size=4),
        max_leaves=8,
    )


def overrides(keys: Sequence[str], tokens: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, Any]]:
    """Settings of one to three keys."""
    return st.dictionaries(st.sampled_from(keys), values(tokens), min_size=1, max_size=3)


def assert_well_said(error: SpecError, text: str) -> None:
    """Every problem has a code, a message of one printable line, and a place that is in the file."""
    assert 0 < len(error.problems) <= MOST_PROBLEMS + 1
    assert len(str(error)) < LONGEST_REPORT
    lines = len(text.splitlines()) + 1
    for problem in error.problems:
        assert problem.code
        assert problem.message
        assert "\n" not in problem.message
        assert problem.message.isprintable()
        assert problem.position is None or 1 <= problem.position.line <= lines
