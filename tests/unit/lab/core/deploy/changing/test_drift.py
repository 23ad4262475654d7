"""Drift beside the kernel's: configurations of daemons, and processes that ended; and what a journal knows of work."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.base.errors import DriverError
from testbed.lab.core.deploy.changing.drift import lab_drift as drift_module
from testbed.lab.core.deploy.changing.drift.kernel_drift import KernelDrift
from testbed.lab.core.deploy.changing.drift.lab_drift import Drift, NodeDrift, find_drift, repair
from testbed.lab.core.deploy.changing.refusal import ChangeRefused, ChangeStuck
from testbed.lab.core.deploy.live import NodeStatus, RunningLab
from testbed.lab.core.deploy.node_files import DIRECTORY
from testbed.lab.core.deploy.records.journal import Journal, LabState
from testbed.lab.core.deploy.records.lab_record import LabRecord, encode_lab
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.deploy.records.usage import LabInUse, using
from testbed.lab.core.drivers.routing.frr import configuration_file
from testbed.lab.core.feature import EndedProcess, Feature
from testbed.lab.core.plan.changes import ChangeRow, Effect
from testbed.lab.core.schema.load import load_topology_text

TEXT = """name: drifted
fabric: {design: rail-optimized, segments: 1, hosts: 2, gpus: 1, spines: 1, routing: {password: true, bfd: off}}
"""
LEAF, SPINE = "p1-s1-rail1", "p1-spine1"
PLANNED = [
    "router bgp 65001",
    " neighbor fabric peer-group",
    " neighbor fabric password (hidden)",
    " timers bgp 3 9",
    "exit",
]


class World:
    """What is told of a lab that nobody deployed: the states of its nodes, and what daemons run."""

    def __init__(self, lab: RunningLab) -> None:
        self.lab = lab
        self.states = dict.fromkeys((node.name for node in lab.model.nodes), "running")
        self.lacking: dict[str, tuple[str, ...]] = {}
        self.running: dict[str, dict[str, list[str]]] = {}
        self.kernel = KernelDrift()
        self.lost: list[str] = []
        self.ended: list[EndedProcess] = []
        self.asked: list[str] = []
        self.told: list[tuple[str, str, list[str]]] = []
        self.started: list[str] = []
        self.awaited: list[str] = []
        self.rebuilt: list[str] = []

    def status(self) -> list[NodeStatus]:
        return [
            NodeStatus(
                name=name,
                kind="switch",
                role="",
                state=state,
                missing_daemons=self.lacking.get(name, ()),
                pids={},
                addresses=(),
            )
            for name, state in self.states.items()
        ]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    lab = load_topology_text(TEXT, file="drifted.yml")
    state = StateDirectory(tmp_path / "state", tmp_path / "run")
    record = LabRecord(
        name=lab.name,
        slot=1,
        k=1000.0,
        version="0",
        created="",
        source="",
        directory=str(tmp_path),
        model=encode_lab(lab),
        frr="10.2",
    )
    state.write(record)
    running = RunningLab(record, state)
    found = World(running)
    monkeypatch.setattr(RunningLab, "status", lambda _: found.status())
    monkeypatch.setattr(drift_module, "look_at_kernel", lambda _: (found.kernel, found.lost))
    monkeypatch.setattr(drift_module, "repair_kernel", lambda *_: setattr(found, "kernel", KernelDrift()))

    def read(directory: Path, daemons: Any) -> dict[str, list[str]]:
        found.asked.append(directory.name)
        return found.running.get(directory.name, {})

    monkeypatch.setattr(drift_module, "read_configuration", read)
    monkeypatch.setattr(drift_module, "await_daemons", lambda *_: None)

    class Dying(Feature):
        def ended(self, lab: RunningLab) -> list[EndedProcess]:
            return found.ended

    monkeypatch.setattr(drift_module, "features", lambda: (Dying(),))

    def configure(directory: Path, daemon: str, commands: Any, *, again: bool) -> None:
        found.told.append((directory.name, daemon, list(commands)))
        found.running.pop(directory.name)

    monkeypatch.setattr(drift_module.vty, "configure", configure)

    def start(lab: RunningLab, node: str) -> None:
        found.started.append(node)
        found.lacking.pop(node)
        found.states[node] = "running"

    monkeypatch.setattr(drift_module, "start_routing", start)
    monkeypatch.setattr(drift_module, "await_files", lambda _, daemons: found.awaited.extend(daemons))

    def rebuild(lab: RunningLab, node: str, notify: Any, *, keep: bool = False, was: Any = None) -> None:
        found.rebuilt.append(node)
        found.states[node] = "running"
        found.lost.clear()

    monkeypatch.setattr(drift_module, "rebuild", rebuild)
    return found


def note(world: World, node: str, lines: list[str]) -> None:
    """What a deploy has noted of a node, and the file that its daemon was started from."""
    directory = world.lab.processes_directory / DIRECTORY / "config"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / node).write_text(json.dumps({"bgpd": lines}))
    file = configuration_file(world.lab.run_directory(node), "bgpd")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("router bgp 65001\n neighbor fabric peer-group\n neighbor fabric password s3cret\nexit\n")


def test_a_lab_as_it_was_started_has_not_drifted(world: World) -> None:
    note(world, LEAF, PLANNED)
    world.running[LEAF] = {"bgpd": list(PLANNED)}
    assert not find_drift(world.lab)


def test_lines_that_a_person_entered_are_taken_back(world: World) -> None:
    note(world, LEAF, PLANNED)
    world.running[LEAF] = {"bgpd": [line.replace("3 9", "7 21") for line in PLANNED]}
    drift = find_drift(world.lab)
    assert drift.routing[LEAF]["bgpd"][0] == "router bgp 65001"
    assert "timers bgp 3 9" in drift.routing[LEAF]["bgpd"]
    assert {(row.effect, row.node) for row in drift.rows} == {(Effect.CHANGED, LEAF)}
    repair(world.lab, drift)
    assert [node for node, _, _ in world.told] == [LEAF]


def test_a_secret_comes_from_the_file_and_is_in_no_row(world: World) -> None:
    note(world, LEAF, PLANNED)
    world.running[LEAF] = {"bgpd": [line for line in PLANNED if "password" not in line]}
    drift = find_drift(world.lab)
    assert not any("s3cret" in row.what + row.detail for row in drift.rows)
    repair(world.lab, drift)
    assert "neighbor fabric password s3cret" in world.told[0][2]


def test_a_configuration_that_nobody_noted_is_not_judged(world: World) -> None:
    world.running[LEAF] = {"bgpd": PLANNED}
    assert not find_drift(world.lab)


def test_daemons_that_ended_are_started_and_not_asked(world: World) -> None:
    world.states[LEAF], world.lacking[LEAF] = "degraded", ("bgpd",)
    drift = find_drift(world.lab)
    assert [(row.effect, row.node, row.at_stake) for row in drift.rows] == [
        (Effect.RESTARTED, LEAF, "sessions of the node")
    ]
    assert LEAF not in world.asked and SPINE in world.asked
    repair(world.lab, drift)
    assert world.started == world.awaited == [LEAF]


def test_a_node_that_is_gone_is_made_anew(world: World) -> None:
    world.states[LEAF], world.lost = "gone", [LEAF]
    drift = find_drift(world.lab)
    assert [(row.effect, row.node) for row in drift.rows] == [(Effect.REMADE, LEAF)]
    repair(world.lab, drift)
    assert world.rebuilt == [LEAF]


def test_a_node_without_power_is_as_somebody_wants_it(world: World) -> None:
    world.states[LEAF] = "off"
    assert not find_drift(world.lab)
    assert LEAF not in world.asked


def test_processes_of_features_are_started(world: World) -> None:
    def start() -> None:
        world.ended = []

    world.ended = [EndedProcess(node="", what="keeper", start=start)]
    drift = find_drift(world.lab)
    assert [(row.effect, row.what) for row in drift.rows] == [(Effect.RESTARTED, "keeper")]
    repair(world.lab, drift)
    assert not world.ended


def test_a_repair_that_does_not_help_says_what_is_left(world: World) -> None:
    world.ended = [EndedProcess(node=SPINE, what="service sflow", start=lambda: None)]
    with pytest.raises(DriverError, match=f"even after the repair: {SPINE}: service sflow"):
        repair(world.lab, find_drift(world.lab))


def test_a_repair_is_a_change_that_the_journal_knows(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(world.lab.state_directory)
    journal.state(LabState.RUNNING)
    seen: list[tuple[LabState | None, dict[str, str]]] = []
    look = journal.read

    def start() -> None:
        seen.append((look().state, look().work))
        world.ended = []

    world.ended = [EndedProcess(node="", what="keeper", start=start)]
    drift_module.repair_lab(world.lab, find_drift(world.lab))
    assert seen == [(LabState.CHANGING, {"": "repair"})]
    assert (look().state, look().work) == (LabState.RUNNING, {})
    assert not world.lab.state.is_changing(world.lab.name)
    assert not find_drift(world.lab), "twice changes nothing"


def test_a_lab_of_which_nothing_is_there_is_not_mended(world: World) -> None:
    world.states = dict.fromkeys(world.states, "gone")
    with pytest.raises(ChangeRefused, match="nothing of drifted is there any more"):
        drift_module.repair_lab(world.lab, find_drift(world.lab))
    assert not world.lab.state.is_changing(world.lab.name)


def test_a_lab_that_a_run_needs_is_not_mended(world: World) -> None:
    world.ended = [EndedProcess(node="", what="keeper", start=lambda: pytest.fail("it was touched"))]
    with using(world.lab.state_directory, world.lab.name), pytest.raises(LabInUse):
        drift_module.repair_lab(world.lab, find_drift(world.lab))


def test_a_repair_that_fails_ends_the_change_and_a_node_in_the_middle_does_not(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise DriverError("the kernel says no", operation="x")

    journal, name = Journal(world.lab.state_directory), world.lab.name
    journal.state(LabState.RUNNING)
    world.ended = [EndedProcess(node="", what="keeper", start=refuse)]
    with pytest.raises(DriverError, match="says no"):
        drift_module.repair_lab(world.lab, find_drift(world.lab))
    assert (journal.read().state, journal.read().work) == (LabState.RUNNING, {})
    assert not world.lab.state.is_changing(name)

    monkeypatch.setattr(drift_module, "rebuild", refuse)
    world.states[LEAF] = "gone"
    with pytest.raises(ChangeStuck, match=f"{LEAF} of drifted is in the middle of its repair") as stuck:
        drift_module.repair_lab(world.lab, find_drift(world.lab))
    assert stuck.value.hint is not None and "testbed apply -n drifted" in stuck.value.hint
    assert (journal.read().state, journal.read().work) == (LabState.CHANGING, {"": "repair", LEAF: "recreate"})
    assert world.lab.state.is_changing(name)


def test_work_that_was_cut_short_is_done_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(world.lab.state_directory)
    restarted: list[str] = []
    monkeypatch.setattr(drift_module, "restart", lambda _lab, node, _notify: restarted.append(node))
    assert not drift_module.finish_work(world.lab)
    journal.work(LEAF, "recreate")
    journal.work(SPINE, "restart")
    assert drift_module.finish_work(world.lab)
    assert (world.rebuilt, restarted) == ([LEAF], [SPINE])
    assert journal.read().work == {}


@pytest.mark.parametrize("back", [False, True])
def test_a_node_that_a_change_was_making_anew_is_what_is_asked_for(
    back: bool, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be what nobody can be any more: a container that ends at once must not stand in the way back."""
    made: list[tuple[str, dict[str, Any], dict[str, Any]]] = []
    monkeypatch.setattr(
        drift_module, "rebuild", lambda lab, node, _, *, was: made.append((node, lab.record.model, was.record.model))
    )
    before, after = world.lab.record.model, {**world.lab.record.model, "name": "another"}
    world.lab.state.begin_change(replace(world.lab.record, model=after))
    journal = Journal(world.lab.state_directory)
    journal.work(LEAF, "recreate")
    assert drift_module.finish_work(world.lab, back=back)
    assert made == [(LEAF, before, after) if back else (LEAF, after, before)]
    assert journal.read().work == {} and not world.asked, "whoever ends the change mends the rest"


def test_many_rows_are_told_in_a_few_words() -> None:
    nodes = [NodeDrift(node=f"h{number}", state="gone") for number in range(8)]
    assert str(Drift(nodes=nodes)).endswith("and 3 more")
    rows = Drift(kernel=KernelDrift(rows=(ChangeRow(effect=Effect.MADE, node="h1", what="x"),))).rows
    assert len(rows) == 1
