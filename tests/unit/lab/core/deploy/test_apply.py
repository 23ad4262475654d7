"""An apply as a whole: what it ends first, what it undoes, and what it leaves recorded, whatever carrying out does."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.base.errors import ConvergenceError, DriverError
from testbed.lab.core.deploy.changing import apply as module
from testbed.lab.core.deploy.changing.apply import ApplyOptions, apply_lab, planned_changes
from testbed.lab.core.deploy.changing.refusal import ChangeRefused, ChangeStuck, ChangeUndone
from testbed.lab.core.deploy.records.journal import Journal, LabState
from testbed.lab.core.deploy.records.lab_record import LabRecord, encode_lab
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.deploy.records.usage import LabInUse, using
from testbed.lab.core.fabric import FabricParams, generate_fabric
from testbed.lab.core.model import Lab, Scale
from testbed.lab.core.plan.changes import Effect


def fabric(hosts: int) -> Lab:
    params = FabricParams(design="rail-optimized", segments=1, hosts=hosts, gpus=1, spines=1)
    return replace(generate_fabric(params, name="one"), scale=Scale(time=1000.0))


def record(hosts: int, revision: int = 1) -> LabRecord:
    return LabRecord(
        name="one",
        slot=3,
        k=1000.0,
        version="0",
        created="now",
        source="x.yml",
        directory="/nowhere",
        model=encode_lab(fabric(hosts)),
        frr="8.4.4",
        revision=revision,
    )


def hosts_of(found: LabRecord) -> int:
    return sum(node["kind"] == "host" for node in found.model["nodes"])


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this machine can do is no matter here."""
    monkeypatch.setattr("testbed.lab.core.deploy.mechanisms.choose_delay", lambda *_: None)


@pytest.fixture
def state(tmp_path: Path) -> StateDirectory:
    """With a lab `one` of two hosts that runs."""
    made = StateDirectory(tmp_path / "state", tmp_path / "run")
    made.prepare()
    Journal(made.lab_directory("one")).state(LabState.RUNNING)
    made.write(record(2))
    return made


class Carried:
    """What was carried out: from how many hosts to how many, and in which manner. `failures` are raised in turn."""

    def __init__(self) -> None:
        self.ways: list[tuple[int, int]] = []
        self.manners: list[Any] = []
        self.failures: list[BaseException | None] = []
        self.during: Callable[[], None] = lambda: None


@pytest.fixture
def carried(monkeypatch: pytest.MonkeyPatch) -> Carried:
    """Nothing here touches the machine: carrying out ends as the real one does."""
    found = Carried()

    class _Carrying:
        def __init__(self, changes: Any, running: Any, manner: Any, _: object) -> None:
            self.changes, self.running, self.manner = changes, running, manner
            self.record, self.life = changes.record, LabState.RUNNING

        def carry_out(self) -> None:
            state, journal = self.running.state, Journal(self.running.state_directory)
            assert state.is_changing("one"), "it is recorded before anything is touched"
            journal.state(LabState.CHANGING)
            found.ways.append((hosts_of(self.changes.was), hosts_of(self.record)))
            found.manners.append(self.manner)
            found.during()
            if found.failures and (error := found.failures.pop(0)) is not None:
                raise error
            state.write(self.record)
            journal.state(LabState.RUNNING)
            state.end_change("one")

    monkeypatch.setattr(module, "ChangeExecution", _Carrying)
    monkeypatch.setattr(module, "require_free", lambda *_: None)
    monkeypatch.setattr(module, "require_links", lambda *_: None)
    monkeypatch.setattr(module, "require_data_path", lambda *_: None)
    monkeypatch.setattr(module, "_require_machine", lambda *_: None)
    monkeypatch.setattr(module, "require_root", lambda: None)
    monkeypatch.setattr(module, "features", lambda: ())
    return found


def applied(state: StateDirectory, hosts: int) -> Any:
    return apply_lab(fabric(hosts), state, ApplyOptions())


def test_a_change_is_carried_out_once(state: StateDirectory, carried: Carried) -> None:
    assert applied(state, 3)
    assert carried.ways == [(2, 3)]
    assert hosts_of(state.read("one")) == 3 and state.read("one").revision == 2 and state.read("one").changed
    assert not state.is_changing("one")
    assert not applied(state, 3)
    assert carried.ways == [(2, 3)] and state.read("one").revision == 2, "a second time there is nothing to do"


def test_what_fails_is_undone_and_the_error_says_why(state: StateDirectory, carried: Carried) -> None:
    carried.failures = [DriverError("create link: File exists", hint="look")]
    with pytest.raises(
        ChangeUndone, match="one could not be changed, and is as it was: create link: File exists"
    ) as caught:
        applied(state, 3)
    assert caught.value.hint == "look"
    assert carried.ways == [(2, 3), (3, 2)] and carried.manners[1].undoes and carried.manners[1].again
    assert hosts_of(state.read("one")) == 2 and state.read("one").revision == 1
    assert not state.is_changing("one") and Journal(state.lab_directory("one")).read().state is LabState.RUNNING


def test_routing_is_told_of_the_way_back_where_it_was_told_of_the_change(
    state: StateDirectory, carried: Carried
) -> None:
    carried.failures = [DriverError("no")]
    with pytest.raises(ChangeUndone):
        applied(state, 3)
    assert not carried.manners[1].tells
    carried.during = lambda: Journal(state.lab_directory("one")).step("routing")
    carried.failures = [DriverError("no")]
    with pytest.raises(ChangeUndone):
        applied(state, 3)
    assert carried.manners[3].tells


def test_an_interrupt_is_undone_and_goes_on(state: StateDirectory, carried: Carried) -> None:
    carried.failures = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        applied(state, 3)
    assert carried.ways == [(2, 3), (3, 2)] and not state.is_changing("one")


def test_what_cannot_be_undone_stays_in_the_middle_and_apply_ends_it(state: StateDirectory, carried: Carried) -> None:
    carried.failures = [DriverError("first"), DriverError("second")]
    with pytest.raises(ChangeStuck, match=r"in the middle of a change: first; .* could not be undone: second"):
        applied(state, 3)
    assert state.is_changing("one")
    applied(state, 3)
    assert carried.ways[2:] == [(2, 3)] and carried.manners[2].again and hosts_of(state.read("one")) == 3
    assert not state.is_changing("one")


def test_a_lab_that_does_not_converge_is_changed_all_the_same(state: StateDirectory, carried: Carried) -> None:
    carried.failures = [ConvergenceError("missing", missing=["a"])]
    with pytest.raises(ConvergenceError):
        applied(state, 3)
    assert carried.ways == [(2, 3)], "nothing is undone: people look at it"


@pytest.fixture
def cut_short(state: StateDirectory) -> StateDirectory:
    """A change from two hosts to three was killed."""
    state.begin_change(record(3, revision=2))
    Journal(state.lab_directory("one")).state(LabState.CHANGING)
    return state


def test_what_was_cut_short_is_finished(cut_short: StateDirectory, carried: Carried) -> None:
    changes = applied(cut_short, 3)
    assert carried.ways == [(2, 3)] and carried.manners[0].again and carried.manners[0].waits is None
    assert changes and hosts_of(cut_short.read("one")) == 3 and cut_short.read("one").revision == 2


def test_what_was_cut_short_is_taken_back_where_the_file_says_the_former(
    cut_short: StateDirectory, carried: Carried
) -> None:
    assert applied(cut_short, 2)
    assert carried.ways == [(3, 2)] and carried.manners[0].undoes
    assert hosts_of(cut_short.read("one")) == 2 and not cut_short.is_changing("one")


def test_what_was_cut_short_is_finished_before_something_else_is_made_of_it(
    cut_short: StateDirectory, carried: Carried
) -> None:
    """It is not waited for: what does not converge may be what the file has mended since."""
    applied(cut_short, 4)
    assert carried.ways == [(2, 3), (3, 4)]
    assert [manner.waits for manner in carried.manners] == [False, True]
    assert hosts_of(cut_short.read("one")) == 4 and cut_short.read("one").revision == 3


def test_what_was_cut_short_and_cannot_be_finished_is_undone(cut_short: StateDirectory, carried: Carried) -> None:
    carried.failures = [DriverError("no")]
    with pytest.raises(ChangeUndone):
        applied(cut_short, 3)
    assert carried.ways == [(2, 3), (3, 2)] and not cut_short.is_changing("one")


def test_a_killed_end_is_an_end(state: StateDirectory, carried: Carried) -> None:
    """All was done, and its record written: only that it has ended was not."""
    state.write(record(3, revision=2))
    state.begin_change(record(3, revision=2))
    applied(state, 3)
    assert not state.is_changing("one") and hosts_of(state.read("one")) == 3


def test_a_lab_in_use_is_not_changed(state: StateDirectory, carried: Carried) -> None:
    with using(state.lab_directory("one"), "one"):
        with pytest.raises(LabInUse, match="the lab one is in use and cannot be changed"):
            applied(state, 3)
        assert not applied(state, 2), "what changes nothing touches nobody"
    assert carried.ways == [] and not state.is_changing("one")


def test_a_refusal_leaves_no_trace(state: StateDirectory, carried: Carried, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ChangeRefused("a link is held")

    monkeypatch.setattr(module, "require_links", refuse)
    before = {path.name: path.read_bytes() for path in state.lab_directory("one").iterdir()}
    with pytest.raises(ChangeRefused, match="a link is held"):
        applied(state, 3)
    after = {path.name: path.read_bytes() for path in state.lab_directory("one").iterdir()}
    assert carried.ways == [] and after == before | {"in-use": b""}


@pytest.mark.parametrize("life", [None, LabState.DEPLOYING, LabState.DESTROYING])
def test_a_name_that_is_not_deployed_is_deployed(
    tmp_path: Path, carried: Carried, monkeypatch: pytest.MonkeyPatch, life: LabState | None
) -> None:
    state = StateDirectory(tmp_path / "state", tmp_path / "run")
    state.prepare()
    if life is not None:
        Journal(state.lab_directory("one")).state(life)
    asked: list[tuple[str, float, float]] = []

    def deploy(lab: Lab, _: object, options: Any, __: object) -> Any:
        asked.append((lab.name, options.k, options.timeout_s))
        plan = module.preview(lab, state, options.k)
        return SimpleNamespace(lab=SimpleNamespace(plan=plan))

    monkeypatch.setattr(module, "deploy_lab", deploy)
    changes = apply_lab(fabric(2), state, ApplyOptions(k=500.0, timeout_s=7.0))
    assert asked == [("one", 500.0, 7.0)]
    assert changes and changes.was is None
    assert {row.effect for row in changes.rows} == {Effect.MADE}
    assert {node.name for node in fabric(2).nodes} <= {name for row in changes.rows for name in row.node.split()}
    assert carried.ways == []


def test_what_would_be_done_of_a_change_that_was_cut_short(cut_short: StateDirectory) -> None:
    def way(hosts: int) -> tuple[int, int]:
        changes = planned_changes(fabric(hosts), cut_short)
        assert changes.was is not None and changes.record is not None
        return hosts_of(changes.was), hosts_of(changes.record)

    assert [way(3), way(2), way(4)] == [(2, 3), (3, 2), (3, 4)]
    assert cut_short.is_changing("one")
