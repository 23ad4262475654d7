"""Errors that end a simulation which cannot go on, or keep a wrong one from starting."""

from __future__ import annotations

from collections.abc import Sequence


class SimulationError(Exception):
    """Anything the simulator raises on purpose."""


class ConfigurationError(SimulationError):
    """Settings or names that do not fit together."""


class Deadlock(SimulationError):
    """The simulation stands still: nothing is scheduled any more, and what the run was to reach has not been reached.

    `endpoints` are the addresses of the endpoints that are alive; `states` one line on each host, in the same words as
    the message.
    """

    def __init__(self, now: int, endpoints: Sequence[str], states: Sequence[str]) -> None:
        super().__init__(f"at {now} ns nothing is scheduled and the run has not reached its end: " + "; ".join(states))
        self.now = now
        self.endpoints = tuple(endpoints)
        self.states = tuple(states)


class Livelock(SimulationError):
    """An endpoint whose timer fires again and again while time stands still."""

    def __init__(self, now: int, endpoint: str) -> None:
        super().__init__(f"at {now} ns the timer of {endpoint} fires without end: handle_timer leaves it in the past")
        self.now = now
        self.endpoint = endpoint


class ContractError(SimulationError):
    """An endpoint that does not keep to the Protocol, such as one that hands out more than it was asked for."""
