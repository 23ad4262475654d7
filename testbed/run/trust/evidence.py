"""The evidence that a run leaves for the trust checks to judge."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from testbed.record.record import RunResult
from testbed.record.samples import Channel
from testbed.run.measuring.measured import Measured
from testbed.run.measuring.observation import Observation
from testbed.run.placed.lab import LiveLab
from testbed.run.schema.model import Scenario
from testbed.run.trust.ports import lossless_priorities

if TYPE_CHECKING:
    from testbed.daemons.portd.client import LabStatus
    from testbed.lab.observe.reconcile import Reconciliation


@dataclass(frozen=True, slots=True, kw_only=True)
class PortReading:
    """The state of the data path and the pause agent of a lab with `qos:` right after the traffic."""

    balance: Reconciliation
    pausing: LabStatus | None = None
    """None where the lab has no lossless class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything that the checks of one run look at: what it measured, and what the lab and the record say besides."""

    scenario: Scenario
    lab: LiveLab
    measured: Measured
    base_rtt_ns: int = 0
    """The base round trip of the lab and the transport; 0 where it has no meaning."""
    in_order: Sequence[Channel] = ()
    """The channels of which no packet may be out of order where switches give each flow one path."""
    congestion_controls: Mapping[str, str] | None = None
    """TCP's congestion control by host; None where no transport is the kernel's, or the scenario says it."""
    result: RunResult | None = None
    """The run as its record has it, but for what the checks say of it."""

    @property
    def polling(self) -> float:
        """Return the share of the CPU time that went into looking for work without a pause, by programs that give way
        to others."""
        elapsed_s = self.measured.observation.elapsed_s
        return self.measured.polling_s / (elapsed_s * (os.cpu_count() or 1)) if elapsed_s > 0 else 0.0


def read_ports(lab: LiveLab, seen: Observation) -> PortReading | None:
    """Read the pauses and reconcile the counters, right after the traffic that `seen` watched; None without `qos:`."""
    if lab.plan.qos is None or seen.growth is None or seen.table is None:
        return None
    from testbed.lab.observe.reconcile import reconcile

    pausing = lab.pause_agent.status().labs[lab.name] if lossless_priorities(lab.plan) else None
    with contextlib.closing(lab.maps()) as maps:
        return PortReading(pausing=pausing, balance=reconcile(maps, seen.table))
