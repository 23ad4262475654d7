"""Nodes that are containers: what the file says, inherits and leaves to defaults."""

from typing import Any

import pytest

from testbed.base.errors import SpecError
from testbed.base.units import Duration
from testbed.lab.core.deploy.records.lab_record import decode_lab, encode_lab
from testbed.lab.core.model import Lab
from testbed.lab.core.model.containers import Bind, Container, HealthCheck, RuntimeDeclaration
from testbed.lab.core.plan.describe import summarize_plan
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.operations import CreateNode, StartContainer
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.features.containers import schema as containers

WRITTEN = """
topology:
  defaults:
    kind: host
    runtime: docker
    binds: ["/a:/a"]
    capabilities: [cap_sys_nice]
    memory: 64MB
  kinds:
    switch: {role: rail, image: "frr:10"}
  groups:
    blue: {image: "blue:1", binds: ["/b:/b:ro"], capabilities: [IPC_LOCK, SYS_NICE], cpu: 2}
  nodes:
    plain: {}
    own:
      group: blue
      memory: 1GiB
      entrypoint: /init
      cmd: ["serve", "a b"]
      healthcheck: {test: "test -e /ready", interval: 2s, start_period: 10s}
    space: {runtime: netns}
    leaf: {kind: switch}
  links:
    - endpoints: ["plain:a", "leaf:a"]
    - endpoints: ["own:a", "leaf:b"]
    - endpoints: ["space:a", "leaf:c"]
"""
FABRIC = """
fabric: {design: rail-optimized, hosts: 2, gpus: 2, segments: 1, spines: 2}
topology:
  kinds:
    host: {runtime: docker, env: {A: kind, B: kind}}
    switch: {image: "frr:10"}
  nodes:
    p1-s1-h1: {runtime: netns}
    p1-s1-h2: {image: "mine:2", env: {B: own}}
    p1-spine2: {runtime: docker}
"""


def load(text: str) -> Lab:
    return load_topology_text(f"name: lab\n{text}", file="f.yml")


def container(lab: Lab, node: str) -> Container:
    found = lab.node(node).container
    assert found is not None
    return found


def test_a_container_takes_settings_from_the_outermost_to_the_innermost() -> None:
    lab = load(WRITTEN)
    assert container(lab, "plain") == Container(
        image="testbed/host",
        binds=(Bind(source="/a", target="/a"),),
        memory_bytes=64_000_000,
        capabilities=("SYS_NICE",),
    )
    assert container(lab, "own") == Container(
        image="blue:1",
        entrypoint=("/init",),
        command=("serve", "a b"),
        binds=(Bind(source="/a", target="/a"), Bind(source="/b", target="/b", read_only=True)),
        cpus=2.0,
        memory_bytes=1 << 30,
        capabilities=("IPC_LOCK", "SYS_NICE"),
        health_check=HealthCheck(
            test=("test", "-e", "/ready"),
            interval=Duration.parse("2s"),
            timeout=Duration.parse("5s"),
            retries=3,
            start_period=Duration.parse("10s"),
        ),
    )
    assert container(lab, "leaf").image == "frr:10"
    assert lab.node("space").container is None


def test_nodes_of_the_fabric_take_theirs_from_kinds_and_their_names() -> None:
    lab = load(FABRIC)
    found = {node.name: node.container.image if node.container else None for node in lab.nodes}
    assert found == {
        "p1-s1-rail1": None,
        "p1-s1-rail2": None,
        "p1-s1-h1": None,
        "p1-s1-h2": "mine:2",
        "p1-spine1": None,
        "p1-spine2": "frr:10",
    }
    assert lab.node("p1-s1-h1").env == {"A": "kind", "B": "kind"}
    assert lab.node("p1-s1-h2").env == {"A": "kind", "B": "own"}
    bare = load("fabric: {design: rail-optimized, hosts: 2, gpus: 2, segments: 1, spines: 2}\n")
    assert [node.name for node in bare.nodes] == [node.name for node in lab.nodes]
    assert bare.links == lab.links


def test_a_runtime_has_the_keys_that_it_declares(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is inherited is passed over; what the node itself says is a problem."""
    bare = RuntimeDeclaration(name="docker", description="a process tree", keys=("cpu",))
    monkeypatch.setattr(containers, "CONTAINER_RUNTIMES", {"docker": bare})
    assert container(load(FABRIC.replace('{image: "mine:2", env: {B: own}}', "{cpu: 2}")), "p1-s1-h2") == Container(
        image="", cpus=2.0
    )
    with pytest.raises(SpecError) as refusal:
        load(FABRIC)
    (problem,) = refusal.value.problems
    assert (problem.code, problem.path) == ("without-container", "topology.nodes.p1-s1-h2.image")
    assert problem.message == "'p1-s1-h2' is a process tree, which has no image"


def test_a_default_runtime_makes_all_of_them_containers() -> None:
    lab = load("fabric: {design: rail-optimized, hosts: 1, gpus: 1}\ntopology: {defaults: {runtime: docker}}\n")
    assert {node.container.image if node.container else "" for node in lab.hosts} == {"testbed/host"}
    assert {node.container.image if node.container else "" for node in lab.switches} == {"testbed/switch"}


def test_the_plan_starts_containers_and_differs_in_nothing_else() -> None:
    text = FABRIC.replace("spines: 2}", "spines: 2, routing: {bfd: off}}")
    plain, mixed = load(text.partition("topology:")[0]), load(text)
    plans: list[Any] = [plan_lab(lab, slot=1, k=1000) for lab in (plain, mixed)]
    started = {item.node: item for item in plans[1].operations if isinstance(item, StartContainer)}
    assert set(started) == {"p1-s1-h2", "p1-spine2"}
    assert dict(started["p1-s1-h2"].env) == {"A": "kind", "B": "own"}
    slots = {item.node: item.cpu_slot for item in plans[0].operations if isinstance(item, CreateNode)}
    assert all(slots[node] == item.cpu_slot for node, item in started.items())
    rest = [[op for op in plan.operations if not isinstance(op, CreateNode | StartContainer)] for plan in plans]
    assert rest[0] == rest[1]
    assert "containers: 1 of frr:10, 1 of mine:2" in summarize_plan(plans[1]).splitlines()
    assert "containers" not in summarize_plan(plans[0])


def test_bfd_is_off_by_itself_where_releases_of_frr_may_meet() -> None:
    bare = FABRIC.partition("topology:")[0]
    everywhere = bare + "topology: {kinds: {switch: {runtime: docker}}}\n"
    assert load(bare).routing.bfd is not None
    assert load(everywhere).routing.bfd is not None
    assert load(FABRIC).routing.bfd is None
    asked = FABRIC.replace("spines: 2}", "spines: 2, routing: {bfd: {interval: 300ms}}}")
    assert load(asked).routing.bfd is not None


@pytest.mark.parametrize("text", [WRITTEN, FABRIC])
def test_a_record_of_the_lab_reads_back(text: str) -> None:
    lab = load(text)
    assert decode_lab(encode_lab(lab)) == lab


@pytest.mark.parametrize(
    "image",
    [
        "alpine",
        "alpine:3.20",
        "quay.io/frrouting/frr:10.2.1",
        "localhost:5000/a/b_c:x",
        f"a@sha256:{'0' * 64}",
        "a/b__c",
    ],
)
def test_images_as_registries_name_them(image: str) -> None:
    lab = load(FABRIC.replace("mine:2", image))
    assert container(lab, "p1-s1-h2").image == image
