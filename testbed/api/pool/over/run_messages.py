"""The questions and answers of a run on a lab over several machines: what a machine has, watches, and has seen."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.base.linux.port_counters import PortCounters
from testbed.daemons.portd.client import LabStatus
from testbed.lab.core.deploy.watch.next_hops import NextHop
from testbed.lab.observe.reconcile import Reconciliation
from testbed.lab.observe.sampler import Samples
from testbed.record.samples import MarkingCurve, RunEvent
from testbed.run.machine.canary import Lateness
from testbed.run.machine.cpu import CpuUse, SoftnetCounts

MOST_BYTES = 256 << 20
"""The largest array that is unpacked."""
BY_PORT, BY_BUFFER = ("queues", "ingress", "pauses"), "buffers"
"""The arrays of a snapshot: those with a row for each port, and the one with a row for each switch's buffer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """An array as it goes over a connection: compressed, and without its type, which both ends know."""

    shape: tuple[int, ...]
    data: bytes

    @classmethod
    def of(cls, array: NDArray[Any]) -> Packed:
        """Pack an array."""
        return cls(shape=array.shape, data=zlib.compress(np.ascontiguousarray(array).tobytes(), 1))

    def unpack(self, kind: np.dtype[Any]) -> NDArray[Any]:
        """Return the array. Raises `ValueError` for what is none of this type and shape."""
        try:
            content = zlib.decompressobj().decompress(self.data, MOST_BYTES)
        except zlib.error as error:
            raise ValueError(f"no compressed array: {error}") from error
        return np.frombuffer(content, kind).reshape(self.shape).copy()


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedSamples:
    """`Samples` as they go over a connection, with times of the machine's clock."""

    times_ns: Packed
    columns: Mapping[str, Packed]
    queues: tuple[tuple[int, int], ...]
    complete: bool

    @classmethod
    def of(cls, samples: Samples | None) -> PackedSamples | None:
        """Pack samples; None where there are none."""
        if samples is None:
            return None
        columns = {name: Packed.of(column) for name, column in samples.columns.items()}
        times = Packed.of(samples.times_ns)
        return cls(times_ns=times, columns=columns, queues=samples.queues, complete=samples.complete)

    def unpack(self) -> Samples:
        """Return the samples. Raises `ValueError`."""
        times = self.times_ns.unpack(np.dtype(np.int64))
        columns = {name: column.unpack(np.dtype(np.uint64)) for name, column in self.columns.items()}
        if any(column.shape != (len(times), len(self.queues)) for column in columns.values()):
            raise ValueError("samples of another shape than their times and queues")
        return Samples(times_ns=times, columns=columns, queues=self.queues, complete=self.complete)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskLab:
    """Asks for the record of a lab, and what the machine is; and which of these congestion controls of TCP it lacks."""

    lab: str
    congestion_controls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LabAnswer:
    """The facts that a plan of the whole lab follows from, as its record on a machine has them. `about` is
    `AboutMachine` as JSON, `underlay_ns` the longest time of a packet to another machine. `controls` is the congestion
    control that TCP has in each host there, `lacking` those that were asked for and are not there."""

    model: Mapping[str, Any]
    revision: int
    slot: int
    k: float
    delay_by: str
    reaction_ns: int
    about: str
    underlay_ns: int
    controls: Mapping[str, str]
    lacking: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AskClock:
    """Asks for the machine's CLOCK_MONOTONIC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockAnswer:
    """The machine's CLOCK_MONOTONIC, ns."""

    now_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartFault:
    """A fault as `Fault` has it, or the half of one that is done on one machine."""

    at_ns: int
    kind: str
    target: str
    until_ns: int | None = None
    period_ns: int | None = None
    settings: Mapping[str, bool | int | float | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchPart:
    """Tells a machine to watch its part of a lab in these networks, its switches hashing as in the run of this seed.
    `hops` are the neighbours on it that the traffic needs, `faults` those that it is to do; None: the run has none, on
    no machine."""

    lab: str
    networks: tuple[str, ...]
    seed: int
    hops: tuple[NextHop, ...]
    faults: tuple[PartFault, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Watching:
    """The machine watches. `unresolved` are the neighbours that did not answer."""

    unresolved: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginFaults:
    """Tells a machine when, of its CLOCK_MONOTONIC, the traffic begins from which times of faults count."""

    begin_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultsBegun:
    """The machine does its faults when they are due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultsSeen:
    """The faults that a machine did and saw, as `FaultOutcome` has them. `disturbed`: its routing may be another."""

    acts: int
    latest_s: float
    troubles: tuple[str, ...]
    left_changed: tuple[str, ...]
    disturbed: bool
    events: tuple[RunEvent, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitRouting:
    """Has a machine wait until its routing is whole again, when all faults have been undone everywhere."""

    lab: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingAwaited:
    """`changed` is a sentence where routing is not whole; "" where it is."""

    changed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnwatchPart:
    """Tells a machine that the traffic is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartSeen:
    """All that a machine has seen of its part while there was traffic, as `Observation` and `Measured` have it. Without
    `qos:` there are no queues to look into."""

    cpu: CpuUse | None
    sent: tuple[tuple[str, str, PortCounters], ...]
    dropped: tuple[tuple[str, str, int], ...]
    guarded: tuple[tuple[str, str, str, int], ...]
    seconds: float
    growth: Mapping[str, Packed] | None
    samples: PackedSamples | None
    port_samples: PackedSamples | None
    marking: tuple[MarkingCurve, ...]
    lateness: Lateness | None
    softnet: SoftnetCounts
    balance: Reconciliation | None
    pausing: LabStatus | None
    touches: tuple[RunEvent, ...]
    faults: FaultsSeen | None = None


QUESTIONS = (AskLab, AskClock, WatchPart, BeginFaults, UnwatchPart, AwaitRouting)
ANSWERS = (LabAnswer, ClockAnswer, Watching, FaultsBegun, PartSeen, RoutingAwaited)
