"""All runs of one point: make its traffic, run it, and put together what was measured."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from testbed.collect.canary import Canary, Lateness
from testbed.collect.cpu import SoftnetCounts, read_softnet
from testbed.collect.probe_ledger import ProbeReport
from testbed.collect.probe_traffic import THRESHOLD_S, ProbeTraffic
from testbed.deploy.live import RunningLab
from testbed.deploy.watch.rtt import RttReport, measure_rtt
from testbed.errors import DriverError, ScenarioError, TestbedError
from testbed.model.scenario import Scenario
from testbed.results import (
    Channel,
    Check,
    CollectiveResult,
    PointResult,
    PredictedMetric,
    RunEvent,
    RunResult,
    Transfers,
)
from testbed.scenario.faults.timeline import FaultTimeline
from testbed.scenario.ideals.point_ideals import PointIdeals, summarise
from testbed.scenario.ideals.predictions import Carried, predict_point
from testbed.scenario.probes.findings import probe_findings
from testbed.scenario.probes.planning import QUEUED_RTTS, plan_probes
from testbed.scenario.run.flow_processes import FlowFailed, FlowWatch, TimedResult
from testbed.scenario.run.interrupt import Interrupt
from testbed.scenario.run.lab import LiveLab
from testbed.scenario.run.measures import RunData, compute_metrics
from testbed.scenario.run.observation import Observation, observe
from testbed.scenario.run.progress import Phase, Progress, ProgressListener
from testbed.scenario.run.traffic import RunTraffic, make_traffic
from testbed.scenario.run.workload_runner import RunOptions, WorkloadRunner
from testbed.scenario.sweep.as_run import lab_summary, transport_as_run, workload_as_run
from testbed.scenario.sweep.points import Point
from testbed.scenario.transports.registry import transport_on
from testbed.scenario.trust.machine import (
    check_backlogs,
    check_idle_rtt,
    check_lateness,
    check_machine,
)
from testbed.scenario.trust.pauses import check_ports, reset_reactions
from testbed.scenario.trust.ports import check_rates

IDLE_PROBES = 10
"""Of each path, before and after the runs of a point."""


@dataclass(slots=True)
class _Measured:
    """What one run's traffic left behind, whoever moved it."""

    transfers: Transfers = field(default_factory=Transfers)
    channels: list[Channel] = field(default_factory=list)
    collectives: list[CollectiveResult] = field(default_factory=list)
    events: list[RunEvent] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    observation: Observation = field(default_factory=Observation)
    port_checks: list[Check] = field(default_factory=list)
    lateness: Lateness | None = None
    softnet: tuple[SoftnetCounts, SoftnetCounts] = (SoftnetCounts(dropped=0, squeezed=0),) * 2
    counters: dict[str, float] = field(default_factory=dict)
    probes: ProbeReport | None = None
    window_s: float = 0.05
    polling_s: float = 0.0
    """CPU time of programs that wait for work without sleeping, and give way to all others."""
    interrupted: bool = False
    failure: TestbedError | None = None


@dataclass(slots=True)
class PointOutcome:
    """`failure`: what ended it early; `interrupted`: somebody did."""

    result: PointResult
    failure: TestbedError | None = None
    interrupted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PointRunner:
    """The runs of one point on a lab that is up. `workload_runners` makes what moves its data, once for all."""

    point: Point
    lab: LiveLab
    interrupt: Interrupt
    workload_runners: Callable[[LiveLab, Scenario], WorkloadRunner]
    canary: Canary
    on_progress: ProgressListener

    @property
    def scenario(self) -> Scenario:
        return self.point.scenario

    def run(self) -> PointOutcome:
        """Every repeat, until one fails or somebody interrupts. Raises `ScenarioError` where the lab cannot."""
        traffic = [make_traffic(self.scenario, self.lab, seed=seed) for seed in self.scenario.repeat.seeds]
        ideals = PointIdeals.of(self.scenario, self.lab, traffic)
        runs: list[RunResult] = []
        failure: TestbedError | None = None
        interrupted = False
        idle = self._idle_rtt()
        for index, one in enumerate(traffic, start=1):
            result, failure, interrupted = self._measure(index, one, ideals)
            if result is not None:
                runs.append(result)
            self._tell(Phase.RUN, index, index, len(traffic))
            if failure is not None or interrupted:
                break
        if idle is not None and runs and failure is None and not interrupted:
            after = self._idle_rtt()
            assert after is not None
            runs[-1] = replace(runs[-1], checks=[*runs[-1].checks, *check_idle_rtt(idle, after)])
        predictions = self._predict(traffic, runs, ideals)
        return PointOutcome(
            result=PointResult(
                name=self.point.name,
                values=dict(self.point.values),
                lab=lab_summary(self.lab),
                transport=transport_as_run(self.scenario),
                workload=workload_as_run(self.scenario),
                runs=runs,
                metrics=summarise(runs, ideals),
                predictions=predictions,
                notes=sorted({note for one in traffic for note in one.workload.notes}),
            ),
            failure=failure,
            interrupted=interrupted,
        )

    def _idle_rtt(self) -> RttReport | None:
        """Of every class of paths; None for a lab without wires to probe."""
        if not isinstance(self.lab, RunningLab):
            return None
        return measure_rtt(self.lab, probes=IDLE_PROBES)

    def _predict(
        self, traffic: Sequence[RunTraffic], runs: Sequence[RunResult], ideals: PointIdeals
    ) -> list[PredictedMetric]:
        done = [
            Carried(
                workload=one.workload,
                placement=one.placement,
                channels=run.channels,
                channel_of={
                    number: run.channels[index]
                    for number, index in zip(run.transfers.number, run.transfers.channel, strict=True)
                },
            )
            for one, run in zip(traffic, runs, strict=False)
        ]
        return predict_point(self.scenario, self.lab, done, framing=ideals.framing, base_rtt_s=ideals.base_rtt_s / 2)

    def _measure(
        self, index: int, traffic: RunTraffic, ideals: PointIdeals
    ) -> tuple[RunResult | None, TestbedError | None, bool]:
        started = datetime.now(UTC)
        measured = _Measured()
        try:
            if self.scenario.by_programs:
                self._run_timed(index, traffic, ideals, measured)
            else:
                self._run_workers(index, traffic, ideals, measured)
        except (FlowFailed, DriverError) as error:
            measured.failure = error
        observation = measured.observation
        if not measured.channels and not measured.transfers.number:
            return None, measured.failure, measured.interrupted
        ports = observation.loads(self.lab, ideals.tiers)
        probed = probe_findings(measured.probes, self.scenario, self.lab, measured.events, observation.elapsed_s)
        metrics = compute_metrics(
            RunData(
                transfers=measured.transfers,
                channels=measured.channels,
                collectives=measured.collectives,
                ports=ports,
                events=measured.events,
                observation=observation,
                nic_bps=ideals.nic_bps,
                window_s=measured.window_s,
                probes=measured.probes,
                pattern_ideal_s=ideals.pattern_ideal_s(traffic),
                roofline_s=ideals.roofline_s(traffic),
                fabric_bytes=sum(step.size_bytes for step in traffic.workload.transfers if not step.scale_up),
            )
        )
        complete = measured.failure is None and not measured.interrupted
        result = RunResult(
            index=index,
            seed=traffic.seed,
            started=stamp(started),
            elapsed_s=observation.elapsed_s,
            metrics=metrics,
            checks=[
                *check_machine(observation.cpu, _share(measured.polling_s, observation.elapsed_s)),
                *check_lateness(measured.lateness),
                *check_backlogs(*measured.softnet),
                *measured.checks,
                *check_rates(observation, [0, *(port.mtu_bytes for port in self.lab.plan.ports)], self._disturbed()),
                *measured.port_checks,
                *probed.checks,
            ],
            complete=complete,
            transfers=measured.transfers,
            channels=measured.channels,
            collectives=measured.collectives,
            ports=ports,
            events=measured.events,
            series=[*observation.series(), *probed.series],
            distributions=probed.distributions,
            marking=observation.marking,
            counters=measured.counters | probed.counters,
        )
        return result, measured.failure, measured.interrupted

    def _run_timed(self, index: int, traffic: RunTraffic, ideals: PointIdeals, measured: _Measured) -> None:
        result = TimedResult()
        watch = FlowWatch(
            interrupt=self.interrupt,
            around=lambda: self._watched(measured, traffic, ideals),
            on_listening=lambda count, whole: self._tell(Phase.SERVERS, index, count, whole),
            on_elapsed=lambda elapsed_s, whole_s: self._tell(Phase.TRAFFIC, index, elapsed_s, whole_s),
        )
        try:
            transport = transport_on(self.lab, self.scenario.transport)
            transport.run_timed(self.scenario.workload, traffic, watch, result)
        finally:
            measured.interrupted = result.interrupted
            measured.window_s = result.window_s
            measured.channels = result.channels
            measured.checks = result.checks
            measured.polling_s = result.polling_s

    def _run_workers(self, index: int, traffic: RunTraffic, ideals: PointIdeals, measured: _Measured) -> None:
        workload_runners = self.workload_runners(self.lab, self.scenario)
        result = workload_runners.run(
            traffic.workload,
            traffic.placement.nics,
            RunOptions(
                seed=traffic.seed,
                limit_s=self.scenario.workload.time_limit.seconds,
                interrupt=self.interrupt,
                around=lambda: self._watched(measured, traffic, ideals),
                on_progress=lambda share: self._tell(Phase.TRAFFIC, index, share, 1.0),
            ),
        )
        measured.transfers = result.transfers
        measured.channels = list(result.channels)
        measured.collectives = list(result.collectives)
        measured.interrupted = result.interrupted
        measured.failure = result.failure
        measured.counters = result.counters

    @contextlib.contextmanager
    def _watched(self, measured: _Measured, traffic: RunTraffic, ideals: PointIdeals) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            timeline = self._faults(stack)
            probes = self._probes(stack, traffic, ideals)
            reset_reactions(self.lab)
            with observe(self.lab) as measured.observation:
                if timeline is not None:
                    timeline.begin(measured.observation.begin_ns)
                self.canary.read()
                softnet = read_softnet()
                if probes is not None:
                    probes.begin(measured.observation.begin_ns)
                try:
                    yield
                finally:
                    if probes is not None:
                        probes.halt()
                    measured.lateness, measured.softnet = self.canary.read(), (softnet, read_softnet())
            measured.probes = None if probes is None else probes.report()
            measured.port_checks = check_ports(self.lab, measured.observation)
        if timeline is not None:
            measured.events = timeline.events()
            if timeline.error is not None:
                raise ScenarioError(
                    f"a fault could not be done: {timeline.error.message}", hint=timeline.error.hint
                ) from timeline.error

    def _faults(self, stack: contextlib.ExitStack) -> FaultTimeline | None:
        if not self.scenario.faults:
            return None
        if not isinstance(self.lab, RunningLab):
            raise ScenarioError("faults need a lab that is really there")

        def kill_worker(host: str) -> None:
            pid = self.workload_runners(self.lab, self.scenario).pid(host)
            if pid is not None:
                os.kill(pid, signal.SIGKILL)

        return stack.enter_context(FaultTimeline(self.lab, self.scenario.faults, kill_worker=kill_worker))

    def _probes(self, stack: contextlib.ExitStack, traffic: RunTraffic, ideals: PointIdeals) -> ProbeTraffic | None:
        """Of the traffic's own class; none on a lab without wires."""
        if not isinstance(self.lab, RunningLab):
            return None
        plan = plan_probes(self.scenario, self.lab, traffic, cpus=os.cpu_count() or 1)
        if plan is None:
            return None
        return stack.enter_context(
            ProbeTraffic(
                self.lab.name,
                plan.flows,
                rate_pps=plan.rate_pps,
                train=plan.train,
                tos=ideals.dscp << 2,
                threshold_s=max(THRESHOLD_S, QUEUED_RTTS * ideals.base_rtt_s),
            )
        )

    def _disturbed(self) -> frozenset[str]:
        """Ports that faults befall: both ends of links, all of a node's."""
        targets = {fault.target for fault in self.scenario.faults}
        found: set[str] = set()
        for port in self.lab.plan.ports:
            place = f"{port.node}:{port.name}"
            if targets & {place, port.peer, port.node, port.peer.partition(":")[0]}:
                found.add(place)
        return frozenset(found)

    def _tell(self, phase: Phase, run: int, done: float, total: float) -> None:
        self.on_progress(
            Progress(
                phase=phase,
                run=run,
                runs=self.scenario.repeat.runs,
                done=done,
                total=total,
                point=self.point.index,
                message=self.point.name,
            )
        )


def _share(cpu_s: float, elapsed_s: float) -> float:
    """Of the time of all CPUs."""
    return cpu_s / (elapsed_s * (os.cpu_count() or 1)) if elapsed_s > 0 else 0.0


def stamp(moment: datetime) -> str:
    """UTC, ISO 8601, milliseconds."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
