"""Trust check of a program of the user's own: its bytes must have crossed the fabric, or nothing of it was measured.

All hosts of a lab are one machine, and a program that finds that out talks through its memory: UCX with all its
transports "measured" 9,165 Mbit/s between hosts whose rails had carried no byte."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.record.record import Check
from testbed.record.samples import ProgramRecord

MAX_MISSING = 0.05
"""The share of the stated bytes that need not have been seen: a last step may have ended in the middle of one."""
IDLE_BYTES = 4096
IDLE_BYTES_PER_S = 2000
"""Bytes that a NIC sends without a program: it asks for neighbours, and BGP and BFD of hosts keep themselves up."""


def check_fabric_used(program: ProgramRecord) -> Iterator[Check]:
    """Judge whether the ranks' NICs sent what the steps are stated to send, or at least more than an idle host does.

    A program that failed is judged by its exit code alone: it may have ended before it sent anything.
    """
    if program.exit_code:
        return
    steps = len(program.steps.number)
    nics = len({(rank.host, rank.interface) for rank in program.ranks})
    seconds = max((rank.seconds for rank in program.ranks), default=0.0)
    idle = round(nics * (IDLE_BYTES + IDLE_BYTES_PER_S * seconds))
    stated = (program.stated_bytes or 0) * steps
    sent = f"the NICs of all ranks sent {_megabytes(program.sent_bytes)}"
    if stated > idle:
        said = f"{sent}, and {steps} steps are stated to send {_megabytes(stated)}"
        missing = max(0.0, 1 - program.sent_bytes / stated)
    else:
        said = f"{sent}, and so many idle ones send up to {_megabytes(idle)}"
        missing = 0.0 if program.sent_bytes > idle else 1.0
    told = "" if missing <= MAX_MISSING else ": the program does not use the fabric, or not as it is stated to"
    yield Check.at_most(
        name="fabric-used",
        title="The program's bytes crossed the fabric",
        value=round(missing, 6),
        limit=MAX_MISSING,
        message=said + told,
    )


def _megabytes(count: float) -> str:
    return f"{count / 1e6:.3f} MB"
