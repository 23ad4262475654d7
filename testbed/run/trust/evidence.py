"""What a run leaves behind for the trust checks to judge."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from testbed.record.record import RunResult
from testbed.record.samples import Channel, RunEvent, ScaleUpLoad
from testbed.run.emulated.observation import Observation
from testbed.run.faults.outcome import FaultOutcome
from testbed.run.machine.canary import Lateness
from testbed.run.machine.cpu import SoftnetCounts
from testbed.run.placed.lab import LiveLab
from testbed.run.probes.ledger import ProbeReport
from testbed.run.schema.model import Scenario
from testbed.run.trust.pauses import lossless_priorities

if TYPE_CHECKING:
    from testbed.daemons.portd.client import LabStatus
    from testbed.lab.observe.reconcile import Reconciliation


@dataclass(frozen=True, slots=True, kw_only=True)
class PortReading:
    """This is what the data path and the pause agent of a lab with `qos:` said right after the traffic."""

    balance: Reconciliation
    pausing: LabStatus | None = None
    """None where the lab has no lossless class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything that the checks of one run look at. What was not there to be read is None or empty."""

    scenario: Scenario
    lab: LiveLab
    observation: Observation
    lateness: Lateness | None = None
    """How late a real-time thread was woken while traffic ran."""
    softnet: tuple[SoftnetCounts, SoftnetCounts] = (SoftnetCounts(dropped=0, squeezed=0),) * 2
    """The kernel's backlogs before and after the traffic."""
    polling: float = 0.0
    """Share of the CPU time that went into looking for work without a pause, by programs that give way to others."""
    flow_starts_s: Sequence[float] | None = None
    """When each of the flows that ran for a time began, where those were to run together."""
    flow_lasted_s: Sequence[float] = ()
    counters: Mapping[str, float] = field(default_factory=dict)
    """What workers counted, all together."""
    base_rtt_ns: int = 0
    """Of the lab and the transport; 0 where it has no meaning."""
    ports: PortReading | None = None
    probes: ProbeReport | None = None
    in_order: Sequence[Channel] = ()
    """The channels of which no packet may be out of order where switches give each flow one path."""
    events: Sequence[RunEvent] = field(default_factory=list)
    faults: FaultOutcome | None = None
    """None for a scenario without faults."""
    congestion_controls: Mapping[str, str] | None = None
    """What TCP has where nothing is said, by host; None where no transport is the kernel's, or the scenario says it."""
    unresolved: Sequence[str] | None = None
    """The neighbours that did not answer before the traffic began; None for a lab that is not really there."""
    scale_up: Sequence[ScaleUpLoad] = ()
    """The scale-up domains whose transfers were frames."""
    result: RunResult | None = None
    """The run as its record has it, but for what the checks say of it."""


def read_ports(lab: LiveLab, seen: Observation) -> PortReading | None:
    """Read the pauses and reconcile the counters, right after the traffic that `seen` watched; None without `qos:`."""
    if lab.plan.qos is None or seen.growth is None or seen.table is None:
        return None
    from testbed.lab.observe.reconcile import reconcile

    pausing = lab.pause_agent.status().labs[lab.name] if lossless_priorities(lab.plan) else None
    with contextlib.closing(lab.maps()) as maps:
        return PortReading(pausing=pausing, balance=reconcile(maps, seen.table))
