"""A program of the user's own in a report: what was run, what came of it, and the last that its ranks said."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from testbed.record.record import RunResult
from testbed.record.report.scenario.figures import format_bytes, format_time
from testbed.record.samples import ProgramRank, ProgramRecord

MAX_RANKS = 64
"""Rows of the table of ranks: those that failed first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramView:
    """The program of one run, as a report shows it."""

    command: str
    facts: list[tuple[str, str]]
    ranks: list[ProgramRank]
    hidden: int
    """Ranks that are in the record alone."""
    speaker: ProgramRank | None
    """The rank whose last lines are shown: that which failed first, or rank 0."""


def program_view(run: RunResult) -> ProgramView | None:
    """Return what is shown of a run's program; None where the workload was none."""
    program = run.program
    if program is None:
        return None
    ranks = sorted(program.ranks, key=lambda one: (not one.status, one.rank))
    return ProgramView(
        command=shlex.join(program.command),
        facts=_facts(program),
        ranks=ranks[:MAX_RANKS],
        hidden=max(0, len(ranks) - MAX_RANKS),
        speaker=speaker_of(program),
    )


def speaker_of(program: ProgramRecord) -> ProgramRank | None:
    """Return the rank that failed first, or rank 0; None where a record has no such rank."""
    return next((one for one in program.ranks if one.rank == program.speaker), None)


def status_text(rank: ProgramRank) -> str:
    """Say how a rank ended: "0", "3", "signal 9"."""
    return f"signal {-rank.status}" if rank.status < 0 else str(rank.status)


def _facts(program: ProgramRecord) -> list[tuple[str, str]]:
    hosts = len({rank.host for rank in program.ranks})
    found = [
        ("Ranks", f"{len(program.ranks)} on {hosts} hosts"),
        ("Ended", program.failure or "all ranks with exit code 0"),
        ("Steps", f"{len(program.steps.number):,}, {sum(program.steps.warm_up):,} of them warm-up"),
        ("Sent by its NICs", format_bytes(program.sent_bytes)),
    ]
    if program.stated_bytes is not None:
        found.append(("A step is stated to send", f"{format_bytes(program.stated_bytes)} over the fabric"))
    if program.ideal_step_s is not None:
        found.append(("Ideal of a step", format_time(program.ideal_step_s)))
    if program.padding_s is not None:
        found.append(("Waits instead of computing", f"{format_time(program.padding_s)} a step"))
    if program.represented is not None:
        found.append(("A byte stands for", f"{program.represented:,.6g}"))
    if program.congestion_control:
        found.append(("TCP's congestion control", program.congestion_control))
    if program.sent_again is not None:
        found.append(("Sent again", f"{program.sent_again:,}"))
    return found
