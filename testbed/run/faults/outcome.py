"""The outcome of a run's faults: what was done and seen, and everything that did not go as planned."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from pathlib import PurePath

from testbed.base.errors import ExitCode, ScenarioError, TestbedError


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class TimedEvent:
    """Something that was done to the lab or seen in it, at a time of CLOCK_MONOTONIC."""

    at_ns: int
    kind: str
    target: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultOutcome:
    """The faults of a run, as far as they happened as planned.

    `planned` is how many faults the scenario has, `acts` how often something was done or undone, `latest_s` how late
    the latest of that was begun. `troubles` name each fault that did not happen, was late or slow beyond its bound, or
    was not undone, and why. `left_changed` are those after which the lab is not what its topology declares.
    """

    planned: int
    acts: int = 0
    latest_s: float = 0.0
    troubles: tuple[str, ...] = ()
    left_changed: tuple[str, ...] = ()


class LabLeftChanged(ScenarioError):
    """A fault could not be undone: what would run on this lab now would not run on what the topology declares."""

    exit_code = ExitCode.INVALID

    def __init__(self, outcome: FaultOutcome) -> None:
        super().__init__(
            f"the lab is not as its topology declares: {'; '.join(outcome.left_changed)}",
            hint="`testbed link reset` brings links back, `testbed deploy --reconfigure` everything",
        )


def error_words(error: BaseException) -> str:
    """An error in a few words; of one that nobody foresaw also its type and where it was raised."""
    if isinstance(error, TestbedError):
        return error.message
    if isinstance(error, OSError):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({PurePath(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"
