"""What probes tell of the emulation itself: whether it could send them."""

from __future__ import annotations

from testbed.record.record import Check
from testbed.run.probes.ledger import ProbeReport

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
