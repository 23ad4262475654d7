"""Trust checks of a lab that several machines have: their clocks, and what crosses from one to another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from testbed.base.names import first_few
from testbed.record.record import Check

MAX_CLOCK_ERROR = 0.02
"""The share of a base round trip by which the time between two machines may be wrong, as for delays of paths."""
MOST_NAMED = 3
"""So many ends of links are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachinesCompared:
    """The comparison of machines that ran traffic together. `error_ns` is the most by which the time from one machine's
    event to another's may be wrong; `machine` is the one of which least is known. `cuts` are the ends of links between
    machines that were compared, `unequal` sentences of those where other packets left than came."""

    error_ns: int
    machine: str
    cuts: int
    unequal: Sequence[str] = ()


def check_machines(seen: MachinesCompared, base_rtt_ns: int) -> Iterator[Check]:
    """Judge how well the clocks of machines agree, and whether all that left one came in at the other."""
    share = seen.error_ns / max(1, base_rtt_ns)
    yield Check.at_most(
        name="clocks",
        title="Clocks of the machines compared",
        value=share,
        limit=MAX_CLOCK_ERROR,
        message=f"times between machines are known within {seen.error_ns / 1e6:.3g} ms, {share:.2%} of a base round"
        f" trip (limit {MAX_CLOCK_ERROR:.0%}); least of {seen.machine}",
    )
    named = first_few(list(seen.unequal), MOST_NAMED, "; ")
    yield Check.at_most(
        name="cut-links",
        title="All that left one machine came in at another",
        value=len(seen.unequal),
        limit=0,
        message=named or f"at {seen.cuts} ends of links between machines as many packets left as came in",
    )
