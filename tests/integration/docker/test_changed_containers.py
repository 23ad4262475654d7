"""Containers of a lab that is changed while it is up: those that are new, those that go, and those that run on."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.lab.core.deploy.changing.apply import ApplyOptions, apply_lab
from testbed.lab.core.deploy.changing.differences import changes_of
from testbed.lab.core.deploy.changing.refusal import ChangeRefused
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.journal import Journal
from testbed.lab.core.deploy.watch.check import check_lab
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.features.containers.engine import ContainerEngine

pytestmark = [pytest.mark.docker, pytest.mark.frr, pytest.mark.timeout(600)]

TEXT = """
name: {name}
scale: {{time: 10000}}
fabric: {{design: rail-optimized, hosts: {hosts}, gpus: 1, segments: 1, spines: {spines}}}
topology:
  kinds: {{host: {{runtime: docker, env: {{COLOUR: {colour}}}}}}}
  nodes:
    p1-spine2: {{runtime: docker}}
"""
FIRST, LAST, SPINE = "p1-s1-h1", "p1-s1-h3", "p1-spine2"


def model(sandbox: Any, hosts: int, spines: int, colour: str = "green") -> Any:
    text = TEXT.format(name=sandbox.name(), hosts=hosts, spines=spines, colour=colour)
    if spines < 2:
        text = text[: text.index("  nodes:")]
    return load_topology_text(text, file="contained.yml")


def apply(sandbox: Any, wanted: Any) -> RunningLab:
    apply_lab(wanted, sandbox.state, ApplyOptions(k=10_000.0))
    lab = sandbox.running()
    assert not changes_of(lab, wanted, 10_000.0).rows
    assert check_lab(lab).exit_code == 0
    return lab


def containers(client: ContainerEngine, lab: RunningLab) -> dict[str, str]:
    (journalled,) = Journal(lab.state_directory).read().containers.values()
    states = client.states(journalled.deployment)
    assert {state.word for state in states.values()} == {"running"}
    assert {node: state.id for node, state in states.items()} == journalled.ids
    return dict(journalled.ids)


def test_containers_come_and_go_and_others_run_on(client: ContainerEngine, sandbox: Any) -> None:
    lab = sandbox.deploy(model(sandbox, 2, 1)).lab
    before = containers(client, lab)
    lab = apply(sandbox, model(sandbox, 3, 2))
    after = containers(client, lab)
    assert {node: after[node] for node in before} == before and after.keys() - before.keys() == {LAST, SPINE}
    assert lab.run(LAST, ["sh", "-c", "echo $COLOUR; hostname"]).stdout.split() == ["green", LAST]
    with pytest.raises(ChangeRefused, match="would be another container"):
        apply_lab(model(sandbox, 3, 2, "blue"), sandbox.state, ApplyOptions(k=10_000.0))
    lab = apply(sandbox, model(sandbox, 2, 1))
    assert containers(client, lab) == before


def test_a_first_container_comes_to_a_lab_without(client: ContainerEngine, sandbox: Any) -> None:
    plain = load_topology_text(
        f"name: {sandbox.name()}\nfabric: {{design: single-switch, hosts: 2, gpus: 1}}\n", file="plain.yml"
    )
    sandbox.deploy(plain)
    more = load_topology_text(
        f"name: {sandbox.name()}\nfabric: {{design: single-switch, hosts: 3, gpus: 1}}\n"
        f"topology: {{nodes: {{{LAST}: {{runtime: docker}}}}}}\n",
        file="more.yml",
    )
    lab = apply(sandbox, more)
    assert containers(client, lab).keys() == {LAST}
    assert lab.run(LAST, ["ping", "-c1", "-W5", str(lab.port(FIRST, "rail1").address.ip)]).returncode == 0
