"""The runs of a point as flows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from testbed.lab.core.model import Lab
from testbed.record.record import EPOCH, RunResult
from testbed.record.samples import Transfers
from testbed.run.flows.execution import execute_flows
from testbed.run.flows.support import check_traffic, checked_choice, flow_approximations, flow_lab
from testbed.run.sweep.point_runs import RunOutcome, UndeployedPoint
from testbed.run.sweep.points import Point
from testbed.run.trust.ideals import check_ideals
from testbed.workload.metrics.run_samples import (
    BatchTimes,
    CollectiveSpeed,
    CollectiveTimes,
    FabricBytes,
    FlowRates,
    FlowTimes,
    JobBound,
    JobTime,
    NetworkCarried,
    NicPeers,
    PatternBound,
    RequestCounts,
    RequestTimes,
    UplinkLoads,
    VictimRates,
)

KNOWN = frozenset(
    {
        BatchTimes, CollectiveSpeed, CollectiveTimes, FabricBytes, FlowRates, FlowTimes, JobBound, JobTime,
        NetworkCarried, NicPeers, PatternBound, RequestCounts, RequestTimes, UplinkLoads, VictimRates,
    }
)  # fmt: skip
"""The samples that flows give. Others are of packets, of data, and of the machine."""
_OF_PACKETS = ("network_drops", "network_guarded", "network_queue_max", "network_ce_packets", "network_pause_frames")
FOLDED_RANKS = 512
"""Rings are one step each where more ranks than this take part."""
MOST_KEPT = 8192
"""The most channels, ports and collectives that go into a record, and twice as many transfers."""


class FlowPoint(UndeployedPoint):
    """A point on its planned lab. Raises `ScenarioError` where flows cannot tell what comes of it."""

    known = KNOWN

    def __init__(self, point: Point, model: Lab, *, folds: bool | None = None) -> None:
        whole = flow_lab(model, point.scenario)
        self.folds = _ranks_of(point, model) > FOLDED_RANKS if folds is None else folds
        super().__init__(point, whole, folds=self.folds)
        self.transport, self.choice = checked_choice(point, self.lab)
        check_traffic(point, self.traffic[0])

    @property
    def approximations(self) -> list[str]:
        """Return what its runs do not reproduce of the fabric that they model."""
        return flow_approximations(self.lab, self.transport, self.choice, folds=self.folds)

    def run_once(self, index: int, on_progress: Callable[[float], bool]) -> RunOutcome:
        done = execute_flows(
            self.lab,
            self.transport,
            self.choice,
            self.traffic[index - 1],
            limit_s=self.scenario.workload.time_limit.seconds,
            on_progress=on_progress,
            faults=self.scenario.faults,
        )
        measured, result = done.measured, None
        if measured.anything:
            result = self.run_result(index, EPOCH, measured)
            metrics = {name: value for name, value in result.metrics.items() if not name.startswith(_OF_PACKETS)}
            counters = {"rates_made_fair": float(done.events), "flows_looked_at": float(done.looked_at)}
            checks = [*check_ideals(result)] if measured.complete else []
            result = _kept(replace(result, metrics=metrics, checks=checks, counters=counters))
        return RunOutcome(result=result, failure=measured.failure, interrupted=measured.interrupted)


def _ranks_of(point: Point, model: Lab) -> int:
    """The number of NICs that may take part."""
    count = point.scenario.workload.ranks.count
    hosts = {host.name for host in model.hosts}
    nics = sum(link.a.node in hosts or link.b.node in hosts for link in model.links)
    return nics if count is None else min(count, nics)


def _kept(run: RunResult) -> RunResult:
    """The run with no more single channels, ports and collectives than a record is for."""
    if len(run.channels) > MOST_KEPT or len(run.transfers.number) > 2 * MOST_KEPT:
        run = replace(run, channels=[], transfers=Transfers())
    if len(run.collectives) > MOST_KEPT:
        largest = sorted(run.collectives, key=lambda one: (-one.size_bytes, one.start_s))
        run = replace(run, collectives=largest[:MOST_KEPT])
    if len(run.ports) > MOST_KEPT:
        busiest = sorted(run.ports, key=lambda port: (-port.utilisation, port.node, port.interface))[:MOST_KEPT]
        run = replace(run, ports=busiest)
    return run
