"""Destroying a lab of which nodes cannot be removed: it stays recorded, and all that is left is named."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from testbed.daemons.portd.errors import PauseAgentTimeout
from testbed.lab.core.deploy import lifecycle
from testbed.lab.core.deploy.lifecycle import destroy_lab
from testbed.lab.core.deploy.records.journal import Journal, JournalContent, LabState
from testbed.lab.core.deploy.records.lab_record import LabRecord
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.deploy.runtime import NodesRemain


class Stubborn:
    """A runtime whose nodes stay as long as its engine does not answer."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.answers = False

    def remove(self, content: JournalContent) -> None:
        if not self.answers:
            raise NodesRemain(f"{self.name} keeps h1", hint=f"start {self.name}")


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StateDirectory:
    """With a lab `one` that runs. Nothing here touches the machine."""
    made = StateDirectory(tmp_path / "state", tmp_path / "run")
    made.prepare()
    Journal(made.lab_directory("one")).state(LabState.RUNNING)
    made.write(
        LabRecord(
            name="one",
            slot=1,
            k=1000.0,
            version="0",
            created="now",
            source="x.yml",
            directory=str(tmp_path / "testbed-one"),
            model={},
        )
    )
    removal = SimpleNamespace(nodes=0, processes=[])
    monkeypatch.setattr(lifecycle, "require_root", lambda: None)
    monkeypatch.setattr(lifecycle, "NetnsKernel", lambda name: SimpleNamespace(remove=lambda identities: removal))
    monkeypatch.setattr(lifecycle, "remove_crash_directories", lambda *_: None)
    return made


@pytest.mark.parametrize("left", [("docker",), ("docker", "other")])
def test_every_runtime_that_leaves_nodes_is_named(
    state: StateDirectory, monkeypatch: pytest.MonkeyPatch, left: tuple[str, ...]
) -> None:
    runtimes = {name: Stubborn(name) for name in left}
    monkeypatch.setattr(lifecycle, "runtimes", lambda: runtimes)
    with pytest.raises(NodesRemain) as refusal:
        destroy_lab("one", state)
    assert refusal.value.message == "; ".join(f"{name} keeps h1" for name in left)
    assert refusal.value.hint == "; ".join(f"start {name}" for name in left)
    assert state.exists("one")
    for runtime in runtimes.values():
        runtime.answers = True
    destroy_lab("one", state)
    assert not state.exists("one")


def test_a_pause_agent_that_does_not_end_is_told_and_keeps_no_lab(
    state: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hang(*_: object) -> None:
        raise PauseAgentTimeout("the pause agent does not end")

    monkeypatch.setattr(lifecycle, "runtimes", dict)
    monkeypatch.setattr(lifecycle, "detach", hang)
    assert destroy_lab("one", state).remaining == ("the pause agent does not end",)
    assert not state.exists("one")
