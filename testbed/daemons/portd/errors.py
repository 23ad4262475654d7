"""Errors between a command and the pause agent."""

from __future__ import annotations

from testbed.base.errors import TestbedError


class PauseAgentError(TestbedError):
    """The agent refused, or answered what nobody can read."""


class PauseAgentMissing(PauseAgentError):
    """No agent runs where one was expected."""


class PauseAgentTimeout(PauseAgentError):
    """The agent did not start, answer or end in time."""


class NoSuchPort(PauseAgentError):
    """A lab, port or priority that the agent does not serve."""

    exit_code = 2
