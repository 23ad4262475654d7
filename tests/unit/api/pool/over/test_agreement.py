"""Whether machines can have a lab together, by what they say; and how `--over` names them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testbed.api.pool.over.agreement import SpreadAgreement, agree, largest_packet, parse_over, require_alike
from testbed.api.pool.over.messages import LookAnswer, ReachAnswer
from testbed.base.errors import TestbedError
from testbed.lab.core.model.machines import LabMachine
from testbed.lab.core.plan.stable import SLOTS, slot_for
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.features.machines.places import NotSpread, cut_links, place_nodes

FABRIC = "name: agreed\nfabric: {design: rail-optimized, segments: 2, hosts: 2, gpus: 1, spines: 2}\n"
MACHINES = (LabMachine(name="a", ssh="root@a"), LabMachine(name="b", ssh="root@b"))
LOOK = LookAnswer(
    testbed="1",
    sources="s",
    exists=False,
    k=3000,
    reason="",
    delay_by="",
    reaction_ns=100,
    taken=(),
    address="10.0.0.1",
    device="eth0",
    mtu_bytes=9000,
    speed_bps=10**10,
)
LOOKS = {"a": LOOK, "b": replace(LOOK, address="10.0.0.2", k=1000, reaction_ns=900)}
REACHES = {"a": ReachAnswer(rtt_ns={"b": 60_000}), "b": ReachAnswer(rtt_ns={"a": 50_000})}


def agreed(
    text: str = FABRIC,
    looks: dict[str, LookAnswer] = LOOKS,
    reaches: dict[str, ReachAnswer] = REACHES,
) -> SpreadAgreement:
    lab = load_topology_text(text, file="<text>")
    places = place_nodes(lab, MACHINES)
    return agree(lab, places, cut_links(lab, places), looks, reaches)


def changed(**values: object) -> dict[str, LookAnswer]:
    return {**LOOKS, "b": replace(LOOKS["b"], **values)}  # type: ignore[arg-type]


def test_all_have_the_largest_scale_and_the_longest_reaction() -> None:
    found = agreed()
    assert found.k == 4000, "3,000 and a third more for crossings"
    assert found.reaction_ns == 900 + 60_000
    assert found.parts["a"].peers["b"].address == "10.0.0.2" and found.parts["a"].peers["b"].delay_ns == 30_000
    assert agreed(FABRIC + "scale: {time: 500}\n").k == 500


def test_all_have_the_first_slot_that_is_free_everywhere() -> None:
    first = slot_for("agreed")
    assert agreed().slot == first
    taken = changed(taken=(first, (first + 1) % SLOTS))
    assert agreed(looks=taken).slot == (first + 2) % SLOTS
    with pytest.raises(NotSpread, match="no slot is free"):
        agreed(looks=changed(taken=tuple(range(SLOTS))))


@pytest.mark.parametrize(
    ("by", "found"),
    [(("kernel", "kernel"), "kernel"), (("kernel", "endpoint"), "endpoint"), (("", ""), "")],
)
def test_the_weakest_mechanism_of_delay_counts(by: tuple[str, str], found: str) -> None:
    looks = {"a": replace(LOOKS["a"], delay_by=by[0]), "b": replace(LOOKS["b"], delay_by=by[1])}
    assert agreed(looks=looks).delay_by == found


def test_two_machines_with_one_address_are_refused() -> None:
    """Each would reach itself: ports of one host that are forwarded to several, or two names of one machine."""
    with pytest.raises(NotSpread, match=r"a and b both have the address 10\.0\.0\.1") as refused:
        agreed(looks=changed(address="10.0.0.1"))
    assert refused.value.hint is not None and "underlay" in refused.value.hint


def test_an_underlay_that_is_too_small_is_named_with_a_way_out() -> None:
    with pytest.raises(NotSpread, match=r"eth0 of b has an MTU of 1500 bytes.*4564") as refused:
        agreed(looks=changed(mtu_bytes=1500))
    assert refused.value.hint is not None and "mtu: 1436" in refused.value.hint
    lab = load_topology_text(FABRIC, file="<text>")
    assert largest_packet(cut_links(lab, place_nodes(lab, MACHINES))) == 4564


def test_a_path_that_is_smaller_than_its_ends_is_named() -> None:
    reaches = {**REACHES, "a": ReachAnswer(lost={"b": "Message too long"})}
    with pytest.raises(NotSpread, match=r"a does not reach b .* Message too long"):
        agreed(reaches=reaches)


def test_an_underlay_that_is_too_slow_for_the_delays_is_refused_with_the_scale_that_suits() -> None:
    delayed = FABRIC.replace("spines: 2", "spines: 2, uplink: {delay: 500ns}") + "scale: {time: 500}\n"
    with pytest.raises(NotSpread, match="from a to b a packet takes 30 us") as refused:
        agreed(delayed)
    assert refused.value.hint == "scale: {time: 600}"
    assert agreed(delayed.replace("500}", "600}")).k == 600


def test_cut_links_that_ask_for_more_than_half_of_the_underlay_are_refused() -> None:
    fast = FABRIC + "scale: {time: 200}\n"  # two of 400 Gbit/s
    with pytest.raises(NotSpread, match="the cut links of b ask for") as refused:
        agreed(fast, looks=changed(speed_bps=10**9))
    assert refused.value.hint is not None and refused.value.hint.startswith("scale: {time: ")
    assert "does not say how fast it is" in agreed(fast, looks=changed(speed_bps=0)).warnings[0]
    assert agreed(fast).warnings == ()


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"testbed": "0"}, "b has testbed 0, and here is 1"),
        ({"sources": "t"}, "b has other sources of testbed than a"),
        ({"exists": True}, "a lab of that name is on b"),
    ],
)
def test_machines_that_are_not_alike_are_refused_by_name(values: dict[str, object], says: str) -> None:
    require_alike(LOOKS, "1")
    with pytest.raises(NotSpread, match=says):
        require_alike(changed(**values), "1")


def test_over_names_machines_by_their_hosts() -> None:
    found = parse_over("ssh://root@lab1,ssh://root@lab2:2222/srv/testbed,ssh://root@10.99.0.11:22")
    assert [machine.name for machine in found] == ["lab1", "lab2:2222", "10.99.0.11"]
    assert found[1].ssh == "root@lab2:2222/srv/testbed"


@pytest.mark.parametrize("text", ["ssh://a", "a,b", "ssh://a,", "ssh://a,ssh://b@a", "vm,ssh://a", "ssh://a b,ssh://c"])
def test_what_names_no_two_machines_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(TestbedError) as refused:
        parse_over(text)
    assert refused.value.hint
