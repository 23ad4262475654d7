"""The machines of a pool as those see them who have jobs for them, and the news that comes of jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

from testbed.api.pool.about import AboutMachine
from testbed.base.errors import ExitCode, TestbedError
from testbed.record.record import MachinePart


@dataclass(frozen=True, slots=True, kw_only=True)
class JobNews:
    """A job's begin on a machine, a share of it that is done, its answer, or its end: one of these.

    At its end, `why` says why there is no answer; "" where all is well. It was `given_up` where workers that had it
    died, one after the other.
    """

    key: str
    began: str = ""
    share: float | None = None
    answer: bytes | None = None
    ended: bool = False
    why: str = ""
    given_up: bool = False

    @classmethod
    def told(cls, by_worker: object) -> Self | None:
        """Return what a worker tells of its job, read with suspicion; None for what is no such news."""
        match by_worker:
            case {"key": str(key), "began": str(machine)}:
                return cls(key=key, began=machine)
            case {"key": str(key), "answer": bytes(answer) | bytearray(answer)}:
                return cls(key=key, answer=bytes(answer))
            case {"key": str(key), "share": int(share) | float(share)} if 0 <= share <= 1:
                return cls(key=key, share=float(share))
        return None


class PoolLost(TestbedError):
    """No machine of a pool is left."""

    exit_code = ExitCode.INVALID


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineLost:
    """The news that a machine has gone, and why."""

    name: str
    why: str


class Crew(Protocol):
    """The machines of a pool, as those see them who have jobs."""

    warn: Callable[[str], None]
    """Is told what is allowed, and works less well than it looks, on one of them."""

    @property
    def parts(self) -> Sequence[MachinePart]:
        """Return the machines, with the points that they have done so far; this grows."""

    def machines(self) -> Mapping[str, AboutMachine]:
        """Return the machines that are still there, by name."""

    def seats(self) -> int:
        """Return the number of jobs that they do at once. Raises `PoolLost` where no machine is left."""

    def workers(self) -> int:
        """Return the number of their workers that are there, each of which does a job at once."""

    def submit(self, request: Mapping[str, Any], machine: str = "") -> str:
        """Have a job done, by this machine if it is given. Returns the job's key."""

    def forget(self, key: str) -> None:
        """Give up a job."""

    def news(self, timeout_s: float) -> JobNews | MachineLost | None:
        """Return the next news; None where there are none for so long, or workers have come."""

    def did(self, machine: str, point: str) -> None:
        """Note that a machine has done (a part of) a point."""

    def halt(self) -> None:
        """Have all machines end what they do; returns at once."""
