"""What a point of a scenario is going to be, before anything is deployed: its lab, ranks, transfers, bytes and time."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from testbed.base.linux.port_counters import PlainQueue, PortCounters
from testbed.lab.core.model import Lab
from testbed.lab.core.plan.operations import LabPlan
from testbed.run.ideals.point_ideals import PointIdeals
from testbed.run.placed.traffic import RunTraffic, lab_transports, make_traffic
from testbed.run.schema.model import Scenario
from testbed.run.sweep.points import Point
from testbed.run.transports.registry import transport_on
from testbed.workload.steps import Compute, fabric_bytes, payload_bytes, requests_last_ns

if TYPE_CHECKING:
    from testbed.base.datapath.maps import LabMaps
    from testbed.daemons.portd.client import PauseAgent

DEPLOY_S = 1.5
DEPLOY_S_PER_NODE = 0.03
DEPLOY_S_PER_SWITCH = 0.15
"""Bring-up until converged and removal: 300 hosts and 6 switches in 6.6 s, 128 hosts and 40 switches in 10 s, on two
cores (docs/concepts/convergence.md, "How fast")."""
RUN_OVERHEAD_S = 1.0
"""Starting the traffic's processes once for all, and reading all counters before and after a run."""
IPERF_OVERHEAD_S = 2.5
"""Servers, and the warm-up of every flow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointOutlook:
    """The outlook on one run of a point, with the first seed; `estimated_s` is wall-clock time for all its runs,
    without the lab.

    `traffic_s` is the time in which an ideal fabric would be done, in lab time: real runs take longer.
    """

    index: int
    name: str
    values: dict[str, Any]
    lab: str
    hosts: int
    switches: int
    k: float
    workload: str
    ranks: int
    transfers: int
    requests: int
    """Over HTTP."""
    computations: int
    bytes: int
    fabric_bytes: int
    """Of transfers between hosts."""
    traffic_s: float | None
    runs: int
    estimated_s: float
    warnings: list[str]
    """What is allowed, and hardly meant."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedLab:
    """A lab as far as it is without being there: what a `LiveLab` says of itself, and nothing that it does."""

    model: Lab
    plan: LabPlan
    seen_of: PlannedLab | None = None
    """The whole lab, of which this is what is seen in some networks; None: this is the whole."""

    @property
    def whole(self) -> PlannedLab:
        return self.seen_of or self

    @property
    def name(self) -> str:
        return self.model.name

    def of_network(self, *names: str) -> PlannedLab:
        """The lab as it is seen in some networks."""
        return PlannedLab(model=self.model.of_network(*names), plan=self.plan.of_network(*names), seen_of=self.whole)

    def spawn(self, node: str, argv: Sequence[str], **popen_kwargs: Any) -> subprocess.Popen[bytes]:
        _refuse()

    def namespace_file(self, node: str) -> str | None:
        _refuse()

    @property
    def processes_directory(self) -> Path | None:
        return None

    def counters(self) -> Mapping[tuple[str, str], PortCounters]:
        _refuse()

    def plain_queues(self) -> Mapping[tuple[str, str], PlainQueue]:
        _refuse()

    def maps(self, *, writable: bool = False) -> LabMaps:
        _refuse()

    @property
    def pause_agent(self) -> PauseAgent:
        _refuse()


def foresee_point(point: Point, lab: Lab, plan: LabPlan) -> PointOutlook:
    """Makes the traffic of the first run. Raises `ScenarioError` where this lab cannot carry it."""
    scenario = point.scenario
    planned = PlannedLab(model=lab, plan=plan).of_network(*scenario.workload.ranks.networks_in(lab))
    traffic = make_traffic(scenario, planned, seed=scenario.repeat.seed)
    transfers = traffic.workload.transfers
    timed = scenario.workload.duration
    expected_s = timed.seconds if timed is not None else ideal_s(scenario, planned, traffic)
    if scenario.transport.measures_latency:
        expected_s = transport_on(planned, scenario.transport).expected_latency_s(traffic)
    warnings = [line for one in lab_transports(scenario, planned) for line in one.warnings()]
    overhead_s = IPERF_OVERHEAD_S if scenario.by_programs else RUN_OVERHEAD_S
    return PointOutlook(
        index=point.index,
        name=point.name,
        values=dict(point.values),
        lab=lab.name,
        hosts=len(lab.hosts),
        switches=len(lab.switches),
        k=plan.k,
        workload=scenario.workload.kind,
        ranks=len(traffic.placement.nics),
        transfers=len(transfers),
        requests=len(traffic.workload.requests),
        computations=sum(isinstance(step, Compute) for step in traffic.workload.steps),
        bytes=0 if timed is not None else payload_bytes(traffic.workload),
        fabric_bytes=0 if timed is not None else fabric_bytes(traffic.workload),
        traffic_s=expected_s,
        runs=scenario.repeat.runs,
        estimated_s=scenario.repeat.runs * ((expected_s or 0.0) + overhead_s),
        warnings=list(dict.fromkeys(warnings)),
    )


def deploy_estimate_s(lab: Lab) -> float:
    """Wall-clock time of bringing a lab up and removing it."""
    return DEPLOY_S + DEPLOY_S_PER_NODE * len(lab.nodes) + DEPLOY_S_PER_SWITCH * len(lab.speakers)


def ideal_s(scenario: Scenario, lab: PlannedLab, traffic: RunTraffic) -> float | None:
    """An ideal fabric's time for this traffic, or the last start where that is later, in lab time."""
    if not traffic.workload.steps and not traffic.workload.requests:
        return None
    ideals = PointIdeals.of(scenario, lab, [traffic])
    found = [ideals.pattern_ideal_s(traffic), ideals.roofline_s(traffic)]
    last_start_ns = max((one.start_ns for one in traffic.workload.transfers), default=0)
    answered_ns = requests_last_ns(traffic.workload)
    return max([one for one in found if one is not None] + [max(last_start_ns, answered_ns) * lab.plan.k / 1e9]) or None


def _refuse() -> NoReturn:
    raise RuntimeError("this lab is only planned")
