"""Who uses a lab, and who may not change it meanwhile."""

import fcntl
import os
from pathlib import Path

import pytest

from testbed.lab.core.deploy.records import usage
from testbed.lab.core.deploy.records.journal import StateError
from testbed.lab.core.deploy.records.state import StateBusy, StateDirectory
from testbed.lab.core.deploy.records.usage import LabInUse, holders, unused, using


def test_a_lab_in_use_is_not_changed_and_the_error_says_by_whom(tmp_path: Path) -> None:
    with using(tmp_path, "one"), using(tmp_path, "one"):
        assert holders(tmp_path / usage.FILE_NAME) == [os.getpid()]
        with (
            pytest.raises(LabInUse, match="the lab one is in use and cannot be changed") as caught,
            unused(tmp_path, "one"),
        ):
            pass
        assert f"(process {os.getpid()})" in caught.value.message
    with unused(tmp_path, "one"):
        pass
    assert holders(tmp_path / usage.FILE_NAME) == []


def test_a_lab_that_is_being_changed_is_not_used(tmp_path: Path) -> None:
    with unused(tmp_path, "one"), pytest.raises(LabInUse, match="the lab one is being changed"), using(tmp_path, "one"):
        pass


def test_a_lab_that_is_gone_is_not_used(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="in-use"), using(tmp_path / "gone", "gone"):
        pass


def test_those_who_wait_for_a_lock_do_not_hold_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of /proc/locks as Linux 7.2 writes them: one who waits is told below who holds, with an arrow."""
    path = tmp_path / "lock"
    with path.open("w") as stream:
        inode = path.stat().st_ino
        lines = f"1: FLOCK  ADVISORY  WRITE {os.getpid()} fe:00:{inode} 0 EOF\n"
        lines += f"1: -> FLOCK  ADVISORY  WRITE 1 fe:00:{inode} 0 EOF\n2: POSIX  ADVISORY  READ 1 fe:00:{inode} 0 EOF\n"
        lines += f"3: FLOCK  ADVISORY  WRITE 1 fe:00:{inode + 1} 0 EOF\n"
        monkeypatch.setattr(usage.Path, "read_text", lambda _: lines)
        assert holders(path) == [os.getpid()]
        assert not stream.closed


def test_a_file_of_the_same_number_on_another_file_system_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"
    path.touch()
    line = f"1: FLOCK  ADVISORY  WRITE {os.getpid()} fe:00:{path.stat().st_ino} 0 EOF\n"
    monkeypatch.setattr(usage.Path, "read_text", lambda _: line)
    assert holders(path) == []


def test_two_commands_on_one_lab_are_told_of_each_other(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "state", tmp_path / "run")
    state.prepare()
    descriptor = os.open(state.state / "one.lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with (
            pytest.raises(StateBusy, match=rf"working on the lab one: .*\(process {os.getpid()}\)"),
            state.lock_lab("one"),
        ):
            pass
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["/usr/bin/python3", "-m", "testbed", "run", "x.yml"], "testbed run x.yml"),
        (["/usr/bin/python3", "/opt/bin/testbed", "apply"], "testbed apply"),
        (["/usr/bin/python3", "/opt/testbed/__main__.py", "apply"], "testbed apply"),
        (["pytest", "-q"], "pytest -q"),
        (["x" * 100], "x" * 77 + "..."),
    ],
)
def test_commands_are_named_as_people_write_them(argv: list[str], text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    line = b"\0".join(word.encode() for word in argv) + b"\0"
    monkeypatch.setattr(usage.Path, "read_bytes", lambda _: line)
    assert usage.command_text(1) == text
