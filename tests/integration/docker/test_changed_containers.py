"""Containers of a lab that is changed while it is up: those that are new, those that go, those that run on, and those
that are others afterwards; and what a SIGKILL in between leaves."""

import random
from typing import Any

import pytest
from cut_short import Bench
from lab_snapshot import differences, snapshot
from lossless_flows import established
from observed import observe

from testbed.lab.core.deploy.changing.apply import ApplyOptions, apply_lab
from testbed.lab.core.deploy.changing.differences import changes_of
from testbed.lab.core.deploy.changing.drift.lab_drift import find_drift
from testbed.lab.core.deploy.changing.refusal import ChangeRefused, ChangeUndone
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.journal import Journal
from testbed.lab.core.deploy.watch.check import check_lab
from testbed.lab.core.plan.changes import Allow
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
    with pytest.raises(ChangeRefused, match=f"node {FIRST}: env") as refused:
        apply_lab(model(sandbox, 3, 2, "blue"), sandbox.state, ApplyOptions(k=10_000.0))
    assert "--allow recreate" in str(refused.value.hint) and containers(client, lab) == after
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


OTHERS = """
name: {name}
scale: {{time: 10000}}
fabric: {{design: rail-optimized, hosts: 3, gpus: 1, segments: 1, spines: 2}}
topology:
  nodes:
    p1-s1-h1: {{runtime: docker, env: {{COLOUR: {colour}}}}}
    p1-s1-h2: {{runtime: docker}}
    p1-s1-h3: {last}
    p1-spine2: {{runtime: docker, env: {{COLOUR: {colour}}}}}
"""
GREEN = {"colour": "green", "last": "{runtime: netns}"}
BLUE = {"colour": "blue", "last": "{runtime: docker}"}
"""A host and a switch are other containers, and a host becomes one."""


def test_a_container_that_is_another_one_keeps_its_links_and_leaves_others_alone(
    client: ContainerEngine, sandbox: Any
) -> None:
    def wanted(values: dict[str, str]) -> Any:
        return sandbox.load(OTHERS, **values)

    lab = sandbox.deploy(wanted(GREEN)).lab
    lab.run(LAST, ["true"])  # a host has its shared memory from the first program on
    first, first_seen = containers(client, lab), snapshot(lab)
    neighbours = observe(lab.name, ["p1-s1-rail1", "p1-s1-h2", "p1-spine1"])
    sessions = sessions_of(lab)
    for values, contained in ((BLUE, {FIRST, "p1-s1-h2", LAST, SPINE}), (GREEN, {FIRST, "p1-s1-h2", SPINE})):
        before = containers(client, sandbox.running())
        with pytest.raises(ChangeRefused, match="at stake: what runs in it"):
            apply_lab(wanted(values), sandbox.state, ApplyOptions(k=10_000.0))
        assert containers(client, sandbox.running()) == before
        apply_lab(wanted(values), sandbox.state, ApplyOptions(k=10_000.0, allow=frozenset({Allow.RECREATE})))
        lab = sandbox.running()
        assert not changes_of(lab, wanted(values), 10_000.0).rows and not find_drift(lab).rows
        assert check_lab(lab).exit_code == 0
        after = containers(client, lab)
        assert after.keys() == contained and after["p1-s1-h2"] == first["p1-s1-h2"]
        assert not {after[FIRST], after[SPINE]} & {before[FIRST], before[SPINE]}
        assert lab.run(FIRST, ["sh", "-c", "echo $COLOUR"]).stdout.split() == [values["colour"]]
        assert lab.run(LAST, ["ping", "-c1", "-W5", str(lab.port(FIRST, "rail1").address.ip)]).returncode == 0
        assert observe(lab.name, ["p1-s1-rail1", "p1-s1-h2", "p1-spine1"]) == neighbours
        assert sessions_of(lab) == sessions
    assert differences(snapshot(lab), first_seen) == [], "there and back"


SWITCHES = """
name: {name}
scale: {{time: 10000}}
fabric: {{design: rail-optimized, hosts: 2, gpus: 1, segments: 2, spines: 2}}
topology:
  nodes:
    p1-spine1: {spine}
    p1-s1-rail1: {rail}
"""
ALL_NETNS = {"spine": "{runtime: netns}", "rail": "{runtime: netns}"}
ALL_DOCKER = {"spine": "{runtime: docker}", "rail": "{runtime: docker}"}


@pytest.mark.thorough
def test_switches_become_containers_and_cease_to_be_some(client: ContainerEngine, sandbox: Any) -> None:
    """A spine and a rail switch: neighbours keep their ends of links, and sessions between others stay up."""
    lab = sandbox.deploy(sandbox.load(SWITCHES, **ALL_NETNS)).lab
    first_seen = snapshot(lab)
    others = ["p1-spine2", "p1-s2-rail1", "p1-s1-h1"]
    neighbours, before = observe(lab.name, others), dict(lab.identities)
    sessions = {key: counts for key, counts in established(lab).items() if key[0] == "p1-s2-rail1"}
    for values, contained in ((ALL_DOCKER, {"p1-spine1", "p1-s1-rail1"}), (ALL_NETNS, set())):
        wanted = sandbox.load(SWITCHES, **values)
        with pytest.raises(ChangeRefused, match="sessions") as refused:
            apply_lab(wanted, sandbox.state, ApplyOptions(k=10_000.0))
        assert "--allow recreate" in str(refused.value.hint)
        apply_lab(wanted, sandbox.state, ApplyOptions(k=10_000.0, allow=frozenset({Allow.RECREATE})))
        sandbox.note_daemons()
        lab = sandbox.running()
        assert not changes_of(lab, wanted, 10_000.0).rows and not find_drift(lab).rows
        assert check_lab(lab).exit_code == 0
        assert {node.name for node in lab.model.nodes if node.runtime == "docker"} == contained
        if contained:
            assert containers(client, lab).keys() == contained
            said = lab.run("p1-s1-rail1", ["vtysh", "-c", "show bgp summary"])
            assert said.returncode == 0 and "uplink1" in said.stdout, "it is its own FRR"
        target = str(lab.port("p1-s2-h1", "rail1").address.ip)
        assert lab.run("p1-s1-h1", ["ping", "-c1", "-W5", target]).returncode == 0
        assert observe(lab.name, others) == neighbours
        assert {node: lab.identities[node] for node in others} == {node: before[node] for node in others}
        now = {key: counts for key, counts in established(lab).items() if key[0] == "p1-s2-rail1"}
        assert now["p1-s2-rail1", "uplink2"] == sessions["p1-s2-rail1", "uplink2"], "spine2 is none of it"
    assert not Journal(lab.state_directory).read().containers["docker"].ids
    assert differences(snapshot(lab), first_seen) == [], "there and back"


def sessions_of(lab: RunningLab) -> dict[str, tuple[int, int]]:
    """The sessions of a spine that no change is about, and how often they came up and went down."""
    return {interface: counts for (node, interface), counts in established(lab).items() if node == "p1-spine1"}


def test_an_image_that_is_not_there_leaves_the_lab_as_it_is(client: ContainerEngine, sandbox: Any) -> None:
    lab = sandbox.deploy(sandbox.load(OTHERS, **GREEN)).lab
    before = containers(client, lab)
    lacking = OTHERS.replace("p1-s1-h1: {{runtime: docker,", "p1-s1-h1: {{runtime: docker, image: testbed/nothing,")
    with pytest.raises(ChangeUndone, match="testbed/nothing"):
        apply_lab(
            sandbox.load(lacking, **GREEN), sandbox.state, ApplyOptions(k=10_000.0, allow=frozenset({Allow.RECREATE}))
        )
    assert containers(client, sandbox.running()) == before and not find_drift(sandbox.running()).rows


MORE = OTHERS.replace("hosts: 3", "hosts: 4") + "    p1-s1-h4: {{runtime: docker}}\n"


@pytest.mark.timeout(9000)
@pytest.mark.parametrize(
    "points", [pytest.param(3, marks=pytest.mark.thorough), pytest.param(30, marks=pytest.mark.soak)]
)
def test_switches_that_become_containers_are_killed_on_the_way(
    client: ContainerEngine, sandbox: Any, points: int
) -> None:
    before, after = (SWITCHES.format(name=sandbox.name(), **values) for values in (ALL_NETNS, ALL_DOCKER))
    Bench(sandbox, before, after, ["recreate"]).kill_at(points, random.Random(f"switches {points}"))
    assert check_lab(sandbox.running()).exit_code == 0


@pytest.mark.timeout(3000)
@pytest.mark.parametrize(
    "points", [pytest.param(3, marks=pytest.mark.thorough), pytest.param(30, marks=pytest.mark.soak)]
)
def test_a_change_of_containers_killed_anywhere_is_finished_or_taken_back(
    client: ContainerEngine, sandbox: Any, points: int
) -> None:
    before, after = (text.format(name=sandbox.name(), **values) for text, values in ((OTHERS, GREEN), (MORE, BLUE)))
    Bench(sandbox, before, after, ["recreate"]).kill_at(points, random.Random(f"containers {points}"))
    containers(client, sandbox.running())
