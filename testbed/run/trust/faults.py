"""Did everything go wrong that was to go wrong? A run whose faults did not happen as planned shows something else."""

from __future__ import annotations

from testbed.record.record import Check
from testbed.run.faults.outcome import FaultOutcome


def check_faults(outcome: FaultOutcome) -> list[Check]:
    """Tell whether every fault was done and undone in time. What was not is named."""
    count = "the fault was" if outcome.planned == 1 else f"all {outcome.planned} faults were"
    fine = f"{count} done as planned, the latest act {outcome.latest_s * 1e3:.1f} ms late, and nothing is left of it"
    return [
        Check.at_most(
            name="faults",
            title="Faults happened as planned and were undone",
            value=len(outcome.troubles),
            limit=0,
            message="; ".join(outcome.troubles) or fine,
        )
    ]
