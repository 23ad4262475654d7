"""The errors of a change: refused before anything was touched, undone, or left in the middle."""

from __future__ import annotations

from testbed.base.errors import ExitCode, TestbedError


class ChangeRefused(TestbedError):
    """A change that a lab that is up cannot take. Nothing of the lab was touched."""


class ChangeUndone(TestbedError):
    """A change that could not be carried out to its end. All of it was undone: the lab is as it was."""

    exit_code = ExitCode.INVALID


class ChangeStuck(TestbedError):
    """A change that could neither be carried out nor undone. The lab is in the middle of it."""

    exit_code = ExitCode.INVALID
