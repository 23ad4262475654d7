"""The functions that the core asks for a lab as a whole. They import what they need: a plan needs no schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from testbed.base.yaml.document import Document
    from testbed.lab.assembly.planner import LabPlanner
    from testbed.lab.core.model import Lab
    from testbed.lab.core.plan.lab import PlanBasis


def resolve(document: Document) -> Lab:
    """Return the lab that a topology file describes. Raises `SpecError`."""
    from testbed.lab.assembly.resolve import resolve_lab

    return resolve_lab(document)


def planner(lab: Lab, basis: PlanBasis) -> LabPlanner:
    """Decide the addresses, names and numbers of a lab, from which its plan is made. Raises `PlanError`."""
    from testbed.lab.assembly.planner import LabPlanner

    return LabPlanner(lab, basis)
