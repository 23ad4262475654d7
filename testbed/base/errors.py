"""The error tree. Every error a user can meet is a `TestbedError` with an exit code and a hint.

A `Problem` is one fault in a file a user wrote: stable code, path, position, message, hint. All the
problems of a stage are raised together in one `SpecError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class TestbedError(Exception):
    """Anything that went wrong and that a user can act on.

    `exit_code` is what the command line leaves with: 1 for "no", 2 for "cannot say" and wrong use.
    """

    __test__ = False  # not a pytest class
    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n  hint: {self.hint}"


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """Where in a file: 1-based line and column."""

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

    exit_code = 2

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class FabricError(TestbedError):
    """A design cannot be generated as asked. `field` is the dotted key at fault, e.g. `rails.per_switch`.

    `spec` turns it into a `Problem` with the position of that key.
    """

    exit_code = 2

    def __init__(self, message: str, *, field: str, code: str = "design", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.field = field
        self.code = code


class PlanError(TestbedError):
    """The model cannot be turned into a plan (address space, AS numbers, names).

    `node` and `field` say what of the model is at fault, where one thing is.
    """

    exit_code = 2

    def __init__(self, message: str, *, field: str = "", code: str = "plan", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.field = field
        self.code = code


class WorkloadError(TestbedError):
    """A workload cannot be generated as asked. `field` is the parameter at fault, e.g. `size_bytes`."""

    exit_code = 2

    def __init__(self, message: str, *, field: str = "", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.field = field


class CapabilityError(TestbedError):
    """This machine lacks something the lab needs. `missing` names it: a tool, a kernel option, root."""

    exit_code = 2

    def __init__(self, message: str, *, missing: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.missing = missing


class LabNotFound(TestbedError):
    """No lab of that name is recorded in the state directory."""

    exit_code = 2


class NameInUse(TestbedError):
    """Something with that name exists and is not ours."""

    exit_code = 2


class DriverError(TestbedError):
    """The kernel or a tool refused an operation. `operation` is what was asked, `errno` what it answered."""

    def __init__(self, message: str, *, operation: str = "", errno: int = 0, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.operation = operation
        self.errno = errno


class ConvergenceError(TestbedError):
    """The lab is up but routing did not converge in time. `missing` names what and where."""

    def __init__(self, message: str, *, missing: Sequence[str], hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.missing = tuple(missing)


class ScenarioError(TestbedError):
    """A scenario could not run to its end."""


class RecordError(TestbedError):
    """A result record cannot be read: wrong schema, newer version, not JSON."""

    exit_code = 2
