"""`load_balancing` as it is written: adaptive and static modes, and what is hashed."""

from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from testbed.base.datapath.abi import FIVE_TUPLE, AdaptPer, BalancingMode, HashField
from testbed.base.errors import PlanError, SpecError
from testbed.base.units import Duration
from testbed.lab.core.model import HashEngine, Lab, LoadBalancing
from testbed.lab.core.plan.lab import outline_lab, plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import InstallPort, SetSysctl
from testbed.lab.core.plan.qos.numbers import keep_numbers, numbers_of
from testbed.lab.core.plan.qos.path_tables import pinned_path
from testbed.lab.core.schema.load import load_topology, load_topology_text

POD = "name: pod\nfabric: {design: rail-optimized, segments: 2, hosts: 2, gpus: 2, spines: 2}\n"
MULTI_POD = Path(__file__).parents[6] / "topologies" / "multi-pod.yml"


def balancing(text: str) -> LoadBalancing:
    lab = load_topology_text(f"{POD}qos: {{preset: uec, load_balancing: {text}}}\n", file="t.yml")
    return lab.qos.profiles[0].load_balancing


def refusal(text: str) -> tuple[str, str]:
    with pytest.raises(SpecError) as caught:
        balancing(text)
    (problem,) = caught.value.problems
    return problem.code, problem.message


def test_adaptive_per_packet_and_per_flowlet() -> None:
    assert balancing("{mode: adaptive}") == LoadBalancing(mode=BalancingMode.ADAPTIVE)
    found = balancing("{mode: adaptive, per: flowlet, gap: 20us, hysteresis: 30KB}")
    assert (found.per, found.gap, found.hysteresis) == (AdaptPer.FLOWLET, Duration(20_000), 30_000)
    assert found.has_flowlets and not balancing("{mode: adaptive}").has_flowlets


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (
            "{mode: adaptive, gap: 20us}",
            "gap-without-flowlet",
            "per: flowlet alone, and the mode is adaptive per packet",
        ),
        ("{mode: spray, per: flowlet}", "not-adaptive", "per means something with mode: adaptive alone"),
        ("{mode: static, hysteresis: 10KB}", "not-adaptive", "hysteresis means something with mode: adaptive alone"),
        ("{mode: adaptive, hash: kernel}", "kernel-hash", "mode adaptive needs hash: ebpf"),
        ("{mode: adaptiv}", "unknown-mode", "adaptiv"),
        ("{hash: {fields: [sourc]}}", "unknown-field", "sourc"),
        ("{hash: {fields: []}}", "wrong-type", "must be a list"),
        ("{hash: {by: kernel, fields: [roce_qp]}}", "kernel-hash", "knows no queue pairs"),
        ("{hash: {field: [source]}}", "unknown-key", "field"),
    ],
)
def test_what_does_not_go_together_is_refused(text: str, code: str, said: str) -> None:
    found, message = refusal(text)
    assert found == code and said in message


def test_the_fields_of_a_hash() -> None:
    assert balancing("{hash: kernel}").hash is HashEngine.KERNEL
    assert balancing("{hash: kernel}").hash_fields == FIVE_TUPLE
    found = balancing("{hash: {fields: [roce_qp, destination, source]}}")
    assert found.hash is HashEngine.EBPF
    assert found.hash_fields == (HashField.SOURCE, HashField.DESTINATION, HashField.ROCE_QP), "in their own order"


def test_the_kernel_is_told_its_fields() -> None:
    text = f"{POD}qos: {{preset: uec, load_balancing: {{hash: {{by: kernel, fields: [source, destination]}}}}}}\n"
    plan = plan_lab(load_topology_text(text, file="t.yml"), k=1)
    said = {item.value for item in plan.operations if isinstance(item, SetSysctl) and item.key.endswith("hash_fields")}
    assert said == {"3"}


def multi_pod(mode: str) -> tuple[Lab, LabPlan]:
    lab = load_topology(MULTI_POD, overrides={"qos.preset": "uec", "qos.load_balancing.mode": mode})
    return lab, plan_lab(lab, k=1)


def test_destinations_are_numbered_by_their_addresses_and_tiers_divide_what_is_left() -> None:
    lab, plan = multi_pod("static")
    tables = plan.tables
    addresses = [nic.address.ip for host in plan.hosts for nic in host.nics if nic.address is not None]
    assert list(tables.destinations) == [(int(one), number) for number, one in enumerate(sorted(addresses))]
    strides = {buffer.node: buffer.stride for buffer in tables.buffers if buffer.node}
    roles = {node.name: node.role for node in lab.switches}
    by_role = {str(role): {strides[name] for name, own in roles.items() if own is role} for role in set(roles.values())}
    uplinks = {
        len([link for link in lab.links if link.a.node == name]) for name, role in roles.items() if role == "rail"
    }
    assert by_role["rail"] == {1} and by_role["spine"] == uplinks
    adaptive = multi_pod("adaptive")[1].tables
    assert adaptive is not None and {buffer.stride for buffer in adaptive.buffers} == {1}, "none pins anything"


def test_hosts_of_a_leaf_are_divided_evenly_over_the_paths_to_it() -> None:
    _, plan = multi_pod("static")
    buffer = replace(plan.tables.buffers[1], stride=1)
    first = [IPv4Address(one) for one, _ in plan.tables.destinations[:8]]
    assert [pinned_path(plan.tables, buffer, one, 4) for one in first] == [0, 1, 2, 3, 0, 1, 2, 3]


def test_an_outline_pins_the_same_destinations() -> None:
    """Without their numbers all of them would be the first, on one path."""
    lab, plan = multi_pod("static")
    outlined = outline_lab(lab, k=1).tables
    assert outlined.destinations == plan.tables.destinations and len(outlined.destinations) > 1


@pytest.mark.parametrize(
    ("mode", "pins", "adapts"), [("flow", False, False), ("static", True, False), ("adaptive", False, True)]
)
def test_tables_are_planned_where_they_are_needed(mode: str, pins: bool, adapts: bool) -> None:
    _, plan = multi_pod(mode)
    assert bool(plan.tables.destinations) is pins and bool(plan.tables.egresses) is adapts
    assert plan.tables.asks_kernel is (pins or adapts)


def test_the_queues_behind_interfaces_keep_the_numbers_of_a_lab_that_is_up() -> None:
    text = f"{POD}qos: {{preset: uec, load_balancing: {{mode: adaptive}}}}\n"
    before = plan_lab(load_topology_text(text, file="t.yml"), k=1)
    after = keep_numbers(
        plan_lab(load_topology_text(text.replace("spines: 2", "spines: 3"), file="t.yml"), k=1), numbers_of(before)
    )
    ports = {(item.node, item.ifindex): item.port for item in after.operations if isinstance(item, InstallPort)}
    nodes = [buffer.node for buffer in after.tables.buffers]
    assert list(after.tables.egresses) == sorted(after.tables.egresses)
    assert {(nodes[buffer], ifindex): port for buffer, ifindex, port in after.tables.egresses} == {
        place: port for place, port in ports.items() if place[0] in nodes
    }


@pytest.mark.parametrize("mode", ["static", "adaptive"])
def test_more_paths_than_a_switch_sees_are_refused(mode: str) -> None:
    text = (
        "name: wide\n"
        "fabric: {design: rail-optimized, segments: 2, hosts: 1, gpus: 1, spines: 65, routing: {ecmp: 65}}\n"
        f"qos: {{preset: uec, load_balancing: {{mode: {mode}}}}}\n"
    )
    with pytest.raises(PlanError, match="has 65 ways up") as caught:
        plan_lab(load_topology_text(text, file="t.yml"), k=1)
    assert (caught.value.field, caught.value.code) == ("qos.load_balancing.mode", "not-built")
    assert plan_lab(load_topology_text(text, file="t.yml"), k=1, any_size=True).tables is not None, "it is simulated"
    plan_lab(load_topology_text(text.replace("ecmp: 65", "ecmp: 64"), file="t.yml"), k=1)
