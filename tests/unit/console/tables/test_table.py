"""The order of rows: as people count."""

from __future__ import annotations

from testbed.console.tables.table import _order


def test_text_is_sorted_by_its_letters_and_by_the_numbers_in_it() -> None:
    names = ["p10-s1", "p2-s10b", "spine", "p2-s10a", "p2-s2", "leaf"]
    assert sorted(names, key=_order) == ["leaf", "p2-s2", "p2-s10a", "p2-s10b", "p10-s1", "spine"]
    assert sorted([None, "a", 10, 2.5], key=_order) == [None, 2.5, 10, "a"]
