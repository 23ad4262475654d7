"""The questions to a machine that has, or is to have, a part of a lab, and its answers. They go as lines of JSON."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from testbed.api.pool.over import run_messages
from testbed.base.errors import ConvergenceError, DriverError, TestbedError
from testbed.base.typed_json import encode, from_text
from testbed.lab.features.machines.watch import CutCounts

LARGEST_BYTES = 256 << 20
_READING = threading.Lock()
"""The first time that msgspec (0.22) reads a type it looks what that consists of; threads that do so at once, as those
of machines that answer at once, end the process (SIGSEGV)."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Asks what the machine would give its part of a lab, and whether anything speaks against that. `reached` is the
    address at which SSH came to it, `underlay` the interface that the file names, or "". `replaces` is the mark of the
    lab of that name that goes first, which speaks against nothing; None: there is none."""

    lab: Mapping[str, Any]
    machine: str
    places: Mapping[str, str]
    underlay: str
    reached: str
    replaces: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAnswer:
    """A machine by itself. `k` is the time scale that it asks for, `taken` are the slots of its labs; `exists` is true
    where it has a lab of this name, or what is left of one. `speed_bps` is 0 where the interface does not say it."""

    testbed: str
    sources: str
    exists: bool
    k: float
    reason: str
    delay_by: str
    reaction_ns: int
    taken: tuple[int, ...]
    address: str
    device: str
    mtu_bytes: int
    speed_bps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """Asks for round trips to addresses with IP packets of so many bytes, which must not be cut into fragments."""

    addresses: Mapping[str, str]
    packet_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachAnswer:
    """The shortest round trips in ns by machine, and of those that did not answer why."""

    rtt_ns: Mapping[str, int] = field(default_factory=dict)
    lost: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deploy:
    """Tells a machine to deploy its part. It answers `Claimed`, and goes on when it is told `Go`."""

    lab: Mapping[str, Any]
    written: Mapping[str, str] | None
    part: Mapping[str, Any]
    k: float
    slot: int
    delay_by: str
    reaction_ns: int
    key: str
    timeout_s: float
    wait: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """Name and slot are the lab's on this machine, and nothing of it is made yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Go:
    """Tells a machine that has claimed the lab that all others have, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Up:
    """The part is up, with so many nodes, and its routing has converged where that was waited for."""

    nodes: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PartStep:
    """A step of a deploy that has ended."""

    step: str
    detail: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Destroy:
    """Tells a machine to remove its part of a lab, also one that was cut short. `mark` is that of the lab's record;
    another lab of its name stays."""

    lab: str
    mark: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """So many nodes are gone; `there` is false where the machine had no lab of that name. `remaining` are sentences
    about what is still to be seen of it."""

    there: bool
    nodes: int = 0
    remaining: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AskState:
    """Asks how a machine's part of a lab is."""

    lab: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StateAnswer:
    """`state` is that of the part, as `testbed list` has it there; `heard` and `silent` are other machines, `down` the
    ports of cut links without carrier."""

    state: str
    nodes: int = 0
    cut_links: int = 0
    k: float = 0.0
    heard: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    down: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AskCheck:
    """Asks for the live tests of a machine's part of a lab."""

    lab: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A live test, as `CheckResult` has it."""

    name: str
    status: str
    count: int
    detail: str
    failures: tuple[str, ...] = ()
    by_network: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckAnswer:
    """The live tests of a part, and the addresses of the hosts that are there, by "node:interface" and rail."""

    results: tuple[Result, ...]
    nics: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskCount:
    """Asks for the counts of the ports of cut links."""

    lab: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CountAnswer:
    """The ports of cut links that are on a machine."""

    ports: tuple[CutCounts, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AskPing:
    """Asks hosts of a part to ping addresses: pairs of a node and an address."""

    lab: str
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PingAnswer:
    """The pairs of a node and an address of which nothing came back."""

    lost: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRefused:
    """An error of a machine. `converging`: its part is up, and its routing has not converged in time, as far as
    `missing` says."""

    message: str
    hint: str | None = None
    converging: bool = False
    missing: tuple[str, ...] = ()

    def error(self, machine: str) -> TestbedError:
        """Return the error as it is told here."""
        if self.converging:
            return ConvergenceError(f"{machine}: {self.message}", missing=self.missing, hint=self.hint)
        return PartFailed(f"{machine}: {self.message}", hint=self.hint)


class PartFailed(TestbedError):
    """A machine could not do what it was told."""


class PartLost(DriverError):
    """A machine of a lab does not answer any more."""


QUESTIONS = {
    kind.__name__: kind
    for kind in (Look, Reach, Deploy, Go, Destroy, AskState, AskCheck, AskCount, AskPing, *run_messages.QUESTIONS)
}
ANSWERS = {
    kind.__name__: kind
    for kind in (
        *(LookAnswer, ReachAnswer, Claimed, Up, PartStep, Removed, StateAnswer, CheckAnswer, CountAnswer, PingAnswer),
        PartRefused,
        *run_messages.ANSWERS,
    )
}


def line_of(message: object) -> bytes:
    """Return a question or an answer as a line."""
    return b'["' + type(message).__name__.encode() + b'",' + encode(message) + b"]\n"


def read_line(line: bytes, kinds: Mapping[str, type[Any]]) -> Any:
    """Return the question or answer of a line. Raises `ValueError` for one that is none of these kinds."""
    if len(line) > LARGEST_BYTES:
        raise ValueError(f"{len(line)} bytes in a line")
    name, content = msgspec.json.decode(line, type=tuple[str, msgspec.Raw])
    if name not in kinds:
        raise ValueError(f"{name[:40]!r} is none of {', '.join(kinds)}")
    with _READING:
        return msgspec.json.decode(content, type=kinds[name], dec_hook=from_text)
