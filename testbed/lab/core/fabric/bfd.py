"""Routing resolved, and what "auto" BFD means for a lab of so many sessions.

BFD costs CPU whether traffic flows or not. Measured on two cores with FRR: 256 sessions at 300 ms keep 47 %
of both busy, at 1 s 16 %; 1,024 sessions at 300 ms 98 %; 44 sessions at 300 ms 17 % of one core.
"""

from __future__ import annotations

from testbed.base.units import Duration
from testbed.lab.core.fabric.params import BfdParams, FabricParams, RoutingParams
from testbed.lab.core.model import Bfd, Routing

FAST_SESSIONS = 32
"""Up to this many sessions in a lab "auto" takes 300 ms: a tenth of a core."""
SLOW_SESSIONS = 256
"""Up to this many it takes 2 s, half of what 1 s costs; above, BFD is off."""


def resolve_routing(routing: RoutingParams, sessions: int, *, aggregate: bool = False) -> Routing:
    """The routing of a network with `sessions` switch-to-switch links."""
    return Routing(
        protocol=routing.protocol,
        unnumbered=routing.unnumbered,
        ecmp=routing.ecmp,
        bfd=resolve_bfd(routing, sessions),
        bfd_auto=routing.bfd.mode == "auto",
        aggregate=aggregate,
        password=routing.password,
        ttl_security=routing.ttl_security,
    )


def resolve_bfd(params: FabricParams | RoutingParams | BfdParams, sessions: int, *, mixed: bool = False) -> Bfd | None:
    """The BFD of a network in a lab with `sessions` switch-to-switch links (one session each); None: off.

    `mixed`: FRR may differ from switch to switch. "auto" is off then: a release that waits for BFD before BGP (FRR
    10.2 to 10.3, pull request 18562) and one that has no BFD before BGP is up wait for each other for ever.

    Raises `ValueError` for a mode that is not "auto", "on" or "off".
    """
    if isinstance(params, FabricParams):
        params = params.routing
    bfd = params.bfd if isinstance(params, RoutingParams) else params
    match bfd.mode:
        case "off":
            return None
        case "on":
            return Bfd(interval=bfd.interval, multiplier=bfd.multiplier)
        case "auto" if mixed:
            return None
        case "auto":
            if sessions <= FAST_SESSIONS:
                return Bfd(interval=Duration.parse("300ms"))
            if sessions <= SLOW_SESSIONS:
                return Bfd(interval=Duration.parse("2s"))
            return None
        case mode:
            raise ValueError(f"{mode!r} is no BFD mode (auto, on, off)")
