"""Link groups of hosts that are bonds of the kernel: who decides, and what of the plan is another."""

import pytest

from testbed.base.errors import PlanError
from testbed.daemons.lag.groups import CreateBond
from testbed.lab.core.deploy.mechanisms import decide_lag, has_link_groups
from testbed.lab.core.model import Lab, LagBy
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import AddAddress, CreateVeth, VethEnd
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.features.mlag.plan.planner import lag_text

TEXT = """
name: pairs
fabric: {{design: rail-optimized, segments: 1, hosts: 2, gpus: 1, spines: 1}}
networks:
  frontend: {{homing: {homing}, nic: {{ports: 2}}, leaves: 2{by}}}
"""
HOSTS = ("p1-s1-h1", "p1-s1-h2")


def lab(by: str = "", homing: str = "mlag") -> Lab:
    text = TEXT.format(by=f", lag_by: {by}" if by else "", homing=homing)
    return load_topology_text(text, file="pairs.yml")


def plan(by: LagBy) -> LabPlan:
    return plan_lab(lab(), k=1000, auto_lag=by)


def test_a_bond_is_there_before_its_members_are_and_no_inner_end() -> None:
    planned = plan(LagBy.BOND)
    bonds = {item.node: item for item in planned.operations if isinstance(item, CreateBond)}
    assert list(bonds) == list(HOSTS)
    nics = {(nic.node, nic.name): nic for host in planned.hosts for nic in host.nics}
    for host, bond in bonds.items():
        nic = nics[host, "fe0"]
        assert (bond.name, bond.ifindex, bond.mac, bond.mtu_bytes) == ("fe0", nic.ifindex, nic.mac, nic.mtu_bytes)
        members = {end.name: end for end in _ends(planned) if end.node == host and end.name.startswith("fe")}
        assert {name: end.master for name, end in members.items()} == dict.fromkeys(("fe1", "fe2"), bond.ifindex)
        first = min(index for index, item in enumerate(planned.operations) if isinstance(item, CreateVeth))
        assert planned.operations.index(bond) < first
    assert planned.link_groups.nodes == (*HOSTS, "fe-leaf1", "fe-leaf2")
    assert planned.link_groups.served == ("fe-leaf1", "fe-leaf2")


def _ends(planned: LabPlan) -> list[VethEnd]:
    return [end for item in planned.operations if isinstance(item, CreateVeth) for end in (item.a, item.b)]


def test_whoever_forms_the_group_addresses_and_leaves_are_the_same() -> None:
    bonds, ebpf = plan(LagBy.BOND), plan(LagBy.EBPF)
    assert ebpf.link_groups.served == ebpf.link_groups.nodes
    assert bonds.link_groups.leaves == ebpf.link_groups.leaves
    assert bonds.switches == ebpf.switches
    of = [[item for item in one.operations if isinstance(item, AddAddress)] for one in (bonds, ebpf)]
    assert of[0] == of[1]
    assert "by bond" in lag_text(bonds.link_groups) and "by ebpf" in lag_text(ebpf.link_groups)


def test_the_kernel_decides_unless_the_file_does() -> None:
    why = "Unknown device type"
    assert decide_lag(lab(), "") is LagBy.BOND
    assert decide_lag(lab(), why) is LagBy.EBPF
    with pytest.raises(PlanError, match="Unknown device type") as caught:
        decide_lag(lab("bond"), why)
    assert (caught.value.code, caught.value.field) == ("no-bond", "networks.frontend.lag_by")
    for by in ("bond", "ebpf"):
        for auto in (LagBy.BOND, LagBy.EBPF):
            planned = plan_lab(lab(by), k=1000, auto_lag=auto)
            assert planned.link_groups is not None
            assert {host.is_bond for host in planned.link_groups.hosts} == {by == "bond"}
    assert lab("auto") == lab()


def test_a_lab_without_link_groups_has_nothing_to_decide() -> None:
    assert has_link_groups(lab())
    assert not has_link_groups(lab(homing="subnets"))
    assert lag_text(None) == ""
