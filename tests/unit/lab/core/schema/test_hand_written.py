"""The `topology:` section: inheritance of settings, links, and how it joins a generated fabric."""

from __future__ import annotations

from ipaddress import IPv4Network

import pytest

from testbed.base.units import Duration
from testbed.lab.core.model import Lab
from testbed.lab.core.schema.load import load_topology_text


def load(text: str) -> Lab:
    return load_topology_text(f"name: lab\n{text}", file="f.yml")


def test_nodes_and_links_keep_the_order_of_the_file_after_the_generated_ones() -> None:
    fabric = "fabric: {design: rail-optimized, hosts: 2, gpus: 2, spines: 2}\n"
    alone = load(fabric)
    lab = load(
        f"{fabric}topology:\n  nodes: {{zeta: {{kind: host}}, alpha: {{kind: host}}}}\n"
        '  links:\n    - endpoints: ["zeta:a", "p1-s1-rail1:extra1"]\n    - endpoints: ["alpha:a", "zeta:b"]\n'
    )
    assert lab.nodes[: len(alone.nodes)] == alone.nodes
    assert lab.links[: len(alone.links)] == alone.links
    assert [node.name for node in lab.nodes[len(alone.nodes) :]] == ["zeta", "alpha"]
    assert [str(link.a) for link in lab.links[len(alone.links) :]] == ["zeta:a", "alpha:a"]
    assert (lab.design, lab.rail_subnets) == (alone.design, alone.rail_subnets)


def test_storage_targets_stay_as_they_are_beside_what_is_said_of_hosts() -> None:
    fabric = "fabric: {design: rail-optimized, hosts: 2, gpus: 1, spines: 1, targets: {flash: {}}}\n"
    networks = "networks: {storage: {design: single-switch, targets: {tape: {}}}}\n"
    alone = load(fabric + networks)
    lab = load(f"{fabric}{networks}topology: {{defaults: {{env: {{A: b}}}}}}\n")
    assert lab.targets == alone.targets and [node.name for node in lab.targets] == ["flash", "tape"]
    assert {node.env["A"] for node in lab.hosts} == {"b"}


def test_bfd_auto_counts_the_sessions_of_the_whole_lab() -> None:
    fabric = "fabric: {design: rail-optimized, hosts: 1, gpus: 4, spines: 8}\n"
    with_one_more = (
        f"{fabric}topology:\n  nodes: {{extra: {{kind: switch, role: spine}}}}\n"
        '  links: [{endpoints: ["extra:a", "p1-s1-rail1:extra1"]}]\n'
    )
    few, more = load(fabric).routing.bfd, load(with_one_more).routing.bfd
    assert few is not None
    assert more is not None
    assert (few.interval, more.interval) == (Duration.parse("300ms"), Duration.parse("2s"))


@pytest.mark.parametrize("roles", [("spine", "super-spine"), ("super-spine", "spine"), ("super-spine", "rail")])
def test_the_lower_tier_of_a_fabric_link_comes_first(roles: tuple[str, str]) -> None:
    lab = load(
        f"topology:\n  nodes:\n    x: {{kind: switch, role: {roles[0]}}}\n    y: {{kind: switch, role: {roles[1]}}}\n"
        '  links: [{endpoints: ["x:a", "y:a"]}]\n'
    )
    (link,) = lab.links
    tiers = ["rail", "spine", "super-spine"]
    assert tiers.index(str(lab.node(link.a.node).role)) < tiers.index(str(lab.node(link.b.node).role))


@pytest.mark.parametrize(
    "prefix", ["9.255.255.254/31", "11.0.0.0/8", "172.32.0.0/31", "172.15.255.254/31", "223.255.255.254/31"]
)
def test_prefixes_just_outside_what_the_lab_keeps(prefix: str) -> None:
    text = (
        "topology:\n  nodes: {h1: {kind: host}, h2: {kind: host}}\n"
        f'  links: [{{endpoints: ["h1:a", "h2:a"], prefix: {prefix}}}]\n'
    )
    assert load(text).links[0].prefix == IPv4Network(prefix)
