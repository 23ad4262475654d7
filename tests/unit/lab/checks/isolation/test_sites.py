"""Where attacks start: each access port once, with a victim that is somebody else."""

from dataclasses import replace
from ipaddress import IPv6Address

import pytest

from testbed.base.linux.rtnetlink import mac_bytes
from testbed.lab.checks.isolation import arena
from testbed.lab.checks.isolation.attacks import (
    ATTACKS,
    BgpToLoopback,
    GatewayArp,
    MacFlood,
    NeighbourArp,
    Storm,
    VxlanInjection,
    VxlanToLoopback,
)
from testbed.lab.checks.isolation.sites import MOST_SITES, Site, find_sites
from testbed.lab.core.model import BACKEND, Guard, Lab
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.operations import CreateBridge
from testbed.lab.core.schema.load import load_topology_text


def load(hosts: int = 3, guards: str = "on", design: str = "rail-optimized", segments: int = 2) -> Lab:
    return load_topology_text(
        f"name: dc\nfabric: {{design: {design}, hosts: {hosts}, gpus: 2, segments: {segments}}}\n"
        f"networks: {{frontend: {{leaves: 2, nic: {{ports: 2}}, guards: {guards}}}}}\n",
        file="dc.yml",
    )


def sites(lab: Lab, network: str) -> list[Site]:
    return find_sites(lab.of_network(network), plan_lab(lab, k=1000), network)


def test_every_access_port_is_attacked_from_once() -> None:
    found = sites(load(), "frontend")
    assert len({str(site) for site in found}) == len(found) == 12
    assert [site.number for site in found] == list(range(12))
    for site in found:
        assert site.victim is not None and site.victim.node != site.nic.node
        assert site.port.peer == f"{site.nic.node}:{site.nic.name}"
        assert site.third not in (site.address, site.victim_address)
        assert site.far is not None and site.far.address not in site.nic.address.network  # type: ignore[union-attr]
        assert site.guards


def test_every_port_has_another_victim_in_its_segment() -> None:
    found = sites(load(), "frontend")
    assert len({site.victim_place for site in found}) == len(found)


def test_the_gateway_is_the_bridge() -> None:
    lab = load()
    macs = {item.mac for item in plan_lab(lab, k=1000).operations if isinstance(item, CreateBridge)}
    assert {site.gateway_mac for site in sites(lab, "frontend")} <= {mac_bytes(mac) for mac in macs}


def test_rails_that_are_apart_have_no_far_victim() -> None:
    found = sites(load(design="rail-only", segments=1), "backend")
    assert found
    for site in found:
        assert site.far is site.victim


def test_a_host_that_is_alone_on_its_switch_has_no_victim_beside_it() -> None:
    found = sites(load(hosts=1), "backend")
    assert found
    for site in found:
        assert site.victim is None and site.bridge == 0
        assert MacFlood().misfit(site) == "the port is in no bridge"


def test_ports_of_tenants_are_what_tunnels_lead_to_from_those_of_others() -> None:
    lab = load_topology_text(
        """name: dc
fabric: {design: rail-optimized, hosts: 3, gpus: 2, segments: 1, overlay: evpn}
tenants: {red: {subnets: {web: {prefix: 10.1.0.0/24, nics: ["p1-s1-h1:rail1"]}}}}
""",
        file="dc.yml",
    )
    found = sites(lab, "backend")
    assert len(found) == 6
    for site in found:
        mine = site.nic.tenant == "red"
        assert (site.tunnel is not None) == (site.port.node == "p1-s1-rail1" and not mine)
        assert site.cut_off == mine and (BgpToLoopback().misfit(site) != "") == mine
        if mine:
            assert site.bridge and site.victim is None, "in a bridge of its VRF, alone"
            continue
        assert VxlanInjection().misfit(site) != VxlanToLoopback().misfit(site)
    tunnel = next(site.tunnel for site in found if site.tunnel is not None)
    assert (tunnel.nic.node, tunnel.nic.name, tunnel.vni) == ("p1-s1-h1", "rail1", 10101)


def test_the_neighbour_of_who_is_alone_on_a_leaf_is_behind_another_vtep() -> None:
    """What concerns one switch's tables is not tried then; what crosses the fabric, or needs no neighbour, is."""
    lab = load_topology_text(
        """name: dc
fabric: {design: single-switch, hosts: 4, gpus: 1}
networks: {frontend: {leaves: 2, spines: 1, nic: {rate: 100G}, overlay: evpn}}
tenants:
  red: {subnets: {web: {prefix: 10.1.0.0/24, nics: ["p1-s1-h1:fe1", "p1-s1-h2:fe1", "p1-s1-h3:fe1"]}}}
""",
        file="dc.yml",
    )
    first, second, third, nobodys = sites(lab, "frontend")
    assert [site.stretched for site in (first, second, third, nobodys)] == [False, False, True, False]
    assert third.victim_place == ("p1-s1-h1", "fe1") and third.far is third.victim
    assert nobodys.victim is None, "the underlay has a subnet for each leaf"
    untried = {attack.name for attack in ATTACKS if attack.misfit(third) and not attack.misfit(first)}
    assert untried == {"MAC of a neighbour", "ARP: I am a neighbour", "spanning tree root"}
    assert not MacFlood().misfit(third)
    rounds = arena._rounds(GatewayArp(), [first, second, third])
    assert rounds == [[first, second], [third]], "the first is the victim of both others"
    assert arena._rounds(MacFlood(), [first, second, third]) == [[first, second, third]]


def test_both_ports_of_a_link_group_are_one_site() -> None:
    lab = load_topology_text(
        """name: dc
fabric: {design: rail-optimized, hosts: 4, gpus: 1, segments: 1}
networks:
  frontend: {homing: mlag, leaves: 2, nic: {ports: 2}, overlay: evpn, guards: on, routing: {password: true}}
tenants: {red: {subnets: {web: {prefix: 10.1.0.0/24, nics: ["p1-s1-h1:fe0", "p1-s1-h2:fe0"]}}}}
""",
        file="dc.yml",
    )
    found = sites(lab, "frontend")
    assert [str(site) for site in found] == [f"fe-leaf1:down{n}+fe-leaf2:down{n}" for n in range(1, 5)]
    for site in found:
        assert site.senders == ((site.nic.node, "fe1"), (site.nic.node, "fe2")) and site.nic.name == "fe0"
        vrf = "-red" if site.nic.tenant else ""
        assert site.places == (f"fe-leaf1{vrf}", f"fe-leaf2{vrf}") and site.is_pair
        assert site.victim is not None and site.victim.name == "fe0" and site.victim.tenant == site.nic.tenant
        assert [entry[0] for entry in NeighbourArp().entries(site)] == list(site.places)
        assert site.guards and site.password
    assert {site.tunnel.nic.node for site in found if site.tunnel is not None} == {"p1-s1-h1"}
    storm = Storm()
    one = replace(found[0], ports=found[0].ports[:1])
    assert storm.enough(found[0], 0.1) == 2 * storm.enough(one, 0.1), "each leaf lets that much pass"


def test_of_many_ports_an_even_choice_is_attacked_from() -> None:
    found = sites(load(hosts=40), "frontend")
    assert len(found) == MOST_SITES
    assert len({site.port.node for site in found}) == 2


def test_a_storm_is_larger_than_what_its_guard_lets_pass() -> None:
    for pps in (1, 200, 4000):
        site = sites(load(guards=f"{{storm_pps: {pps}}}"), "frontend")[0]
        frames = Storm().frames(site, b"token")
        assert Storm().enough(site, 0.1) < len(frames) / 2 + 100
        assert 0 < Storm().to_drop(site, len(frames), 0.1) <= len(frames)
    over = sites(load(guards="{storm_pps: 100000}"), "frontend")[0]
    assert "more than is sent" in Storm().misfit(over)


@pytest.mark.parametrize("guard", list(Guard))
def test_every_guard_is_attacked(guard: Guard) -> None:
    assert any(attack.guard is guard for attack in ATTACKS)


def test_names_are_unique_and_frames_have_their_token() -> None:
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS)
    text = """name: dc
fabric: {design: rail-optimized, hosts: 3, gpus: 1, segments: 1, spines: 1, overlay: evpn}
tenants:
  red: {subnets: {web: {prefix: 10.1.0.0/24, prefix6: "fd00:1::/64", nics: ["p1-s1-h1:rail1", "p1-s1-h2:rail1"]}}}
"""
    site = next(site for site in sites(load_topology_text(text, file="dc.yml"), BACKEND) if site.nic.tenant)
    assert (site.third6, site.gateway6) == (IPv6Address("fd00:1::ffff:ffff:ffff:ffff"), IPv6Address("fd00:1::1"))
    for attack in ATTACKS:
        assert all(b"token-12345" in frame for frame in attack.frames(site, b"token-12345"))
