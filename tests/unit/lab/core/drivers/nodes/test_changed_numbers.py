"""What a change of numbers alone does to the kernel: it reaches every port that goes by them, and makes none anew."""

from typing import Any

import pytest

from testbed.lab.core.drivers.nodes.changing import KernelChanges, kernel_changes
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import AddRoute, AddRule, InstallPort, SetSysctl
from testbed.lab.core.plan.qos.numbers import keep_numbers, numbers_of
from testbed.lab.core.schema.load import load_topology_text

TEXT = """\
name: x
fabric: {design: rail-optimized, segments: 1, hosts: 3, gpus: 1, spines: 2, routing: {bfd: off}}
qos: {preset: uec, buffer: {shared: 100MB}, load_balancing: {mode: flow}}
"""
FRONTEND = {"design": "leaf-spine", "leaves": 1, "spines": 1, "nic": {"per": "host", "ports": 1, "rate": "100G"}}


def planned(**overrides: Any) -> LabPlan:
    keys = {name.replace("__", "."): value for name, value in overrides.items()}
    return plan_lab(load_topology_text(TEXT, file="x.yml", overrides=keys), k=5000)


def changed(old: LabPlan, new: LabPlan) -> KernelChanges:
    return kernel_changes(old, keep_numbers(new, numbers_of(old)))


@pytest.mark.parametrize(
    "change",
    [
        {"qos__load_balancing": {"mode": "spray"}},
        {"qos__load_balancing": {"mode": "flowlet", "gap": "50us"}},
        {"qos__buffer__shared": "120MB"},
        {"qos__buffer__alpha": 0.25},
    ],
)
def test_a_change_of_switches_reaches_all_their_ports(change: dict[str, Any]) -> None:
    old = planned()
    changes = changed(old, planned(**change))
    switches = {switch.node for switch in old.switches}
    ports = {(item.node, item.name) for item in old.operations if isinstance(item, InstallPort)}
    told = {(item.node, item.name) for item in changes.installs}
    assert {port for port in ports if port[0] in switches} <= told
    assert not (changes.made or changes.remade or changes.removed)


def test_nothing_is_changed_where_nothing_differs() -> None:
    assert not changed(planned(), planned())
    assert not changed(planned(qos__load_balancing={"mode": "spray"}), planned(qos__load_balancing={"mode": "spray"}))


def test_a_new_port_comes_up_with_the_settings_that_a_deploy_makes_it_with() -> None:
    """A switch's access ports have no IPv6, and are made before that is the default of its other ports."""
    changes = changed(planned(), planned(fabric__hosts=4))
    made = [item for item in changes.made if isinstance(item, SetSysctl) and item.node == "p1-s1-rail1"]
    values = [item.value for item in made if item.key == "net/ipv6/conf/default/disable_ipv6"]
    assert values == ["1", "0"]


def test_a_table_that_becomes_that_of_another_nic_is_never_empty() -> None:
    """Tables are numbered by the order of NICs: one more in the back end moves those of the front end on."""
    old, new = planned(networks__frontend=FRONTEND), planned(networks__frontend=FRONTEND, fabric__gpus=2)
    changes = changed(old, new)
    replaced = [(was, item) for was, item in changes.changed if isinstance(item, AddRoute)]
    assert {item.table for _, item in replaced} == {102}
    assert all(isinstance(was, AddRoute) and was.ifindex != item.ifindex for was, item in replaced)
    removed = [item for item in changes.removed if isinstance(item, AddRoute) and item.table == 102]
    assert not any(item.destination.prefixlen == 0 for item in removed)
    hosts = {host.node for host in old.hosts}
    assert {item.node for item in changes.outdated} == hosts, "no packet goes by a table that is another's"
    assert not any(isinstance(item, AddRule) for item in changes.removed)
