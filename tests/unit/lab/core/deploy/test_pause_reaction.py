"""The pause reaction of a machine, by a measurement that says what it is told to."""

from pathlib import Path

import pytest

from testbed.lab.core.deploy.pausing import reaction
from testbed.lab.core.deploy.pausing.reaction import LEAST_NS, SAFETY, planned_reaction_ns
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.plan.stable import DEFAULT_REACTION_NS
from testbed.lab.core.schema.load import load_topology

LOSSLESS = load_topology(Path(__file__).parents[5] / "topologies" / "dcqcn.yml")
SLOW_NS, FAST_NS = 3_000_000, 200_000


class Machine:
    """Counts how often it is measured."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
        self.state = StateDirectory(path / "state", path / "run")
        self.load, self.reaction_ns, self.measured = 0.0, FAST_NS, 0
        monkeypatch.setattr(reaction, "_load", lambda: self.load)
        monkeypatch.setattr(reaction, "_measure", self._measure)

    def _measure(self, _: StateDirectory) -> int:
        self.measured += 1
        return self.reaction_ns

    def planned_ns(self, load: float, reaction_ns: int) -> int:
        self.load, self.reaction_ns = load, reaction_ns
        return planned_reaction_ns(LOSSLESS, self.state)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    return Machine(monkeypatch, tmp_path)


def test_it_is_measured_once(machine: Machine) -> None:
    assert planned_reaction_ns(LOSSLESS, machine.state, measure=False) == DEFAULT_REACTION_NS
    assert [machine.planned_ns(0.1, FAST_NS) for _ in range(3)] == [LEAST_NS] * 3
    assert [machine.planned_ns(8.0, SLOW_NS) for _ in range(3)] == [LEAST_NS] * 3
    assert machine.measured == 1


def test_what_others_made_long_is_measured_again_when_they_are_gone(machine: Machine) -> None:
    """Planned for a busy machine, XOFF of `incast-ladder` was below what waits, and its ports paused."""
    assert machine.planned_ns(8.0, SLOW_NS) == SAFETY * SLOW_NS
    assert machine.planned_ns(7.0, FAST_NS) == SAFETY * SLOW_NS  # as busy as before
    assert planned_reaction_ns(LOSSLESS, machine.state, measure=False) == SAFETY * SLOW_NS
    assert machine.measured == 1
    assert machine.planned_ns(3.0, FAST_NS) == LEAST_NS
    assert machine.planned_ns(0.0, SLOW_NS) == LEAST_NS
    assert machine.measured == 2


def test_a_slow_machine_stays_slow(machine: Machine) -> None:
    assert machine.planned_ns(4.0, SLOW_NS) == SAFETY * SLOW_NS
    assert machine.planned_ns(1.0, SLOW_NS + 1) == SAFETY * SLOW_NS
    assert machine.planned_ns(0.9, SLOW_NS) == SAFETY * SLOW_NS
    assert machine.measured == 2


def test_of_another_boot_or_version_nothing_counts(machine: Machine) -> None:
    machine.planned_ns(0.1, FAST_NS)
    for content in ('{"key": "another boot", "longest_ns": 1, "load": 0.1}', '{"key": "x", "longest_ns": 1}', "{"):
        (machine.state.state / "pause-reaction.json").write_text(content)
        assert machine.planned_ns(0.1, SLOW_NS) == SAFETY * SLOW_NS
    assert machine.measured == 4
