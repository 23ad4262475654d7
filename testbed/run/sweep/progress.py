"""Progress of a running scenario, told to whoever watches: the command line draws it, tests collect it."""

from __future__ import annotations

from collections.abc import Callable
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
class Progress:
    """One step of a running scenario. `run` counts from 1."""

    phase: Phase
    run: int
    runs: int
    done: float
    total: float
    point: int = 1
    """The number of the point in the matrix, from 1."""
    points: int = 1
    message: str = ""


ProgressListener = Callable[[Progress], None]


def ignore_progress(event: Progress) -> None:
    """A listener for callers that do not want to know."""
