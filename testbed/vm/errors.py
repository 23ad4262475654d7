"""The errors of the lab VM and of labs on other machines."""

from __future__ import annotations

from testbed.base.errors import ExitCode, TestbedError


class ImageError(TestbedError):
    """An image cannot be built, or what the cache has is not what was built."""


class MachineError(TestbedError):
    """The lab VM cannot be started, or it has ended. `console` has its last words."""

    def __init__(self, message: str, *, console: str = "", hint: str | None = None) -> None:
        super().__init__(f"{message}\n{console}" if console else message, hint=hint)
        self.console = console


class JobUnfinished(MachineError):
    """The lab VM was started for a job, and ended or was ended before the job was done."""

    exit_code = ExitCode.INVALID


class ConnectionLost(TestbedError):
    """The SSH connection broke while something ran over it."""

    exit_code = ExitCode.INVALID


class NotConnected(ConnectionLost):
    """The SSH connection could not be made."""

    exit_code = ExitCode.NOT_STARTED
