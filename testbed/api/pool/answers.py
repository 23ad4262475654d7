"""The answers of seats, as JSON: plain data in the types of the record, which are read with suspicion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from testbed.base.errors import ScenarioError, TestbedError
from testbed.record.record import PointResult, RunResult
from testbed.record.samples import Number
from testbed.record.store import MAX_RECORD_BYTES

Answer = TypeVar("Answer")
Tell = Callable[[float], bool]
"""It is told the share of a job that is done, and returns whether that is to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldError:
    """An error as it goes over a wire."""

    message: str
    hint: str | None = None
    trace: str = ""

    @classmethod
    def of(cls, error: TestbedError | None) -> ToldError | None:
        return None if error is None else cls(message=error.message, hint=error.hint, trace=error.trace)

    def error(self, where: str = "") -> ScenarioError:
        """Return the error; `where` says of which machine it is told."""
        found = ScenarioError(f"{where}: {self.message}" if where else self.message, hint=self.hint)
        found.trace = self.trace
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatAnswer:
    """The part that all answers have. `raised` is what ends the whole sweep; `died` the exit code of a process that
    ended without a word, negative for a signal."""

    raised: ToldError | None = None
    died: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAnswer(SeatAnswer):
    """The outcome of a simulated run."""

    result: RunResult | None = None
    failure: ToldError | None = None
    interrupted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TryAnswer(SeatAnswer):
    """The outcome of a try of a point on a lab. `samples` are files beside the record, by name, in base64."""

    result: PointResult | None = None
    failure: ToldError | None = None
    out_of_time: bool = False
    """The failure is that a run met its time limit."""
    interrupted: bool = False
    approximations: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    samples: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleTold:
    """The time scale that a machine would choose for a lab, and the largest that its ports allow."""

    k: Number
    largest: Number


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalesAnswer(SeatAnswer):
    """The time scales of a sweep's labs, those whose scale is chosen, by the place of their point."""

    scales: dict[str, ScaleTold] = field(default_factory=dict)


_adapters: dict[str, TypeAdapter[Any]] = {}
"""By the name of each class of answers, the adapter that reads and writes it."""


def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    if kind.__name__ not in _adapters:
        _adapters[kind.__name__] = TypeAdapter(kind)
    return _adapters[kind.__name__]


def prepare_answers(*, simulated: bool) -> None:
    """Make what writes answers, which takes longer than a short run: once, before processes are forked for runs."""
    for kind in (SeatAnswer, RunAnswer) if simulated else (SeatAnswer, TryAnswer, ScalesAnswer):
        _adapter(kind)


def encode_answer(answer: SeatAnswer) -> bytes:
    """Return an answer as JSON in one line, without its end."""
    return _adapter(type(answer)).dump_json(answer)


def decode_answer(kind: type[Answer], content: bytes, where: str) -> Answer:
    """Read an answer. Raises `ScenarioError`, which names the machine `where` it is from, for what is none."""
    if len(content) > MAX_RECORD_BYTES:
        raise ScenarioError(f"{where} answers with {len(content) >> 20} MiB, more than any record has")
    try:
        answer: Answer = _adapter(kind).validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ScenarioError(f"{where} gives no answer that can be read: {place}: {first['msg']}") from error
    return answer
