"""The keys in which a file differs from what it said before: which, with their values, and where they stand."""

from pathlib import Path
from typing import Any

import pytest

from testbed.base.yaml.reader import load_document
from testbed.lab.core.schema.key_changes import SETTINGS, KeyChange, document_of, key_changes, lab_key_changes
from testbed.lab.core.schema.load import load_topology, load_topology_text

BEFORE = """\
name: x
fabric:
  design: rail-optimized
  hosts: 2
  spines: 1
topology:
  nodes: {a: {kind: host}, b: {kind: host}}
  links:
    - {endpoints: ["a:eth1", "s:eth1"], rate: 100G}
    - {endpoints: ["b:eth1", "s:eth2"], rate: 100G}
"""


def changes(after: str, **overrides: Any) -> list[KeyChange]:
    document = load_document(after, "x.yml").with_overrides(overrides)
    return key_changes(load_document(BEFORE, "x.yml").data, document)


def test_nothing_differs_of_the_same_keys_in_other_words() -> None:
    assert changes(BEFORE.replace("{a: {kind: host}, b: {kind: host}}", '{b: {kind: "host"}, a: {kind: host}}')) == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("hosts: 2", "hosts: 3", "fabric.hosts: 2 -> 3 (x.yml:4)"),
        ("  spines: 1\n", "", "fabric.spines is gone (x.yml:2)"),
        ("  spines: 1\n", "  spines: 1\n  gpus: 4\n", "fabric.gpus is new: 4 (x.yml:6)"),
        ("hosts: 2", "hosts: true", "fabric.hosts: 2 -> true (x.yml:4)"),
        (
            '"b:eth1", "s:eth2"], rate: 100G',
            '"b:eth1", "s:eth2"], rate: 400G',
            "topology.links[1].rate: 100G -> 400G (x.yml:10)",
        ),
        ("b: {kind: host}}", "b: {kind: host}, c: {kind: host}}", "topology.nodes.c is new: {kind: host} (x.yml:7)"),
        ("name: x\n", "name: x\nmtu: [1, 2]\n", "mtu is new: [1, 2] (x.yml:2)"),
        (
            'rate: 100G}\n    - {endpoints: ["b',
            'rate: 100G, labels: {a b: "c:d"}}\n    - {endpoints: ["b',
            'topology.links[0].labels is new: {a b: "c:d"} (x.yml:9)',
        ),
    ],
)
def test_a_key_is_told_with_its_values_and_its_line(old: str, new: str, said: str) -> None:
    assert old in BEFORE
    assert [str(change) for change in changes(BEFORE.replace(old, new))] == [said]


def test_an_entry_in_the_middle_of_a_list_is_one_change() -> None:
    line = '    - {endpoints: ["c:eth1", "s:eth3"], rate: 100G}\n'
    first = BEFORE.index('    - {endpoints: ["b')
    (change,) = changes(BEFORE[:first] + line + BEFORE[first:])
    assert (change.key, change.old) == ("topology.links[1]", "")
    assert change.place == "x.yml:10"
    assert change.alone(load_document(BEFORE, "x.yml").data)["topology"]["links"][1]["endpoints"] == [
        "c:eth1",
        "s:eth3",
    ]


def test_a_value_that_was_set_stands_in_no_file() -> None:
    (change,) = changes(BEFORE, **{"fabric.hosts": 8})
    assert (change.place, change.new, change.position) == (SETTINGS, "8", None)


def test_each_change_alone_and_all_of_them_together() -> None:
    after = BEFORE.replace("hosts: 2", "hosts: 3").replace("  spines: 1\n", "").replace("b:eth1", "b:eth7")
    before = load_document(BEFORE, "x.yml").data
    found = changes(after)
    assert [change.key for change in found] == ["fabric.hosts", "topology.links[1].endpoints", "fabric.spines"]
    alone = [change.alone(before) for change in found]
    assert alone[0]["fabric"] == {"design": "rail-optimized", "hosts": 3, "spines": 1}
    assert alone[1]["topology"]["links"][1]["endpoints"] == ["b:eth7", "s:eth2"]
    assert alone[2]["fabric"] == {"design": "rail-optimized", "hosts": 2}
    assert load_document(BEFORE, "x.yml").data == before, "and what was before is as it was"
    data = before
    for change in found:
        data = change.alone(data)
    assert data == load_document(after, "x.yml").data


def test_a_long_value_is_cut() -> None:
    (change,) = changes(BEFORE + f"labels: {{{', '.join(f'key{number}: {number}' for number in range(40))}}}\n")
    assert len(change.new) < 50 and change.new.endswith("...")


FABRIC = "name: x\nfabric: {design: rail-optimized, hosts: 2, gpus: 1, segments: 1, spines: 1}\n"


def test_labs_know_the_files_that_they_came_from(tmp_path: Path) -> None:
    file = tmp_path / "x.yml"
    file.write_text(FABRIC)
    before = load_topology(file, overrides={"fabric.gpus": 2})
    assert before.written is not None and before.written.file == str(file)
    assert before.written.overrides == {"fabric.gpus": 2}
    file.write_text("# a line more\n" + FABRIC.replace("hosts: 2", "hosts: 3"))
    now = load_topology(file, overrides={"fabric.gpus": 2})
    (change,) = lab_key_changes(before.written, now)
    assert str(change) == f"fabric.hosts: 2 -> 3 ({file}:3)"
    (back,) = lab_key_changes(now.written, load_topology(file))
    assert (back.key, back.old, back.new, back.place) == ("fabric.gpus", "2", "1", f"{file}:3")


def test_a_file_that_has_changed_again_has_no_lines(tmp_path: Path) -> None:
    file = tmp_path / "x.yml"
    file.write_text(FABRIC)
    before = load_topology(file)
    file.write_text(FABRIC.replace("hosts: 2", "hosts: 3"))
    now = load_topology(file)
    file.write_text(FABRIC.replace("hosts: 2", "hosts: 4"))
    (change,) = lab_key_changes(before.written, now)
    assert (change.new, change.position, change.place) == ("3", None, str(file))


def test_text_that_is_in_no_file_has_keys_and_no_lines() -> None:
    before, now = (
        load_topology_text(text, file="<stdin>") for text in (FABRIC, FABRIC.replace("hosts: 2", "hosts: 3"))
    )
    (change,) = lab_key_changes(before.written, now)
    assert (change.key, change.place) == ("fabric.hosts", "<stdin>")


def test_two_labs_are_the_same_whatever_their_files_say_beside() -> None:
    assert load_topology_text(FABRIC, file="x.yml") == load_topology_text(FABRIC + "# more\n", file="x.yml")
    other = load_topology_text(FABRIC, file="x.yml", overrides={"fabric.hosts": 2})
    assert other == load_topology_text(FABRIC, file="x.yml")


def test_keys_become_a_document_whatever_their_names_are() -> None:
    data = {"a b": {"c.d": 1}, "fabric": {"hosts": 2}, 'q"': [1]}
    assert document_of(data, "x.yml").data == data
