"""Paths, overrides and problems of a document."""

import pytest

from testbed.base.errors import Position, SpecError
from testbed.base.yaml.document import OVERRIDE_FILE
from testbed.base.yaml.paths import format_path, parse_path, quote
from testbed.base.yaml.reader import load_document

DOCUMENT = load_document("name: pod\nfabric: {hosts: 4, nic: {rate: 400G}}\nempty:\nlist: [1, {a: 2}]\n", "f.yml")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (("name",), "name"),
        (("topology", "links", 3, "endpoints", 0), "topology.links[3].endpoints[0]"),
        (("nodes", "a.b", "x y"), 'nodes."a.b"."x y"'),
        (("a", 'say "hi"\n', 1), 'a."say \\"hi\\"\\n"[1]'),
        (("startup-config",), "startup-config"),
    ],
)
def test_paths_read_back(path: tuple[str | int, ...], text: str) -> None:
    assert format_path(path) == text
    assert parse_path(text) == path


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", "a[", "a[x]", 'a."b', "a b", "a.[0]", 'a"b"'])
def test_what_is_no_path(text: str) -> None:
    with pytest.raises(ValueError, match="is not a"):
        parse_path(text)


def test_values_in_messages_are_short_and_printable() -> None:
    assert quote("x" * 1000) == repr("x" * 50 + "...")
    assert quote("a\x1b\n") == "'a\\x1b\\n'"
    assert [quote(value) for value in (None, True, 7, [1], {})] == ["nothing", "true", "7", "a list", "a mapping"]


def test_overrides_replace_add_and_leave_the_original_alone() -> None:
    changed = DOCUMENT.with_overrides(
        {"fabric.hosts": 8, "fabric.nic.ports": 2, "new.section.key": "x", "empty.key": 1, "list[1].a": [3]}
    )
    assert changed.data == {
        "name": "pod",
        "fabric": {"hosts": 8, "nic": {"rate": "400G", "ports": 2}},
        "empty": {"key": 1},
        "list": [1, {"a": [3]}],
        "new": {"section": {"key": "x"}},
    }
    assert DOCUMENT.data["fabric"]["hosts"] == 4
    assert "new" not in DOCUMENT.data


def test_problems_name_the_file_and_the_position_or_the_override() -> None:
    changed = DOCUMENT.with_overrides({"fabric.hosts": 8, "list": [{"a": 1}]})
    of_file = changed.problem("code", ("fabric", "nic", "rate"), "wrong")
    assert (of_file.file, of_file.position) == ("f.yml", Position(line=2, column=32))
    of_key = changed.problem("code", "fabric.nic", "wrong", key=True)
    assert of_key.position == Position(line=2, column=20)
    for path in ("fabric.hosts", "list[0].a", "list[0].missing"):
        problem = changed.problem("code", path, "wrong")
        assert (problem.file, problem.position, problem.path) == (OVERRIDE_FILE, None, path)


def test_overrides_of_a_section_at_once_and_in_order() -> None:
    changed = DOCUMENT.with_overrides({"fabric": {"design": "pod"}, "fabric.hosts": 2})
    assert changed.data["fabric"] == {"design": "pod", "hosts": 2}
    assert changed.position("fabric.hosts") is None


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("fabric.hosts.x", "fabric.hosts is 4"),
        ("list[5]", "the list has 2 entries"),
        ("list.a", "list is a list"),
        ("fabric[0]", "fabric is a mapping"),
        ("a..b", "is not a dotted key"),
        ("", "is not a dotted key"),
    ],
)
def test_overrides_that_lead_nowhere(key: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        DOCUMENT.with_overrides({key: 1, "fabric.hosts": 2})
    (problem,) = caught.value.problems
    assert (problem.code, problem.file) == ("bad-override", OVERRIDE_FILE)
    assert message in problem.message


def test_has_and_get() -> None:
    assert DOCUMENT.has("fabric.nic")
    assert not DOCUMENT.has("fabric.spines")
    assert DOCUMENT.get("list[1].a") == 2
    assert DOCUMENT.get(("empty", "x"), "other") == "other"
