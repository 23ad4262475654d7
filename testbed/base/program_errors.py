"""The errors of a worker: commands that it refuses, and traffic that it cannot carry."""

from __future__ import annotations

from testbed.base.errors import ExitCode, TestbedError


class ProgramError(TestbedError):
    """A program or a command that makes no sense. `path` says where in it, e.g. `steps.size_bytes[3]`."""

    exit_code = ExitCode.INVALID

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path


class TrafficError(TestbedError):
    """Traffic cannot be set up, or broke on the way: an address that is not ours, a peer that has gone."""

    exit_code = ExitCode.INVALID
