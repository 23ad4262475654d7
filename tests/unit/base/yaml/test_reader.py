"""The strict YAML reader: what it takes, what it refuses, and the positions it keeps."""

from pathlib import Path

import pytest

from testbed.base.errors import Position, SpecError
from testbed.base.yaml.document import Document
from testbed.base.yaml.reader import MAX_BYTES, MAX_DEPTH, MAX_VALUES, load_document, parse_value, read_document

TEXT = """\
# comment
name: pod
fabric:
  hosts: 4
  "nic":
    rate: '400G'
topology:
  links:
    - endpoints: ["a:eth1", b:eth1]
      mtu: 9000
    - {endpoints: [x:y, "z:ö"], rate: 1G}
"""


def load(text: str) -> Document:
    return load_document(text, "f.yml")


def refused(text: str) -> list[tuple[str, Position | None]]:
    with pytest.raises(SpecError) as caught:
        load(text)
    return [(problem.code, problem.position) for problem in caught.value.problems]


def at(line: int, column: int) -> Position:
    return Position(line=line, column=column)


def test_data_is_plain() -> None:
    assert load(TEXT).data == {
        "name": "pod",
        "fabric": {"hosts": 4, "nic": {"rate": "400G"}},
        "topology": {
            "links": [{"endpoints": ["a:eth1", "b:eth1"], "mtu": 9000}, {"endpoints": ["x:y", "z:ö"], "rate": "1G"}]
        },
    }


@pytest.mark.parametrize(
    ("path", "key", "value"),
    [
        ("name", at(2, 1), at(2, 7)),
        ("fabric", at(3, 1), at(4, 3)),
        ("fabric.hosts", at(4, 3), at(4, 10)),
        ("fabric.nic.rate", at(6, 5), at(6, 11)),
        ("topology.links", at(8, 3), at(9, 5)),
        ("topology.links[0]", at(9, 7), at(9, 7)),
        ("topology.links[0].endpoints[1]", at(9, 29), at(9, 29)),
        ("topology.links[1].endpoints[1]", at(11, 25), at(11, 25)),
        ("topology.links[1].rate", at(11, 33), at(11, 39)),
        # What is not there has the position of what encloses it.
        ("fabric.nic.ports", at(5, 3), at(6, 5)),
        ("topology.links[7].rate", at(8, 3), at(9, 5)),
    ],
)
def test_positions_of_keys_and_values(path: str, key: Position, value: Position) -> None:
    document = load(TEXT)
    assert document.key_position(path) == key
    assert document.position(path) == value


def test_columns_count_characters_not_bytes() -> None:
    assert load("{ä: ö, ü: 1}").position("ü") == at(1, 11)


def test_windows_line_ends_and_a_byte_order_mark() -> None:
    document = load("\ufeffname: pod\r\nfabric:\r\n  hosts: 4\r\n")
    assert document.data == {"name": "pod", "fabric": {"hosts": 4}}
    assert document.position("fabric.hosts") == at(3, 10)


def test_quoted_and_block_scalars_are_text() -> None:
    assert load("a: '010'\nb: \"true\"\nc: |\n  12\nd: >-\n  1\n  2\n").data == {
        "a": "010",
        "b": "true",
        "c": "12\n",
        "d": "1 2",
    }


def test_yaml_1_2_directive_and_document_end_are_taken() -> None:
    assert load("%YAML 1.2\n---\na: 1\n...\n").data == {"a": 1}


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("a: !x 1\na: 2\nb: 010\nc: &q 1\n1.5: 2\n", ["tag", "duplicate-key", "bad-number", "anchor", "bad-key"]),
        ("a: 1\na: 2\nb: [\n", ["duplicate-key", "syntax"]),  # it comes after what was found before
        ("[" * 100_000, ["too-deep"]),
        ("{a: " * 100_000, ["too-deep"]),
        ("- " * 100_000, ["too-deep"]),
        ("# " + "x" * MAX_BYTES, ["too-big"]),
    ],
    ids=["several", "syntax", "lists", "mappings", "dashes", "large"],
)
def test_problems_of_the_reader_come_together(text: str, codes: list[str]) -> None:
    assert [code for code, _ in refused(text)] == codes


def test_nesting_up_to_the_limit_is_read() -> None:
    load("a: " + "[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1))
    assert refused("a: " + "[" * MAX_DEPTH + "]" * MAX_DEPTH)[0][0] == "too-deep"


def test_values_are_limited() -> None:
    assert refused("a: [" + "1," * MAX_VALUES + "]")[0][0] == "too-big"


@pytest.mark.parametrize("text", ["a: \ud800", "a: \x00", "a: \x7f", "\x1b[1m", "a: \ufffe"])
def test_unprintable_characters_have_a_position(text: str) -> None:
    ((code, position),) = refused("# first line\n" + text)
    assert code == "control-character"
    assert position.line == 2


def test_a_big_file_cut_within_a_character_is_too_big(tmp_path: Path) -> None:
    path = tmp_path / "big.yml"
    path.write_bytes(b"#" * (MAX_BYTES) + "ä".encode() * 10)
    with pytest.raises(SpecError) as caught:
        read_document(path)
    assert [problem.code for problem in caught.value.problems] == ["too-big"]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.yml", Path("a\0b")):
        with pytest.raises(SpecError) as caught:
            read_document(path)
        assert [problem.code for problem in caught.value.problems] == ["unreadable"]


@pytest.mark.parametrize(
    ("wanted", "hint"),
    [
        ("topologies/dmo.yml", "did you mean topologies/demo.yml?"),
        ("topologies/demo.yaml", "did you mean topologies/demo.yml?"),
        ("demo", "did you mean topologies/demo.yml?"),
        ("demo.ymk", "did you mean topologies/demo.yml?"),
        ("incast.yml", "did you mean scenarios/incast.yml?"),
        ("elsewhere/incast.yml", "did you mean scenarios/incast.yml?"),
        ("scenarios/something-else.yml", "`testbed examples .` writes what is shipped"),
        ("something-else.yml", "check the path"),
        ("hemp.yml", "check the path"),  # alike in its suffix more than in its name
        ("scenarios", "name files in it, as scenarios/NAME.yml"),
    ],
)
def test_a_file_that_is_not_there_has_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: str, hint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("topologies/demo.yml", "scenarios/incast.yml", "scenarios/.incasts.yml", "scenarios/notes.txt"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text("name: a\n")
    with pytest.raises(SpecError) as caught:
        read_document(Path(wanted))
    assert [problem.hint for problem in caught.value.problems] == [hint]


def test_parse_value_takes_any_shape() -> None:
    assert parse_value("[1, {a: off}]", "f").data == [1, {"a": "off"}]
    assert parse_value("", "f").data is None
