"""The errors of the lab VM and of labs on other machines."""

from __future__ import annotations

from testbed.base.errors import TestbedError


class ImageError(TestbedError):
    """An image cannot be built, or what the cache has is not what was built."""

    exit_code = 2


class MachineError(TestbedError):
    """The lab VM cannot be started, or it has ended. `console` has its last words."""

    exit_code = 2

    def __init__(self, message: str, *, console: str = "", hint: str | None = None) -> None:
        super().__init__(f"{message}\n{console}" if console else message, hint=hint)
        self.console = console


class ConnectionLost(TestbedError):
    """The SSH connection could not be made, or broke while something ran over it."""

    exit_code = 2
