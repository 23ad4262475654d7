"""Whatever two configurations of a daemon are: told the difference, the one that runs the first runs the second."""

import pytest
from config_daemon import ConfiguredDaemon, Refused, differing, file_tree
from hypothesis import assume, given
from hypothesis import strategies as st
from written_frr import CONFIGS, LEAF, may_go, thinned

from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan, SwitchPlan
from testbed.lab.core.render import FrrVersion, SwitchConfig, render_switch
from testbed.lab.core.render.config_text import parse_configuration, written_out
from testbed.lab.core.render.difference import difference, only_at_start
from testbed.lab.core.schema.load import load_topology_text


def told(old: str, new: str) -> list[tuple[str, ...]]:
    """What is wrong with a daemon that ran `old` and was told the difference to `new`."""
    daemon = ConfiguredDaemon(old)
    daemon.tell(difference(old, new, leaving=()))
    return differing(daemon.tree, file_tree(new), file_tree(old))


@pytest.mark.parametrize("new", sorted(CONFIGS))
@pytest.mark.parametrize("old", sorted(CONFIGS))
def test_written_configurations_become_each_other(old: str, new: str) -> None:
    if not only_at_start(CONFIGS[old], CONFIGS[new]):
        assert told(CONFIGS[old], CONFIGS[new]) == []


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_nothing_is_told_of_the_same(name: str) -> None:
    assert difference(CONFIGS[name], CONFIGS[name], leaving=()) == []
    assert only_at_start(CONFIGS[name], CONFIGS[name]) == []


@st.composite
def some_lines(draw: st.DrawFn) -> str:
    """One of the written configurations without some of its lines."""
    text = CONFIGS[draw(st.sampled_from(sorted(CONFIGS)))]
    numbers = [line.number for line in parse_configuration(text) if may_go(line)]
    return thinned(text, draw(st.sets(st.sampled_from(numbers), max_size=12)))


@given(some_lines(), some_lines())
def test_any_lines_of_them_may_come_and_go(old: str, new: str) -> None:
    assume(not only_at_start(old, new))
    assert told(old, new) == []


@st.composite
def plans(draw: st.DrawFn) -> LabPlan:
    routing = {
        "protocol": draw(st.sampled_from(("ebgp", "ibgp"))),
        "bfd": draw(st.sampled_from(("off", "{interval: 300ms}", "{interval: 1s, multiplier: 5}"))),
        "ecmp": draw(st.sampled_from((1, 8, 64))),
        "password": draw(st.sampled_from(("true", "false"))),
        "ttl_security": draw(st.sampled_from(("true", "false"))),
    }
    sizes = {"hosts": draw(st.integers(1, 3)), "gpus": draw(st.integers(1, 2)), "spines": draw(st.integers(1, 3))}
    said = ", ".join(f"{key}: {value}" for key, value in routing.items())
    size = ", ".join(f"{key}: {value}" for key, value in sizes.items())
    text = f"name: x\nfabric: {{design: rail-optimized, segments: 2, {size}, routing: {{{said}}}}}\n"
    return plan_lab(load_topology_text(text, file="x.yml"), k=1000)


def rendered(plan: SwitchPlan, version: str) -> SwitchConfig:
    return render_switch(plan, lab="x", version=FrrVersion.parse(version), log_directory="/x", password="not-a-secret")


@given(plans(), plans(), st.sampled_from(("8.4", "10.3")))
def test_rendered_configurations_become_each_other(first: LabPlan, second: LabPlan, version: str) -> None:
    after = {switch.node: switch for switch in second.switches}
    for switch in first.switches:
        if switch.node not in after:
            continue
        old, new = (rendered(each, version).daemons for each in (switch, after[switch.node]))
        for daemon in old.keys() & new.keys():
            is_renumbered = switch.asn != after[switch.node].asn and daemon == "bgpd"
            assert bool(only_at_start(old[daemon], new[daemon])) == is_renumbered
            if not is_renumbered:
                assert told(old[daemon], new[daemon]) == []


def test_the_daemon_refuses_what_frr_refuses() -> None:
    daemon = ConfiguredDaemon(LEAF)
    for commands in (
        ["router bgp 65999", "exit"],
        ["no ip prefix-list RAILS seq 99 permit 10.9.0.0/16"],
        ["ip prefix-list RAILS seq 99 permit 10.0.0.0/16 le 24"],
        ["router bgp 65101", "neighbor swp9 description nobody", "exit"],
        ["router bgp 65101", "no neighbor swp9 interface peer-group SPINES", "exit"],
    ):
        with pytest.raises(Refused):
            daemon.tell(commands)


WORDS = (
    *("router bgp 1", "router bgp 2 vrf red", "address-family ipv4 unicast", "exit", "end", "!", "exit-address-family"),
    *("vrf red", "vni 5", "exit-vrf", "interface a", "description b c", "no description b", "neighbor a bfd profile x"),
    *("neighbor 192.0.2.1 remote-as 5", "no neighbor 192.0.2.1", "ip prefix-list a permit 10.0.0.0/8", "bfd", "peer a"),
    *(
        "no ip prefix-list a",
        "route-map m permit 10",
        "on-match next",
        "continue",
        "no continue",
        "no",
        "no no",
        "quit",
    ),
)


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(WORDS)), max_size=20))
def test_whatever_is_written_is_read_the_same_once_it_is_written_out(written: list[tuple[int, str]]) -> None:
    lines = parse_configuration("".join(f"{' ' * depth}{words}\n" for depth, words in written))
    again = parse_configuration("".join(f"{line}\n" for line, _ in written_out(lines)))
    assert [(line.within, line.text) for line in again] == [(line.within, line.text) for line in lines]


@given(st.text(max_size=200), st.text(max_size=200))
def test_no_text_breaks_the_difference(old: str, new: str) -> None:
    difference(old, new)
    only_at_start(old, new)
