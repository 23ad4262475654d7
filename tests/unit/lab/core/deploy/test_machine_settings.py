"""Settings of the machine: other ones while labs need them, of one state directory or of several."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from testbed.lab.core.deploy import machine_settings
from testbed.lab.core.deploy.records.lab_record import LabRecord
from testbed.lab.core.deploy.records.state import StateDirectory

RECORD = LabRecord(
    name="one", slot=3, k=1000.0, version="0", created="now", source="x.yml", directory="/nowhere", model={}
)


class Machine:
    """Limits in files of the test instead of /proc."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        root.mkdir()
        limits = {root / f"{path.parts[4]}-{path.name}": factor for path, factor in machine_settings._limits().items()}
        self.files = list(limits)
        self.place = root / "settings.json"
        monkeypatch.setattr(machine_settings, "_limits", lambda: limits)
        monkeypatch.setattr(machine_settings, "PLACE", self.place)
        self.allowed = root / "tcp_allowed_congestion_control"
        monkeypatch.setattr(machine_settings, "ALLOWED", self.allowed)
        self.backlog = root / "netdev_max_backlog"
        monkeypatch.setattr(machine_settings, "BACKLOG", self.backlog)
        monkeypatch.setattr(machine_settings, "has_congestion_control", lambda name: True)
        self.set(128, 512, 1024)

    def set(self, *levels: int) -> None:
        for path, value in zip(self.files, levels * 2, strict=True):
            path.write_text(f"{value}\n")

    def get(self) -> list[int]:
        """Of IPv4; those of IPv6 are the same."""
        values = [int(path.read_text()) for path in self.files]
        assert values[:3] == values[3:]
        return values[:3]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path / "machine", monkeypatch)


def directory(path: Path, *labs: str) -> StateDirectory:
    state = StateDirectory(path / "state", path / "run")
    state.prepare()
    for name in labs:
        state.write(replace(RECORD, name=name))
    return state


def forget(state: StateDirectory, name: str) -> None:
    with state.lock_lab(name):
        state.forget(name)
    state.restore_machine()


def test_they_rise_and_come_back_with_the_last_lab(machine: Machine, tmp_path: Path) -> None:
    state = directory(tmp_path, "one")
    state.adjust_machine(1000)
    assert machine.get() == [1000, 2000, 4000]
    state.write(replace(RECORD, name="two"))
    state.adjust_machine(5000)
    assert machine.get() == [5000, 10000, 20000]
    forget(state, "one")
    assert machine.get() == [5000, 10000, 20000]
    machine.place.with_name(".settings.json.4711-0.new").write_text("cut")  # its writer was killed
    forget(state, "two")
    assert machine.get() == [128, 512, 1024]
    assert {path.name for path in state.state.iterdir()} == {"labs"}
    assert sorted(path for path in machine.place.parent.iterdir()) == sorted(machine.files)
    state.restore_machine()
    assert machine.get() == [128, 512, 1024]


def test_those_that_are_high_enough_stay(machine: Machine, tmp_path: Path) -> None:
    state = directory(tmp_path, "one")
    machine.set(4096, 512, 65536)
    state.adjust_machine(1000)
    assert machine.get() == [4096, 2000, 65536]
    assert set(json.loads(machine.place.read_text())["before"].values()) == {512}
    forget(state, "one")
    assert machine.get() == [4096, 512, 65536]


@pytest.mark.parametrize(
    ("before", "while_labs_are_there"), [("reno bbr", "reno bbr cubic"), ("cubic reno", "cubic reno")]
)
def test_namespaces_may_have_the_labs_congestion_control(
    machine: Machine, tmp_path: Path, before: str, while_labs_are_there: str
) -> None:
    state = directory(tmp_path, "one")
    machine.allowed.write_text(f"{before}\n")
    for _ in range(2):
        state.adjust_machine(1000)
        assert machine.allowed.read_text().strip() == while_labs_are_there
    forget(state, "one")
    assert machine.allowed.read_text().strip() == before


def test_a_kernel_without_it_is_left_as_it_is(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_settings, "has_congestion_control", lambda name: False)
    machine.allowed.write_text("reno\n")
    directory(tmp_path, "one").adjust_machine(1000)
    assert machine.allowed.read_text() == "reno\n"


@pytest.mark.parametrize(("before", "while_labs_are_there"), [(1000, 20000), (65536, 65536)])
def test_packets_may_wait_for_a_processor(
    machine: Machine, tmp_path: Path, before: int, while_labs_are_there: int
) -> None:
    state = directory(tmp_path, "one")
    machine.backlog.write_text(f"{before}\n")
    state.adjust_machine(1000)
    assert int(machine.backlog.read_text()) == while_labs_are_there
    forget(state, "one")
    assert int(machine.backlog.read_text()) == before


@pytest.mark.parametrize("first_to_go", [0, 1])
def test_labs_of_two_state_directories_need_them_together(machine: Machine, tmp_path: Path, first_to_go: int) -> None:
    """Whoever comes second finds raised limits, and they are not the machine's own."""
    states = [directory(tmp_path / name, "one") for name in ("a", "b")]
    states[0].adjust_machine(1000)
    states[1].adjust_machine(3000)
    assert machine.get() == [4000, 8000, 16000]
    forget(states[first_to_go], "one")
    assert machine.get() == [4000, 8000, 16000], "the other still needs some"
    forget(states[1 - first_to_go], "one")
    assert machine.get() == [128, 512, 1024]


def test_a_state_directory_that_was_removed_needs_nothing(machine: Machine, tmp_path: Path) -> None:
    gone, state = (directory(tmp_path / name, "one") for name in ("a", "b"))
    gone.adjust_machine(1000)
    shutil.rmtree(gone.state)
    state.adjust_machine(1000)
    assert machine.get() == [1000, 2000, 4000]
    forget(state, "one")
    assert machine.get() == [128, 512, 1024]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"other": 1}'])
def test_a_record_that_is_damaged_is_begun_anew(machine: Machine, tmp_path: Path, content: str) -> None:
    state = directory(tmp_path, "one")
    machine.place.write_text(content)
    state.adjust_machine(1000)
    forget(state, "one")
    assert machine.get() == [128, 512, 1024]


def test_one_that_has_changed_nothing_gives_nothing_back(machine: Machine, tmp_path: Path) -> None:
    directory(tmp_path).restore_machine()
    assert machine.get() == [128, 512, 1024]
    assert not machine.place.exists()


def test_where_the_limits_are_not_seen_a_deploy_goes_on(machine: Machine, tmp_path: Path) -> None:
    """In a network namespace that is not the machine's first, and where IPv6 is off."""
    state = directory(tmp_path, "one")
    for path in machine.files:
        path.unlink()
    state.adjust_machine(1000)
    assert json.loads(machine.place.read_text())["needs"] == {str(state.state): 1000}
    forget(state, "one")
    assert list(machine.place.parent.iterdir()) == []


def test_what_was_raised_elsewhere_is_put_back_by_who_can(machine: Machine, tmp_path: Path) -> None:
    """The last lab goes in a namespace that does not see the limits: the next one to look puts them back."""
    state = directory(tmp_path, "one")
    state.adjust_machine(1000)
    hidden = {path: path.rename(path.with_suffix(".hidden")) for path in machine.files}
    forget(state, "one")
    assert machine.place.exists()
    for path, elsewhere in hidden.items():
        elsewhere.rename(path)
    assert machine.get() == [1000, 2000, 4000]
    state.restore_machine()
    assert machine.get() == [128, 512, 1024]
    assert not machine.place.exists()
