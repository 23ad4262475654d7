"""What a running scenario tells whoever watches: the command line draws it, tests collect it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    SERVERS = "servers"
    """Receivers are being started, one event per receiver that listens."""
    TRAFFIC = "traffic"
    """Senders run; `done` and `total` are seconds, `total` 0 where the end is not known."""
    RUN = "run"
    """A run ended; `done` and `total` count runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One step. `run` is 1-based."""

    phase: Phase
    run: int
    runs: int
    done: float
    total: float
    message: str = ""


ProgressListener = Callable[[Progress], None]


def ignore_progress(event: Progress) -> None:
    """The listener for whoever does not care."""
