"""Hosts that speak BGP with two leaves: ECMP both ways, what is lost when one goes, and what leaves believe of them."""

from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from outages import FLOWS, PORT, ports_down, short_outage, switch_gone, udp_socket
from shared_lab import speaker
from waiting import until

from testbed.base.linux import vty
from testbed.lab.core.deploy.watch.check import CheckStatus, check_lab
from testbed.lab.core.deploy.watch.sessions import missing_sessions
from testbed.lab.core.schema.load import load_topology_text

pytestmark = [pytest.mark.netns, pytest.mark.frr]
TOPOLOGY = Path(__file__).parents[3] / "topologies" / "routed-hosts.yml"
HOST, NEIGHBOUR, FAR = "192.168.1.2", "192.168.1.3", "192.168.3.2"
NODES = {HOST: "p1-s1-h1", NEIGHBOUR: "p1-s1-h2", FAR: "p1-s1-h3"}


@pytest.fixture(scope="module")
def lab(shared_sandbox: Any) -> Any:
    text = TOPOLOGY.read_text().replace("name: routed-hosts", f"name: {shared_sandbox.name()}")
    return shared_sandbox.deploy(load_topology_text(text, file="routed.yml")).lab


PAIRS = (((NODES[HOST], HOST), (NODES[FAR], FAR)), ((NODES[FAR], FAR), (NODES[HOST], HOST)))


def _ports(lab: Any, node: str, prefix: str) -> set[str]:
    """The interfaces that a node's route to exactly this prefix has, those whose link is down left out."""
    lines = lab.run(node, ["ip", "-4", "route", "show", prefix]).stdout.splitlines()
    return {line.split(" dev ")[1].split()[0] for line in lines if " dev " in line and "linkdown" not in line}


ROUTES = {
    "p1-s1-h1": ("192.168.0.0/18", {"fe1", "fe2"}),
    "fe-spine1": (HOST, {"down1", "down2"}),
    "fe-leaf3": (HOST, {"uplink1", "uplink2"}),
}


def _whole(lab: Any) -> bool:
    """Whether all sessions and BFD peers are up and both ways serve."""
    if missing_sessions(lab.plan.speakers, lab.run_directory("fe-leaf1").parent):
        return False
    return all(_ports(lab, node, prefix) == ports for node, (prefix, ports) in ROUTES.items())


def test_hosts_and_fabric_have_both_ways_in_the_kernel(lab: Any) -> None:
    assert {result.status for result in check_lab(lab).results} == {CheckStatus.PASS}
    for node, (prefix, ports) in ROUTES.items():
        assert _ports(lab, node, prefix) == ports


def test_a_link_that_goes_down_costs_what_the_kernel_needs_to_notice(lab: Any) -> None:
    with short_outage(lab, PAIRS, _whole, "link", 0.3) as flows, ports_down(lab, "fe-leaf1:down1"):
        until(lambda: _ports(lab, "fe-spine1", HOST) == {"down2"}, "the spine has one way left")
        assert _ports(lab, "p1-s1-h1", "192.168.0.0/18") == {"fe2"}
        flows.well()


def test_a_leaf_that_loses_power_costs_less_than_a_second(lab: Any) -> None:
    with short_outage(lab, PAIRS, _whole, "leaf", 1) as flows, switch_gone(lab, "fe-leaf2"):
        until(lambda: _ports(lab, "fe-spine1", HOST) == {"down1"}, "the spine has one way left")
        flows.well()


def _configure(lab: Any, node: str, *commands: str) -> None:
    number = speaker(lab, node).asn
    section = (f"router bgp {number}", "address-family ipv4 unicast")
    vty.configure(lab.run_directory(node), "bgpd", [*section, *commands])


def _stolen(lab: Any) -> tuple[int, int]:
    """How many flows from the neighbour to the far host's address the attacker gets, and how many the far host."""
    with ExitStack() as opened:
        sinks = []
        for node in ("p1-s1-h1", NODES[FAR]):
            sinks.append(udp_socket(lab, node, FAR, PORT))
            opened.callback(sinks[-1].close)
        got: tuple[set[int], set[int]] = (set(), set())
        sources = [udp_socket(lab, NODES[NEIGHBOUR], NEIGHBOUR) for _ in range(FLOWS)]
        for number, source in enumerate(sources):
            opened.callback(source.close)
            source.sendto(b"%d" % number, (FAR, PORT))

        def all_are_there() -> bool:
            for sink, numbers in zip(sinks, got, strict=True):
                with suppress(BlockingIOError):
                    while True:
                        numbers.add(int(sink.recv(64)))
            return len(got[0] | got[1]) == FLOWS

        until(all_are_there, "each flow arrives at one of the two")
        return len(got[0]), len(got[1])


def test_a_host_cannot_take_the_address_of_another(lab: Any) -> None:
    """The host h1 announces that it has the address of h3, by a path that is shorter than the true one."""
    leaves = ("fe-leaf1", "fe-leaf2")
    attack = ("no neighbor fabric prefix-list to-fabric out", f"network {FAR}/32")
    lab.run("p1-s1-h1", ["ip", "addr", "add", f"{FAR}/32", "dev", "lo"])
    try:
        vty.configure(
            lab.run_directory("p1-s1-h1"),
            "bgpd",
            [f"router bgp {speaker(lab, 'p1-s1-h1').asn}", "no bgp network import-check"],
        )
        _configure(lab, "p1-s1-h1", *attack)
        for leaf in leaves:
            _configure(lab, leaf, "no neighbor down1 prefix-list from-down1 in")
        until(lambda: all(_ports(lab, leaf, FAR) == {"down1"} for leaf in leaves), "leaves believe it without a list")
        assert _stolen(lab) == (FLOWS, 0)

        for leaf in leaves:
            _configure(lab, leaf, "neighbor down1 prefix-list from-down1 in")
        uplinks = {"uplink1", "uplink2"}
        until(lambda: all(_ports(lab, leaf, FAR) == uplinks for leaf in leaves), "leaves forget it with their lists")
        assert _stolen(lab) == (0, FLOWS)
        assert all(_ports(lab, leaf, HOST) == {"down1"} for leaf in leaves)  # the host's own address is still taken
    finally:
        lab.run("p1-s1-h1", ["ip", "addr", "del", f"{FAR}/32", "dev", "lo"])
        _configure(lab, "p1-s1-h1", f"no network {FAR}/32", "neighbor fabric prefix-list to-fabric out")
        for leaf in leaves:
            _configure(lab, leaf, "neighbor down1 prefix-list from-down1 in")
