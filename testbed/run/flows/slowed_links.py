"""Faults of a run of flows: links whose rate is another one from the begin of a run to its end."""

from __future__ import annotations

from testbed.base.errors import ScenarioError
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.record.samples import RunEvent
from testbed.run.faults.links import LinkSet, link_change
from testbed.run.faults.registry import lab_fault
from testbed.run.schema.model import AtStep, Fault

INSTEAD = "--backend simulation, or leave it out: emulation can"
_KNOWN = frozenset({"rate", "both"})


def check_rate_fault(fault: Fault) -> None:
    """Raise `ScenarioError` for a fault that flows do not have."""
    if fault.kind != LinkSet.kind or lab_fault(fault).of_scale_up or not set(fault.settings) <= _KNOWN:
        settings = " ".join(sorted(set(fault.settings) - _KNOWN)) if fault.kind == LinkSet.kind else fault.kind
        raise ScenarioError(
            f"--backend flows changes the rate of links of the fabric alone, and {fault.target} is to have {settings}",
            hint=INSTEAD,
        )
    if fault.until is not None or isinstance(fault.at, AtStep) or fault.at.ns:
        raise ScenarioError(
            "--backend flows has faults from the begin of a run to its end, and that of"
            f" {fault.target} is in the middle of it",
            hint=f"at: 0s without until, or {INSTEAD}",
        )


def slowed_links(faults: tuple[Fault, ...], plan: LabPlan) -> tuple[dict[str, int], list[RunEvent]]:
    """Return the new rates (bit/s of the lab) of links by the port that sends, and what was done.

    A link of a network that the plan is not of carries none of the run's flows, whatever its rate.
    """
    rates: dict[str, int] = {}
    events: list[RunEvent] = []
    if not faults:
        return rates, events
    ports = {f"{port.node}:{port.name}": port for port in plan.ports}
    for fault in faults:
        change = link_change(fault.settings)
        both = bool(fault.settings.get("both", False))
        port = ports.get(fault.target)
        names = () if port is None else (fault.target, port.peer) if both else (fault.target,)
        for name in names:
            if change.rate is not None:
                rates[name] = change.rate.scaled(plan.k).bps
            elif change.rate_share is not None:
                rates[name] = max(1, round(ports[name].rate_bps * change.rate_share))
        words = ", ".join(f"{key} {value}" for key, value in fault.settings.items())
        events.append(RunEvent(at_s=0.0, kind=fault.kind, target=fault.target, detail=words))
    return rates, events
