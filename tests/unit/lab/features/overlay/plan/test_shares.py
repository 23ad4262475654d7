"""Shares of tenants in a plan: the DSCPs of VXLAN, and the caps of ports."""

from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import InstallPort
from testbed.lab.core.plan.overlay_operations import CreateVxlan

TEXT = """
name: shares
fabric:
  design: rail-optimized
  segments: 1
  hosts: 2
  gpus: 2
  spines: 1
  nic: {rate: 40G}
  overlay: evpn
qos:
  classes:
    control: {dscp: [48], strict: true}
    gold: {dscp: [10, 12], weight: 60}
    bulk: {default: true, weight: 40}
tenants:
  red:
    traffic_class: gold
    cap: 100G
    subnets: {web: {prefix: 10.250.0.0/24, nics: ["p1-s1-h1:rail1", "p1-s1-h2:rail2"]}}
  blue:
    traffic_class: bulk
    cap: 10G
    subnets: {web: {prefix: 10.251.0.0/24, nics: ["p1-s1-h2:rail1"]}}
  green:
    subnets: {web: {prefix: 10.252.0.0/24, nics: ["p1-s1-h1:rail2"]}}
"""
K = 1000.0


def test_vteps_write_the_dscp_of_a_tenants_class(plan: LabPlan) -> None:
    found = {(item.node, item.dscp) for item in plan.operations if isinstance(item, CreateVxlan)}
    assert found == {
        ("p1-s1-rail1-red", 10),
        ("p1-s1-rail2-red", 10),
        ("p1-s1-rail1-blue", 0),
        ("p1-s1-rail2-green", None),
    }


def test_a_capped_port_runs_at_the_cap_both_ways_and_its_leaf_polices(plan: LabPlan) -> None:
    installs = {f"{item.node}:{item.name}": item for item in plan.operations if isinstance(item, InstallPort)}
    (blue,) = (port for port in plan.ports if port.tenant == "blue" and port.node == "p1-s1-h2")
    nic, leaf = installs[f"{blue.node}:{blue.name}"], installs[blue.peer]
    assert nic.rate_bps == leaf.rate_bps == leaf.cap_bps == 10e9 / K
    assert nic.cap_bps == 0  # a host is not trusted to police itself
    assert str(leaf).endswith("cap 10 Mbit/s")


def test_a_cap_above_the_rate_of_a_nic_is_that_rate(plan: LabPlan) -> None:
    capped = {f"{item.node}:{item.name}": item for item in plan.operations if isinstance(item, InstallPort)}
    red = [port for port in plan.ports if port.tenant == "red" and port.vrf]
    assert {capped[f"{port.node}:{port.name}"].cap_bps for port in red} == {40e9 / K}


def test_others_have_no_cap(plan: LabPlan) -> None:
    capped = {f"{item.node}:{item.name}" for item in plan.operations if isinstance(item, InstallPort) and item.cap_bps}
    assert capped == {f"{port.node}:{port.name}" for port in plan.ports if port.vrf and port.tenant != "green"}
