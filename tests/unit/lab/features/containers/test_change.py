"""Containers of a lab that is changed: those that are new are started, and others made anew where that is allowed."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from testbed.base.errors import DriverError
from testbed.base.linux.vty import shell_directory
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.journal import Journal, JournalContent, LabState
from testbed.lab.core.drivers.nodes.changing import kernel_changes
from testbed.lab.core.drivers.nodes.netns import NetnsKernel
from testbed.lab.core.drivers.routing.frr import own_directory
from testbed.lab.core.fabric import FabricParams, generate_fabric
from testbed.lab.core.model import Lab
from testbed.lab.core.model.containers import Container
from testbed.lab.core.plan.changes import Allow, Effect
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.operations import StartContainer
from testbed.lab.features.containers import change as module
from testbed.lab.features.containers.change import ContainersChange, containers_change
from testbed.lab.features.containers.engine import ContainerEngine
from testbed.lab.features.containers.runtimes.docker import DeployingContainers

FIRST, SECOND, LAST = "p1-s1-h1", "p1-s1-h2", "p1-s1-h3"


def model(hosts: int, contained: dict[str, str]) -> Lab:
    """A lab of which some hosts are containers of an image."""
    return in_containers(FabricParams(design="single-switch", hosts=hosts, gpus=1), contained)


def fabric(contained: dict[str, str]) -> Lab:
    """A lab whose switches route, of which some nodes are containers of an image."""
    return in_containers(FabricParams(design="rail-optimized", hosts=2, gpus=1, spines=1), contained)


def in_containers(params: FabricParams, contained: dict[str, str]) -> Lab:
    made = generate_fabric(params, name="lab")
    nodes = tuple(
        replace(node, container=Container(image=contained[node.name], runtime="docker"))
        if node.name in contained
        else node
        for node in made.nodes
    )
    return replace(made, nodes=nodes)


def asked(old: Lab, new: Lab) -> ContainersChange | None:
    running = cast(RunningLab, SimpleNamespace(plan=plan_lab(old, k=1000)))
    return containers_change(running, plan_lab(new, k=1000))


def test_a_container_more_is_started_and_nothing_else() -> None:
    old, new = model(2, {FIRST: "a"}), model(3, {FIRST: "a", LAST: "b"})
    assert asked(old, old) is None
    found = asked(old, new)
    assert found is not None
    assert [(row.effect, row.node, row.what, row.detail) for row in found.rows] == [
        (Effect.MADE, LAST, f"container {LAST}", "b")
    ]
    kernel = kernel_changes(plan_lab(old, k=1000), plan_lab(new, k=1000))
    assert not kernel.created and not any(isinstance(item, StartContainer) for item in kernel.made)
    assert LAST in kernel.places, "its namespace is there when its links are made"


def test_a_container_less_is_a_node_less() -> None:
    old, new = model(3, {FIRST: "a", LAST: "b"}), model(2, {FIRST: "a"})
    found = asked(old, new)
    assert found is not None and not found.rows, "the node's row says it"
    assert kernel_changes(plan_lab(old, k=1000), plan_lab(new, k=1000)).gone == (LAST,)


@pytest.mark.parametrize(
    ("before", "after", "detail"),
    [
        ({FIRST: "a"}, {FIRST: "b"}, "image a -> b"),
        ({}, {FIRST: "a"}, "a container of a"),
        ({FIRST: "a"}, {}, "no container any more"),
    ],
)
def test_a_node_that_would_be_another_one_is_made_anew_where_that_is_allowed(
    before: dict[str, str], after: dict[str, str], detail: str
) -> None:
    old, new = model(2, before), model(2, after)
    found = asked(old, new)
    (row,) = found.rows
    assert (row.effect, row.node, row.detail, row.allow) == (Effect.REMADE, FIRST, detail, Allow.RECREATE)
    assert "what runs in it" in row.at_stake
    assert not kernel_changes(plan_lab(old, k=1000), plan_lab(new, k=1000)), "its links stay as they are"


@pytest.mark.parametrize(
    ("before", "after", "detail"),
    [({}, {"p1-s1-rail1": "a"}, "a container of a"), ({"p1-s1-rail1": "a"}, {}, "no container any more")],
)
def test_a_switch_whose_daemons_would_run_elsewhere_is_made_anew_alone(
    before: dict[str, str], after: dict[str, str], detail: str
) -> None:
    found = asked(fabric(before), fabric(after))
    (row,) = found.rows
    assert (row.effect, row.node, row.detail, row.allow) == (Effect.REMADE, "p1-s1-rail1", detail, Allow.RECREATE)
    assert "sessions" in row.at_stake


def test_what_shells_of_a_node_see_goes_with_what_it_was(tmp_path: Path) -> None:
    shell, own = shell_directory(tmp_path), own_directory(tmp_path)
    for directory in (shell, own):
        directory.mkdir()
    (shell / "frr.conf").touch()
    module._remove_views(tmp_path, is_contained=True)
    assert own.is_dir() and not shell.exists()
    (own / "mgmtd.conf").touch()
    module._remove_views(tmp_path, is_contained=False)
    assert own.is_dir(), "it is the daemons'"
    (own / "mgmtd.conf").unlink()
    module._remove_views(tmp_path, is_contained=False)
    assert not own.exists()


class Engine:
    """An engine that starts what it is asked for, and remembers whether the lab's journal knew of it before."""

    url = "unix:///engine"

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.known_before: list[bool] = []

    def start(self, lab: str, deployment: str, operations: Sequence[StartContainer], *_: object) -> dict[str, Any]:
        found = self._journal.read().containers.values()
        self.known_before.append(deployment in [each.deployment for each in found])
        return {item.node: SimpleNamespace(node=item.node, id=f"{item.node} of {lab}", pid=1) for item in operations}

    def remove(self, deployment: str, *, only: Collection[str]) -> int:
        return 0


def test_the_first_container_of_a_lab_may_take_the_place_of_a_node(tmp_path: Path) -> None:
    """Whoever kills the command while the engine starts it finds in the journal whose it is."""
    journal = Journal(tmp_path)
    engine, lab = Engine(journal), model(2, {FIRST: "a"})
    kernel = cast(NetnsKernel, SimpleNamespace(adopt_nodes=lambda *_: {FIRST: 5}))
    nodes = DeployingContainers(lab, cast(ContainerEngine, engine), tmp_path, journal, only=[FIRST])
    assert nodes.renew(plan_lab(lab, k=1000), kernel, keep=False) == {FIRST: 5}
    assert engine.known_before == [True]
    assert journal.read().containers["docker"].ids == {FIRST: f"{FIRST} of lab"}


@dataclass
class Acts:
    """What a change does to a lab, without one; `fails` is the node that cannot be made anew."""

    journal: Journal
    run: Path
    done: list[str] = field(default_factory=list)
    fails: str = ""

    def changing(self, lab: Lab, *, undoes: bool = False) -> Any:
        return SimpleNamespace(
            running=None,
            lab=lab,
            plan=None,
            record=lab,
            run=self.run,
            timeout_s=1.0,
            undoes=undoes,
            state=None,
            journal=self.journal,
            notify=lambda _: None,
        )

    def rebuild(self, lab: RunningLab, node: str, *_: object, **__: object) -> None:
        self.done.append(f"{node} anew")
        if node == self.fails:
            raise DriverError("no room")

    def run_node_commands(self, lab: Lab, running: RunningLab, only: Collection[str]) -> None:
        self.done.append(f"commands of {', '.join(sorted(only))}")

    def extend(self, lab: Lab, run: Path, journal: Journal, nodes: Collection[str]) -> Any:
        self.done.append(f"images of {', '.join(sorted(nodes))}")
        return SimpleNamespace(close=lambda: None)

    def remove_nodes(self, content: JournalContent, nodes: Collection[str]) -> None:
        self.done.append(f"no container {', '.join(sorted(nodes))}")


@pytest.fixture
def acts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Acts:
    found = Acts(Journal(tmp_path), tmp_path / "run")
    found.journal.containers("docker", "unix:///engine", "lab-1")
    found.journal.started_containers("docker", {FIRST: "1", SECOND: "2"}, {})
    found.journal.state(LabState.CHANGING)
    monkeypatch.setattr(module, "rebuild", found.rebuild)
    monkeypatch.setattr(module, "run_node_commands", found.run_node_commands)
    monkeypatch.setattr(module, "await_convergence", lambda *_: found.done.append("routing"))
    monkeypatch.setattr(module, "DockerRuntime", lambda: found)
    monkeypatch.setattr(module, "planned_daemons", lambda *_: {SECOND: ("bgpd",), "p1-spine1": ("bgpd",)})
    monkeypatch.setattr(module, "note_configurations", lambda _, daemons: found.done.append(f"noted {daemons}"))
    monkeypatch.setattr(module, "RunningLab", lambda lab, _: SimpleNamespace(node=lab.node, frr_version=None))
    return found


GREEN, BLUE = model(2, {FIRST: "green", SECOND: "green"}), model(2, {FIRST: "blue", SECOND: "blue"})


def carried_out(acts: Acts, old: Lab, new: Lab, *, undoes: bool = False) -> list[str]:
    change, changing = asked(old, new), acts.changing(new, undoes=undoes)
    acts.done.clear()
    change.begin(changing)
    change.removed(changing)
    return list(acts.done)


def test_nodes_are_made_anew_and_their_commands_run_once_routing_is_there(acts: Acts) -> None:
    assert carried_out(acts, GREEN, BLUE) == [
        f"images of {FIRST}, {SECOND}",
        f"{FIRST} anew",
        f"{SECOND} anew",
        "routing",
        f"noted {{'{SECOND}': ('bgpd',)}}",
        f"commands of {FIRST}, {SECOND}",
    ]


def test_the_way_back_leaves_containers_alone_that_were_not_touched(acts: Acts) -> None:
    """A change that fails before it comes to them, for want of an image or by a command, costs them nothing."""
    assert carried_out(acts, BLUE, GREEN, undoes=True) == []
    acts.fails = FIRST
    with pytest.raises(DriverError):
        carried_out(acts, GREEN, BLUE)
    acts.fails = ""
    back = [f"images of {FIRST}", f"{FIRST} anew", "routing", "noted {}", f"commands of {FIRST}"]
    assert carried_out(acts, BLUE, GREEN, undoes=True) == back
    acts.journal.state(LabState.RUNNING)
    assert carried_out(acts, BLUE, GREEN, undoes=True) == [], "that was another change"


def test_a_node_that_is_no_container_any_more_has_none_in_the_journal(acts: Acts) -> None:
    done = carried_out(acts, GREEN, model(2, {SECOND: "green"}))
    assert done[:2] == [f"{FIRST} anew", f"no container {FIRST}"]
    assert acts.journal.read().containers["docker"].ids == {SECOND: "2"}
    assert not acts.journal.read().unknown
