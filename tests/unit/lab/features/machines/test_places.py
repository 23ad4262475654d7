"""Who has which node: whole pods or segments, what patterns say, spines by weight; and what cannot be spread."""

from collections import Counter

import pytest

from testbed.base.errors import SpecError
from testbed.lab.core.model import Lab
from testbed.lab.core.model.machines import LabMachine
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.features.machines.places import NotSpread, cut_links, place_nodes, require_cuttable

TWO = (LabMachine(name="a", ssh="root@a"), LabMachine(name="b", ssh="root@b"))


def lab_of(fabric: str, more: str = "") -> Lab:
    return load_topology_text(f"name: spread\nfabric: {{{fabric}}}\n{more}", file="<text>")


POD = "design: rail-optimized, segments: 2, hosts: 2, gpus: 2, spines: 2"
SUPER = "design: three-tier, pods: 2, segments: 2, hosts: 2, gpus: 1, spines: 2, super_spines: 2"


def test_a_segment_stays_whole_and_spines_are_dealt() -> None:
    places = place_nodes(lab_of(POD), TWO)
    for segment, machine in ((1, "a"), (2, "b")):
        assert {places[node] for node in places if node.startswith(f"p1-s{segment}-")} == {machine}
    assert (places["p1-spine1"], places["p1-spine2"]) == ("a", "b")


def test_weights_say_how_many_segments_a_machine_gets() -> None:
    lab = lab_of(POD.replace("segments: 2", "segments: 6"))
    heavy = (LabMachine(name="a", ssh="root@a", weight=2), LabMachine(name="b", ssh="root@b"))
    places = place_nodes(lab, heavy)
    assert Counter(places[host.name] for host in lab.hosts) == {"a": 8, "b": 4}


def test_a_pattern_counts_and_the_rest_of_the_segment_follows() -> None:
    machines = (
        LabMachine(name="a", ssh="root@a", nodes=("p1-s2-h1",)),
        LabMachine(name="b", ssh="root@b", nodes=("p1-s1-*", "*spine*")),
    )
    places = place_nodes(lab_of(POD), machines)
    assert {places[node] for node in places if node.startswith("p1-s2-")} == {"a"}
    assert {places["p1-spine1"], places["p1-spine2"], places["p1-s1-h1"]} == {"b"}


@pytest.mark.parametrize(
    ("machines", "says"),
    [
        ((*TWO, LabMachine(name="c", ssh="root@c")), "there is nothing for b to do"),
        (
            (
                LabMachine(name="a", ssh="root@a", nodes=("p1-s1-*",)),
                LabMachine(name="b", ssh="root@b", nodes=("*-h1",)),
            ),
            "both a and b are to have p1-s1-h1",
        ),
    ],
)
def test_a_machine_without_nodes_and_a_node_with_two_machines_are_refused(
    machines: tuple[LabMachine, ...], says: str
) -> None:
    with pytest.raises(NotSpread, match=says):
        place_nodes(lab_of(POD), machines)


def test_the_share_of_cut_links_is_that_of_their_rates() -> None:
    lab = lab_of(POD)
    cut = cut_links(lab, place_nodes(lab, TWO))
    assert all(link.kind == "fabric" for link in cut.links), "a host is with its switches"
    assert cut.share == pytest.approx(0.5)
    assert len(cut.links) == sum(link.kind == "fabric" for link in lab.links) / 2


@pytest.mark.parametrize(
    ("fabric", "more", "says"),
    [
        (f"{POD}, scale_up: {{preset: h100, by: packets}}", "", "scale-up domains by packets"),
        (f"{POD}, overlay: evpn", "", "tenants"),
        (POD, "networks: {mgmt: {design: out-of-band, prefix: 192.168.0.0/18}}", "a management network"),
    ],
)
def test_what_cannot_be_on_several_machines_is_named(fabric: str, more: str, says: str) -> None:
    with pytest.raises(NotSpread, match=says) as refused:
        require_cuttable(lab_of(fabric, more))
    assert refused.value.hint is not None and "--on" in refused.value.hint


MACHINES = """machines:
  a: {ssh: root@lab1, underlay: eth1, weight: 2, nodes: ["p1-s1-*"]}
  b: {ssh: "root@lab2:2222/srv/testbed"}
"""


def test_a_file_names_machines_and_two_files_that_differ_in_them_describe_one_lab() -> None:
    lab = lab_of(POD, MACHINES)
    assert [machine.ssh for machine in lab.machines] == ["root@lab1", "root@lab2:2222/srv/testbed"]
    assert lab.machines[0] == LabMachine(name="a", ssh="root@lab1", underlay="eth1", weight=2, nodes=("p1-s1-*",))
    assert lab == lab_of(POD)


@pytest.mark.parametrize(
    ("machines", "code", "line"),
    [
        ("machines: {a: {ssh: root@a}}", "out-of-range", 3),
        ("machines:\n  a: {ssh: root@a}\n  b: {ssh: root@a}", "duplicate-machine", 5),
        ("machines:\n  a: {ssh: root@a, nodes: [p1-s7-*]}\n  b: {ssh: root@b}", "unknown-node", 4),
        ("machines:\n  a: {ssh: -oProxyCommand=x}\n  b: {ssh: root@b}", "bad-machine", 4),
        ("machines:\n  a: {ssh: root@a, wieght: 2}\n  b: {ssh: root@b}", "unknown-key", 4),
        ("machines:\n  a: {ssh: root@a, nodes: ['*']}\n  b: {ssh: root@b, nodes: ['*-h1']}", "not-spread", 3),
    ],
)
def test_bad_machines_are_refused_with_their_place(machines: str, code: str, line: int) -> None:
    with pytest.raises(SpecError) as refused:
        lab_of(POD, machines)
    [problem] = refused.value.problems
    assert problem.code == code and problem.position is not None and problem.position.line == line
