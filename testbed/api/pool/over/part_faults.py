"""The faults of a run on a lab over several machines: what of them each machine does, and what all of them did. Pure.

A port's rate and carrier are changed on the machine that it is on, and what is lost behind it where its link ends. So
of a fault of a link between two machines each may have a half.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from testbed.api.pool.over.run_messages import FaultsSeen, PartFault
from testbed.base.errors import Finding
from testbed.base.units import Duration
from testbed.lab.core.deploy.links.changes import LOSSES
from testbed.lab.core.model import Lab
from testbed.record.samples import RunEvent
from testbed.run.faults.kills import DaemonKill, NodeKill
from testbed.run.faults.lab_fault import FaultPlace
from testbed.run.faults.links import LinkDown, LinkFlap, LinkSet
from testbed.run.faults.outcome import FaultOutcome
from testbed.run.faults.registry import lab_fault
from testbed.run.schema.model import AtStep, Fault

CARRIED = (LinkDown, LinkFlap, LinkSet, NodeKill, DaemonKill)
"""The kinds of faults that such labs have."""
_BOTH = "both"
_INSTEAD = "down, flap, rate and what is lost of links, and kills of switches and their daemons"


def fault_findings(faults: Sequence[Fault], lab: Lab, places: Mapping[str, str]) -> Iterator[tuple[int, Finding]]:
    """Yield what such a lab does not have of these faults, each with the place of its fault. `places` is the machine of
    each node."""
    peers = _peers(lab)
    for index, fault in enumerate(faults):
        known = lab_fault(fault)
        held = {"delay", "jitter"} & fault.settings.keys()
        if not isinstance(known, CARRIED) or known.of_scale_up or (known.of_bridges and fault.target not in places):
            yield index, _finding(f"{fault.kind} of {fault.target} is none of its faults", _INSTEAD)
        elif isinstance(fault.at, AtStep):
            yield index, _finding("it runs no programs, whose steps a fault could wait for", "at: 100ms")
        elif held and known.place is FaultPlace.LINK and _is_cut(fault.target, peers, places):
            what = f"{fault.target} is the end of a link between machines, whose {min(held)} stays as it is"
            yield index, _finding(what, "rate, loss, or another link")


def _finding(what: str, hint: str) -> Finding:
    return Finding(code="spread-lab", keys=(), message=f"a lab over several machines: {what}", hint=hint)


def faults_by_machine(faults: Sequence[Fault], lab: Lab, places: Mapping[str, str]) -> dict[str, list[PartFault]]:
    """Return the faults of each machine that has any, in the order of the scenario."""
    peers = _peers(lab)
    found: dict[str, list[PartFault]] = {}
    for fault in faults:
        for machine, settings, target in _halves(fault, peers, places):
            until = fault.until if isinstance(fault.until, Duration) else None
            assert isinstance(fault.at, Duration)
            part = PartFault(
                at_ns=fault.at.ns,
                kind=fault.kind,
                target=target,
                until_ns=None if until is None else until.ns,
                period_ns=None if fault.period is None else fault.period.ns,
                settings=settings,
            )
            found.setdefault(machine, []).append(part)
    return found


def _halves(
    fault: Fault, peers: Mapping[str, str], places: Mapping[str, str]
) -> Iterator[tuple[str, dict[str, bool | int | float | str], str]]:
    """Yield the machines that have a part of a fault, each with the settings and the port of its part."""
    settings = {key: value for key, value in fault.settings.items() if value is not None}
    here = places[fault.target.partition(":")[0]]
    if fault.kind != LinkSet.kind or not _is_cut(fault.target, peers, places):
        yield here, settings, fault.target
        return
    peer = peers[fault.target]
    for port, far in ((fault.target, peer), (peer, fault.target))[: 2 if settings.get(_BOTH) else 1]:
        sent = {key: value for key, value in settings.items() if key not in (*LOSSES, _BOTH)}
        lost = {key: value for key, value in settings.items() if key in LOSSES}
        for place, half in ((port, sent), (far, lost)):
            if half:
                yield places[place.partition(":")[0]], half, port


def fault_of(part: PartFault) -> Fault:
    """Return a machine's part of a fault as a fault of its own."""
    return Fault(
        at=Duration(part.at_ns),
        kind=part.kind,
        target=part.target,
        until=None if part.until_ns is None else Duration(part.until_ns),
        period=None if part.period_ns is None else Duration(part.period_ns),
        settings=part.settings,
    )


def join_faults(
    planned: int, seen: Mapping[str, FaultsSeen], routing: Mapping[str, str]
) -> tuple[list[RunEvent], FaultOutcome]:
    """Put together what machines, by name, did and saw. `routing` is what each says of its own, "" for nothing."""
    changed = {name: (*found.left_changed, *filter(None, (routing.get(name),))) for name, found in seen.items()}
    outcome = FaultOutcome(
        planned=planned,
        acts=sum(found.acts for found in seen.values()),
        latest_s=max((found.latest_s for found in seen.values()), default=0.0),
        troubles=(
            *(f"{name}: {said}" for name, found in seen.items() for said in found.troubles),
            *(f"{name}: {said}" for name, said in routing.items() if said),
        ),
        left_changed=tuple(f"{name}: {said}" for name, lines in changed.items() for said in lines),
    )
    events = sorted((event for found in seen.values() for event in found.events), key=lambda event: event.at_s)
    return events, outcome


def _peers(lab: Lab) -> dict[str, str]:
    ends = [(str(link.a), str(link.b)) for link in lab.links]
    return dict(ends) | {b: a for a, b in ends}


def _is_cut(port: str, peers: Mapping[str, str], places: Mapping[str, str]) -> bool:
    return places[port.partition(":")[0]] != places[peers[port].partition(":")[0]]
