"""A configuration is read as FRR does: contexts by indentation or by words, and the last word counts."""

import pytest

from testbed.lab.core.render.config_text import WrittenLine, in_force, parse_configuration, replaced_part, written_out

INDENTED = """\
! a comment
router bgp 65001
 neighbor 192.0.2.1 remote-as 65002
 !
 address-family ipv4 unicast
  network 192.0.2.0/24
 exit-address-family
!
ip prefix-list ours seq 5 permit 192.0.2.0/24
"""
FLAT = """\
router bgp 65001
neighbor 192.0.2.1 remote-as 65002
address-family ipv4 unicast
network 192.0.2.0/24
exit-address-family
ip prefix-list ours seq 5 permit 192.0.2.0/24
"""


def commands(text: str) -> list[tuple[tuple[str, ...], str]]:
    return [(line.within, line.text) for line in parse_configuration(text)]


@pytest.mark.parametrize("text", [INDENTED, FLAT, INDENTED.replace("\n", "\r\n"), INDENTED.replace(" ", "  ")])
def test_contexts_are_told_by_indentation_or_by_words(text: str) -> None:
    assert commands(text) == [
        ((), "router bgp 65001"),
        (("router bgp 65001",), "neighbor 192.0.2.1 remote-as 65002"),
        (("router bgp 65001",), "address-family ipv4 unicast"),
        (("router bgp 65001", "address-family ipv4 unicast"), "network 192.0.2.0/24"),
        ((), "ip prefix-list ours seq 5 permit 192.0.2.0/24"),
    ]


def test_a_line_knows_its_number() -> None:
    assert parse_configuration(INDENTED)[1] == WrittenLine(
        "neighbor 192.0.2.1 remote-as 65002", 3, ("router bgp 65001",)
    )


@pytest.mark.parametrize("end", ["exit", "end", "quit"])
def test_what_leaves_a_context_is_obeyed(end: str) -> None:
    assert commands(f"interface eth1\n{end}\n description a\n") == [((), "interface eth1"), ((), "description a")]


def test_a_context_may_be_entered_again_without_leaving_the_one_before() -> None:
    text = "router bgp 1\naddress-family ipv4 unicast\nnetwork 10.0.0.0/8\naddress-family ipv6 unicast\nnetwork ::/0\n"
    assert commands(text)[-1] == (("router bgp 1", "address-family ipv6 unicast"), "network ::/0")


def test_it_is_written_as_frr_does() -> None:
    lines = [line for line, _ in written_out(parse_configuration(FLAT))]
    assert lines == [
        "router bgp 65001",
        " neighbor 192.0.2.1 remote-as 65002",
        " address-family ipv4 unicast",
        "  network 192.0.2.0/24",
        " exit-address-family",
        "exit",
        "ip prefix-list ours seq 5 permit 192.0.2.0/24",
    ]
    assert [number for _, number in written_out(parse_configuration(FLAT))] == [1, 2, 3, 4, 0, 0, 6]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        pytest.param("coalesce-time 0\ncoalesce-time 5\n", ["coalesce-time 5"], id="the last value counts"),
        pytest.param("debug bgp updates\nno debug bgp updates\n", ["no debug bgp updates"], id="taken back"),
        pytest.param("no debug bgp updates\ndebug bgp updates\n", ["debug bgp updates"], id="said after all"),
        pytest.param(
            "neighbor a bfd profile b\n", ["neighbor a bfd", "neighbor a bfd profile b"], id="one says another one, too"
        ),
        pytest.param("coalesce-time 5\nno coalesce-time\n", ["no coalesce-time"], id="taken back without its value"),
        pytest.param(
            "ip prefix-list a permit 10.0.0.0/8\n" * 2 + "ip prefix-list a permit 11.0.0.0/8\n",
            ["ip prefix-list a seq 5 permit 10.0.0.0/8", "ip prefix-list a seq 10 permit 11.0.0.0/8"],
            id="entries are numbered, and each is there once",
        ),
        pytest.param(
            "ip prefix-list a seq 7 permit 10.0.0.0/8\nip prefix-list a permit 11.0.0.0/8\n",
            ["ip prefix-list a seq 7 permit 10.0.0.0/8", "ip prefix-list a seq 10 permit 11.0.0.0/8"],
            id="the next multiple of five",
        ),
        pytest.param(
            "ip prefix-list a seq 5 permit 10.0.0.0/8\nno ip prefix-list a\n", [], id="a whole list is taken away"
        ),
    ],
)
def test_the_last_word_counts(text: str, left: list[str]) -> None:
    assert list(in_force(parse_configuration(text))) == left


def test_lines_of_one_context_stand_together() -> None:
    text = "router bgp 1\n timers bgp 3 9\nexit\nvrf red\n vni 5\nexit-vrf\nrouter bgp 1\n timers bgp 4 12\nexit\n"
    assert in_force(parse_configuration(text)) == {"router bgp 1": {"timers bgp 4 12": {}}, "vrf red": {"vni 5": {}}}


def test_vnis_of_an_overlay_stand_beside_each_other_and_that_of_a_vrf_does_not() -> None:
    within = ("router bgp 1", "address-family l2vpn evpn")
    assert replaced_part("vni 5", within) is None
    assert replaced_part("vni 5", ("vrf red",)) == "vni"


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("neighbor a timers 3 9", "neighbor a timers"),
        ("neighbor a timers connect 1", "neighbor a timers connect"),
        ("neighbor a maximum-prefix-out 5", "neighbor a maximum-prefix-out"),
        ("neighbor a prefix-list x in", "neighbor a prefix-list in"),
        ("network 10.0.0.0/8 route-map x", "network 10.0.0.0/8"),
        ("ip prefix-list a seq 5 permit 10.0.0.0/8", "ip prefix-list a seq 5"),
        ("bgp community-list standard c seq 5 permit 1:1", "bgp community-list standard c seq 5"),
        ("set extcommunity none", "set extcommunity"),
        ("match ip address prefix-list x", "match ip address prefix-list"),
        ("neighbor a activate", None),
        ("ip route 10.0.0.0/8 192.0.2.1", "ip route 10.0.0.0/8 192.0.2.1"),
        ("ip route 10.0.0.0/8 blackhole 200", "ip route 10.0.0.0/8 blackhole"),
    ],
)
def test_what_stays_where_a_value_is_replaced(line: str, part: str | None) -> None:
    assert replaced_part(line) == part
