"""Files of other tools as YAML: aliases and merge keys are written out, keys may be numbers, bounds hold as ever."""

import pytest

from testbed.base.errors import SpecError
from testbed.base.yaml.reader import MAX_VALUES, load_document


def data(text: str) -> object:
    return load_document(text, "x.yml", lenient=True).data


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a: &x {b: 1}\nc: *x", {"a": {"b": 1}, "c": {"b": 1}}),
        ("a: &x {b: 1, c: 2}\nd: {<<: *x, c: 3}", {"a": {"b": 1, "c": 2}, "d": {"c": 3, "b": 1}}),
        ("a: &x {b: 1}\ne: &y {f: 2}\nd: {<<: [*x, *y], b: 9}", {"a": {"b": 1}, "e": {"f": 2}, "d": {"b": 9, "f": 2}}),
        ("a: &x word\nb: [*x, *x]", {"a": "word", "b": ["word", "word"]}),
        ("a: &x word\n*x : 1", {"a": "word", "word": 1}),
        ("65000: {members: [a]}", {"65000": {"members": ["a"]}}),
        ("a: 0123", {"a": "0123"}),
        ("---\na: on", {"a": "on"}),
    ],
)
def test_what_is_short_is_written_out(text: str, found: object) -> None:
    assert data(text) == found


def test_what_an_alias_names_is_no_ones_but_its_own() -> None:
    document = load_document("a: &x {b: {c: 1}}\nd: *x\n", "x.yml", lenient=True)
    changed = document.with_overrides({"d.b.c": 2})
    assert changed.data == {"a": {"b": {"c": 1}}, "d": {"b": {"c": 2}}}


def test_problems_name_the_place_that_was_written() -> None:
    document = load_document("a: &x\n  b: 1\nd:\n  <<: *x\n", "x.yml", lenient=True)
    position = document.key_position("d.b")
    assert position is not None and position.line == 2


@pytest.mark.parametrize("text", ["a: *x", "a: &a [*a]", "a: &a {b: *a}", "*x : 1"])
def test_aliases_of_nothing_are_refused(text: str) -> None:
    with pytest.raises(SpecError, match="alias"):
        data(text)


def test_aliases_count_as_what_they_stand_for() -> None:
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 7)]
    with pytest.raises(SpecError, match=f"more than {MAX_VALUES:,} values"):
        data("\n".join(lines))


def test_aliases_are_as_deep_as_what_they_stand_for() -> None:
    lines = ["a0: &a0 [1]", *(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 40))]
    with pytest.raises(SpecError, match="too-deep"):
        data("\n".join(lines))


def test_our_own_files_have_no_aliases() -> None:
    with pytest.raises(SpecError, match="anchor"):
        load_document("a: &x {b: 1}\nc: *x", "x.yml")
