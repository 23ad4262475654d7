"""Pure decisions: addresses, AS numbers, MACs, rates, and the operations that realise them.

What is re-exported is imported when it is asked for: a process of a lab that needs one module of this package starts
faster without the others.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from testbed.base.datapath.class_plan import ClassPlan
    from testbed.lab.core.plan.asn import check_as_numbers
    from testbed.lab.core.plan.describe import summarize_plan
    from testbed.lab.core.plan.lab import check_addresses, plan_lab
    from testbed.lab.core.plan.operations import (
        AddAddress,
        AddRoute,
        AddRule,
        CreateBridge,
        CreateNode,
        CreateRdma,
        CreateVeth,
        DelayPort,
        ExpectedRoute,
        GuardedPort,
        GuardSwitch,
        HostPlan,
        InstallPort,
        LabPlan,
        Neighbor,
        Operation,
        PortPlan,
        SetSysctl,
        SetUp,
        ShapePort,
        StartContainer,
        StartRouting,
        SwitchPlan,
        VethEnd,
    )
    from testbed.lab.core.plan.qos.qos_plan import BufferPlan, PortProfile, QosPlan
    from testbed.lab.core.plan.scale import (
        MachineLoad,
        MachineProfile,
        PacketDemand,
        ScaleChoice,
        beside,
        choose_packet_scale,
        choose_scale,
        judge_packet_scale,
        judge_scale,
    )
    from testbed.lab.core.plan.stable import SLOTS, slot_for

__all__ = [
    "SLOTS",
    "AddAddress",
    "AddRoute",
    "AddRule",
    "BufferPlan",
    "ClassPlan",
    "CreateBridge",
    "CreateNode",
    "CreateRdma",
    "CreateVeth",
    "DelayPort",
    "ExpectedRoute",
    "GuardSwitch",
    "GuardedPort",
    "HostPlan",
    "InstallPort",
    "LabPlan",
    "MachineLoad",
    "MachineProfile",
    "Neighbor",
    "Operation",
    "PacketDemand",
    "PortPlan",
    "PortProfile",
    "QosPlan",
    "ScaleChoice",
    "SetSysctl",
    "SetUp",
    "ShapePort",
    "StartContainer",
    "StartRouting",
    "SwitchPlan",
    "VethEnd",
    "beside",
    "check_addresses",
    "check_as_numbers",
    "choose_packet_scale",
    "choose_scale",
    "judge_packet_scale",
    "judge_scale",
    "plan_lab",
    "slot_for",
    "summarize_plan",
]

_MODULES = ("operations", "lab", "stable", "scale", "describe", "asn", "qos.qos_plan")
"""Where what is re-exported is looked for, in this order."""


def __getattr__(name: str) -> object:
    if name in __all__:
        for module in (import_module(f"testbed.lab.core.plan.{name}") for name in _MODULES):
            if name in vars(module):
                return getattr(module, name)
    raise AttributeError(f"module 'testbed.lab.core.plan' has no attribute {name!r}")
