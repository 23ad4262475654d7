"""Routers outside, as they are planned: nodes, sessions, what is believed, and what is refused."""

from ipaddress import IPv4Interface, IPv4Network

import pytest

from testbed.base.errors import PlanError
from testbed.daemons.keeper.entries import EntryKind
from testbed.lab.core.model import Lab, LinkKind, NodeKind
from testbed.lab.core.plan.lab import check_addresses, plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import AddAddress, AddRoute, CreateVeth, GuardSwitch
from testbed.lab.core.plan.overlay_operations import SetBorder
from testbed.lab.core.plan.overlay_plan import VrfPlan
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.features.overlay.policies_nft import border_messages

TEXT = """name: dc
fabric: {{design: rail-optimized, hosts: 6, gpus: 2, segments: 1, spines: 1, overlay: evpn, guards: on}}
networks:
  frontend: {{leaves: 2, spines: 1, prefix: 192.168.0.0/20}}
tenants:
  red:
    external: {{leaf: p1-s1-rail1, asn: {asn}, prefixes: [{prefix}, 203.0.113.6/31], rate: 10G}}
    talks_to: [hub]
    subnets:
      web: {{prefix: 10.201.0.0/24, nics: ["p1-s1-h1:rail2"]}}
      db: {{prefix: 10.202.0.0/24, nics: ["p1-s1-h2:rail2"]}}
      empty: {{prefix: 10.203.0.0/24}}
  hub: {{subnets: {{web: {{prefix: 10.204.0.0/24, nics: ["p1-s1-h3:rail2"]}}}}}}
"""
BORDER, FAR, ROUTER = "p1-s1-rail1", "p1-s1-rail2", "red-external"
OUTSIDE, PAIR = IPv4Network("198.51.100.0/24"), IPv4Network("203.0.113.6/31")
WEB, DB = IPv4Network("10.201.0.0/24"), IPv4Network("10.202.0.0/24")


def load(asn: int = 64999, prefix: str = "198.51.100.0/24") -> Lab:
    return load_topology_text(TEXT.format(asn=asn, prefix=prefix), file="dc.yml")


@pytest.fixture(scope="module")
def lab() -> Lab:
    return load()


@pytest.fixture(scope="module")
def plan(lab: Lab) -> LabPlan:
    return plan_lab(lab, k=100)


def vrf(plan: LabPlan, node: str) -> VrfPlan:
    assert plan.overlay is not None
    return next(one for one in plan.overlay.vrfs if one.node == node)


def test_it_is_a_node_and_neither_a_host_nor_a_switch(lab: Lab) -> None:
    node = lab.node(ROUTER)
    assert node.kind is NodeKind.ROUTER
    assert node in lab.speakers
    assert node not in (*lab.switches, *lab.hosts)
    link = next(item for item in lab.links if item.kind is LinkKind.EXTERNAL)
    assert (str(link.a), str(link.b)) == ("red-external:uplink1", "p1-s1-rail1:ext50001")
    assert str(link.rate) == "10 Gbit/s"


def test_it_has_the_first_address_of_each_prefix(plan: LabPlan) -> None:
    addresses = [item.address for item in plan.operations if isinstance(item, AddAddress) and item.node == ROUTER]
    assert addresses == [IPv4Interface("198.51.100.1/24"), IPv4Interface("203.0.113.6/31")]


def test_its_port_is_in_the_vrf_of_a_leaf_that_has_no_nic_of_the_tenant(plan: LabPlan) -> None:
    veth = next(item for item in plan.operations if isinstance(item, CreateVeth) and item.a.node == ROUTER)
    assert (veth.b.node, veth.b.name, veth.b.ipv6, veth.b.master) == (f"{BORDER}-red", "ext50001", True, 0)
    port = next(port for port in plan.ports if port.node == BORDER and port.name == "ext50001")
    assert (port.tenant, port.place) == ("red", f"{BORDER}-red")
    assert vrf(plan, f"{BORDER}-red").l2 == ()


def test_what_is_believed_and_told(plan: LabPlan) -> None:
    peer = vrf(plan, f"{BORDER}-red").external
    assert (peer.asn, peer.accepts, peer.announces) == (64999, (OUTSIDE, PAIR), (WEB, DB))
    assert vrf(plan, f"{FAR}-red").external is None
    (router,) = plan.routers
    assert (router.asn, router.networks, router.neighbors[0].remote) == (64999, (OUTSIDE, PAIR), BORDER)
    assert [route.prefix for route in plan.expected_routes[ROUTER]] == [WEB, DB]


def test_both_leaves_must_have_its_prefixes(plan: LabPlan) -> None:
    assert plan.overlay is not None
    for node, vtep in ((f"{BORDER}-red", "169.254.0.1"), (f"{FAR}-red", str(vrf(plan, f"{BORDER}-red").vtep))):
        found = {
            entry.prefix: [str(one) for one in entry.vteps]
            for entry in plan.overlay.expected[node]
            if entry.kind is EntryKind.ROUTE and entry.of == ROUTER
        }
        assert found == {OUTSIDE: [vtep], PAIR: [vtep]}
    assert not [entry for entry in plan.overlay.expected[f"{FAR}-hub"] if entry.of == ROUTER]


def test_hosts_of_the_tenant_alone_have_a_route_to_it(plan: LabPlan) -> None:
    hosts = {item.node for item in plan.operations if isinstance(item, AddRoute) and item.destination == OUTSIDE}
    assert hosts == {"p1-s1-h1", "p1-s1-h2"}


def test_guards_do_not_keep_hosts_from_it(plan: LabPlan) -> None:
    guards = [item for item in plan.operations if isinstance(item, GuardSwitch)]
    assert guards
    assert not [address for item in guards for address in item.switches if address in OUTSIDE]
    assert not [port for item in guards for port in item.ports if port.name == "ext50001"]


def test_what_its_leaf_lets_in_is_in_force_before_the_port_is_up(plan: LabPlan) -> None:
    (border,) = (item for item in plan.operations if isinstance(item, SetBorder))
    assert (border.node, border.name) == (f"{BORDER}-red", "ext50001")
    assert (border.sources, border.targets) == ((OUTSIDE, PAIR), (WEB, DB))
    up = f"set up {BORDER}:ext50001"
    described = [str(item) for item in plan.operations]
    assert described.index(str(border)) < described.index(up)
    assert len(border_messages(border)) > 5


def test_a_lab_without_any_is_as_before() -> None:
    text = "\n".join(line for line in TEXT.format(asn=1, prefix="").splitlines() if "external" not in line)
    plan = plan_lab(load_topology_text(text, file="dc.yml"), k=100)
    assert not plan.routers
    assert not [item for item in plan.operations if isinstance(item, SetBorder)]


@pytest.mark.parametrize(
    "prefix", ["10.7.0.0/24", "172.18.0.0/24", "100.64.1.0/24", "192.168.4.0/24", "224.0.0.0/8", "169.254.0.0/24"]
)
def test_prefixes_of_the_lab_are_refused(prefix: str) -> None:
    with pytest.raises(PlanError, match="overlaps") as raised:
        check_addresses(load(prefix=prefix))
    assert (raised.value.code, raised.value.field) == ("overlap", "tenants.red.external.prefixes")


def test_as_numbers_of_switches_are_refused(plan: LabPlan) -> None:
    taken = next(switch.asn for switch in plan.switches)
    for asn in (taken, 4_294_967_294):
        with pytest.raises(PlanError, match=f"the AS {asn} is") as raised:
            check_addresses(load(asn=asn))
        assert (raised.value.code, raised.value.field) == ("same-asn", "tenants.red.external.asn")
