"""The one class of a run's measurements, on either backend, whatever moved its traffic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from testbed.base.errors import ExitCode, ScenarioError
from testbed.base.names import first_few
from testbed.base.units import Duration
from testbed.record.samples import Channel, CollectiveResult, ProgramRecord, RunEvent, Transfers
from testbed.run.machine.cpu import SoftnetCounts
from testbed.run.measuring.observation import Observation

if TYPE_CHECKING:
    from testbed.base.errors import TestbedError
    from testbed.run.faults.outcome import FaultOutcome
    from testbed.run.faults.timeline import FaultTimeline
    from testbed.run.machine.canary import Lateness
    from testbed.run.measuring.requests import RequestsMeasured
    from testbed.run.probes.ledger import ProbeReport
    from testbed.run.trust.evidence import PortReading
    from testbed.run.trust.machines import MachinesCompared

Span = tuple[float, float]


class TimeLimitReached(ScenarioError):
    """A run did not end in its time. `hosts` are those that had steps left."""

    exit_code = ExitCode.INVALID

    def __init__(self, limit_s: float, hosts: Mapping[str, int]) -> None:
        left = first_few([f"{host} ({steps} step{'s' * (steps != 1)} left)" for host, steps in hosts.items()], 3)
        super().__init__(
            f"the run was ended after its time limit of {Duration(round(limit_s * 1e9))}; not done: {left}",
            hint="a higher workload.time_limit, less traffic, or a smaller time scale",
        )
        self.hosts = tuple(hosts)


@dataclass(slots=True, kw_only=True)
class Measured:
    """Measurements of one run, or of one tenant's part of it, filled while it goes on. Times are s from its begin.

    Of a run that ended early there is what there is, and what was not there to be measured is empty or None.
    """

    transfers: Transfers = field(default_factory=Transfers)
    channels: Sequence[Channel] = ()
    collectives: Sequence[CollectiveResult] = ()
    counters: dict[str, float] = field(default_factory=dict)
    """Sums over the hosts of what belongs to no single channel; of what a NIC has (`qp_state_bytes`) and of how late a
    worker's timer was noticed (`latest_timer_us`), the largest."""
    steps_left: Mapping[str, int] = field(default_factory=dict)
    """The number of steps that each host had not ended."""
    requests: RequestsMeasured | None = None
    program: ProgramRecord | None = None
    """The program of the user's own that moved its bytes itself."""
    computed_s: Span | None = None
    """When the first computing began, and the last ended."""
    inside_s: Span | None = None
    """When the first transfer over scale-up links began, and the last arrived."""
    rings_s: Span | None = None
    """When the first ring whose transfers are not recorded one by one began, and the last ended."""
    storage: Sequence[object] = ()
    """Samples for metrics of storage; without any where steps are left."""
    scale_up: Sequence[Mapping[str, Any]] = ()
    """Workers' reports of their GPUs' ends in scale-up domains, where transfers are frames."""
    tenants: Mapping[str, Measured] = field(default_factory=dict)
    """The `requests`, `computed_s`, `inside_s` and `storage` of each tenant of the workload alone, by name."""

    events: list[RunEvent] = field(default_factory=list)
    touches: Sequence[RunEvent] | None = None
    """Changes that others made of the lab meanwhile; None where there is no real lab."""
    observation: Observation = field(default_factory=Observation)
    probes: ProbeReport | None = None
    window_s: float = 0.05
    """The window of the curve that faults are judged by."""
    begin_monotonic_ns: int = 0
    """CLOCK_MONOTONIC at the begin of the workload; 0 where it never began."""
    elapsed_s: float = 0.0
    """The time from the begin of the workload until all was done, or the run was ended."""
    interrupted: bool = False
    failure: TestbedError | None = None

    ports: PortReading | None = None
    faults: FaultOutcome | None = None
    flow_starts_s: list[float] | None = None
    """When each flow of programs began, where they are to run together; None where they run one after the other."""
    lateness: Lateness | None = None
    softnet: tuple[SoftnetCounts, SoftnetCounts] = (SoftnetCounts(dropped=0, squeezed=0),) * 2
    wires_late: Mapping[str, int] | None = None
    """The lateness of a subnet's wires: turns, their sum and the most, ns; None where no wires carried the run."""
    machines: MachinesCompared | None = None
    """The comparison of the lab's machines; None where one has all of it."""
    unresolved: Sequence[str] | None = None
    """The neighbours that did not answer before the traffic, and whose they are; None where there is no real lab."""
    polling_s: float = 0.0
    """CPU time of programs that look for work without a pause, and give way to all others."""

    @property
    def complete(self) -> bool:
        return self.failure is None and not self.interrupted

    @property
    def anything(self) -> bool:
        """Tell whether there is something to record."""
        requests = self.requests and self.requests.table.number
        timed = self.inside_s or self.rings_s
        return bool(self.channels or self.transfers.number or timed or requests or self.program)

    def keep_faults(self, timeline: FaultTimeline) -> None:
        """Keep what a timeline that has been left did and saw."""
        self.events, self.faults = timeline.events(), timeline.outcome()
