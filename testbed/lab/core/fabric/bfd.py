"""Routing resolved, and what "auto" BFD means for a lab of so many sessions.

BFD costs CPU whether traffic flows or not. Measured on two cores with FRR: 256 sessions at 300 ms keep 47 %
of both busy, at 1 s 16 %; 1,024 sessions at 300 ms 98 %; 44 sessions at 300 ms 17 % of one core.
"""

from __future__ import annotations

from dataclasses import replace

from testbed.base.units import Duration
from testbed.lab.core.model import Bfd, Routing

FAST_SESSIONS = 32
"""Up to this many sessions in a lab "auto" takes 300 ms: a tenth of a core."""
SLOW_SESSIONS = 256
"""Up to this many it takes 2 s, half of what 1 s costs; above, BFD is off."""


def resolve_routing(written: Routing, sessions: int, *, aggregate: bool = False, mixed: bool = False) -> Routing:
    """The routing of a network in a lab with `sessions` switch-to-switch links (one session each).

    `mixed`: FRR may differ from switch to switch. "auto" is off then: a release that waits for BFD before BGP (FRR
    10.2 to 10.3, pull request 18562) and one that has no BFD before BGP is up wait for each other for ever.
    """
    if not written.bfd_auto:
        bfd = written.bfd
    elif mixed or sessions > SLOW_SESSIONS:
        bfd = None
    else:
        bfd = Bfd(interval=Duration.parse("300ms" if sessions <= FAST_SESSIONS else "2s"))
    return replace(written, bfd=bfd, aggregate=aggregate)
