"""Tenants of a topology file: what is in them, and the numbers that the file leaves to the rule."""

import pytest

from testbed.base.errors import SpecError
from testbed.lab.core.deploy.records.lab_record import decode_lab, encode_lab
from testbed.lab.core.model import BACKEND, End, Lab, LinkKind
from testbed.lab.core.schema.load import load_topology_text

HEAD = """
name: pod
fabric:
  design: rail-optimized
  segments: 1
  hosts: 2
  gpus: 2
  spines: 2
  nic: {rate: 100G}
"""
TENANTS = """
tenants:
  red:
    subnets:
      web: {prefix: 10.1.0.0/24, hosts: [p1-s1-h1]}
      db: {prefix: 10.1.1.0/24, vni: 10102, nics: ["p1-s1-h2:rail1"]}
  blue:
    vni: 77
    route_target: "64999:5"
    subnets:
      web: {prefix: 10.1.0.0/24, nics: ["p1-s1-h2:rail2"]}
"""


NAMESAKE = """
topology:
  nodes: {p1-s1-rail1-red: {kind: host}}
  links: [{endpoints: ["p1-s1-rail1-red:eth1", "p1-s1-rail1:extra1"], rate: 100G}]
"""


def load(text: str, **overrides: object) -> Lab:
    return load_topology_text(text, file="pod.yml", overrides=overrides)


def refused(text: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        load(text)
    return [problem.code for problem in caught.value.problems]


@pytest.mark.parametrize("overlay", ["evpn", "{evpn: {}}", "{evpn: }"])
def test_an_overlay_without_tenants_changes_no_link(overlay: str) -> None:
    lab = load(f"{HEAD}  overlay: {overlay}\n")
    assert (lab.overlay.mtu_bytes, lab.overlay.tenants) == ({BACKEND: 4450}, ())
    assert lab.links == load(HEAD).links


@pytest.mark.parametrize("overlay", ["", "  overlay: none\n"])
def test_without_an_overlay_there_is_none(overlay: str) -> None:
    assert load(f"{HEAD}{overlay}").overlay is None


def test_numbers_by_rule_and_as_written() -> None:
    overlay = load(f"{HEAD}  overlay: evpn\n{TENANTS}").overlay
    red, blue = overlay.tenants
    assert (red.vni, red.imports, red.exports) == (50001, ("65000:50001",), ("65000:50001",))
    assert (blue.vni, blue.imports, blue.exports) == (77, ("64999:5",), ("64999:5",))
    assert [subnet.vni for subnet in (*red.subnets, *blue.subnets)] == [10101, 10102, 10201]


def test_a_number_that_is_taken_is_passed_over() -> None:
    overlay = load(f"{HEAD}  overlay: evpn\n{TENANTS}", **{"tenants.blue.vni": 50001}).overlay
    assert overlay is not None
    assert [tenant.vni for tenant in overlay.tenants] == [50002, 50001]


def test_a_host_is_in_a_subnet_with_all_its_nics() -> None:
    overlay = load(f"{HEAD}  overlay: evpn\n{TENANTS}").overlay
    nics = overlay.tenants[0].subnets[0].nics
    assert nics == (End(node="p1-s1-h1", interface="rail1"), End(node="p1-s1-h1", interface="rail2"))


def test_links_of_tenants_are_theirs_and_leave_room_for_vxlan() -> None:
    lab = load(f"{HEAD}  overlay: {{evpn: {{mtu: 4000}}}}\n{TENANTS}")
    kinds = {str(link.a): (link.kind, link.mtu_bytes, link.rail) for link in lab.links}
    assert kinds["p1-s1-h1:rail2"] == (LinkKind.TENANT, 4000, 2)
    assert kinds["p1-s1-rail1:uplink1"] == (LinkKind.FABRIC, 4500, 0)


def test_a_lab_with_tenants_comes_back_from_its_record() -> None:
    lab = load(f"{HEAD}  overlay: evpn\n{TENANTS}")
    assert decode_lab(encode_lab(lab)) == lab


def test_a_hand_written_link_is_turned_round() -> None:
    """A tenant's link leads from the host to the switch, however the file has it."""
    lab = load(
        """
name: pod
fabric: {overlay: evpn, mtu: 9000}
topology:
  nodes:
    leaf1: {kind: switch, role: rail}
    h1: {kind: host}
  links:
    - {endpoints: ["leaf1:eth1", "h1:eth1"], rate: 100G}
tenants:
  red: {subnets: {web: {prefix: 10.1.0.0/24, hosts: [h1]}}}
"""
    )
    assert [(str(link.a), link.kind, link.mtu_bytes) for link in lab.links] == [("h1:eth1", LinkKind.TENANT, 8950)]


def test_the_name_of_a_vrf_must_not_be_that_of_a_node() -> None:
    text = f"{HEAD}  overlay: evpn\n{NAMESAKE}\n{TENANTS}"
    assert refused(text) == ["duplicate-node"]


def test_a_switch_that_is_a_container_has_no_vrfs() -> None:
    text = f"{HEAD}  overlay: evpn\ntopology: {{kinds: {{switch: {{runtime: docker}}}}}}\n{TENANTS}"
    assert set(refused(text)) == {"not-built"}


FRONTEND = """
networks:
  frontend: {design: leaf-spine, leaves: 2, nic: {per: host, ports: 2, rate: 100G}, overlay: evpn}
"""


def test_an_overlay_of_another_network_has_an_mtu_of_its_own() -> None:
    text = f"{HEAD}  overlay: evpn\n{FRONTEND}{TENANTS}".replace("hosts: [p1-s1-h1]", 'nics: ["p1-s1-h1:fe1"]')
    lab = load(text)
    assert lab.overlay.mtu_bytes == {BACKEND: 4450, "frontend": 1450}
    assert [subnet.network for subnet in lab.overlay.tenants[0].subnets] == ["frontend", BACKEND]
    assert {link.mtu_bytes for link in lab.links if str(link.a) == "p1-s1-h1:fe1"} == {1450}


def test_a_subnet_is_in_one_network() -> None:
    assert refused(f"{HEAD}  overlay: evpn\n{FRONTEND}{TENANTS}") == ["subnet-in-networks"]


def test_a_nic_of_a_network_without_an_overlay_is_in_no_tenant() -> None:
    text = f"{HEAD}{FRONTEND}{TENANTS}".replace("hosts: [p1-s1-h1]", 'nics: ["p1-s1-h1:fe1"]')
    assert refused(text) == ["no-overlay", "no-overlay"]


def test_what_one_imports_and_another_exports_is_a_leak_unless_they_talk() -> None:
    text = f"{HEAD}  overlay: evpn\n{TENANTS}".replace("prefix: 10.1.0.0/24, nics", "prefix: 10.3.0.0/24, nics")
    apart = text.replace(
        "  red:\n", '  red:\n    route_targets: {import: ["65000:7", "64999:5"], export: ["65000:7"]}\n'
    )
    assert refused(apart) == ["route-target-leak"]
    overlay = load(apart.replace("    vni: 77\n", "    vni: 77\n    talks_to: [red]\n")).overlay
    assert (overlay.tenants[0].imports, overlay.tenants[0].exports) == (("65000:7", "64999:5"), ("65000:7",))


@pytest.mark.parametrize("rd", ["65000:4294967295", "4294967295:65535", "192.0.2.1:65535", "0065000:007"])
def test_a_route_distinguisher_has_one_of_three_forms(rd: str) -> None:
    text = f"{HEAD}  overlay: evpn\n{TENANTS}".replace("  red:\n", f'  red:\n    rd: {{p1-s1-rail1: "{rd}"}}\n')
    overlay = load(text).overlay
    assert overlay.tenants[0].rds == {"p1-s1-rail1": rd.lstrip("0").replace(":00", ":")}
    assert decode_lab(encode_lab(load(text))) == load(text)
