"""The state directory: records, slots, locks."""

import errno
import json
import signal
import sys
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from testbed.base import files
from testbed.base.errors import CapabilityError, LabNotFound
from testbed.lab.core.deploy.pausing import reaction
from testbed.lab.core.deploy.records import files as locks
from testbed.lab.core.deploy.records import state as module
from testbed.lab.core.deploy.records.files import LAB_SCHEMA
from testbed.lab.core.deploy.records.journal import Journal, LabState, StateError
from testbed.lab.core.deploy.records.lab_record import LabRecord, LabUnreadable, say_the_same, state_of
from testbed.lab.core.deploy.records.state import StateBusy, StateDirectory, UnfinishedChange
from testbed.lab.core.plan.stable import SLOTS

RECORD = LabRecord(
    name="one",
    slot=3,
    k=1000.0,
    version="0",
    created="now",
    source="x.yml",
    directory="/nowhere",
    model={"name": "one"},
)


@pytest.fixture
def state(tmp_path: Path) -> StateDirectory:
    made = StateDirectory(tmp_path / "state", tmp_path / "run")
    made.prepare()
    return made


def _record(state: StateDirectory, name: str, slot: int) -> None:
    state.write(replace(RECORD, name=name, slot=slot))


def test_a_record_comes_back(state: StateDirectory) -> None:
    state.write(RECORD)
    assert state.read("one") == RECORD
    assert state.names() == ["one"]
    assert state.exists("one")
    assert not state.exists("two")


def test_a_lab_that_is_not_there_says_which_are(state: StateDirectory) -> None:
    with pytest.raises(LabNotFound, match=r"no lab named two is deployed here \(there are: none\)"):
        state.read("two")
    _record(state, "one", 1)
    _record(state, "three", 2)
    with pytest.raises(LabNotFound, match=r"there are: one, three"):
        state.read("two")


@pytest.mark.parametrize("content", ["", "{", "\xff"])
def test_a_damaged_record_can_be_destroyed(state: StateDirectory, content: str) -> None:
    _record(state, "one", 1)
    (state.lab_directory("one") / "lab.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(LabNotFound, match="is damaged") as caught:
        state.read("one")
    assert caught.value.hint == "testbed destroy -n one"


@pytest.mark.parametrize("name", ["../x", "", "a/b", "A", "a" * 29, ".."])
def test_no_name_leaves_the_directory(state: StateDirectory, name: str) -> None:
    with pytest.raises(ValueError, match="cannot name a lab"):
        state.lab_directory(name)
    with pytest.raises(ValueError, match="cannot name a lab"):
        state.run_directory(name)


def test_slots_are_taken_from_the_wanted_one_on(state: StateDirectory) -> None:
    assert state.take_slot(511) == 511
    _record(state, "one", 511)
    _record(state, "two", 0)
    assert state.take_slot(511) == 1
    assert state.take_slot(5) == 5
    Journal(state.lab_directory("three")).state(LabState.DEPLOYING)  # no record yet
    assert state.take_slot(511) == 1


def test_no_slot_left(state: StateDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("testbed.lab.core.plan.stable.SLOTS", 2)
    _record(state, "one", 0)
    _record(state, "two", 1)
    with pytest.raises(CapabilityError, match="2 labs are deployed"):
        state.take_slot(0)
    assert SLOTS == 512


def test_a_lab_is_locked_against_others_but_not_the_other_labs(state: StateDirectory) -> None:
    busy = pytest.raises(StateBusy, match="another command is working on the lab one")
    with state.lock_lab("one"), state.lock_lab("two"), state.lock_machine(), busy, state.lock_lab("one"):
        pytest.fail("locked twice")
    with state.lock_lab("one"):
        pass


def test_locks_of_labs_that_are_no_more_leave_no_file(state: StateDirectory) -> None:
    with state.lock_lab("one"):
        _record(state, "one", 1)
    with pytest.raises(KeyboardInterrupt), state.lock_lab("two"):
        raise KeyboardInterrupt
    assert {path.name for path in state.state.iterdir()} == {"labs", "one.lock"}
    with state.lock_lab("one"):
        state.forget("one")
    assert {path.name for path in state.state.iterdir()} == {"labs"}
    assert not state.run.exists()


def _interrupted_at(line: int, state: StateDirectory) -> bool:
    """Lock a lab and send SIGINT where the `line`-th line of locking begins; False where there are not as many."""
    left, sent = line, False

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal left, sent
        if frame.f_code.co_filename not in {module.__file__, locks.__file__}:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                sent = True
                signal.raise_signal(signal.SIGINT)
        return trace

    before = sys.gettrace()
    try:
        sys.settrace(trace)
        with state.lock_lab("one"):
            pass
    except KeyboardInterrupt:
        assert sent
    finally:
        sys.settrace(before)
    return sent


def test_an_interruption_at_any_line_of_locking_leaves_no_file(tmp_path: Path) -> None:
    """SIGINT right after the lock's file was made, before anybody knew of it, left it and the run directory."""
    state = StateDirectory(tmp_path / "state", tmp_path / "run")
    line = 0
    while _interrupted_at(line := line + 1, state):
        found = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*"))
        assert set(found) <= {"state", "state/labs"}, f"at line {line}: {found}"
    assert line > 20


def test_forgetting_a_lab_leaves_the_others(state: StateDirectory) -> None:
    _record(state, "one", 1)
    _record(state, "two", 2)
    for name in ("one", "two"):
        (state.run_directory(name) / "s1").mkdir(parents=True)
    with state.lock_lab("one"):
        state.forget("one")
    assert state.names() == ["two"]
    assert [path.name for path in state.run.iterdir()] == ["two"]


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CapabilityError, match=r"cannot make .*/file/state") as caught:
        StateDirectory(tmp_path / "file" / "state", tmp_path / "run").prepare()
    assert "TESTBED_STATE_DIR" in str(caught.value)


def test_the_directories_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESTBED_STATE_DIR", str(tmp_path / "s"))
    monkeypatch.setenv("TESTBED_RUN_DIR", str(tmp_path / "r"))
    made = StateDirectory()
    assert (made.state, made.run) == (tmp_path / "s", tmp_path / "r")


def test_a_full_disk_keeps_the_old_record(state: StateDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    state.write(RECORD)

    def full(_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(StateError, match="No space left on device"):
        state.write(replace(RECORD, slot=9))
    assert state.read("one").slot == 3
    assert [path.name for path in state.lab_directory("one").iterdir()] == ["lab.json"]


def test_an_unrelated_eagain_inside_the_lock_stays_what_it_is(state: StateDirectory) -> None:
    with pytest.raises(BlockingIOError, match="a pipe is full"), state.lock_lab("one"):
        raise BlockingIOError(errno.EAGAIN, "a pipe is full")
    with state.lock_lab("one"):  # and it let go
        pass


def test_an_eagain_of_undoing_a_measurement_is_not_taken_for_one_that_is_under_way(
    state: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def blocked(_: StateDirectory) -> None:
        raise BlockingIOError(errno.EAGAIN, "a pipe is full")

    monkeypatch.setattr(reaction, "_undo", blocked)
    with pytest.raises(BlockingIOError, match="a pipe is full"):
        reaction.undo_killed_measurement(state)
    with state.lock_measurement():
        reaction.undo_killed_measurement(state)  # somebody measures: nothing of it is touched


OF_ANOTHER_VERSION: dict[str, dict[str, Any]] = {
    "a newer schema": {"schema": LAB_SCHEMA + 1, "version": "9.1", "model": {"nodes": [], "links": [1, 2]}},
    "no schema": {"schema": None},
    "a field that is missing": {"k": None},
    "a field of another type": {"k": "1000"},
    "a slot that is none": {"slot": 4711},
    "a mechanism that is none": {"delay_by": "magic"},
    "VRFs that are none": {"vrf_by": "magic"},
    "link groups that are none": {"lag_by": "magic"},
}


def _rewrite(state: StateDirectory, lab: str, **changes: Any) -> None:
    """Change fields of a lab's record; None removes one."""
    path = state.lab_directory(lab) / "lab.json"
    data = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in data.items() if value is not None}))


@pytest.mark.parametrize("what", OF_ANOTHER_VERSION)
def test_a_record_of_another_version_is_refused_with_a_hint(state: StateDirectory, what: str) -> None:
    state.write(RECORD)
    _rewrite(state, "one", **OF_ANOTHER_VERSION[what])
    with pytest.raises(LabUnreadable) as caught:
        state.read("one")
    assert "testbed destroy -n one" in (caught.value.hint or "")
    assert isinstance(caught.value, LabNotFound), "who looks for labs passes over it"
    if what == "a newer schema":
        assert "deployed by testbed 9.1" in caught.value.message


def test_a_record_of_the_same_schema_with_more_in_it_is_read(state: StateDirectory) -> None:
    state.write(RECORD)
    _rewrite(state, "one", colour="red", runtime=None)
    assert state.read("one") == RECORD


@pytest.mark.parametrize("what", OF_ANOTHER_VERSION)
def test_a_record_of_another_version_does_not_stand_in_the_way_of_others(state: StateDirectory, what: str) -> None:
    _record(state, "one", 511)
    state.write(replace(RECORD, name="two", slot=7, model={"links": [1]}))
    _rewrite(state, "one", **OF_ANOTHER_VERSION[what])
    assert state.take_slot(7) == 8
    assert state.count_links(state.read("two")) == (3 if what == "a newer schema" else 1)
    if what != "a slot that is none":
        assert state.take_slot(511) == 0, "its slot is taken nevertheless"
    assert state.names() == ["one", "two"]


def test_a_change_is_recorded_until_it_has_ended(state: StateDirectory) -> None:
    state.write(RECORD)
    assert state.read_next("one") is None and not state.is_changing("one")
    changed = replace(RECORD, k=2000.0, revision=2, changed="later")
    state.begin_change(changed)
    assert state.read_next("one") == changed and state.is_changing("one")
    assert state.read("one") == RECORD, "what is there now may be either"
    state.end_change("one")
    state.end_change("one")
    assert state.read_next("one") is None


def test_a_lab_in_the_middle_of_a_change_is_for_those_alone_who_end_it(state: StateDirectory) -> None:
    state.write(RECORD)
    state.begin_change(replace(RECORD, k=2000.0))
    with pytest.raises(UnfinishedChange, match="a change of the lab one began") as caught, state.lock_lab("one"):
        pass
    assert "`testbed apply -n one` finishes it" in (caught.value.hint or "")
    with state.lock_lab("one", unfinished=True):
        state.end_change("one")
    with state.lock_lab("one"):
        pass


def test_a_damaged_record_of_a_change_names_the_way_out(state: StateDirectory) -> None:
    state.write(RECORD)
    state.begin_change(RECORD)
    (state.lab_directory("one") / "next.json").write_text("{")
    with pytest.raises(LabUnreadable) as caught:
        state.read_next("one")
    assert caught.value.hint == "testbed destroy -n one"


def test_the_state_of_a_lab_is_the_same_wherever_its_file_lies() -> None:
    model = {"name": "one", "source": "x.yml", "links": [1, 2]}
    same = {"links": [1, 2], "source": "/y/x.yml", "name": "one", "written": {"lines": [3]}}
    assert state_of(model) == state_of(same) and say_the_same(model, same)
    other = {**model, "links": [2, 1]}
    assert state_of(model) != state_of(other) and not say_the_same(model, other)
