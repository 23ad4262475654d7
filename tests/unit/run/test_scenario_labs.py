"""The labs of a scenario go when it ends, whenever Ctrl-C comes and however often."""

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.base.errors import CapabilityError
from testbed.endpoints.worker.streams import tcp_socket
from testbed.lab.core.deploy.lifecycle import DeployOptions
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.model import Lab
from testbed.run.schema.model import TopologyRef
from testbed.run.sweep import labs as module
from testbed.run.sweep.labs import LabOptions, ScenarioLabs
from testbed.run.sweep.scale_proof import scaled_to
from testbed.run.sweeps import read_sweep

SCENARIO = Path(__file__).parents[3] / "scenarios" / "incast-trimming.yml"


class Machine:
    """A machine that deploys by making the directory of a lab, and destroys by removing it."""

    def __init__(self, state: StateDirectory) -> None:
        self.state = state
        self.during_deploy: Callable[[], None] = lambda: None
        self.during_destroy: Callable[[], None] = lambda: None
        self.deployed: list[tuple[Lab, float]] = []

    def deploy(self, model: Any, _: StateDirectory, options: DeployOptions, *__: object) -> Any:
        self.deployed.append((model, options.k))
        self.state.lab_directory(model.name).mkdir(parents=True)
        self.during_deploy()
        lab = SimpleNamespace(name=model.name, model=model, of_network=lambda *_: None)
        return SimpleNamespace(lab=lab, changed=True)

    def destroy(self, name: str, _: StateDirectory) -> None:
        if not self.state.exists(name):
            raise self.state.not_found(name)
        self.during_destroy()
        self.state.lab_directory(name).rmdir()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    found = Machine(StateDirectory(tmp_path / "state", tmp_path / "run"))
    monkeypatch.setattr(module, "deploy_lab", found.deploy)
    monkeypatch.setattr(module, "destroy_lab", found.destroy)
    monkeypatch.setattr(module, "keep_reading", lambda _: None)
    monkeypatch.setattr(module, "lab_transports", lambda *_: [])
    monkeypatch.setattr(module, "ScenarioScales", lambda *_: Scales())
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield found
    signal.signal(signal.SIGINT, before)


class Scales:
    """The time scale of every lab is 1000 where its topology has no other."""

    def watch_others(self) -> None: ...

    def __call__(self, _: TopologyRef, lab: Lab) -> Any:
        return SimpleNamespace(warning="", k=lab.scale.time or 1000.0)


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def run(machine: Machine, work: Callable[[], None]) -> None:
    """Have a lab deployed for the first point of a scenario, do some work on it, and leave."""
    sweep = read_sweep(SCENARIO)
    with ScenarioLabs(sweep, machine.state, LabOptions()) as labs:
        labs(sweep.points[0].topology)
        assert machine.state.names()
        work()


def test_an_interrupt_in_the_middle_of_removing_a_lab_changes_nothing(machine: Machine) -> None:
    machine.during_destroy = interrupt
    run(machine, lambda: None)
    assert machine.state.names() == []


def test_a_lab_is_removed_after_an_interrupt_and_more_of_them_while_it_goes(machine: Machine) -> None:
    machine.during_destroy = interrupt
    with pytest.raises(KeyboardInterrupt):
        run(machine, interrupt)
    assert machine.state.names() == []


def test_one_that_comes_right_before_signals_are_held_back_leaves_no_lab(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    held_back, comes = module.uninterrupted, [interrupt]

    @contextmanager
    def uninterrupted() -> Iterator[None]:
        if comes:
            comes.pop()()
        held: AbstractContextManager[None] = held_back()
        with held:
            yield

    monkeypatch.setattr(module, "uninterrupted", uninterrupted)
    with pytest.raises(KeyboardInterrupt):
        run(machine, lambda: None)
    assert machine.state.names() == []


def test_a_lab_that_is_up_when_its_deploy_is_interrupted_at_the_very_end_goes(machine: Machine) -> None:
    machine.during_deploy = interrupt
    with pytest.raises(KeyboardInterrupt):
        run(machine, lambda: None)
    assert machine.state.names() == []


def test_a_lab_that_a_further_try_made_slower_is_still_that_of_its_file(machine: Machine) -> None:
    """What `run --keep` leaves can be run on again."""
    sweep = read_sweep(SCENARIO)
    with ScenarioLabs(sweep, machine.state, LabOptions()) as labs:
        for scenario in (sweep.points[0].scenario, scaled_to(sweep.points[0].scenario, 5_000)):
            labs(scenario.topology)
    (first, k), (second, larger_k) = machine.deployed
    assert first == second
    assert (first.scale.time, k, larger_k) == (None, 1_000, 5_000)


def test_a_scale_that_a_point_asks_for_is_that_of_its_lab(machine: Machine) -> None:
    """Even where another point leaves it open."""
    sweep = read_sweep(SCENARIO)
    (auto,) = sweep.points[:1]
    asked = replace(auto, scenario=scaled_to(auto.scenario, 5_000))
    with ScenarioLabs(replace(sweep, points=[auto, asked]), machine.state, LabOptions()) as labs:
        for point in (auto, asked):
            labs(point.topology)
    assert [(lab.scale.time, k) for lab, k in machine.deployed] == [(None, 1_000), (5_000, 5_000)]


def test_a_lab_that_somebody_else_has_destroyed_meanwhile_is_no_error(machine: Machine) -> None:
    run(machine, lambda: machine.destroy(machine.state.names()[0], machine.state))
    assert machine.state.names() == []


def test_a_congestion_control_that_this_kernel_lacks_is_refused_at_its_place(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tcp_socket, "has_congestion_control", lambda name: False)
    file = tmp_path / "sc.yml"
    topology = "topology: {inline: {name: lab, fabric: {design: rail-optimized, hosts: 2, gpus: 1, spines: 1}}}"
    file.write_text(
        f"name: sc\n{topology}\ntransport: {{kind: tcp, cc: vegas}}\nworkload: {{kind: incast, bytes: 1MB}}\n"
    )
    sweep = read_sweep(file)
    with (
        ScenarioLabs(sweep, machine.state, LabOptions()) as labs,
        pytest.raises(CapabilityError, match=r"sc\.yml:3:28: unfit: transport\.cc: .* no congestion control") as caught,
    ):
        labs(sweep.points[0].topology)
    assert caught.value.missing == "vegas"
    assert "doctor" in (caught.value.hint or "")
    assert not machine.deployed
