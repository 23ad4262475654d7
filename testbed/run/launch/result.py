"""The outcome of a launch: how each rank ended, who failed first, and what the fabric carried meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from testbed.base.rows import row_json
from testbed.run.launch.ranks import RankPlace
from testbed.run.launch.traffic import PortTraffic

TIMED_OUT, UNDONE, INTERRUPTED = 124, 125, 130
"""Exit codes of a launch that are not its program's: it took too long (as timeout(1) has it), what its ranks depend on
has ended, and Ctrl-C."""


class LaunchEnd(StrEnum):
    """The cause of the end of a launch."""

    SELF = ""
    """Its ranks have ended: all of them well, or the others with one that failed."""
    TIMEOUT = "timeout"
    """They took too long."""
    INTERRUPTED = "interrupted"
    """Somebody wanted it."""
    SERVED = "served"
    """The transport that carries their bytes has ended."""
    LOST = "lost"
    """A host's shim, which starts the ranks there, has ended."""


@dataclass(frozen=True, slots=True)
class RankLine:
    """A line that a rank has printed, on standard error where `is_error`; it came at `at_s` (time.monotonic())."""

    rank: int
    text: str
    is_error: bool
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEnd:
    """The end of a rank. `status` is as subprocess has it: an exit code, or -n for signal n.

    Times are those of time.monotonic(). `reason` is "" for a rank that ended by itself.
    """

    rank: int
    host: str
    status: int
    started_s: float
    ended_s: float
    reason: str = ""

    @property
    def exit_code(self) -> int:
        """The exit code that a shell gives: 128 + n for signal n."""
        return self.status if self.status >= 0 else 128 - self.status


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchResult:
    """The outcome of a launch.

    `exit_code` is 0, that of the first rank that failed, or one of this module's; `failure` says in a sentence who it
    was, and `ended_by` why all ended. `nics` are the NICs that ranks were placed on, `uplinks` the ports from switches
    to those above them, with what they carried. `sent_again` counts packets: TCP's in the ranks' hosts, or those of
    what carried their bytes; None where nobody could be asked. `cpu_s` is the CPU time of the ranks and of what
    started them, on hosts that are no containers.
    """

    lab: str
    k: float
    places: tuple[RankPlace, ...]
    ranks: tuple[RankEnd, ...]
    exit_code: int
    failure: str
    ended_by: LaunchEnd = LaunchEnd.SELF
    started_s: float
    ended_s: float
    nics: tuple[PortTraffic, ...]
    uplinks: tuple[PortTraffic, ...]
    sent_again: int | None
    congestion_control: str
    transport: str
    cpu_s: float = 0.0

    @property
    def rail_bytes(self) -> int:
        """The bytes that the ranks' NICs have sent."""
        return sum(nic.tx_bytes for nic in self.nics)

    @property
    def seconds(self) -> float:
        """The lab time from the start of the first rank to the end of the last one."""
        return self.ended_s - self.started_s

    def to_json(self) -> dict[str, Any]:
        """Return it for programs."""
        return {
            "lab": self.lab,
            "k": self.k,
            "transport": self.transport,
            "congestion_control": self.congestion_control,
            "exit_code": self.exit_code,
            "failure": self.failure,
            "ended_by": self.ended_by.value,
            "seconds": round(self.seconds, 6),
            "rail_bytes": self.rail_bytes,
            "sent_again": self.sent_again,
            "ranks": [self._rank_json(place, end) for place, end in zip(self.places, self.ranks, strict=True)],
            "nics": [row_json(nic) for nic in self.nics],
            "uplinks": [row_json(port) for port in self.uplinks],
        }

    def _rank_json(self, place: RankPlace, end: RankEnd) -> dict[str, Any]:
        return {
            "rank": place.rank,
            "host": place.host,
            "nic": place.nic.name,
            "address": str(place.address),
            "status": end.status,
            "reason": end.reason,
            "started_s": round(end.started_s - self.started_s, 6),
            "ended_s": round(end.ended_s - self.started_s, 6),
        }
