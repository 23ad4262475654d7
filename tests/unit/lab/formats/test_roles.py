"""Tiers of imported switches, and AS numbers by which every graph of them routes."""

from itertools import combinations, pairwise

import pytest

from testbed.base.yaml.reader import load_document
from testbed.lab.core.schema.other_tools import OtherTool
from testbed.lab.formats.imported import ImportedLab, ImportedLink, Remarks
from testbed.lab.formats.roles import FIRST_OWN_ASN, decide_roles, is_name_of_switch, tier_of_name


def lab_of(switches: str, links: list[tuple[str, str]], hosts: str = "") -> ImportedLab:
    document = load_document("name: x\n", "x.yml")
    lab = ImportedLab(tool=OtherTool.CONTAINERLAB, name="x", remarks=Remarks(document))
    for name in switches.split():
        lab.add_node(name, (), is_switch=True).tier = tier_of_name(name)
    for name in hosts.split():
        lab.add_node(name, (), is_switch=False)
    for number, (a, b) in enumerate(links):
        lab.links.append(ImportedLink(ends=((a, f"x{number}"), (b, f"y{number}")), path=()))
    return lab


def test_names_of_a_clos_are_its_tiers_and_the_plan_numbers_it() -> None:
    leaves, spines = ["leaf1", "leaf2", "leaf3"], ["spine1", "spine2"]
    roles = decide_roles(lab_of(" ".join(leaves + spines), [(leaf, spine) for leaf in leaves for spine in spines]))
    assert roles.tiers == {**dict.fromkeys(leaves, 1), **dict.fromkeys(spines, 2)}
    assert not roles.asns and not roles.pods and not roles.misfits


def test_without_names_hosts_say_where_the_leaves_are() -> None:
    links = [("a", "x"), ("b", "x"), ("a", "h1"), ("b", "h2")]
    roles = decide_roles(lab_of("x a b", links, "h1 h2"))
    assert roles.tiers == {"x": 2, "a": 1, "b": 1}


@pytest.mark.parametrize("count", [3, 4, 5, 6, 9])
def test_a_ring_has_tiers_and_numbers_of_its_own(count: int) -> None:
    names = [f"r{number}" for number in range(count)]
    links = [*pairwise([*names, names[0]]), (names[0], "h1"), (names[count // 2], "h2")]
    roles = decide_roles(lab_of(" ".join(names), links, "h1 h2"))
    assert not roles.misfits
    assert all(roles.tiers[a] != roles.tiers[b] for a, b in pairwise([*names, names[0]]))


def test_a_long_chain_gets_numbers_of_its_own() -> None:
    names = [f"r{number}" for number in range(8)]
    roles = decide_roles(lab_of(" ".join(names), [*pairwise(names), ("r0", "h1"), ("r7", "h2")], "h1 h2"))
    assert not roles.misfits
    assert sorted(roles.asns.values()) == list(range(FIRST_OWN_ASN, FIRST_OWN_ASN + 8))


def test_pods_under_super_spines_are_told_apart() -> None:
    links = [("ss1", "spine1"), ("ss1", "spine2"), ("spine1", "leaf1"), ("spine2", "leaf2")]
    roles = decide_roles(lab_of("ss1 spine1 spine2 leaf1 leaf2", links))
    assert roles.pods == {"spine1": 1, "leaf1": 1, "spine2": 2, "leaf2": 2}
    assert not roles.asns


def test_a_full_mesh_of_four_loses_one_link() -> None:
    roles = decide_roles(lab_of("a b c d", list(combinations("abcd", 2))))
    assert len(roles.misfits) == 1


def test_names_that_contradict_the_graph_give_way() -> None:
    roles = decide_roles(lab_of("leaf1 leaf2 spine1", [("leaf1", "leaf2"), ("leaf1", "spine1"), ("leaf2", "spine1")]))
    assert not roles.misfits
    assert len(set(roles.tiers.values())) == 3


def test_numbers_of_the_file_are_kept_where_they_route() -> None:
    lab = lab_of("leaf1 leaf2 spine1", [("leaf1", "spine1"), ("leaf2", "spine1")])
    for number, node in enumerate(lab.nodes.values()):
        node.asn = 65100 + number
    assert decide_roles(lab).asns == {"leaf1": 65100, "leaf2": 65101, "spine1": 65102}
    for node in lab.nodes.values():
        node.asn = 65000
    assert decide_roles(lab).asns == {}
    assert [row.what for row in lab.remarks.rows()] == ["bgp.as"]


@pytest.mark.parametrize(
    ("name", "tier"),
    [("spine1", 2), ("Leaf-03", 1), ("super-spine2", 3), ("ss1", 3), ("tor7", 1), ("s1", 2), ("l2", 1), ("r1", None)],
)
def test_names_speak_of_tiers(name: str, tier: int | None) -> None:
    assert tier_of_name(name) == tier


@pytest.mark.parametrize(("name", "said"), [("spine1", True), ("leaf", True), ("s1", False), ("leaf1-client", False)])
def test_only_plain_words_make_a_switch_of_a_linux_container(name: str, said: bool) -> None:
    assert is_name_of_switch(name) is said


def test_a_large_fabric_is_quick() -> None:
    leaves, spines = [f"leaf{n}" for n in range(128)], [f"spine{n}" for n in range(32)]
    links = [(leaf, spine) for leaf in leaves for spine in spines]
    links += [(leaf, f"h-{leaf}") for leaf in leaves]
    lab = lab_of(" ".join(leaves + spines), links, " ".join(f"h-{leaf}" for leaf in leaves))
    assert not decide_roles(lab).asns
