"""The record of a scenario's run: everything a report, a comparison or a doubter needs, as plain data.

Rates are in lab time (scaled) unless a name says `real`; spans are in seconds, sizes in bytes. A value
that could not be measured is None, never zero. New fields get defaults, so that this version reads
what an older one wrote; `SCHEMA` changes only when the meaning of a field does.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

SCHEMA = 1
"""Version of the record's shape. A reader refuses a newer one."""

Number = Annotated[float, Field(allow_inf_nan=False)]
Count = Annotated[int, Field(ge=-(2**63), lt=2**63)]
"""An integer that every tool can read and every report can print."""


class Outcome(StrEnum):
    """Whether what was expected was measured, or the measurement itself is not to be trusted."""

    PASS = "pass"
    FAIL = "fail"
    INVALID = "invalid"

    @property
    def exit_code(self) -> int:
        return {Outcome.PASS: 0, Outcome.FAIL: 1, Outcome.INVALID: 2}[self]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class LabSummary:
    """What was run on. `k` divides rates; `*_real_bps` are those of the fabric that is modelled."""

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
    """"wall", or "virtual" where time is counted in instructions."""
    approximations: list[str]
    """What this run does not reproduce of the fabric it models, one sentence each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowEnd:
    node: str
    interface: str
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Columns of equal length; `start_s` counts from the end of the flow's own warm-up."""

    start_s: list[Number]
    seconds: list[Number]
    bytes: list[Count]
    retransmits: list[Count]
    cwnd_bytes: list[Count]
    rtt_us: list[Count]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowResult:
    """One transfer. `goodput_bps` is payload at the receiver; `share` is goodput over ideal."""

    id: Count
    source: FlowEnd
    destination: FlowEnd
    rail: Count
    source_port: Count
    destination_port: Count
    ideal_bps: Number
    sent_bytes: Count
    received_bytes: Count | None
    seconds: Number
    goodput_bps: Number
    share: Number
    retransmits: Count
    mss_bytes: Count
    congestion: str
    started_s: Number
    """When its client was started, from the start of the first one of the run."""
    samples: Samples


@dataclass(frozen=True, slots=True, kw_only=True)
class UplinkLoad:
    """What a rail switch sent on one uplink while traffic ran, warm-up included."""

    switch: str
    interface: str
    peer: str
    rate_bps: Count
    tx_bytes: Count
    tx_dropped: Count
    utilisation: Number
    """Share of the lab rate over the whole time traffic ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One trust check: was the emulation itself able to do what it claims?"""

    name: str
    title: str
    value: Number
    limit: Number
    ok: bool
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """One repeat. `metrics` maps names of `model.metrics.METRICS` to values."""

    index: Count
    seed: Count
    started: str
    elapsed_s: Number
    flows: list[FlowResult]
    uplinks: list[UplinkLoad]
    metrics: dict[str, Number | None]
    checks: list[Check]
    complete: bool = True


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
class ExpectationResult:
    metric: str
    minimum: Number | None
    maximum: Number | None
    source: str
    measured: Number | None
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    outcome: Outcome
    reasons: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One scenario, run on one lab. `incomplete` says why it ended early, "" if it did not."""

    schema: Count = SCHEMA
    scenario: ScenarioAsRun
    lab: LabSummary
    environment: Environment
    started: str
    finished: str
    """UTC, ISO 8601."""
    incomplete: str
    runs: list[RunResult]
    metrics: list[MetricSummary]
    expectations: list[ExpectationResult]
    verdict: Verdict
    command: list[str]
    """The command line that repeats this."""
