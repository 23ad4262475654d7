"""Tells which switches of a lab's scale-up domains run, and brings one back that does not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from testbed.daemons.switchd.client import DomainSwitch
    from testbed.lab.core.plan.lab_plan import LabPlan

DIRECTORY_NAME = ".scale-up"
"""In the lab's run directory; no node can have this name."""


def domain_switch(run: Path, domain: str) -> DomainSwitch:
    """The switch of a domain of the lab with this run directory, running or not."""
    from testbed.daemons.switchd.client import DomainSwitch

    return DomainSwitch(run_directory=run / DIRECTORY_NAME / domain)


def dead_domains(plan: LabPlan, run: Path) -> list[str]:
    """The domains whose switch does not run; none for a lab without packets."""
    return [domain.name for domain in plan.scale_up_domains if not domain_switch(run, domain.name).is_running()]


def dead_line(domain: str) -> str:
    """Say that a domain's switch is dead."""
    return f"scale-up domain {domain}: its switch does not run"


def revival_hint(domain: str) -> str:
    """Return the command to bring the switch of a dead domain back."""
    return f"`testbed link up {domain}:planes` starts it again"
