"""The report of `doctor` on a probed machine: for people on 80 columns, or as rows and JSON."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from testbed.cli.options import Format
from testbed.cli.output import console, emit
from testbed.lab.core.deploy.packet_costs import PacketCost
from testbed.lab.core.drivers.probing.doctor import MachineReport
from testbed.lab.core.drivers.probing.status import Status

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 80
"""Columns of the report: it is read in small terminals and pasted into issues."""
_GROUPS = (
    ("qdisc", "queues"),
    ("classifier", "classifiers"),
    ("action", "actions"),
    ("link", "links"),
    ("ebpf", "eBPF"),
    ("tcp", "TCP"),
    ("sysctl", "sysctls"),
)
"""Prefixes of the kernel's answers and what they are called."""
_STYLES = {Status.OK: "green", Status.DEGRADED: "yellow", Status.MISSING: "red"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReportRow:
    """A mechanism or a feature of the machine, for CSV."""

    feature: str
    status: str
    detail: str
    needed_for: str
    remedy: str


def print_machine(report: MachineReport, form: Format, costs: Sequence[PacketCost] = ()) -> None:
    """Print what the machine has, what it lacks, how to get what is missing, and what was measured of its speed."""
    if form is Format.TABLE:
        _print(report, costs)
        return
    rows = [
        ReportRow(feature=item.feature, status=item.status.value, detail=item.uses, needed_for="", remedy=item.remedy)
        for item in report.mechanisms
    ]
    rows += [
        ReportRow(
            feature=item.name,
            status=item.status.value,
            detail=item.detail,
            needed_for=item.needed_for,
            remedy=item.remedy,
        )
        for item in report.features
    ]
    emit(rows, ReportRow, form, document=report_document(report, costs))


def report_document(report: MachineReport, costs: Sequence[PacketCost] = ()) -> dict[str, Any]:
    """Put the report into JSON data."""
    capabilities = report.capabilities
    return {
        "can_deploy": report.can_deploy,
        "mechanisms": [dataclasses.asdict(item) for item in report.mechanisms],
        "features": [dataclasses.asdict(item) for item in report.features],
        "kernel": {} if capabilities is None else {name: why or "works" for name, why in capabilities.answers.items()},
        "libbpf": "" if capabilities is None else capabilities.libbpf,
        "packet_costs": [dataclasses.asdict(cost) for cost in costs],
    }


def _print(report: MachineReport, costs: Sequence[PacketCost]) -> None:
    screen = console()
    screen.width = min(screen.width, WIDTH) if os.isatty(1) else WIDTH
    verdict = "Labs can run on this machine." if report.can_deploy else "No lab can run on this machine yet."
    screen.print(verdict, style="bold green" if report.can_deploy else "bold red", highlight=False)
    mechanisms = [(item.feature, item.status, item.uses) for item in report.mechanisms]
    _section(screen, "What each feature uses here", mechanisms)
    for group in ("machine", "kernel", "programs"):
        features = [(item.name, item.status, item.detail) for item in report.features if item.group == group]
        _section(screen, group.capitalize(), features)
    if report.capabilities is not None:
        rows = []
        for prefix, title in _GROUPS:
            answers = report.capabilities.group(prefix)
            rows.append((title, "with", " ".join(_word(name) for name, why in answers.items() if not why) or "none"))
            if without := " ".join(_word(name) for name, why in answers.items() if why):
                rows.append(("", "without", without))
        _section(screen, "This kernel has, and has not", rows)
    if costs:
        built = {True: "compiled", False: "interpreted"}
        measured = [(cost.transport, f"{cost.us:.0f} us", built[cost.compiled]) for cost in costs]
        _section(screen, "CPU time of a data packet, as measured", measured)
    needed = [item for item in report.features if item.remedy and item.required]
    others = [item for item in report.features if item.remedy and not item.required and item.group != "kernel"]
    remedies = [(item.name, item.remedy) for item in needed]
    remedies += [(item.feature, item.remedy) for item in report.mechanisms if item.remedy]
    remedies += [(item.name, item.remedy) for item in others]
    if remedies:
        _section(screen, "How to get what is missing", remedies)


def _section(screen: Console, title: str, rows: Sequence[Sequence[str]]) -> None:
    """Print a heading and a table below it; a `Status` has its colour."""
    from rich.table import Table
    from rich.text import Text

    screen.print(f"\n{title}", style="bold")
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0), highlight=False)
    for row in rows:
        table.add_row(*(Text(cell.value, style=_STYLES[cell]) if isinstance(cell, Status) else cell for cell in row))
    screen.print(table)


def _word(name: str) -> str:
    """Write a name so that it does not break over lines."""
    return name.replace(" ", "_")
