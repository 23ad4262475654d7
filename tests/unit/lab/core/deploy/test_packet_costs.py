"""Costs of packets are kept by machine and build."""

import json
from pathlib import Path

import pytest

from testbed.lab.core.deploy import packet_costs
from testbed.lab.core.deploy.packet_costs import FILE, MOST_KEPT, PacketCosts
from testbed.lab.core.deploy.records.state import StateDirectory


@pytest.fixture
def state(tmp_path: Path) -> StateDirectory:
    return StateDirectory(tmp_path / "state", tmp_path / "run")


def test_what_was_measured_is_found_again(state: StateDirectory) -> None:
    assert PacketCosts(state).find("uet") is None
    assert PacketCosts(state).keep("uet", 512.34).us == 512.3
    found = PacketCosts(state).find("uet")
    assert found is not None and (found.transport, found.us) == ("uet", 512.3)
    PacketCosts(state).keep("uet+tss", 700)
    assert [(cost.transport, cost.us) for cost in PacketCosts(state).all()] == [("uet", 512.3), ("uet+tss", 700.0)]


def test_another_build_is_measured_anew(state: StateDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    PacketCosts(state).keep("uet", 500)
    monkeypatch.setattr(packet_costs, "_build", lambda: "another")
    assert PacketCosts(state).find("uet") is None
    PacketCosts(state).keep("uet", 80)
    assert [cost.us for cost in PacketCosts(state).all()] == [80.0]
    monkeypatch.undo()
    found = PacketCosts(state).find("uet")
    assert found is not None and found.us == 500


def test_old_builds_are_forgotten(state: StateDirectory) -> None:
    for number in range(MOST_KEPT + 5):
        PacketCosts(state).keep(f"t{number}", number)
    assert len(json.loads((state.state / FILE).read_text())) == MOST_KEPT
    assert PacketCosts(state).find("t0") is None


@pytest.mark.parametrize("text", ["", "[]", '{"x": "y"}', "{"])
def test_a_file_of_another_version_says_nothing(state: StateDirectory, text: str) -> None:
    state.prepare(run=False)
    (state.state / FILE).write_text(text)
    assert PacketCosts(state).all() == []
