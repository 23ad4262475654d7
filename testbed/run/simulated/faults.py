"""Faults on the simulator: links whose settings are other ones from the begin of a run to its end."""

from __future__ import annotations

from dataclasses import replace

from testbed.base.errors import ScenarioError
from testbed.lab.core.deploy.links.changes import LinkChange
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.protocols.simulation.faults import Impairments
from testbed.record.samples import RunEvent
from testbed.run.faults.links import LinkSet, link_change
from testbed.run.faults.registry import lab_fault
from testbed.run.schema.model import AtStep, Fault
from testbed.run.simulated.fabric import SimulatedFabric

INSTEAD = "leave --backend out: emulation can"


def check_fault(fault: Fault) -> None:
    """Raise `ScenarioError` for a fault that cannot be simulated."""
    if fault.kind != LinkSet.kind:
        raise ScenarioError(
            f"--backend simulation knows the fault {LinkSet.kind} alone, and this scenario has {fault.kind}",
            hint=INSTEAD,
        )
    if lab_fault(fault).of_scale_up:
        raise ScenarioError(
            f"--backend simulation has no scale-up domains, and a fault is to befall {fault.target}", hint=INSTEAD
        )
    if fault.until is not None or isinstance(fault.at, AtStep) or fault.at.ns:
        raise ScenarioError(
            f"--backend simulation has faults from the begin of a run to its end, and that of {fault.target} is timed",
            hint=f"at: 0s without until (the times of faults are those of an emulated lab), or {INSTEAD}",
        )
    if "jitter" in fault.settings:
        raise ScenarioError(
            f"--backend simulation has links of a constant delay, and that of {fault.target} is to vary",
            hint=f"a link-set without jitter, or {INSTEAD}",
        )


def do_faults(faults: tuple[Fault, ...], fabric: SimulatedFabric, plan: LabPlan) -> list[RunEvent]:
    """Change the links that these faults are about, before anything is sent. Return what was done."""
    peers = {f"{port.node}:{port.name}": port.peer for port in plan.ports}
    events = []
    for fault in faults:
        change = link_change(fault.settings)
        both = bool(fault.settings.get("both", False))
        for name in (fault.target, peers[fault.target]) if both else (fault.target,):
            _change_line(fabric, name, change, plan)
        words = ", ".join(f"{key} {value}" for key, value in fault.settings.items())
        events.append(RunEvent(at_s=0.0, kind=fault.kind, target=fault.target, detail=words))
    return events


def _change_line(fabric: SimulatedFabric, name: str, change: LinkChange, plan: LabPlan) -> None:
    """Change what is sent by a port, if any of the run's packets can come by it."""
    network = fabric.network
    line = network.lines.get(name)
    if line is None:
        return
    port = next(one for one in plan.ports if f"{one.node}:{one.name}" == name)
    if change.rate is not None:
        line.rate_bps = change.rate.bps
    if change.rate_share is not None:
        line.rate_bps = max(1, round(port.rate_bps * change.rate_share))
    if change.delay is not None:
        line.delay_ns += change.delay.ns - port.delay_ns
    if change.silent:
        network.set_up(name, up=False)
    impairments = Impairments(loss=port.loss if change.loss is None else change.loss)
    if change.loss_every is not None:
        impairments = replace(impairments, loss_every=change.loss_every)
    if change.corruption is not None:
        impairments = replace(impairments, corrupt=change.corruption)
    if impairments != Impairments():
        network.impair(name, impairments)
