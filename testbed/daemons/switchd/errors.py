"""Errors of the switch of a scale-up domain."""

from __future__ import annotations

from testbed.base.errors import ExitCode, TestbedError


class SwitchError(TestbedError):
    """The switch cannot do that, or did not start."""

    exit_code = ExitCode.INVALID


class SwitchMissing(SwitchError):
    """No switch answers."""
