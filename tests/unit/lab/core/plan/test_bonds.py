"""Link groups of hosts that are bonds of the kernel: who decides, and what of the plan is another."""

from __future__ import annotations

import pytest

from testbed.base.errors import PlanError
from testbed.lab.core.model import Lab, LagBy
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import AddAddress
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.features.mlag.plan.mechanism import decide_lag, has_link_groups, lag_text

TEXT = """
name: pairs
fabric: {{design: rail-optimized, segments: 1, hosts: 2, gpus: 1, spines: 1}}
networks:
  frontend: {{homing: {homing}, nic: {{ports: 2}}, leaves: 2{by}}}
"""


def lab(by: str = "", homing: str = "mlag") -> Lab:
    text = TEXT.format(by=f", lag_by: {by}" if by else "", homing=homing)
    return load_topology_text(text, file="pairs.yml")


def plan(by: LagBy) -> LabPlan:
    return plan_lab(lab(), k=1000, auto_lag=by)


def test_whoever_forms_the_group_addresses_and_leaves_are_the_same() -> None:
    bonds, ebpf = plan(LagBy.BOND), plan(LagBy.EBPF)
    assert bonds.link_groups is not None and ebpf.link_groups is not None
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
