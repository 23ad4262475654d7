"""What probes tell of the emulation itself: whether it could send them, and whether it kept packets in order.

Packets of a flow that overtake each other where a switch gives each flow one path were reordered by the machine: a veth
whose receive steering is not pinned does so. Source: RFC 4737 for what counts as reordered.
"""

from __future__ import annotations

from collections.abc import Sequence

from testbed.collect.probe_ledger import ProbeReport
from testbed.results import Check, RunEvent

MOVED = frozenset({"detected", "carrier-lost", "daemon-ended"})
"""Events of a lab whose flows may have moved to other paths."""
MAX_SKIPPED = 0.05
"""The share of the probes that may not have been sent: as much may be missing from the time that was lost."""


def check_pace(report: ProbeReport) -> list[Check]:
    """Tell whether probes were sent when they were due, so that those lost can be turned into time."""
    due = report.sent + report.skipped
    share = report.skipped / due if due else 0.0
    return [
        Check.at_most(
            name="probe-pace",
            title="Probes were sent when they were due",
            value=share,
            limit=MAX_SKIPPED,
            message=f"{share:.1%} of the probes could not be sent in time (limit {MAX_SKIPPED:.0%}), the latest of the"
            f" others {report.latest_s * 1e3:.0f} ms late",
        )
    ]


def check_order(report: ProbeReport, events: Sequence[RunEvent]) -> list[Check]:
    """Inversions within streams of probes; nothing where none had two that arrived, or routing moved flows meanwhile.

    For runs in which each flow keeps to one path (`probes.planning.is_single_path`).
    """
    judged = [item for item in report.streams if item.arrived > 1]
    if not judged or any(event.kind in MOVED for event in events):
        return []
    total = sum(item.inversions for item in judged)
    worst = max(judged, key=lambda item: item.inversions)
    arrived = sum(item.arrived for item in judged)
    message = f"{arrived} probes of {len(judged)} flows arrived in the order in which they were sent"
    if total:
        message = (
            f"{total} of {arrived} probes were overtaken by later ones of their flow, though it has one path;"
            f" most ({worst.inversions}) of {worst.stream}"
        )
    return [
        Check.at_most(
            name="ordering",
            title="No packet overtook another of its flow",
            value=total,
            limit=0,
            message=message,
        )
    ]
