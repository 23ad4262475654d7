"""Faults that change one thing at once: the first to end gives it back for both, so they are refused."""

import pytest

from testbed.lab.core.schema.load import load_topology_text
from testbed.run.faults.registry import findings_of_all
from testbed.run.schema.file import load_scenario_text

SCALE_UP = "scale_up: {preset: h100, by: packets, domain: segment}"
LAB = load_topology_text(
    "name: two\nfabric: {design: rail-optimized, segments: 2, hosts: 2, gpus: 2, planes: 2, spines: 2, "
    f"{SCALE_UP}}}\nqos: {{preset: dcqcn}}\n",
    file="two.yml",
)
SCENARIO = """name: two
topology: {file: two.yml}
transport: {kind: roce}
workload: {kind: permutation, bytes: 1MB}
faults:
"""
NIC, LEAF = "p1-s1-h1:rail1", "p1-s1-rail1a:down1"
GPU = "p1-s1-h1.gpu1:plane3"
AT_NIC, AT_LEAF, SPINE = f'link: "{NIC}"', f'link: "{LEAF}"', "node: p1-spine1a, kill: true"
SLOW, STORM = "set: {rate: 50%}", "storm: {priority: 3}"
LOOP = 'node: p1-s1-rail1a, loop: {through: [p1-spine1a], to: "p1-s2-h1:rail1"}'


def problems(*faults: str) -> list[str]:
    text = SCENARIO + "".join(f"  - {{{fault}}}\n" for fault in faults)
    found = load_scenario_text(text, file="two.yml").scenario.faults
    return [f"{index}: {finding.message}" for index, finding in findings_of_all(found, LAB)]


@pytest.mark.parametrize(
    ("first", "second", "what"),
    [
        (f"until: 4s, {AT_NIC}, {SLOW}", f"{AT_NIC}, set: {{loss: 1%}}", f"settings of {NIC}"),
        (f"until: 4s, {AT_NIC}, set: {{rate: 50%, both: true}}", f"{AT_LEAF}, {SLOW}", f"settings of {LEAF}"),
        (f"{AT_NIC}, down: true", f"until: 3s, {AT_LEAF}, down: true", f"carrier of {NIC}"),
        (f"until: 9s, {AT_NIC}, down: true", f"until: 9s, {AT_NIC}, flap: {{period: 1s}}", f"carrier of {NIC}"),
        (f"{AT_NIC}, down: true", "until: 3s, node: p1-s1-rail1a, kill: true", f"carrier of {NIC}"),
        (f"{AT_NIC}, down: true", "until: 3s, fabric_plane: a, down: true", f"carrier of {NIC}"),
        (f"until: 3s, {SPINE}", f"{SPINE}, daemon: bgpd", "routing of p1-spine1a"),
        (f"until: 3s, {AT_NIC}, {STORM}", f"{AT_NIC}, {STORM}", f"pauses of priority 3 by {NIC}"),
        ('until: 3s, plane: "p1-s1:plane3", state: down', f'link: "{GPU}", down: true', f"carrier of {GPU}"),
    ],
)
def test_of_two_that_change_one_thing_and_end_apart_the_second_is_refused(first: str, second: str, what: str) -> None:
    assert problems(f"at: 1s, {first}", f"at: 2s, {second}") == [
        f"1: it lasts while faults[0] does, and the first to end gives the {what} back for both"
    ]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (f"at: 1s, until: 2s, {AT_NIC}, down: true", f"at: 2s, {AT_NIC}, down: true"),
        (f"at: 1s, {AT_NIC}, down: true", f"at: 2s, {AT_LEAF}, down: true"),
        (f"at: 1s, until: 4s, {AT_NIC}, {SLOW}", f"at: 2s, {AT_LEAF}, {SLOW}"),
        (f"at: 1s, until: 4s, {AT_NIC}, {SLOW}", f"at: 2s, until: 3s, {AT_NIC}, down: true"),
        ("at: 1s, until: 3s, agent: p1-s1-h1, kill: true", "at: 2s, agent: p1-s1-h1, kill: true"),
        (f"at: 1s, until: 4s, {LOOP}", f"at: 2s, {LOOP}"),
    ],
)
def test_what_ends_together_or_changes_something_else_is_not(first: str, second: str) -> None:
    assert not problems(first, second)


def test_at_one_switch_a_prefix_has_one_next_hop() -> None:
    first, second = f"at: 1s, {LOOP}", f"at: 2s, {LOOP.replace('p1-spine1a', 'p1-spine2a')}"
    assert problems(first, second) == [
        "1: the route of p1-s1-rail1a to p1-s2-h1:rail1 is by p1-spine2a, and by p1-spine1a in faults[0],"
        " which lasts at the same time"
    ]
    assert not problems(first.replace("at: 1s", "at: 1s, until: 2s"), second)
