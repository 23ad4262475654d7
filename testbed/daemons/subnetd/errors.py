"""Errors of the wires of a subnet."""

from __future__ import annotations

from testbed.base.errors import ExitCode, TestbedError


class WiresError(TestbedError):
    """The wires cannot do that, or did not start."""

    exit_code = ExitCode.INVALID


class WiresMissing(WiresError):
    """No wires answer."""
