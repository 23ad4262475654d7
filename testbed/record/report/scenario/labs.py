"""The labs that a record was measured on, in words: one, or several where the matrix varies the topology."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from testbed.record.record import LabSummary, Record
from testbed.record.report.scenario.figures import point_label

MAX_NAMED = 4
"""Labs, or points of a lab, that are named; more are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedLab:
    """A lab of a record, and the points that were measured on it."""

    lab: LabSummary
    points: list[str] = field(default_factory=list)


def labs_of(record: Record) -> list[ReportedLab]:
    """Return the labs of a record, in the order of its points; labs that differ in their time scale alone are one."""
    found: list[ReportedLab] = []
    for point in record.points:
        shape = _shape(point.lab)
        same = next((one for one in found if _shape(one.lab) == shape), None)
        if same is None:
            found.append(same := ReportedLab(lab=point.lab))
        same.points.append(point_label(point))
    return found


def named_labs(labs: list[ReportedLab]) -> str:
    """Return the names of labs in a line; several shapes of one topology have one name, and are counted."""
    names = list(dict.fromkeys(one.lab.name for one in labs))
    shapes = f" in {len(labs)} shapes" if len(labs) > len(names) else ""
    if len(names) == 1:
        return names[0] + shapes
    return _listed(names, "labs") + (f",{shapes}" if shapes else "")


def describe_lab(lab: LabSummary) -> str:
    """Return what a lab consists of: "rail-optimized: 16 NICs in 8 hosts, 4 rail switches and 4 spine switches"."""
    switches = " and ".join(
        _counted(count, f"{role} switch", f"{role} switches") for role, count in lab.switches.items()
    )
    nics, hosts = _counted(lab.nics, "NIC", "NICs"), _counted(lab.hosts, "host", "hosts")
    return f"{lab.design or 'hand-written'}: {nics} in {hosts}, {switches or 'no switches'}"


def lab_facts(record: Record) -> list[tuple[str, str]]:
    """Return (name, text) of the only lab of a record, or a line for each of several."""
    labs = labs_of(record)
    if len(labs) == 1:
        lab = labs[0].lab
        return [("Fabric", describe_lab(lab)), ("Links", f"{lab.links:,}"), ("Routing", lab.routing), *_changes(lab)]
    return [(f"Lab {one.lab.name}", _line(one)) for one in labs]


def _changes(lab: LabSummary) -> list[tuple[str, str]]:
    """Return which state of the lab's file it was, where the lab had been changed since it was deployed."""
    if lab.revision < 2:
        return []
    return [("State", f"{lab.state}, changed {_counted(lab.revision - 1, 'time', 'times')} since it was deployed")]


def time_scale(record: Record) -> str:
    """Return the time scale of a record's points, and who chose it."""
    labs = [point.lab for point in record.points]
    least, most = min(lab.k for lab in labs), max(lab.k for lab in labs)
    chosen = any(lab.k_auto for lab in labs)
    reach = f"k = {least:g}" if least == most else f"k = {least:g} to {most:g}"
    return reach + (", chosen for this machine" if chosen else ", as the file says")


def _line(one: ReportedLab) -> str:
    links = _counted(one.lab.links, "link", "links")
    return f"{describe_lab(one.lab)}, {links}; {one.lab.routing}; at {_listed(one.points, 'points')}"


def _shape(lab: LabSummary) -> LabSummary:
    """Return the lab without what its time scale decides."""
    return replace(lab, k=1.0, k_auto=False, nic_bps=0, uplink_bps=None, state="", revision=1)


def _listed(names: list[str], what: str) -> str:
    """Return names as a person lists them: a, b and c; a, b, c, d and 3 more labs."""
    rest = len(names) - MAX_NAMED
    parts = names if rest <= 1 else [*names[:MAX_NAMED], f"{rest} more {what}"]
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _counted(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"
