"""Addresses of switches that go, and whose subnets are other switches' from then on."""

from odd_pairs import PAIRS, lab_said

from testbed.lab.core.drivers.nodes.changing import kernel_changes
from testbed.lab.core.feature import keep
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.operations import AddAddress, AddRule


def test_a_subnet_that_routing_brings_back_is_no_longer_the_switchs_own() -> None:
    """Both switches of a pair have the subnet of its hosts; without link groups the second learns it from the first."""
    plain, grouped = (lab_said(document) for document in PAIRS["link groups"])
    before, after = plan_lab(grouped, k=1000), plan_lab(keep(grouped, plain), k=1000)
    brought = {route.prefix for route in after.expected_routes["fe-leaf2"]}
    (gone,) = [item for item in kernel_changes(before, after).outdated if isinstance(item, AddAddress)]
    assert gone.node == "fe-leaf2" and gone.address.network in brought
    there = kernel_changes(after, before).outdated
    assert all(isinstance(item, AddRule) or item.address.network in brought for item in there)
