"""A lazy mapping makes a value when it is looked up, once, and nothing else makes one."""

import pytest

from testbed.base.lazy import LazyMapping


def test_values_are_made_when_they_are_looked_up_and_once() -> None:
    made: list[str] = []

    def make(name: str) -> str:
        made.append(name)
        return name.upper()

    mapping = LazyMapping(["b", "a"], make)
    assert list(mapping) == ["b", "a"] and len(mapping) == 2 and "a" in mapping and "c" not in mapping and not made
    assert (mapping["a"], mapping.get("a"), mapping.get("c")) == ("A", "A", None) and made == ["a"]
    assert dict(mapping) == {"b": "B", "a": "A"} and made == ["a", "b"]
    with pytest.raises(KeyError):
        mapping["c"]
