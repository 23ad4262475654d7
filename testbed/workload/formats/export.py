"""The result of writing a workload in another tool's format: the text, and what that format cannot say.

What would change the traffic (a wait, a computation) is refused with `ExportError`; what is only description (labels,
the parts of an array) is left out and listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from testbed.base.errors import TestbedError
from testbed.workload.steps import Combine, Compute, Transfer, Workload

MAX_REASONS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """A file's text. `left_out` says what of the workload the format has no place for."""

    text: str
    left_out: tuple[str, ...] = ()


class ExportError(TestbedError):
    """The format cannot express the workload's traffic. `reasons` names each step at fault, the first few of them."""

    exit_code = 2

    def __init__(self, format_name: str, reasons: Sequence[str], *, hint: str | None = None) -> None:
        self.reasons = tuple(reasons)
        listed = list(self.reasons[:MAX_REASONS])
        if len(self.reasons) > MAX_REASONS:
            listed.append(f"and {len(self.reasons) - MAX_REASONS} more")
        super().__init__(f"{format_name} cannot express this workload: " + "; ".join(listed), hint=hint)


def transfers_alone(workload: Workload) -> tuple[list[Transfer], list[str]]:
    """The workload's transfers over the fabric, and why what else it has cannot be a flow.

    Computing of no time only joins waits: what waits for it waits for what it waited for.
    """
    transfers: list[Transfer] = []
    reasons: list[str] = []
    joins: dict[int, tuple[int, ...]] = {}
    for step in workload.steps:
        after = step.after
        if any(before in joins for before in after):
            after = tuple(sorted({one for before in after for one in joins.get(before, (before,))}))
        if isinstance(step, Compute) and step.duration_ns == 0:
            joins[step.number] = after
        elif isinstance(step, Compute):
            reasons.append(f"step {step.number} computes")
        elif step.scale_up:
            reasons.append(f"step {step.number} runs over the scale-up network")
        elif step.size_bytes == 0:
            reasons.append(f"step {step.number} carries 0 bytes")
        elif step.source == step.destination:
            reasons.append(f"step {step.number} goes from rank {step.source} to itself")
        else:
            transfers.append(step if after == step.after else replace(step, after=after))
    return transfers, reasons


def description_left_out(workload: Workload) -> list[str]:
    """Return what flow formats in general have no place for."""
    transfers = workload.transfers
    left_out = []
    if any(step.piece is not None or step.combine is not Combine.NONE for step in transfers):
        left_out.append("parts of arrays and how they are combined")
    if workload.collectives:
        left_out.append("which steps make up a collective")
    if len(transfers) < len(workload.steps):
        left_out.append("steps of no time that join waits")
    if workload.notes:
        left_out.append("notes")
    return left_out
