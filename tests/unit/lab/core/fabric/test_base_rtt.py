"""The modelled base RTT against sums by hand."""

import random
from dataclasses import replace

from testbed.base.units import Duration, Rate
from testbed.lab.core.fabric import FabricParams, UplinkParams, generate_fabric, model_base_rtt
from testbed.lab.core.model import Delay, DelayBy, End, Lab, Link, LinkKind, Node, NodeKind, Role

FRAME, ANSWER = 1514, 64


def node(name: str, role: Role | None = None) -> Node:
    return Node(name=name, kind=NodeKind.HOST if role is None else NodeKind.SWITCH, role=role)


def link(a: str, b: str, rate: str = "100G", delay: str = "", by: DelayBy = DelayBy.AUTO) -> Link:
    kind = LinkKind.ROUTED if "h" in a + b else LinkKind.FABRIC
    return Link(
        a=End(node=a, interface=f"to-{b}"),
        b=End(node=b, interface=f"to-{a}"),
        kind=kind,
        rate=Rate.parse(rate),
        mtu_bytes=1500,
        delay=Delay(value=Duration.parse(delay), by=by) if delay else None,
    )


def lab(*links: Link) -> Lab:
    names = dict.fromkeys(end.node for item in links for end in (item.a, item.b))
    roles = {"l": Role.RAIL, "s": Role.SPINE, "h": None}
    return Lab(name="x", nodes=tuple(node(name, roles[name[0]]) for name in names), links=links)


def hop_ns(rate_gbps: float) -> float:
    return 8 * (FRAME + ANSWER) / rate_gbps


def test_two_nics_on_one_switch() -> None:
    found = model_base_rtt(lab(link("h1", "l1", delay="100ns"), link("h2", "l1", "50G", delay="300ns")))
    assert found.ns == round(hop_ns(100) + hop_ns(50) + 2 * 100 + 2 * 300 + 0.5)


def test_nics_back_to_back() -> None:
    assert model_base_rtt(lab(link("h1", "h2", delay="1us"))).ns == 2127


def test_the_longest_of_the_shortest_ways() -> None:
    # h1 and h2 are two hops apart over the slow s2 or the fast s1; h3 is near h1. A way over four hops is not taken.
    found = model_base_rtt(
        lab(
            link("h1", "l1"),
            link("h3", "l1"),
            link("h2", "l2"),
            link("l1", "s1"),
            link("l2", "s1"),
            link("l1", "s2", delay="5us"),
            link("l2", "s2"),
            link("l3", "s1", delay="1ms"),
            link("l3", "s2", delay="1ms"),
        )
    )
    assert found.ns == 10_000 + round(4 * hop_ns(100) + 0.5)


def test_a_delay_that_is_ignored_or_absent_counts_nothing() -> None:
    plain = model_base_rtt(lab(link("h1", "l1"), link("h2", "l1")))
    ignored = model_base_rtt(lab(link("h1", "l1", delay="1s", by=DelayBy.IGNORE), link("h2", "l1")))
    assert plain == ignored == Duration(253)


def test_switches_without_nics_and_labs_without_links() -> None:
    assert model_base_rtt(lab(link("l1", "s1"), link("l2", "s1"))).ns == 253
    assert model_base_rtt(Lab(name="x", nodes=(), links=())).ns == 0
    assert model_base_rtt(lab(link("h1", "l1"))).ns == 127


def test_a_fabric_of_three_tiers() -> None:
    params = FabricParams(
        design="rail-optimized",
        pods=2,
        segments=2,
        hosts=2,
        gpus=2,
        spines=2,
        super_spines=2,
        uplink=UplinkParams(delay=Delay(value=Duration(500))),
    )
    fabric = generate_fabric(params, name="x")
    # NIC, rail, spine, super-spine, spine, rail, NIC: six links, of them four with a delay
    serialisation = 6 * 8 * (4514 + 64) / 400
    assert model_base_rtt(fabric).ns == round(serialisation + 0.5) + 4 * 2 * 500


def test_the_order_of_links_does_not_matter() -> None:
    fabric = generate_fabric(
        FabricParams(design="rail-optimized", segments=3, hosts=2, gpus=2, spines=3, uplink=UplinkParams(rate=Rate(7))),
        name="x",
    )
    links = list(fabric.links)
    random.Random(1).shuffle(links)
    assert model_base_rtt(replace(fabric, links=tuple(links))) == model_base_rtt(fabric)
