"""The record of a scenario's run: everything a report, a comparison or a doubter needs, as plain data.

Rates are in lab time (scaled) unless a name says `real`; spans are in seconds, sizes in bytes. A value
that could not be measured is None, never zero. New fields get defaults, so that this version reads
what an older one wrote; `SCHEMA` changes only when the meaning of a field does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from testbed.base.errors import ExitCode
from testbed.record.samples import (
    Channel,
    CollectiveResult,
    Count,
    Distribution,
    InferenceRequests,
    MarkingCurve,
    NetworkLoad,
    Number,
    PortLoad,
    RunEvent,
    ScaleUpLoad,
    Series,
    Transfers,
)

SCHEMA = 3
"""Version of the record's shape. A reader refuses any other; nothing was released that wrote an older one."""


class Outcome(StrEnum):
    """The verdict on a scenario: as expected, not as expected, or a measurement that is not to be trusted."""

    PASS = "pass"
    FAIL = "fail"
    INVALID = "invalid"

    @property
    def exit_code(self) -> int:
        return ExitCode[self.name]


class Backend(StrEnum):
    """The kind of fabric that a scenario was run on."""

    EMULATION = "emulation"
    """A lab of this machine's kernel, at a time scale."""
    SIMULATION = "simulation"
    """The discrete-event network of `transport.simulation`, at the real fabric's time."""


SIMULATED_CLOCK = "simulated"
EPOCH = "1970-01-01T00:00:00.000Z"
"""When a simulation begins, by its own clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioAsRun:
    """The scenario with every override applied, in the keys of the scenario file."""

    name: str
    topology: dict[str, Any]
    transport: dict[str, Any]
    workload: dict[str, Any]
    repeat: dict[str, Any]
    expect: list[dict[str, Any]]
    overrides: list[str]
    source: str = ""
    matrix: dict[str, list[Any]] = field(default_factory=dict)
    faults: list[dict[str, Any]] = field(default_factory=list)
    probes: dict[str, Any] = field(default_factory=dict)
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabSummary:
    """The lab of a point. `k` divides rates; `*_real_bps` are those of the fabric that is modelled."""

    name: str
    design: str
    k: Number
    k_auto: bool
    hosts: Count
    nics: Count
    switches: dict[str, Count]
    """Number of switches by role."""
    links: Count
    nic_bps: Count
    nic_real_bps: Count
    uplink_bps: Count | None
    uplink_real_bps: Count | None
    mtu_bytes: Count
    routing: str
    load_balancing: str = ""
    """How switches of the back end choose between equal paths: `flow`, `flowlet`, `spray`, or `kernel` where the
    kernel's hash does; "" in records that do not say."""
    oversubscription: Number | None = None
    """The rate that hosts may send to the access switch with most of it, over that of its uplinks; None without any,
    and in records that do not say."""
    qos: dict[str, Any] = field(default_factory=dict)
    """The QoS of the back end's switches, in the keys of a topology file; {} without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The machine and the versions. None where something is not installed or cannot be asked."""

    testbed: str
    python: str
    kernel: str
    distribution: str | None
    cpu_model: str | None
    cores: Count
    memory_bytes: Count | None
    iperf3: str | None
    frr: str | None
    git_commit: str | None
    clock: str = "wall"
    """"wall", "virtual" where time is counted in instructions, or "simulated"."""
    transports: str = "interpreted"
    """"compiled" to C, or "interpreted"."""
    backend: Backend = Backend.EMULATION
    """Records that do not say so are of the only backend that there was."""
    approximations: list[str]
    """Properties of the modelled fabric that this run does not reproduce, one sentence each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierSession:
    """A session that a resumed run went on from: what it ran on and when, and the names of the points it measured."""

    environment: Environment
    started: str
    points: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One trust check: was the emulation itself able to do what it claims?"""

    name: str
    title: str
    value: Number
    limit: Number
    ok: bool
    message: str

    @classmethod
    def at_most(cls, *, name: str, title: str, value: Number, limit: Number, message: str) -> Check:
        """One that the value decides alone."""
        return cls(name=name, title=title, value=value, limit=limit, ok=value <= limit, message=message)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """One repeat. `metrics` maps names of `workload.metrics.CATALOGUE` to values, and
    those of single networks and tenants, as `workload.metrics.Selection` makes them.

    Timed flows, those of iperf3, are `channels` without `transfers`.
    """

    index: Count
    seed: Count
    started: str
    elapsed_s: Number
    metrics: dict[str, Number | None]
    checks: list[Check]
    complete: bool = True
    transfers: Transfers = field(default_factory=Transfers)
    channels: list[Channel] = field(default_factory=list)
    collectives: list[CollectiveResult] = field(default_factory=list)
    ports: list[PortLoad] = field(default_factory=list)
    """All of switches and hosts; the tier `uplink` is rail switches' towards their spines."""
    networks: list[NetworkLoad] = field(default_factory=list)
    """Every network of the lab, in its order; none in records of versions that did not look."""
    scale_up: list[ScaleUpLoad] = field(default_factory=list)
    """The scale-up domains whose transfers were frames; none where they took the links' time."""
    events: list[RunEvent] = field(default_factory=list)
    series: list[Series] = field(default_factory=list)
    distributions: list[Distribution] = field(default_factory=list)
    marking: list[MarkingCurve] = field(default_factory=list)
    counters: dict[str, Number] = field(default_factory=dict)
    """Other counters, by name: for the doubter, not for the eye."""
    requests: InferenceRequests = field(default_factory=InferenceRequests)
    """The requests over HTTP; none but where the workload has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSummary:
    """A metric over all runs, printable without knowing this version: title, unit and definition included."""

    name: str
    title: str
    unit: str
    definition: str
    headline: bool
    ideal: Number | None
    values: list[Number | None]
    median: Number | None
    minimum: Number | None
    maximum: Number | None
    cv: Number | None
    """Standard deviation over mean of the runs; None for a single run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedMetric:
    """The prediction of an oracle for a metric on this very topology and workload, over its seeds."""

    metric: str
    oracle: str
    """How it was computed, in words."""
    mean: Number
    stdev: Number
    minimum: Number
    maximum: Number
    seeds: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierTry:
    """A try of a point that does not count, because a later one was made; `reasons` say why it was."""

    lab: LabSummary
    runs: list[RunResult]
    metrics: list[MetricSummary]
    reasons: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PointResult:
    """One point of the matrix: a topology, a transport and a workload, run `repeat.runs` times.

    `values` are the matrix's keys with this point's values, empty where there is no matrix; `name` is them in one
    line (`mode=spray k=2000`), "" where there is none.
    """

    name: str
    values: dict[str, Any]
    lab: LabSummary
    transport: dict[str, Any]
    workload: dict[str, Any]
    runs: list[RunResult]
    metrics: list[MetricSummary]
    predictions: list[PredictedMetric] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Approximations that this point's workload makes."""
    earlier_tries: list[EarlierTry] = field(default_factory=list)
    """The tries before the one that counts, in their order: everything else here is of the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectationResult:
    """`measured` is the median over the runs of the point; `point` its name."""

    metric: str
    minimum: Number | None
    maximum: Number | None
    source: str
    measured: Number | None
    outcome: Outcome
    point: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleComparison:
    """A scale-free metric at time scale k and at 2k; `difference` is a share of the larger one."""

    point: str
    metric: str
    k: Number
    at_k: Number
    at_2k: Number
    difference: Number
    limit: Number
    ok: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    outcome: Outcome
    reasons: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One scenario, run. `incomplete` says why it ended early, "" if it did not.

    A run that was resumed has what its last session ran on in `environment`, and the others in `earlier`.
    """

    schema: Count = SCHEMA
    scenario: ScenarioAsRun
    environment: Environment
    started: str
    finished: str
    """UTC, ISO 8601."""
    incomplete: str
    points: list[PointResult]
    expectations: list[ExpectationResult]
    verdict: Verdict
    command: list[str]
    """The command line that repeats this; in a file without the directory of results (`record.store`)."""
    wall_s: Number | None = None
    """Wall-clock time of the whole, set-up included; kept beside the file."""
    scale_proof: list[ScaleComparison] = field(default_factory=list)
    """The findings of `run --prove-scale`; empty where it was not asked for."""
    earlier: list[EarlierSession] = field(default_factory=list)
    """The sessions before this one, in their order, of which points were taken over; none but in a resumed run."""
    comparability: dict[str, Any] = field(default_factory=dict)
    """The properties that two records must share for their figures to be compared: topology, k, transport, workload,
    clock, ... Not the seed: another one is a repetition."""
