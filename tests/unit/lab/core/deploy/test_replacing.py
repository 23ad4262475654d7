"""Deploying over a lab of the same name: whatever the new one is refused for, the old one stays as it is."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.base.errors import CapabilityError, DriverError, NameInUse, PlanError, TestbedError
from testbed.base.names import namespace_name
from testbed.lab.core.deploy import lifecycle, mechanisms, preparation
from testbed.lab.core.deploy.lifecycle import DeployOptions, LabExists, deploy_lab
from testbed.lab.core.deploy.records.files import LAB_SCHEMA
from testbed.lab.core.deploy.records.journal import Journal, LabState
from testbed.lab.core.deploy.records.lab_record import LabRecord, encode_lab
from testbed.lab.core.deploy.records.state import StateDirectory, UnfinishedChange
from testbed.lab.core.deploy.scale import resolve_scale
from testbed.lab.core.fabric import FabricParams, generate_fabric
from testbed.lab.core.model import Lab, Scale
from testbed.lab.core.plan.stable import slot_for


class Reached(Exception):
    """The deploy came to where it changes something of the new lab."""


def fabric(hosts: int = 2) -> Lab:
    params = FabricParams(design="rail-optimized", segments=1, hosts=hosts, gpus=1, spines=1)
    return replace(generate_fabric(params, name="one"), scale=Scale(time=1000.0))


@pytest.fixture
def destroyed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of labs that were destroyed. Nothing here touches the machine."""
    found: list[str] = []

    def destroy(name: str, state: StateDirectory, notify: object) -> None:
        if state.exists(name):
            found.append(name)
            state.forget(name)

    def bring_up(*_: object, **__: object) -> None:
        raise Reached

    monkeypatch.setattr(lifecycle, "_destroy_locked", destroy)
    monkeypatch.setattr(lifecycle._Deploy, "bring_up", bring_up)
    monkeypatch.setattr(lifecycle, "require_root", lambda: None)
    monkeypatch.setattr(lifecycle, "find_frr", lambda: SimpleNamespace(version_text="8.4.4"))
    monkeypatch.setattr("testbed.lab.core.deploy.machine_settings.adjust", lambda state, entries: None)
    monkeypatch.setattr(mechanisms, "choose_delay", lambda lab, state: None)
    for module in (lifecycle, preparation):  # whichever asks
        monkeypatch.setattr(module, "planned_reaction_ns", lambda lab, state, **_: 4_000_000, raising=False)
    monkeypatch.setattr("testbed.base.linux.namespaces.published", lambda names: [])
    return found


@pytest.fixture
def state(tmp_path: Path) -> StateDirectory:
    """With a lab `one` of two hosts that runs."""
    made = StateDirectory(tmp_path / "state", tmp_path / "run")
    made.prepare()
    Journal(made.lab_directory("one")).state(LabState.DEPLOYING)
    Journal(made.lab_directory("one")).nodes({"p1-s1-h1": 4026532001})
    Journal(made.lab_directory("one")).state(LabState.RUNNING)
    old = fabric()
    made.write(
        LabRecord(
            name="one",
            slot=slot_for("one"),
            k=1000.0,
            version="0",
            created="now",
            source="x.yml",
            directory=str(tmp_path / "testbed-one"),
            model=encode_lab(old),
        )
    )
    return made


def files(state: StateDirectory) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in state.lab_directory("one").iterdir()}


def raising(error: Exception) -> Callable[..., Any]:
    def refuse(*_: object, **__: object) -> None:
        raise error

    return refuse


def missing(what: str) -> CapabilityError:
    return CapabilityError(f"no {what}", missing=what)


REFUSALS: dict[str, tuple[tuple[str, ...], Exception]] = {
    "frr": (("testbed.lab.core.deploy.lifecycle.find_frr",), missing("frr")),
    "soft RDMA": (("testbed.lab.core.deploy.lifecycle.require_rdma",), missing("rdma_rxe")),
    "the kernel's RED": (("testbed.lab.core.deploy.lifecycle.require_marker",), missing("sch_red")),
    "nf_tables": (("testbed.lab.features.guards.feature.GuardsFeature.require",), missing("nf_tables")),
    "TCP MD5": (("testbed.lab.core.deploy.lifecycle.require_password",), missing("TCP MD5 signatures")),
    "kernel's targets": (("testbed.lab.features.targets.feature.TargetsFeature.require",), missing("nvmet_tcp")),
    "images": (("testbed.lab.core.deploy.lifecycle._prepare_runtimes",), missing("image")),
    "delay": (("testbed.lab.core.deploy.mechanisms.choose_delay",), missing("netem")),
    "pause reaction": (
        (
            "testbed.lab.core.deploy.lifecycle.planned_reaction_ns",
            "testbed.lab.core.deploy.preparation.planned_reaction_ns",
        ),
        DriverError("the measurement failed"),
    ),
    "plan": (
        ("testbed.lab.core.deploy.lifecycle.plan_lab", "testbed.lab.core.deploy.preparation.plan_lab"),
        PlanError("does not fit", code="address"),
    ),
    "data path": (("testbed.lab.core.deploy.preparation.require_data_path",), missing("clang")),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_a_refusal_leaves_the_old_lab_as_it_is(
    state: StateDirectory, destroyed: list[str], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    before = files(state)
    targets, error = REFUSALS[what]
    for target in targets:
        monkeypatch.setattr(target, raising(error), raising=False)
    with pytest.raises(type(error)):
        deploy_lab(fabric(hosts=3), state, DeployOptions(k=1000.0, reconfigure=True))
    assert destroyed == []
    assert files(state) == before


def test_a_foreign_namespace_leaves_the_old_lab_as_it_is(
    state: StateDirectory, destroyed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node of the new lab has the name of somebody's namespace; those of the old lab's own are no reason."""
    before = files(state)
    there = {namespace_name("one", "p1-s1-h1"), namespace_name("one", "p1-s1-h3")}
    monkeypatch.setattr(
        "testbed.base.linux.namespaces.published", lambda names: [name for name in names if name in there]
    )
    monkeypatch.setattr("testbed.base.linux.namespaces.still_published", lambda ours: sorted(there & set(ours)))
    with pytest.raises(NameInUse, match="one-p1-s1-h3 exists and is not ours"):
        deploy_lab(fabric(hosts=3), state, DeployOptions(k=1000.0, reconfigure=True))
    assert destroyed == []
    assert files(state) == before


def test_a_place_that_is_no_directory_leaves_the_old_lab_as_it_is(
    state: StateDirectory, destroyed: list[str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    before = files(state)
    with pytest.raises(TestbedError, match="Not a directory") as caught:
        deploy_lab(fabric(hosts=3), state, DeployOptions(k=1000.0, reconfigure=True, directory=tmp_path / "file"))
    assert "testbed-one" in str(caught.value) or "file" in str(caught.value)
    assert destroyed == []
    assert files(state) == before


def test_a_lab_that_nothing_speaks_against_replaces_the_old_one_in_its_slot(
    state: StateDirectory, destroyed: list[str], tmp_path: Path
) -> None:
    seen: list[LabRecord] = []

    def bring_up(deploy: object, plan: object, record: LabRecord) -> None:
        assert destroyed == ["one"], "the old one has gone"
        seen.append(record)
        raise Reached

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(lifecycle._Deploy, "bring_up", bring_up)
        with pytest.raises(Reached):
            deploy_lab(fabric(hosts=3), state, DeployOptions(k=1000.0, reconfigure=True, directory=tmp_path))
    assert seen[0].slot == slot_for("one") and seen[0].model == encode_lab(fabric(hosts=3))
    assert destroyed == ["one", "one"], "and what failed of the new one went too"


def test_a_part_of_a_lab_over_several_machines_is_not_taken_for_all_of_it(
    state: StateDirectory, destroyed: list[str]
) -> None:
    state.write(replace(state.read("one"), part={"machine": "a"}))
    with pytest.raises(LabExists, match="other machines have the rest") as caught:
        deploy_lab(fabric(), state, DeployOptions(k=1000.0))
    assert destroyed == [] and "destroy -n one" in (caught.value.hint or "")


@pytest.fixture
def of_another_version(state: StateDirectory) -> None:
    path = state.lab_directory("one") / "lab.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema": LAB_SCHEMA + 1, "version": "9"}))


@pytest.mark.usefixtures("of_another_version")
def test_a_lab_of_another_version_is_not_replaced_unless_asked_for(state: StateDirectory, destroyed: list[str]) -> None:
    before = files(state)
    with pytest.raises(LabExists, match="deployed by testbed 9") as caught:
        deploy_lab(fabric(), state, DeployOptions(k=1000.0))
    assert "--reconfigure" in (caught.value.hint or "")
    assert destroyed == [] and files(state) == before
    with pytest.raises(Reached):
        deploy_lab(fabric(), state, DeployOptions(k=1000.0, reconfigure=True))
    assert destroyed[0] == "one"


@pytest.mark.usefixtures("of_another_version")
def test_another_lab_is_deployed_beside_one_of_another_version(state: StateDirectory, destroyed: list[str]) -> None:
    other = replace(fabric(), name="two")
    with pytest.raises(Reached):
        deploy_lab(other, state, DeployOptions(k=1000.0))
    assert "one" not in destroyed


@pytest.mark.usefixtures("of_another_version")
def test_the_scale_of_a_lab_of_another_version_is_chosen_anew(
    state: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = replace(fabric(), scale=Scale(time=None))
    unknown = resolve_scale(replace(free, name="new"), state, measure=False)
    assert resolve_scale(free, state, measure=False).k == unknown.k


def test_a_machine_without_a_free_slot_leaves_the_old_lab_as_it_is(
    state: StateDirectory, destroyed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has the slot of the lab that goes, and there is no other."""
    monkeypatch.setattr("testbed.lab.core.plan.stable.SLOTS", 1)
    monkeypatch.setattr("testbed.lab.core.deploy.preparation.slot_for", lambda name: 0)
    state.write(replace(state.read("one"), name="two", slot=0))
    before = files(state)
    with pytest.raises(CapabilityError, match="1 labs are deployed"):
        deploy_lab(fabric(hosts=3), state, DeployOptions(k=1000.0, reconfigure=True))
    assert destroyed == [] and files(state) == before


def test_a_lab_in_the_middle_of_a_change_is_not_replaced_unless_asked_for(
    state: StateDirectory, destroyed: list[str]
) -> None:
    """It would be taken for one whose deploy was killed, of which nothing is worth keeping."""
    Journal(state.lab_directory("one")).state(LabState.CHANGING)
    state.begin_change(replace(state.read("one"), revision=2))
    before = files(state)
    with pytest.raises(UnfinishedChange, match="a change of the lab one began and has not ended"):
        deploy_lab(fabric(), state, DeployOptions(k=1000.0))
    assert destroyed == [] and files(state) == before
    with pytest.raises(Reached):
        deploy_lab(fabric(), state, DeployOptions(k=1000.0, reconfigure=True))
    assert destroyed[0] == "one"
