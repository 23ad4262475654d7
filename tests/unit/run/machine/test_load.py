"""What others use of the machine: from readings of /proc/stat, kept for a minute."""

from pathlib import Path

import pytest

from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.run.machine import load as machine_load
from testbed.run.machine.load import FILE, MOST_KEPT, Reading, judge_load, keep_reading, watch_machine


def reading(at_s: float, total: int, idle: int, steal: int = 0) -> Reading:
    return Reading(at_s=at_s, total=total, idle=idle, steal=steal, softirq=0)


@pytest.fixture
def state(tmp_path: Path) -> StateDirectory:
    return StateDirectory(tmp_path / "state", tmp_path / "run")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> list[Reading]:
    """Readings that the machine gives, in this order."""
    given: list[Reading] = []
    monkeypatch.setattr(machine_load, "take_reading", lambda: given.pop(0))
    monkeypatch.setattr(machine_load, "WINDOW_S", 0.0)
    return given


def test_busy_is_of_now_and_steal_of_the_last_minute() -> None:
    before, now = reading(59.7, 10_000, 6_000, 100), reading(60.0, 10_060, 6_045, 103)
    alone = judge_load(before, now, [])
    assert alone.busy == pytest.approx(12 / 60)
    assert alone.steal == pytest.approx(3 / 60)
    minute = judge_load(before, now, [reading(10.0, 10_060 - 1000, 5_500, 103 - 90)])
    assert minute.busy == pytest.approx(12 / 60)
    assert minute.steal == pytest.approx(0.09)


def test_readings_of_a_minute_are_kept(state: StateDirectory, machine: list[Reading]) -> None:
    machine += [reading(100.0, 1000, 800, 0)]
    keep_reading(state)
    machine += [reading(130.0, 7000, 6000, 600), reading(130.3, 7060, 6060, 600)]
    assert watch_machine(state, keep=False).steal == pytest.approx(600 / 6060)
    machine += [reading(190.0, 19_000, 16_000, 600), reading(190.3, 19_060, 16_060, 600)]
    assert watch_machine(state, keep=True).steal == 0
    machine += [reading(200.0, 21_000, 17_000, 700), reading(200.3, 21_060, 17_060, 700)]
    assert watch_machine(state, keep=True).steal == pytest.approx(100 / 2000)


def test_readings_of_another_boot_say_nothing(state: StateDirectory, machine: list[Reading]) -> None:
    machine += [reading(100.0, 90_000, 800, 0)]
    keep_reading(state)
    machine += [reading(130.0, 7000, 6000, 600), reading(130.3, 7060, 6060, 600)]
    assert watch_machine(state, keep=False).steal == 0


def test_looking_writes_nothing_and_few_are_kept(state: StateDirectory, machine: list[Reading]) -> None:
    machine += [reading(1.0, 100, 50), reading(1.3, 160, 110)]
    watch_machine(state, keep=False)
    assert not (state.state / FILE).exists()
    for second in range(40):
        machine.append(reading(10.0 + 2 * second, 1000 + second, 1000))
        keep_reading(state)
    machine += [reading(90.0, 5000, 5000)] * 2
    assert len(machine_load._kept(state, machine[0])) <= MOST_KEPT


@pytest.mark.parametrize("text", ["", "{}", '[{"at_s": 1}]', "[1]"])
def test_a_file_of_another_version_says_nothing(state: StateDirectory, machine: list[Reading], text: str) -> None:
    state.prepare(run=False)
    (state.state / FILE).write_text(text)
    machine += [reading(1.0, 100, 50), reading(1.3, 200, 100)]
    assert watch_machine(state, keep=True).busy == pytest.approx(0.5)
