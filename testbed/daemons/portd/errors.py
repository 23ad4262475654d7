"""Errors between a command and the pause agent."""

from __future__ import annotations

from testbed.base.errors import ExitCode, TestbedError


class PauseAgentError(TestbedError):
    """The agent refused, or answered what nobody can read."""

    exit_code = ExitCode.INVALID


class PauseAgentMissing(PauseAgentError):
    """No agent runs where one was expected."""


class PauseAgentTimeout(PauseAgentError):
    """The agent did not start, answer or end in time."""


class NoSuchPort(PauseAgentError):
    """A lab, port or priority that the agent does not serve."""

    exit_code = ExitCode.NOT_STARTED
