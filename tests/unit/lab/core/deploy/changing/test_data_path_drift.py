"""The numbers of a data path beside those of its plan: what somebody wrote into the maps is found and written again."""

import pytest
from memory_maps import maps_in_memory

from testbed.base.datapath.maps import LabMaps
from testbed.lab.core.deploy.changing.drift.data_path_drift import OF_PORT, data_path_drift
from testbed.lab.core.drivers.netlink.port_programs import fill_maps, write_maps
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import InstallPort

K = 10_000
TEXT = """name: drifting
fabric: {design: rail-optimized, segments: 1, hosts: 2, gpus: 1, spines: 1}
qos:
  classes:
    rdma: {dscp: [26], lossless: true, weight: 60, ecn: false}
    bulk: {default: true, weight: 40}
"""


def installs(plan: LabPlan) -> list[InstallPort]:
    return [item for item in plan.operations if isinstance(item, InstallPort)]


@pytest.fixture
def maps(plan: LabPlan) -> LabMaps:
    assert plan.tables is not None
    found = maps_in_memory(32)
    fill_maps(found, plan.tables, installs(plan))
    return found


def repaired(plan: LabPlan, maps: LabMaps) -> bool:
    assert plan.tables is not None
    write_maps(maps, plan.tables, data_path_drift(plan, maps).ports)
    return not data_path_drift(plan, maps)


def test_what_a_deploy_has_written_is_no_drift(plan: LabPlan, maps: LabMaps) -> None:
    assert not data_path_drift(plan, maps)


@pytest.mark.parametrize("name", OF_PORT)
def test_each_number_of_a_port_that_was_changed_is_told_and_written_again(
    plan: LabPlan, maps: LabMaps, name: str
) -> None:
    item = installs(plan)[2]
    maps.ports[name][item.port] ^= 1
    (row,) = data_path_drift(plan, maps).rows
    assert (row.node, row.what) == (item.node, f"port {item.node}:{item.name}")
    assert row.detail == f"numbers of the data path: {name}"
    assert repaired(plan, maps)


def test_a_threshold_of_pauses_is_told_and_written_again(plan: LabPlan, maps: LabMaps) -> None:
    item = next(item for item in installs(plan) if item.switch)
    maps.by_port("ingress")["xoff_bytes"][item.port] += 1
    (row,) = data_path_drift(plan, maps).rows
    assert row.node == item.node and "xoff_bytes" in row.detail
    assert repaired(plan, maps)


def test_a_profile_is_told_once_for_all_its_ports(plan: LabPlan, maps: LabMaps) -> None:
    index = next(item.profile for item in installs(plan) if item.switch)
    maps.profiles["class_of_dscp"][index, 26] ^= 1
    (row,) = data_path_drift(plan, maps).rows
    assert row.what.startswith("the QoS of p1-s1-rail1:down1, ")
    assert repaired(plan, maps)


def test_a_buffer_is_told_and_written_again(plan: LabPlan, maps: LabMaps) -> None:
    assert plan.tables is not None
    index = next(index for index, buffer in enumerate(plan.tables.buffers) if buffer.node == "p1-spine1")
    maps.buffers["size_bytes"][index] -= 1
    (row,) = data_path_drift(plan, maps).rows
    assert row.node == "p1-spine1"
    assert repaired(plan, maps)


def test_counters_and_what_runs_and_faults_set_are_no_drift(plan: LabPlan, maps: LabMaps) -> None:
    item = installs(plan)[0]
    maps.ports["seed"][item.port] ^= 1
    maps.ports["loss"][item.port] = 1000
    maps.by_port("queues")["out_packets"][item.port] = 7
    assert not data_path_drift(plan, maps)
