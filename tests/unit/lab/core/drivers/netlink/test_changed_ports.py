"""A port that is installed becomes one of another profile: what the kernel is told, and what its queues keep."""

from typing import Any

import pytest
from memory_maps import maps_in_memory

from testbed.base.datapath.abi import CLASSES
from testbed.base.linux import traffic_control as traffic
from testbed.base.linux.rtnetlink import messages
from testbed.lab.core.drivers.netlink.port_programs import change_port, fill_maps, write_maps
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import InstallPort
from testbed.lab.core.plan.qos.numbers import keep_numbers, numbers_of
from testbed.lab.core.plan.qos.qos_plan import PortProfile
from testbed.lab.core.schema.load import load_topology_text

TEXT = """\
name: x
fabric: {design: rail-optimized, segments: 1, hosts: 2, gpus: 1, spines: 1, mtu: 1500, routing: {bfd: off}}
qos:
  classes:
    rdma: {dscp: [26], lossless: true, weight: 60, ecn: false}
    control: {dscp: [48], strict: true}
    bulk: {default: true, weight: 40}
  buffer: {shared: 100MB}
"""
PORT = ("p1-s1-rail1", "down1")
NEW_CLASS, DELETE_CLASS, NEW_QDISC = 40, 41, 36
"""RTM_NEWTCLASS, RTM_DELTCLASS and RTM_NEWQDISC of linux/rtnetlink.h."""


def planned(**overrides: Any) -> LabPlan:
    keys = {name.replace("__", "."): value for name, value in overrides.items()}
    return plan_lab(load_topology_text(TEXT, file="x.yml", overrides=keys), k=5000)


def installs(plan: LabPlan) -> list[InstallPort]:
    return [item for item in plan.operations if isinstance(item, InstallPort)]


def of_port(plan: LabPlan) -> tuple[InstallPort, PortProfile]:
    (found,) = (item for item in installs(plan) if (item.node, item.name) == PORT)
    return found, plan.tables.profiles[found.profile]


def told(old: LabPlan, new: LabPlan) -> list[tuple[int, int]] | None:
    """The kind of each message, and the handle of the class or qdisc that it is about."""
    found = change_port(of_port(old), of_port(new))
    if found is None:
        return None
    parsed = [(kind, bytes(body)) for item in found for kind, _, _, body in messages(item)]
    return [(kind, traffic.TCMSG.unpack_from(body)[2]) for kind, body in parsed]


def handle(plan: LabPlan, name: str) -> int:
    (item,) = (item for item in of_port(plan)[1].classes if item.name == name)
    return traffic.class_handle(item.priority)


@pytest.mark.parametrize(
    "change",
    [
        {"qos__classes__rdma__pfc": {"xoff": "60kB", "xon": "40kB"}},
        {"qos__classes__bulk__limit": "100kB"},
        {"qos__buffer__alpha": 0.25},
        {"qos__buffer__shared": "120MB"},
    ],
)
def test_thresholds_are_no_business_of_the_kernel(change: dict[str, Any]) -> None:
    assert of_port(planned())[1] != of_port(planned(**change))[1]
    assert told(planned(), planned(**change)) == []


def test_a_weight_changes_the_classes_whose_turns_it_is_about() -> None:
    new = planned(qos__classes__rdma__weight=80, qos__classes__bulk__weight=20)
    assert told(planned(), new) == [(NEW_CLASS, handle(new, "rdma"))]


def test_a_rate_changes_the_line_and_its_classes() -> None:
    new = planned(fabric__nic__rate="200G")
    expected = [traffic.LINE_CLASS, *(traffic.class_handle(item.priority) for item in of_port(new)[1].classes)]
    assert told(planned(), new) == [(NEW_CLASS, each) for each in expected]


def test_a_class_more_is_a_class_and_no_other() -> None:
    new = planned(qos__classes__extra={"dscp": [10], "strict": True})
    assert told(planned(), new) == [(NEW_CLASS, handle(new, "extra"))]
    assert told(new, planned()) == [(DELETE_CLASS, handle(new, "extra"))]


def test_a_lossless_class_more_has_its_gate() -> None:
    new = planned(qos__classes__extra={"dscp": [10], "strict": True, "lossless": True, "ecn": False})
    found = told(planned(), new)
    assert [kind for kind, _ in found] == [NEW_CLASS, NEW_QDISC]
    assert found[0] == (NEW_CLASS, handle(new, "extra"))


def test_a_class_that_becomes_lossy_is_a_new_queue_and_the_others_stay() -> None:
    new = planned(qos__classes__rdma__lossless=False)
    assert told(planned(), new) == [(DELETE_CLASS, handle(new, "rdma")), (NEW_CLASS, handle(new, "rdma"))]


def test_another_mtu_is_the_same_queues() -> None:
    found = told(planned(), planned(fabric__mtu=9000))
    assert found is not None
    assert {kind for kind, _ in found} == {NEW_CLASS}


@pytest.mark.parametrize("change", [{"qos__trimming": True, "qos__classes__rdma__lossless": False}])
def test_other_programs_are_another_port(change: dict[str, Any]) -> None:
    assert told(planned(qos__classes__rdma__lossless=False), planned(**change)) is None


def test_maps_forget_the_thresholds_of_a_class_that_becomes_lossy() -> None:
    old = planned()
    new = keep_numbers(planned(qos__classes__rdma__lossless=False), numbers_of(old))
    assert old.tables is not None and new.tables is not None
    maps = maps_in_memory(2 * len(installs(old)))
    fill_maps(maps, old.tables, installs(old))
    number = of_port(new)[0].port
    accounts = maps.ingress[number * CLASSES : (number + 1) * CLASSES]
    assert accounts["xoff_bytes"].any() and accounts["limit_bytes"].any()
    write_maps(maps, new.tables, installs(new))
    assert not any(accounts[name].any() for name in ("xoff_bytes", "xon_bytes", "limit_bytes"))


def test_a_profile_that_no_port_names_any_more_stays_until_another_takes_its_number() -> None:
    """While ports are told one after the other, the others go by what they had."""
    old = planned()
    new = keep_numbers(planned(qos__buffer__alpha=0.25), numbers_of(old))
    assert old.tables is not None and new.tables is not None
    maps = maps_in_memory(2 * len(installs(old)))
    fill_maps(maps, old.tables, installs(old))
    was = of_port(old)[0].profile
    before = maps.profiles[was].copy()
    write_maps(maps, new.tables, installs(new))
    assert maps.ports["profile"][of_port(new)[0].port] != was
    assert maps.profiles[was] == before


def test_the_same_profile_has_one_number_where_several_networks_have_it() -> None:
    text = TEXT + (
        "networks:\n  storage: {design: leaf-spine, leaves: 1, spines: 1,"
        " nic: {per: host, ports: 1, rate: 400G}, qos: {preset: uec}}\n"
        "  frontend: {design: leaf-spine, leaves: 1, spines: 1,"
        " nic: {per: host, ports: 1, rate: 400G}, qos: {preset: uec}}\n"
    )
    plan = plan_lab(load_topology_text(text, file="x.yml"), k=5000)
    assert len(set(plan.tables.profiles)) == len(plan.tables.profiles)
    assert keep_numbers(plan, numbers_of(plan)) == plan
