"""The difference of two plans: a change of a lab touches what it is about, and numbers of the data path stay."""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.lab.core.plan.changes import Effect, changes_between, identity
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import AddRoute, CreateNode, CreateVeth, InstallPort, Operation, SetSysctl
from testbed.lab.core.plan.qos.numbers import keep_numbers, numbers_of
from testbed.lab.core.schema.load import load_topology

TOPOLOGIES = Path(__file__).parents[5] / "topologies"


def planned(**settings: object) -> LabPlan:
    overrides = {"fabric.segments": 1} | {name.replace("_", "."): value for name, value in settings.items()}
    return plan_lab(load_topology(TOPOLOGIES / "rail-qos.yml", overrides=overrides), k=5000)


@pytest.mark.parametrize("path", sorted(TOPOLOGIES.glob("*.yml")), ids=lambda path: path.stem)
def test_every_thing_of_a_plan_has_a_name_of_its_own(path: Path) -> None:
    plan = plan_lab(load_topology(path), k=20000)
    names = Counter(identity(item) for item in plan.operations if not isinstance(item, SetSysctl))
    assert not [name for name, count in names.items() if count > 1]
    assert not changes_between(plan, replace(plan))


def test_a_host_more_is_new_things_alone() -> None:
    old = planned(fabric_hosts=2)
    new = keep_numbers(planned(fabric_hosts=3), numbers_of(old))
    changes = changes_between(old, new)
    assert not changes.removed
    assert {each.effect for each in changes} <= {Effect.MADE, Effect.CHANGED}
    assert {each.new.node for each in changes.made if isinstance(each.new, CreateNode)} == {"p1-s1-h3"}
    # a neighbour of the new host may learn of it, but nothing that carries packets of others is made anew
    assert not [each for each in changes.changed if isinstance(each.new, CreateVeth | InstallPort | AddRoute)]


def test_back_again_is_the_same_in_reverse() -> None:
    old = planned(fabric_hosts=2)
    new = keep_numbers(planned(fabric_hosts=3), numbers_of(old))
    there, back = changes_between(old, new), changes_between(new, old)
    assert {identity(each.new) for each in there.made if each.new} == {
        identity(each.old) for each in back.removed if each.old
    }
    assert isinstance(back.removed[-1].old, CreateNode), "links go before the nodes that they are in"


def test_numbers_stay_where_ports_come_and_go() -> None:
    before = planned(fabric_hosts=3)
    fewer = keep_numbers(planned(fabric_hosts=2), numbers_of(before))
    more = keep_numbers(planned(fabric_hosts=4), numbers_of(fewer))
    first, last = before.port_numbers, more.port_numbers
    assert {port: number for port, number in first.items() if port in fewer.port_numbers}.items() <= last.items()
    assert len(set(last.values())) == len(last)
    assert max(last.values()) == len(last), "what was given up is taken again"
    peers = {item.port: item.peer for item in more.operations if isinstance(item, InstallPort)}
    assert all(peers[peers[port]] == port for port in peers)


def test_a_threshold_is_another_profile_until_all_ports_have_it() -> None:
    old = planned()
    new = keep_numbers(planned(qos_buffer={"shared": "20MB"}), numbers_of(old))
    assert old.tables is not None and new.tables is not None
    changed = [each for each in changes_between(old, new) if isinstance(each.new, InstallPort)]
    assert changed and all(isinstance(each.old, InstallPort) for each in changed)
    for each in changed:
        assert isinstance(each.old, InstallPort) and isinstance(each.new, InstallPort)
        assert replace(each.old, profile=each.new.profile) == each.new
        assert old.tables.profiles[each.old.profile] != new.tables.profiles[each.new.profile]
        assert each.new.profile not in {item.profile for item in old.operations if isinstance(item, InstallPort)}


def by_names(operations: Sequence[Operation]) -> dict[Hashable, Operation]:
    """Operations by what each is called; of a setting that is written several times each time."""
    found: dict[Hashable, Operation] = {}
    for item in operations:
        key = identity(item)
        while isinstance(item, SetSysctl) and key in found:
            key = key, "again"
        found[key] = item
    return found


@cache
def larger() -> tuple[Operation, ...]:
    return planned(fabric_hosts=4, fabric_spines=2).operations


@st.composite
def parts(draw: st.DrawFn) -> tuple[Operation, ...]:
    """Some operations of a plan in their order, or in another one, of which some have other numbers."""
    every = larger()
    holes = draw(st.lists(st.tuples(st.integers(0, len(every)), st.integers(0, 300)), max_size=6))
    left = [item for at, item in enumerate(every) if not any(begin <= at < begin + long for begin, long in holes)]
    for at in draw(st.lists(st.integers(0, len(left)), max_size=4)):
        if at < len(left) and isinstance(item := left[at], CreateVeth | SetSysctl | CreateNode):
            left[at] = other(item)
    if draw(st.booleans()):
        cut = draw(st.integers(0, len(left)))
        left = left[cut:] + left[:cut]
    return tuple(left)


def other(item: CreateVeth | SetSysctl | CreateNode) -> Operation:
    match item:
        case CreateVeth():
            return replace(item, mtu_bytes=item.mtu_bytes + 1)
        case SetSysctl():
            return replace(item, value="other")
        case CreateNode():
            return replace(item, cpu_slot=item.cpu_slot + 1)


@given(parts(), parts())
@settings(max_examples=60)
def test_to_look_for_what_differs_finds_what_names_tell(old: tuple[Operation, ...], new: tuple[Operation, ...]) -> None:
    """Operations that both plans have, in the same order, are passed over: what is left is told as it would be of
    all."""
    plan = planned()
    changes = changes_between(replace(plan, operations=old), replace(plan, operations=new))
    before, after = by_names(old), by_names(new)
    gone = [item for name, item in before.items() if name not in after]
    assert [each.old for each in changes.removed] == gone[::-1]
    assert [each.new for each in changes.made] == [item for name, item in after.items() if name not in before]
    both = [(before[name], item) for name, item in after.items() if name in before]
    assert [(each.old, each.new) for each in changes.changed] == [(was, item) for was, item in both if was != item]


def test_the_same_profiles_at_their_numbers() -> None:
    old = planned()
    assert keep_numbers(planned(), numbers_of(old)) == old


def test_a_setting_that_is_written_twice_is_two_settings() -> None:
    twice = [SetSysctl(node="a", key="net/x", value=value) for value in "01"]
    plan = replace(planned(), operations=tuple(twice))
    assert not changes_between(plan, plan)
    after = replace(plan, operations=(twice[0], replace(twice[1], value="2")))
    assert [str(each.new) for each in changes_between(plan, after)] == ["set a net.x = 2"]
