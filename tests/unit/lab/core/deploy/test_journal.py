"""The journal: what it adds up to after a crash, a reboot or a full disk."""

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from testbed.lab.core.deploy.records import journal as module
from testbed.lab.core.deploy.records.journal import JOURNAL_NAME, Journal, LabState, StateError


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    made = Journal(tmp_path / "lab")
    made.state(LabState.DEPLOYING)
    made.nodes({"a": 4026532001, "b": 4026532002})
    made.path(tmp_path / "testbed-lab")
    return made


def test_entries_add_up(journal: Journal, tmp_path: Path) -> None:
    journal.nodes({"c": 4026532003})
    journal.state(LabState.RUNNING)
    content = journal.read()
    assert content.state is LabState.RUNNING
    assert content.identities == {"a": 4026532001, "b": 4026532002, "c": 4026532003}
    assert content.paths == [tmp_path / "testbed-lab"]


def test_no_journal_is_an_empty_one(tmp_path: Path) -> None:
    content = Journal(tmp_path).read()
    assert (content.state, content.identities, content.paths) == (None, {}, [])


@pytest.mark.parametrize("kept", range(1, 40, 6))
def test_a_line_cut_short_is_left_out_and_does_not_swallow_the_next(
    journal: Journal, tmp_path: Path, kept: int
) -> None:
    before = journal.read()
    path = tmp_path / "lab" / JOURNAL_NAME
    line = json.dumps({"kind": "path", "path": "/somewhere/else/entirely"})
    with path.open("a") as stream:
        stream.write(line[:kept])
    assert journal.read() == before
    journal.state(LabState.DESTROYING)
    content = journal.read()
    assert content.state is LabState.DESTROYING
    assert (content.identities, content.paths) == (before.identities, before.paths)


def test_identities_of_another_boot_match_nothing(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """A namespace does not survive a reboot; its number may be somebody else's today."""
    monkeypatch.setattr(module, "boot_id", lambda: "another boot")
    assert journal.read().identities == {"a": 0, "b": 0}
    journal.nodes({"a": 77})
    assert journal.read().identities == {"a": 77, "b": 0}


def test_a_full_disk_is_named_and_spoils_nothing(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = journal.read()

    def full(_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module.os, "fsync", full)
    with pytest.raises(StateError, match=f"cannot write .*{JOURNAL_NAME}: No space left on device") as caught:
        journal.state(LabState.DESTROYING)
    assert caught.value.hint is not None
    assert caught.value.exit_code == 2
    monkeypatch.undo()
    assert journal.read().identities == before.identities


def test_what_another_version_wrote_is_passed_over_and_named(journal: Journal, tmp_path: Path) -> None:
    """Whatever this version knows of can still be removed."""
    before = journal.read()
    assert before.unknown == []
    lines = [
        {"kind": "tunnel", "name": "x"},
        {"kind": "state", "state": "hibernating"},
        {"kind": "path"},
        {"kind": "nodes", "boot": module.boot_id(), "identities": None},
        ["kind"],
        7,
        {},
    ]
    with (tmp_path / "lab" / JOURNAL_NAME).open("a") as stream:
        stream.writelines(json.dumps(line) + "\n" for line in lines)
    journal.path(tmp_path / "later")
    content = journal.read()
    assert content.state is before.state and content.identities == before.identities
    assert content.paths == [*before.paths, tmp_path / "later"]
    assert content.unknown == ["tunnel", "state", "path", "nodes"]


def test_the_steps_of_a_change_are_known_until_it_has_ended(journal: Journal) -> None:
    journal.state(LabState.CHANGING)
    journal.step("nodes")
    journal.step("routing")
    assert journal.read().steps == ["nodes", "routing"]
    journal.state(LabState.CHANGING)  # it is undone: what was done before counts still
    journal.step("nodes")
    assert journal.read().steps == ["nodes", "routing", "nodes"]
    journal.state(LabState.RUNNING)
    assert journal.read().steps == []


def test_a_node_that_was_removed_may_come_back(journal: Journal) -> None:
    journal.gone(["a"])
    assert journal.read().identities == {"b": 4026532002}
    journal.nodes({"a": 9})
    assert journal.read().identities == {"a": 9, "b": 4026532002}
