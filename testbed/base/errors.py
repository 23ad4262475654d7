"""The error tree. Every error a user can meet is a `TestbedError` with an exit code and a hint.

A `Problem` is one fault in a file a user wrote: stable code, path, position, message, hint. All the
problems of a stage are raised together in one `SpecError`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes of a command, which hold for every verb but those that run a program: theirs is its own.

    A pipeline can tell an answer from what is no answer: `FAIL` is a finding, `INVALID` may be tried again, and
    `NOT_STARTED` is to be mended first.
    """

    PASS = 0
    """It is done, and where the verb judges, its verdict is good."""
    FAIL = 1
    """The verb judges, and its verdict is bad."""
    INVALID = 2
    """It began and has no answer: a measurement that is not to be trusted, or what broke off on the way."""
    NOT_STARTED = 3
    """It could not begin: a typo, a bad option, or a file, lab, program or right that is missing."""
    INTERRUPTED = 130
    """Ctrl-C or SIGTERM has ended it; what it had made is undone."""


class TestbedError(Exception):
    """Anything that went wrong and that a user can act on.

    `exit_code` is what the command line leaves with. What is raised on the way, and not before, is `INVALID`.
    """

    __test__ = False  # not a pytest class
    exit_code: int = ExitCode.NOT_STARTED
    trace = ""
    """The traceback of a mistake in the program, where it was that; the command line prints it above the message."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n  hint: {self.hint}"


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in a file: line and column, from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One fault in a user's file. `code` is stable (`unknown-key`, `duplicate-key`, ...)."""

    code: str
    file: str
    message: str
    path: str = ""
    position: Position | None = None
    hint: str | None = None

    def __str__(self) -> str:
        where = self.file
        if self.position is not None:
            where += f":{self.position.line}:{self.position.column}"
        path = f" {self.path}:" if self.path else ""
        hint = f"\n    hint: {self.hint}" if self.hint else ""
        return f"{where}: {self.code}:{path} {self.message}{hint}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A mistake in an entry of a user's file, found by somebody who knows what it means and not where it stands.

    `keys` lead from the entry to the value that is wrong; `spec` turns it into a `Problem` with the position of that
    value, or with `at_key` of its key.
    """

    code: str
    keys: tuple[str | int, ...]
    message: str
    hint: str | None = None
    at_key: bool = False


class SpecError(TestbedError):
    """A file the user wrote is wrong. Carries every problem of the stage that found them."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class FabricError(TestbedError):
    """A design cannot be generated as asked. `field` is the dotted key at fault, e.g. `rails.per_switch`.

    `spec` turns it into a `Problem` with the position of that key.
    """

    def __init__(self, message: str, *, field: str, code: str = "design", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.field = field
        self.code = code


class PlanError(TestbedError):
    """The model cannot be turned into a plan (address space, AS numbers, names).

    `node` and `field` say what of the model is at fault, where one thing is.
    """

    def __init__(self, message: str, *, field: str = "", code: str = "plan", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.field = field
        self.code = code


class WorkloadError(TestbedError):
    """A workload cannot be generated as asked. `field` is the parameter at fault, e.g. `size_bytes`."""

    def __init__(self, message: str, *, field: str = "", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.field = field


class CapabilityError(TestbedError):
    """This machine lacks something the lab needs. `missing` names it: a tool, a kernel option, root."""

    def __init__(self, message: str, *, missing: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.missing = missing


class LabNotFound(TestbedError):
    """No lab of that name is recorded in the state directory."""


class NameInUse(TestbedError):
    """Something with that name exists and is not ours."""


class DriverError(TestbedError):
    """The kernel or a tool refused an operation. `operation` is what was asked, `errno` what it answered."""

    exit_code = ExitCode.INVALID

    def __init__(self, message: str, *, operation: str = "", errno: int = 0, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.operation = operation
        self.errno = errno


class ConvergenceError(TestbedError):
    """The lab is up but routing did not converge in time. `missing` names what and where."""

    exit_code = ExitCode.FAIL

    def __init__(self, message: str, *, missing: Sequence[str], hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.missing = tuple(missing)


class ScenarioError(TestbedError):
    """A scenario could not run to its end. `keys` lead to what of its file is at fault, where that is one value."""

    def __init__(self, message: str, *, hint: str | None = None, keys: tuple[str | int, ...] = ()) -> None:
        super().__init__(message, hint=hint)
        self.keys = keys


class RecordError(TestbedError):
    """A result record cannot be read: wrong schema, newer version, not JSON."""


@contextmanager
def disk_error(doing: str) -> Iterator[None]:
    """Raise `RecordError` where the disk does not do what is to be done here, such as "write FILE"."""
    try:
        yield
    except OSError as error:
        raise RecordError(f"cannot {doing}: {error.strerror}") from error
