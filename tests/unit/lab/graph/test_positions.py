"""Positions that a person gave to nodes: kept beside the topology file, and nothing else is taken for some."""

import json
from pathlib import Path

import pytest

from testbed.base.errors import TestbedError
from testbed.lab.graph.positions import check_positions, positions_file, read_positions, write_positions


def test_they_stand_beside_the_topology_file_and_are_read_again(tmp_path: Path) -> None:
    topology = tmp_path / "demo.yml"
    assert read_positions(topology) == {}
    write_positions(topology, {"p1-spine1": (10.0, -20.5), "a <b>": (0.5, 1.0)})
    assert positions_file(topology) == tmp_path / "demo.positions.json"
    assert read_positions(topology) == {"p1-spine1": (10.0, -20.5), "a <b>": (0.5, 1.0)}
    assert [path.name for path in tmp_path.iterdir()] == ["demo.positions.json"], "no draft is left"


def test_without_any_there_is_no_file(tmp_path: Path) -> None:
    topology = tmp_path / "demo.yml"
    write_positions(topology, {"h1": (1.0, 1.0)})
    write_positions(topology, {})
    assert not positions_file(topology).exists()
    write_positions(topology, {})


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"h1": 3}', '{"h1": [1]}', '{"h1": [1, "2"]}', '{"h1": [1, NaN]}', '{"h1": [1e9, 0]}',
     '{"h1": [true, 0]}', "[" * 100_000],
)  # fmt: skip
def test_a_file_with_something_else_in_it_is_named_and_not_changed(text: str, tmp_path: Path) -> None:
    topology = tmp_path / "demo.yml"
    positions_file(topology).write_text(text)
    with pytest.raises(TestbedError, match=r"demo\.positions\.json has no positions"):
        read_positions(topology)
    assert positions_file(topology).read_text() == text


def test_a_flood_of_nodes_is_refused() -> None:
    with pytest.raises(TestbedError, match="at most"):
        check_positions({str(number): [0, 0] for number in range(20_001)})


def test_a_directory_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(TestbedError, match="cannot be written"):
        write_positions(tmp_path / "nowhere/demo.yml", {"h1": (1.0, 1.0)})


def test_the_file_is_one_that_a_person_can_read(tmp_path: Path) -> None:
    write_positions(tmp_path / "demo.yml", {"h2": (1.0, 2.0), "h1": (0.25, 3.0)})
    text = positions_file(tmp_path / "demo.yml").read_text()
    assert text == '{\n  "h1": [0.25, 3],\n  "h2": [1, 2]\n}\n'
    assert json.loads(text) == {"h1": [0.25, 3], "h2": [1, 2]}
