"""All kinds of faults: the classes derived from `LabFault` in the modules that are imported here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from testbed.base.errors import Finding
from testbed.lab.core.model import Lab
from testbed.run.faults import kills, links, loops, planes, subnet  # noqa: F401  # for their classes
from testbed.run.faults.lab_fault import LabFault
from testbed.run.faults.overlaps import find_overlaps
from testbed.run.scale_up import faults as scale_up  # noqa: F401  # for its classes
from testbed.run.schema.model import Fault


def _classes(of: type[LabFault]) -> Iterator[type[LabFault]]:
    for derived in of.__subclasses__():
        yield derived
        yield from _classes(derived)


def by_kind(classes: Iterable[type[LabFault]]) -> Mapping[str, type[LabFault]]:
    """Return the classes by kind. Raises `ValueError` for a kind that two of them have."""
    found: dict[str, type[LabFault]] = {}
    for one in classes:
        if (other := found.setdefault(one.kind, one)) is not one:
            raise ValueError(f"the fault {one.kind} is registered twice: by {other.__name__} and {one.__name__}")
    return MappingProxyType(found)


FAULTS = by_kind(_classes(LabFault))  # type: ignore[type-abstract]
"""The classes of faults by kind."""


def lab_fault(fault: Fault) -> LabFault:
    """Return what a fault of a scenario means for a lab. Raises `KeyError` for a kind that is not registered."""
    return FAULTS[fault.kind](fault)


def fault_findings(fault: Fault, lab: Lab) -> Iterator[Finding]:
    """Return what a fault of a scenario asks of a lab that its topology does not have."""
    return lab_fault(fault).check(lab)


def findings_of_all(faults: Sequence[Fault], lab: Lab) -> Iterator[tuple[int, Finding]]:
    """Return what the faults of a scenario ask of a lab that it does not have, or that they cannot do at once, each
    with the place of its fault."""
    found = [lab_fault(fault) for fault in faults]
    misplaced = [(index, finding) for index, fault in enumerate(found) for finding in fault.check(lab)]
    yield from misplaced or find_overlaps(found, lab)
