"""Progress of a running scenario, told to whoever watches: the command line draws it, tests collect it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    SERVERS = "servers"
    """Receivers are being started, one event per receiver that listens."""
    TRAFFIC = "traffic"
    """Senders run; `done` and `total` are seconds, or a share of the bytes and 1."""
    LAB = "lab"
    """A lab is being brought up for the point."""
    RUN = "run"
    """A run ended; `done` and `total` count runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankBehind:
    """A host of which less has arrived than of others, and the first step that it has not ended.

    `share` is of the bytes that it is to receive. The step's transfer goes from `source` to `destination`, each
    "node:interface" of a rank, over a flow with these addresses and ports; all of that is "" or 0 where the step is
    computing, or stays inside a scale-up domain. A port that changes from packet to packet is 0.
    """

    host: str
    share: float
    step: int
    label: str = ""
    collective: str = ""
    source_rank: int = -1
    destination_rank: int = -1
    source: str = ""
    destination: str = ""
    source_port: int = 0
    destination_port: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One step of a running scenario. `run` counts from 1.

    `lab` is the lab that it runs on, where that is known, and `behind` are the ranks that are furthest behind, where
    this is told.
    """

    phase: Phase
    run: int
    runs: int
    done: float
    total: float
    point: int = 1
    """The number of the point in the matrix, from 1."""
    points: int = 1
    message: str = ""
    lab: str = ""
    behind: Sequence[RankBehind] | None = None


ProgressListener = Callable[[Progress], None]


def ignore_progress(event: Progress) -> None:
    """A listener for callers that do not want to know."""
