"""The times by which a simulated lab notices what has failed, and routes around it: stated, where emulation has FRR.

They are those of emulated labs, in lab time, measured in ten quiet runs of each shipped scenario with a fault on two
cores with FRR 8.4 (the least, the median and the largest are given). Nothing here is scaled, as nothing of it is there.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

MILLISECOND: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Convergence:
    """Times in ns. `bfd_interval_ns` is 0 in a network without BFD."""

    carrier_ns: int = 2_200_000
    """From a link going down or up until the kernels at both ends see its carrier go or come: 1.3, 2.2, 3.6 ms (link-
    flap)."""
    power_ns: int = 5_000_000
    """That of the first port of a switch that loses power: 3.1, 4.8, 9.4 ms (leaf-dies-dual-homed)."""
    next_port_ns: int = 1_700_000
    """Between two ports of such a switch, which go one after the other: 0.4, 1.4 and 2.1, 5.0 ms."""
    reaction_ns: int = 1_200_000
    """From what bgpd hears until the session is down: 0.2, 1.2, 2.7 ms (link-flap)."""
    process_ns: int = 50_000_000
    """From a change until bgpd has chosen its best paths anew, and tells its neighbours: its work queue waits so long
    for more (FRR, `bgp_process_queue_init`)."""
    install_ns: int = 10_000_000
    """From there until the kernel's table is another one: zebra's queue waits so long (FRR,
    `ZEBRA_RIB_PROCESS_HOLD_TIME`). From a detection until nothing is lost any more it were 63, 115, 167 ms (silent-
    failure-bfd), of which up to 50 ms are the probes'."""
    establish_ns: int = 400_000_000
    """From a link's return until its session has its routes again: an OPEN each way, then all prefixes. In most runs of
    link-flap it was less than the half second for which the link is up."""
    start_ns: int = 410_000_000
    """The start of a switch's daemons. With `establish_ns` 0.40, 0.81, 1.02 s (leaf-dies-dual-homed, subnets)."""
    bfd_interval_ns: int = 0
    bfd_multiplier: int = 3
    hold_ns: int = 9_000_000_000
    """BGP's hold time (RFC 4271, section 6.5), as FRR is told."""
    keepalive_ns: int = 3_000_000_000
    keepalive_phase_ns: int = 2_700_000_000
    """When a keepalive comes, counted from the begin of the traffic, which follows the convergence of the lab: 1.7 to
    2.75 s (silent-failure-hold)."""

    def silence_ns(self, since_ns: int, random: Random) -> int:
        """Return when the end of a link that has heard nothing since a time says that its neighbour is lost.

        BFD's packets come at 75 to 100 % of the interval (RFC 5880, section 6.8.7), so that the last one came up to so
        long before; the detection time counts from it (section 6.8.4). Without BFD it is the hold time from the last
        keepalive. Times count from the begin of the traffic.
        """
        if self.bfd_interval_ns:
            between = self.bfd_interval_ns * (0.75 + 0.25 * random.random())
            return since_ns + self.bfd_multiplier * self.bfd_interval_ns - round(between * random.random())
        last = since_ns - (since_ns - self.keepalive_phase_ns) % self.keepalive_ns
        return last + self.hold_ns

    @property
    def silence_words(self) -> str:
        """Say by what a silent neighbour is noticed."""
        return "BFD" if self.bfd_interval_ns else "hold timer"

    def sentences(self) -> list[str]:
        """Say what these times are, for the record."""
        if self.bfd_interval_ns:
            silence = f"BFD's {self.bfd_multiplier} x {self.bfd_interval_ns / MILLISECOND:g} ms"
        else:
            silence = f"BGP's hold time of {self.hold_ns / 1e9:g} s"
        return [
            "Routing converges by stated times, in lab time, and no FRR runs: carrier"
            f" {self.carrier_ns / MILLISECOND:g} ms, a silent neighbour by {silence}, the end of its session"
            f" {self.reaction_ns / MILLISECOND:g} ms, each choice of routes {self.process_ns / MILLISECOND:g} ms, the"
            f" kernel's table {self.install_ns / MILLISECOND:g} ms, each update the delay of its link, a session"
            f" that comes back {self.establish_ns / MILLISECOND:g} ms, the start of daemons"
            f" {self.start_ns / MILLISECOND:g} ms."
        ]
