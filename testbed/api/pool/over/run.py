"""Scenarios on a lab that several machines have: one record of what all of them have seen.

The traffic is planned here, on the plan of the whole lab. Each machine runs the workers of its hosts and watches its
part; what it has seen comes here when the traffic is over. All workers begin at one moment: clocks of machines are
compared before and after each run (`clocks`).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from testbed.api.pool.machines import with_each
from testbed.api.pool.over.clocks import ClockReading, compare_clock, over_a_run
from testbed.api.pool.over.joined import join_watched
from testbed.api.pool.over.lab import OpenedLab, controls_asked, open_spread, require_carried
from testbed.api.pool.over.live import check_cut_links
from testbed.api.pool.over.machines import PartMachine, reached
from testbed.api.pool.over.messages import PartLost
from testbed.api.pool.over.part_faults import faults_by_machine, join_faults
from testbed.api.pool.over.records import SpreadRecord, SpreadRecords
from testbed.api.pool.over.run_messages import (
    AskClock,
    AwaitRouting,
    BeginFaults,
    ClockAnswer,
    FaultsBegun,
    PartSeen,
    RoutingAwaited,
    UnwatchPart,
    Watching,
    WatchPart,
)
from testbed.api.pool.over.workers import SpreadWorkers
from testbed.base.errors import TestbedError
from testbed.base.interrupt import Interrupt
from testbed.lab.core.deploy.records.lab_record import state_of
from testbed.lab.core.deploy.watch.next_hops import next_hops
from testbed.record.record import MachinePart, Record
from testbed.run.emulated.point import EmulatedPoint
from testbed.run.emulated.sweep import EmulatedPoints, keep_k
from testbed.run.emulated.workload_runner import LEAD_S, WorkloadRunner
from testbed.run.faults.outcome import LabLeftChanged
from testbed.run.measuring.measured import Measured
from testbed.run.measuring.observation import Observation
from testbed.run.placed.traffic import RunTraffic
from testbed.run.schema.model import Fault
from testbed.run.sweep.beside_record import keep_labs
from testbed.run.sweep.point_runs import PointOutcome, RunOutcome
from testbed.run.sweep.points import Point, Sweep
from testbed.run.sweep.progress import Phase, Progress, ProgressListener, ignore_progress
from testbed.run.sweep.published import PublishedRun
from testbed.run.sweep.runner import RecordOptions, SweepOutcome, SweepSoFar, Try, measure_and_keep, run_points
from testbed.run.trust.machines import MachinesCompared
from testbed.workload.steps import fabric_pairs

LEAD_ROUND_TRIPS = 10
"""Workers hear of the common start by connections whose shortest round trip is known; a busy one takes longer."""
LEAST_LEAD_S = 0.05


def run_spread(
    sweep: Sweep, record: SpreadRecord, options: RecordOptions, on_progress: ProgressListener = ignore_progress
) -> SweepOutcome:
    """Run every point on a lab that is up on several machines, and judge the whole. The lab stays.

    What stops the scenario on the way is handed back as `failure` beside the record. Raises `TestbedError` before
    anything was measured, for what such a lab does not have among others.
    """
    with SpreadRecords().lock(record.name), reached(record.machines) as parts:
        opened = open_spread(record, parts, controls_asked(sweep))
        require_carried(sweep, opened)
        keep_labs(options.directory, sweep.labs.values())
        journal = options.journal(sweep.points)
        hosts = [node.name for node in opened.lab.model.hosts]
        counts = {
            name: max(1, min(about.cores, sum(record.places[host] == name for host in hosts)))
            for name, about in opened.machines.items()
        }
        with (
            PublishedRun(sweep, options.directory, on_progress) as told,
            SpreadWorkers(parts, record.places, counts) as workers,
        ):

            def measure(interrupt: Interrupt) -> Record:
                about = next(iter(opened.machines.values()))
                so_far = SweepSoFar(
                    sweep.scenario, sweep.points, options.previous, options.command, environment=about.environment
                )
                machines = MachinesOfRun(opened, parts, workers)
                jobs = _PointsInTurn(machines, told, options.directory, len(sweep.points))
                so_far.machines = jobs.machines
                return run_points(so_far, EmulatedPoints(jobs, len(sweep.points), keep_k), interrupt, journal)

            return measure_and_keep(journal, measure)


class MachinesOfRun:
    """The machines of a lab, as they are told to watch it, and their clocks."""

    def __init__(self, opened: OpenedLab, parts: Sequence[PartMachine], workers: SpreadWorkers) -> None:
        self.opened = opened
        self.parts = parts
        self.workers = workers

    def compare_clocks(self, parts: Sequence[PartMachine]) -> dict[str, ClockReading]:
        """Compare the clocks of these machines with ours, one after the other: none is to wait for another."""

        def compared(part: PartMachine) -> ClockReading:
            return compare_clock(lambda: part.ask(AskClock(), ClockAnswer).now_ns)

        return {part.name: compared(part) for part in parts}

    def begin(self, networks: Sequence[str], traffic: RunTraffic, faults: Sequence[Fault]) -> list[str]:
        """Have every machine watch its part for a run; the neighbours of the traffic that do not answer."""
        nics, places = traffic.placement.nics, self.opened.record.places
        pairs = ((nics[a], nics[b]) for a, b in fabric_pairs(traffic.workload))
        hops = next_hops(self.opened.lab.plan, pairs)
        by_machine = faults_by_machine(faults, self.opened.lab.model, places)

        def watch(part: PartMachine) -> Watching:
            own = tuple(hop for hop in hops if places[hop.place] == part.name)
            asked = WatchPart(
                lab=self.opened.record.name,
                networks=tuple(networks),
                seed=traffic.seed,
                hops=own,
                faults=tuple(by_machine.get(part.name, ())) if faults else None,
            )
            return part.ask(asked, Watching)

        return [line for answer in with_each(self.parts, watch) for line in answer.unresolved]

    def begin_faults(self, begin_ns: int, clocks: Mapping[str, ClockReading]) -> None:
        """Tell all machines when, on our clock, the traffic begins from which times of faults count."""
        with_each(
            self.parts,
            lambda part: part.ask(BeginFaults(begin_ns=begin_ns + clocks[part.name].ahead_ns), FaultsBegun),
        )

    def await_routing(self) -> dict[str, str]:
        """Wait until routing is whole again on all machines; what each says of it, "" where it is."""
        asked = AwaitRouting(lab=self.opened.record.name)
        found = with_each(self.parts, lambda part: part.ask(asked, RoutingAwaited).changed)
        return dict(zip((part.name for part in self.parts), found, strict=True))

    def end(self) -> tuple[dict[str, PartSeen], dict[str, TestbedError]]:
        """Have every machine say what it has seen, and those that do not why."""

        def unwatch(part: PartMachine) -> PartSeen | TestbedError:
            try:
                return part.ask(UnwatchPart(), PartSeen)
            except TestbedError as error:
                return error

        answers = dict(zip((part.name for part in self.parts), with_each(self.parts, unwatch), strict=True))
        return (
            {name: answer for name, answer in answers.items() if isinstance(answer, PartSeen)},
            {name: answer for name, answer in answers.items() if isinstance(answer, TestbedError)},
        )

    def approximations(self) -> list[str]:
        """Say what a run over these machines does not reproduce, and which checks it is without."""
        record, answer = self.opened.record, self.opened.answer
        return [
            f"The lab was spread over {len(record.machines)} machines ({', '.join(self.opened.machines)}). Frames of"
            f" {record.cut_links} links between them went through VXLAN; the underlay takes up to"
            f" {answer.underlay_ns / 1e6:.3g} ms of the delay of such a link where the kernel has it, and comes on top"
            " of it where endpoints hold packets.",
            "No probes were sent beside the traffic: of order, the transport's own counts tell.",
            "Not judged, since no machine has both ends: idle round trips (idle-rtt) of the whole fabric, the counters"
            " of links between machines by each machine's own laws (they are compared by cut-links), and how soon"
            " pauses across such links were obeyed. Queues of different machines were sampled each by itself: in"
            " curves each has what its machine saw last.",
        ]


class SpreadPoint(EmulatedPoint):
    """The runs of one point on a lab that several machines have, each of which watches its part."""

    def __init__(
        self,
        point: Point,
        machines: MachinesOfRun,
        runner: WorkloadRunner,
        *,
        interrupt: Interrupt,
        on_progress: ProgressListener,
        directory: Path | None,
    ) -> None:
        super().__init__(
            point,
            machines.opened.lab,
            interrupt=interrupt,
            workload_runners=lambda lab, scenario: runner,
            canary=None,
            on_progress=on_progress,
            directory=directory,
        )
        self._machines = machines

    def outcome(self, runs: Sequence[RunOutcome], approximations: Sequence[str]) -> PointOutcome:
        """Put these runs of it together, and say what machines have to do with them."""
        told = [*self._machines.approximations(), *approximations]
        if self.scenario.by_programs:
            told.append(
                "Programs that send for a duration were begun over SSH, one after the other: what each did was later"
                " than its times say, by as long as that takes."
            )
        return super().outcome(runs, told)

    def with_state(self, outcome: PointOutcome) -> PointOutcome:
        """Say which state of its file the lab is in."""
        answer = self._machines.opened.answer
        lab = replace(outcome.result.lab, state=state_of(answer.model), revision=answer.revision)
        return replace(outcome, result=replace(outcome.result, lab=lab))

    @contextlib.contextmanager
    def watched(self, measured: Measured, traffic: RunTraffic) -> Iterator[None]:
        """Has every machine watch its part while the traffic runs. Raises `PartLost` for one that was lost."""
        machines, workers = self._machines, self._machines.workers
        networks = self.scenario.workload.ranks.networks_in(self.whole.model)
        measured.unresolved = machines.begin(networks, traffic, self.scenario.faults)
        before = machines.compare_clocks(machines.parts)
        for name, clock in before.items():
            workers.set_clock(name, clock.ahead_ns)
        slowest_s = 2 * max(clock.error_ns for clock in before.values()) / 1e9
        self.lead_s = max(LEAST_LEAD_S, LEAD_ROUND_TRIPS * slowest_s) + LEAD_S
        measured.observation = Observation(begin_ns=time.monotonic_ns(), cpu=None)
        try:
            if self.scenario.faults:
                machines.begin_faults(measured.observation.begin_ns, before)
            yield
        finally:
            measured.observation.elapsed_s = (time.monotonic_ns() - measured.observation.begin_ns) / 1e9
            lost = self._end(measured, before)
        if lost is not None:
            raise lost

    def _end(self, measured: Measured, before: Mapping[str, ClockReading]) -> TestbedError | None:
        """Take what machines have seen; the error of one that was lost meanwhile."""
        machines = self._machines
        watched, lost = machines.end()
        left = [part for part in machines.parts if part.name in watched]
        try:
            after = machines.compare_clocks(left)
            clocks = {name: over_a_run(before[name], after[name]) for name in watched}
            if watched:
                join_watched(watched, clocks, machines.opened.record.places, self.lab, measured)
            changed = self._join_faults(watched, measured, whole=not lost)
            if not lost:
                cuts = check_cut_links(machines.opened.record, machines.parts)
                # from one machine to another, both of which may be wrong
                errors = sorted(clocks, key=lambda name: -clocks[name].error_ns)
                measured.machines = MachinesCompared(
                    error_ns=sum(clocks[name].error_ns for name in errors[:2]),
                    machine=errors[0],
                    cuts=cuts.count,
                    unequal=cuts.failures,
                )
        except TestbedError as error:
            return error
        except ValueError as error:
            return PartLost(f"a machine does not say what it was asked: {error}")
        return next(iter(lost.values()), changed)

    def _join_faults(
        self, watched: Mapping[str, PartSeen], measured: Measured, *, whole: bool
    ) -> LabLeftChanged | None:
        """Take what machines did and saw of faults, all of which are undone; the error of a lab that was left changed.
        Of a `whole` lab, whose machines all answer, routing is awaited."""
        seen = {name: part.faults for name, part in watched.items() if part.faults is not None}
        if not seen:
            return None
        disturbed = whole and any(one.disturbed for one in seen.values())
        routing = self._machines.await_routing() if disturbed else {}
        measured.events, measured.faults = join_faults(len(self.scenario.faults), seen, routing)
        return LabLeftChanged(measured.faults) if measured.faults.left_changed else None


class _PointsInTurn:
    """Runs one point after the other on the lab (`JobRunner`)."""

    def __init__(
        self, machines: MachinesOfRun, on_progress: ProgressListener, directory: Path | None, points: int
    ) -> None:
        self._machines = machines
        self._on_progress = on_progress
        self._directory = directory
        self._points = points
        self.machines = [
            MachinePart(name=name, environment=about.environment, points=[], build=about.build)
            for name, about in machines.opened.machines.items()
        ]

    def run(self, jobs: Sequence[Try], interrupt: Interrupt) -> Iterator[tuple[Try, PointOutcome]]:
        for one in jobs:
            outcome = self._run(one, interrupt)
            for machine in self.machines:
                machine.points.append(one.point.name)
            yield one, outcome
            if outcome.failure is not None or outcome.interrupted or interrupt.requested:
                return

    def _run(self, one: Try, interrupt: Interrupt) -> PointOutcome:
        number, total = one.point.index, self._points
        self._on_progress(
            Progress(phase=Phase.LAB, run=0, runs=0, done=0, total=0, point=number, points=total, message=one.message)
        )
        whole, scenario = self._machines.opened.lab, one.point.scenario
        seen = whole.of_network(*scenario.workload.ranks.networks_in(whole.model))
        with WorkloadRunner(
            seen, scenario.transport, shared=self._machines.workers, of_tenants=scenario.tenant_transports
        ) as runner:
            return SpreadPoint(
                one.point,
                self._machines,
                runner,
                interrupt=interrupt,
                on_progress=lambda event: self._on_progress(replace(event, points=total)),
                directory=self._directory,
            ).run()
