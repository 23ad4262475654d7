"""`on:` in the section `networks:`: a network over another one's switches, as the lab has it."""

from ipaddress import IPv4Network

import pytest

from testbed.base.errors import SpecError
from testbed.lab.core.deploy.records.lab_record import decode_lab, encode_lab
from testbed.lab.core.fabric import check_sizing, measure_sizing
from testbed.lab.core.fabric.sizing import seen_for_sizing
from testbed.lab.core.model import BACKEND, Lab, LinkKind
from testbed.lab.core.schema.load import load_topology_text
from testbed.run.schema.model import NO_TENANT, Ranks

TEXT = """name: conv
fabric: {design: rail-optimized, segments: 1, hosts: 4, gpus: 2, spines: 1}
networks:
  storage: {on: frontend, nic: {rate: 200G}, prefix: 198.18.200.0/24}
  frontend: {leaves: 2, spines: 2, nic: {ports: 2}, overlay: evpn, mtu: 4000}
  management: {on: frontend, hosts: ["*-h[12]"], vni: 77, mtu: 1500, prefix: 198.18.201.0/24}
  plain: {design: single-switch}
tenants:
  red: {subnets: {web: {prefix: 10.11.0.0/24, nics: ["p1-s1-h1:fe2", "p1-s1-h2:fe2"]}}}
"""


def load(text: str = TEXT) -> Lab:
    return load_topology_text(text, file="conv.yml")


def test_it_is_a_network_by_itself_over_the_switches_of_its_carrier(lab: Lab) -> None:
    assert lab.network_names == (BACKEND, "storage", "frontend", "management", "plain")
    assert [lab.carrier_of(name) for name in lab.network_names] == [
        BACKEND,
        "frontend",
        "frontend",
        "frontend",
        "plain",
    ]
    assert lab.carried_by("frontend") == ("storage", "management")
    assert lab.switched_networks == (BACKEND, "frontend", "plain")
    assert {node.network for node in lab.switches} == {BACKEND, "frontend", "plain"}
    ports = {str(link.a): str(link.b) for link in lab.links if link.network == "storage"}
    assert ports["p1-s1-h1:st1"] == "fe-leaf1:st-down1" and ports["p1-s1-h2:st1"] == "fe-leaf2:st-down1"
    assert decode_lab(encode_lab(lab)) == lab


def test_it_is_a_tenant_of_the_overlay_with_addresses_numbers_and_an_mtu_of_its_own(lab: Lab) -> None:
    tenants = {tenant.name: tenant for tenant in lab.overlay.tenants}
    assert list(tenants) == ["red", "storage", "management"]
    assert [tenant.network for tenant in tenants.values()] == ["", "storage", "management"]
    assert (tenants["storage"].vni, tenants["storage"].subnets[0].vni) == (60001, 20001)
    assert (tenants["management"].vni, tenants["management"].subnets[0].vni) == (60003, 77)
    subnet = tenants["storage"].subnets[0]
    assert subnet.prefix == IPv4Network("198.18.200.0/24") and len(subnet.nics) == 4
    assert lab.overlay.mtu_bytes == {"frontend": 3950, "storage": 3950, "management": 1500}
    links = [link for link in lab.links if link.network in ("storage", "management")]
    assert {link.kind for link in links} == {LinkKind.TENANT}
    assert {(link.network, link.mtu_bytes) for link in links} == {("storage", 3950), ("management", 1500)}


def test_it_is_seen_with_its_carriers_switches_and_the_carrier_without_it(lab: Lab) -> None:
    seen = lab.of_network("storage")
    assert {link.network for link in seen.links} == {"storage", "frontend"}
    assert {link.kind for link in seen.links if link.network == "frontend"} == {LinkKind.FABRIC}
    assert [node.name for node in seen.switches] == [node.name for node in lab.of_network("frontend").switches]
    assert seen.routing == lab.of_network("frontend").routing
    assert {link.network for link in lab.of_network("frontend").links} == {"frontend"}
    assert {link.network for link in lab.on_switches_of("frontend").links} == {"frontend", "storage", "management"}
    alone = lab.without_carrier("management")
    assert not alone.switches and len(alone.links) == len(alone.hosts) == 2


def test_sizing_counts_switches_where_they_are(lab: Lab) -> None:
    frontend, storage = (measure_sizing(seen_for_sizing(lab, name)) for name in ("frontend", "storage"))
    assert frontend.roles[0].ports == 4 + 2 + 2 + 1, "of hosts in the front end, uplinks, storage, management"
    assert frontend.host_links == 8 + 4 + 2
    assert (storage.switches, storage.roles, storage.hosts, storage.host_links) == (0, (), 4, 4)


def test_the_radix_of_the_carrier_has_room_for_it() -> None:
    text = TEXT.replace("overlay: evpn", "overlay: evpn, switch_radix: 9")
    assert check_sizing(load(text).on_switches_of("frontend")) == ()
    with pytest.raises(SpecError, match="9 ports in use; switch_radix is 8") as caught:
        load(text.replace("switch_radix: 9", "switch_radix: 8"))
    assert str(caught.value.problems[0]).startswith("conv.yml:5:")


def test_ports_of_it_have_the_qos_of_its_carrier() -> None:
    lab = load(TEXT.replace("overlay: evpn", "overlay: evpn, qos: {preset: dcqcn}"))
    assert lab.qos_of("storage") is lab.qos_of("frontend") is not None
    assert lab.policy_of("p1-s1-h1:st1") is lab.policy_of("fe-leaf1:uplink1") is not None
    assert lab.of_network("storage").qos is lab.qos_of("frontend")
    assert lab.qos_of("plain") is None


def test_ranks_in_it_need_no_tenant_and_in_its_carrier_are_those_of_none(lab: Lab) -> None:
    assert Ranks(networks=("storage",)).tenants_in(lab) == (NO_TENANT, "storage")
    assert Ranks(networks=("frontend", "storage")).may_take("storage", lab)
    assert not Ranks(networks=("frontend",)).may_take("storage", lab)
    assert Ranks(networks=("frontend",), tenants=("red",)).tenants_in(lab) == ("red",)
    assert Ranks(networks=("storage",)).tenants_in(lab.of_network("storage")) == (NO_TENANT, "storage")


def test_no_tenant_talks_to_it() -> None:
    with pytest.raises(SpecError, match="there is no tenant storage") as caught:
        load(TEXT.replace("red: {", "red: {talks_to: [storage], "))
    assert caught.value.problems[0].code == "unknown-tenant"


def test_hosts_of_a_subnet_are_not_in_it_with_its_ports() -> None:
    lab = load(TEXT.replace('nics: ["p1-s1-h1:fe2", "p1-s1-h2:fe2"]', "hosts: [p1-s1-h3]"))
    assert lab.overlay is not None
    assert [str(end) for end in lab.overlay.tenants[0].subnets[0].nics] == ["p1-s1-h3:fe1", "p1-s1-h3:fe2"]
