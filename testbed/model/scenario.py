"""A scenario, resolved: which lab, which traffic, how often, and what is expected of it.

Nothing here knows how traffic is made. Kinds that are not built yet have no member: the loader
refuses them before a `Scenario` exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from testbed.units import ByteCount, Duration

Scalar = str | int | float | bool
"""What one overridden key of a topology may be set to."""

_NOTHING: Mapping[str, Scalar] = MappingProxyType({})


class TransportKind(StrEnum):
    TCP = "tcp"


class WorkloadKind(StrEnum):
    PERMUTATION = "permutation"


class Scope(StrEnum):
    """Which pairs a permutation may draw."""

    INTER_SEGMENT = "inter-segment"
    """Source and destination hang off different segments: every flow crosses the spines."""
    ANY = "any"
    """Source and destination are different hosts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyRef:
    """The topology a scenario runs on. `file` is a path that exists from the caller's directory.

    `set` overrides keys of that file by their dotted path, e.g. `fabric.hosts`.
    """

    file: str
    set: Mapping[str, Scalar] = field(default_factory=lambda: _NOTHING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transport:
    """`cc` is the congestion control by its kernel name; None leaves the machine's default."""

    kind: TransportKind = TransportKind.TCP
    cc: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Each NIC sends to one other and receives from one other.

    Exactly one of `duration` (lab time, after the warm-up) and `size` (per flow) is set.
    """

    kind: WorkloadKind = WorkloadKind.PERMUTATION
    scope: Scope = Scope.INTER_SEGMENT
    duration: Duration | None = None
    size: ByteCount | None = None

    def __post_init__(self) -> None:
        if (self.duration is None) == (self.size is None):
            raise ValueError("a workload has either a duration or a size")


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """Run n (1-based) draws its permutation from seed `seed + n - 1`."""

    runs: int = 1
    seed: int = 1

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(range(self.seed, self.seed + self.runs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """`metric` (a name in `METRICS`), as the median over runs, within [`minimum`, `maximum`].

    `source` says where the band comes from: a formula, a figure of a paper, an oracle.
    """

    metric: str
    minimum: float | None = None
    maximum: float | None = None
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    name: str
    topology: TopologyRef
    transport: Transport = field(default_factory=Transport)
    workload: Workload
    repeat: Repeat = field(default_factory=Repeat)
    expect: tuple[Expectation, ...] = ()
    overrides: tuple[str, ...] = ()
    """What the command line changed, as `key=value`, for the record."""
    source: str = ""
    """Path of the file this came from, for messages only."""
