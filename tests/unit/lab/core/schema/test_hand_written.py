"""The `topology:` section: inheritance of settings, links, and how it joins a generated fabric."""

from ipaddress import IPv4Network

import pytest

from testbed.base.errors import SpecError
from testbed.base.units import Duration, Rate
from testbed.lab.core.model import Delay, DelayBy, End, Lab, LinkKind, Node, NodeKind, Role
from testbed.lab.core.schema.load import load_topology_text


def load(text: str) -> Lab:
    return load_topology_text(f"name: lab\n{text}", file="f.yml")


def codes(text: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        load(text)
    return [problem.code for problem in caught.value.problems]


SETTINGS = """
topology:
  defaults:
    kind: host
    labels: {from: defaults, a: defaults}
    env: {A: defaults, B: defaults}
    exec: [defaults]
    pod: 1
  kinds:
    host: {labels: {from: kind, b: kind}, env: {A: kind}, exec: [kind], pod: 2}
    switch: {role: rail, asn: 65001}
  groups:
    blue: {labels: {from: group, c: group}, env: {A: group}, exec: [[group, "with space"]], pod: 3}
    spines: {kind: switch, role: spine}
  nodes:
    plain:
    grouped: {group: blue}
    own: {group: blue, labels: {from: node}, env: {A: node}, exec: ["sh -c 'ip route'"], pod: 4}
    leaf: {kind: switch, asn: 65002}
    spine: {group: spines}
  links:
    - endpoints: ["plain:a", "leaf:a"]
    - endpoints: ["grouped:a", "leaf:b"]
    - endpoints: ["own:a", "leaf:c"]
    - endpoints: ["spine:a", "leaf:d"]
"""


def test_settings_come_from_node_group_kind_and_defaults() -> None:
    lab = load(SETTINGS)
    plain, grouped, own = lab.node("plain"), lab.node("grouped"), lab.node("own")
    assert plain.kind is NodeKind.HOST
    assert plain.labels == {"from": "kind", "a": "defaults", "b": "kind", "pod": "2"}
    assert plain.env == {"A": "kind", "B": "defaults"}
    assert plain.exec == (("defaults",), ("kind",))
    assert grouped.labels == {"from": "group", "a": "defaults", "b": "kind", "c": "group", "pod": "3"}
    assert grouped.exec == (("defaults",), ("kind",), ("group", "with space"))
    assert own.labels["from"] == "node"
    assert own.labels["pod"] == "4"
    assert own.env == {"A": "node", "B": "defaults"}
    assert own.exec[-1] == ("sh", "-c", "ip route")


def test_switches_take_kind_role_and_asn_the_same_way() -> None:
    lab = load(SETTINGS)
    leaf, spine = lab.node("leaf"), lab.node("spine")
    assert (leaf.kind, leaf.role, leaf.asn) == (NodeKind.SWITCH, Role.RAIL, 65002)
    assert (spine.kind, spine.role, spine.asn) == (NodeKind.SWITCH, Role.SPINE, 65001)


def test_a_group_by_default() -> None:
    lab = load(
        "topology:\n  defaults: {group: g}\n  groups: {g: {kind: host, labels: {a: b}}}\n"
        '  nodes: {h1: , h2: }\n  links: [{endpoints: ["h1:a", "h2:a"]}]\n'
    )
    assert [node.labels for node in lab.nodes] == [{"a": "b"}, {"a": "b"}]


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


def test_a_switch_joins_a_generated_fabric_by_its_role() -> None:
    lab = load(
        "fabric: {design: rail-optimized, hosts: 2, gpus: 2, spines: 2, uplink: {rate: 800G}, mtu: 9000}\n"
        "topology:\n  nodes: {extra: {kind: switch, role: spine, pod: 1}}\n"
        '  links:\n    - endpoints: ["extra:down1", "p1-s1-rail1:extra1"]\n'
    )
    assert lab.node("extra") == Node(name="extra", kind=NodeKind.SWITCH, role=Role.SPINE, labels={"pod": "1"})
    link = lab.links[-1]
    assert (link.a, link.b) == (End(node="p1-s1-rail1", interface="extra1"), End(node="extra", interface="down1"))
    assert (link.kind, link.rate, link.mtu_bytes) == (LinkKind.FABRIC, Rate(800 * 10**9), 9000)


def test_bfd_auto_counts_the_sessions_of_the_whole_lab() -> None:
    fabric = "fabric: {design: rail-optimized, hosts: 1, gpus: 4, spines: 8}\n"
    with_one_more = (
        f"{fabric}topology:\n  nodes: {{extra: {{kind: switch, role: spine}}}}\n"
        '  links: [{endpoints: ["extra:a", "p1-s1-rail1:extra1"]}]\n'
    )
    few, more = load(fabric).routing.bfd, load(with_one_more).routing.bfd
    assert (few.interval, more.interval) == (Duration.parse("300ms"), Duration.parse("2s"))


def test_links_say_rate_delay_mtu_prefix_and_labels() -> None:
    lab = load(
        "topology:\n  nodes: {h1: {kind: host}, h2: {kind: host}}\n  links:\n"
        '    - {endpoints: ["h1:a", "h2:a"], rate: 25G, mtu: 1500, delay: 5us, prefix: 192.0.2.0/24, labels: {a: b}}\n'
        '    - {endpoints: ["h2:b", "h1:b"], delay: {value: 1ms, by: endpoint}}\n'
    )
    first, second = lab.links
    assert (first.rate, first.mtu_bytes, first.prefix) == (Rate(25 * 10**9), 1500, IPv4Network("192.0.2.0/24"))
    assert (first.delay, first.labels) == (Delay(value=Duration(5000), by=DelayBy.AUTO), {"a": "b"})
    assert second.delay == Delay(value=Duration(10**6), by=DelayBy.ENDPOINT)
    assert (second.rate, second.mtu_bytes, second.prefix) == (Rate(400 * 10**9), 4500, None)
    assert (str(second.a), str(second.b), second.kind) == ("h2:b", "h1:b", LinkKind.ROUTED)


def test_a_host_link_defaults_to_the_rate_of_the_fabrics_nics() -> None:
    lab = load(
        "fabric: {design: rail-optimized, nic: {rate: 100G}, uplink: {rate: 800G}}\n"
        "topology:\n  nodes: {h: {kind: host}}\n"
        '  links: [{endpoints: ["h:a", "p1-s1-rail1:extra1"]}]\n'
    )
    assert lab.links[-1].rate == Rate(100 * 10**9)
    assert lab.links[-1].kind is LinkKind.ROUTED


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


@pytest.mark.parametrize("prefix", ["0.0.0.0/0", "10.255.255.254/31", "172.31.255.254/31", "8.0.0.0/6", "224.0.0.0/4"])
def test_prefixes_that_touch_what_the_lab_keeps(prefix: str) -> None:
    text = (
        "topology:\n  nodes: {h1: {kind: host}, h2: {kind: host}}\n"
        f'  links: [{{endpoints: ["h1:a", "h2:a"], prefix: {prefix}}}]\n'
    )
    assert codes(text) == ["overlap"]


def test_every_overlap_is_told_at_the_later_link() -> None:
    prefixes = ["192.0.2.128/25", "198.51.100.0/31", "192.0.2.0/24", "192.0.2.130/31", "198.51.100.0/31"]
    links = "".join(
        f'    - {{endpoints: ["h1:a{i}", "h2:a{i}"], prefix: {prefix}}}\n' for i, prefix in enumerate(prefixes)
    )
    with pytest.raises(SpecError) as caught:
        load(f"topology:\n  nodes: {{h1: {{kind: host}}, h2: {{kind: host}}}}\n  links:\n{links}")
    assert [problem.path for problem in caught.value.problems] == [f"topology.links[{i}].prefix" for i in (2, 3, 4)]


def test_problems_of_nodes_and_links_come_together_in_file_order() -> None:
    text = """
topology:
  nodes:
    h1: {kind: host, asn: 1}
    h2:
    leaf: {kind: switch}
    lonely: {kind: host}
  links:
    - endpoints: ["h1:a", "h1:b"]
    - endpoints: ["h1:c", "nobody:a"]
    - endpoints: ["h1:a", "h2:a"]
    - endpoints: ["h1:d", "leaf:a"]
"""
    assert codes(text) == [
        "asn-of-host",
        "missing-key",
        "missing-key",
        "no-links",
        "self-link",
        "unknown-node",
        "interface-taken",
    ]
