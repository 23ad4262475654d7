"""Trust checks of scale-up domains whose transfers are frames: what of their times is this machine's."""

from __future__ import annotations

from collections.abc import Sequence

from testbed.record.record import Check
from testbed.record.samples import ScaleUpLoad

MAX_FLOOR = 0.10
"""The share of a domain's modelled round trip that the machine may add to it, idle."""
MAX_LATENESS = 0.10
"""The share of a credit loop by which frames may leave late, as the 0.999 percentile."""


def check_domains(loads: Sequence[ScaleUpLoad]) -> list[Check]:
    """Judge the idle round trip and the lateness of the switch of the worst domain; nothing without any."""
    found = []
    floors = [(load.rtt_floor_s / load.rtt_s, load) for load in loads if load.rtt_floor_s is not None]
    if floors:
        share, load = max(floors, key=lambda item: item[0])
        found.append(
            Check.at_most(
                name="scale-up-floor",
                title="Idle round trips of scale-up domains",
                value=share,
                limit=MAX_FLOOR,
                message=f"an idle round trip of {load.domain} took {share:.1%} longer than the modelled one of"
                f" {load.rtt_s * 1e3:.3g} ms of lab time (limit {MAX_FLOOR:.0%}); a higher scale.time makes it less",
            )
        )
    asked = [(load.lateness_p999_s / load.credit_loop_s, load) for load in loads if not load.problem]
    if asked:
        share, load = max(asked, key=lambda item: item[0])
        found.append(
            Check.at_most(
                name="scale-up-lateness",
                title="Scale-up switches sent frames on time",
                value=share,
                limit=MAX_LATENESS,
                message=f"frames left the switch of {load.domain} p99.9 {load.lateness_p999_s * 1e3:.2g} ms late,"
                f" {share:.1%} of a credit loop (limit {MAX_LATENESS:.0%})",
            )
        )
    return found
