"""Step events: what a long operation is doing, for a console, a log or a test to subscribe to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEvent:
    """`phase` is "start", "progress" or "stop"; `done` of `total` where the step can count.

    `duration_s` is set on "stop"; `detail` is one line for a person.
    """

    step: str
    phase: str
    done: int = 0
    total: int = 0
    detail: str = ""
    duration_s: float = 0.0


StepCallback = Callable[[StepEvent], None]


def ignore_steps(_: StepEvent) -> None:
    """A subscriber that is not interested."""


@contextmanager
def step(name: str, notify: StepCallback, detail: str = "") -> Iterator[None]:
    """Announce a step's start and, unless it fails, its stop."""
    notify(StepEvent(step=name, phase="start", detail=detail))
    started = time.monotonic()
    yield
    notify(StepEvent(step=name, phase="stop", detail=detail, duration_s=time.monotonic() - started))
