"""The runs of one point on a lab that is up: its traffic is watched, probed and faulted, and its runs are judged."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from testbed.base.errors import DriverError, ScenarioError
from testbed.base.interrupt import Interrupt
from testbed.lab.core.deploy.hash_seeds import DEPLOYED, set_hash_seeds
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.lab_record import state_of
from testbed.lab.core.deploy.watch.next_hops import next_hops, resolve_next_hops
from testbed.lab.core.deploy.watch.rtt import RttReport, measure_rtt
from testbed.record.record import RunResult
from testbed.run.emulated.workers import HasFileno
from testbed.run.emulated.workload_runner import LEAD_S, WorkloadRunner, WorkloadRunOptions
from testbed.run.faults.outcome import LabLeftChanged
from testbed.run.faults.timeline import FaultTimeline
from testbed.run.machine.canary import Canary, Lateness
from testbed.run.machine.cpu import SoftnetCounts, read_softnet
from testbed.run.measuring.measured import Measured
from testbed.run.measuring.observation import Observation, observe
from testbed.run.measuring.touches import read_touches
from testbed.run.placed.lab import LiveLab, congestion_controls
from testbed.run.placed.program import represent
from testbed.run.placed.traffic import RunTraffic, bdp_bytes, lab_transports
from testbed.run.probes.planning import QUEUED_RTTS, plan_probes
from testbed.run.probes.traffic import THRESHOLD_S, ProbeTraffic
from testbed.run.programs.timed_flows import SAMPLE_S, FlowFailed, FlowWatch
from testbed.run.schema.model import Scenario
from testbed.run.sweep.approximations import approximations
from testbed.run.sweep.beside_record import keep_samples
from testbed.run.sweep.point_runs import PointOutcome, PointRuns, RunOutcome, stamp
from testbed.run.sweep.points import Point
from testbed.run.sweep.progress import Phase, Progress, ProgressListener, RankBehind
from testbed.run.transports.lab_transport import TCP_PROTOCOL
from testbed.run.transports.registry import transport_on
from testbed.run.trust.evidence import Evidence, read_ports
from testbed.run.trust.machine import check_idle_rtt
from testbed.run.trust.ports import reset_reactions
from testbed.run.trust.registry import judge_run
from testbed.run.trust.traffic import channels_in_order
from testbed.workload.steps import fabric_pairs

IDLE_PROBES = 10
"""The number of probes that measure the idle round trip of each path, before and after the runs of a point."""


class EmulatedPoint(PointRuns):
    """Does the runs of one point on a lab that is up.

    `workload_runners` gives the runner of a lab and a transport, whose workers move the data. Samples of ports go into
    `directory`, beside the record, if there is one. `canary` is None for a kind of point that watches machines itself.
    """

    def __init__(
        self,
        point: Point,
        whole: LiveLab,
        *,
        interrupt: Interrupt,
        workload_runners: Callable[[LiveLab, Scenario], WorkloadRunner],
        canary: Canary | None,
        on_progress: ProgressListener,
        directory: Path | None = None,
    ) -> None:
        super().__init__(point, whole)
        self.interrupt = interrupt
        self.workload_runners = workload_runners
        self.canary = canary
        self.on_progress = on_progress
        self.directory = directory
        self.running = whole if isinstance(whole, RunningLab) else None
        """The lab where it is really there, whose state, links and changes by others are known."""
        self.lead_s = LEAD_S
        """The time that workers have to hear of the common start."""
        self.over: HasFileno | None = None
        """It is readable once nothing more of a run can come."""
        self._share = 0.0
        """The share of the traffic that has arrived, as it was told last."""
        # now, since ideals that are computed first while traffic runs would take CPU time of it
        self._unqueued_s = max(THRESHOLD_S, QUEUED_RTTS * self.ideals.base_rtt_s)
        self._running_faults: FaultTimeline | None = None
        self._kill_ranks: Callable[[str], None] | None = None
        """Ends the ranks of a program on a host, while it runs."""
        self._softnet = SoftnetCounts(dropped=0, squeezed=0)

    def run(self) -> PointOutcome:
        """Every repeat, until one fails or somebody interrupts. Raises `ScenarioError` where the lab cannot."""
        runs: list[RunOutcome] = []
        idle = self._idle_rtt()
        with contextlib.ExitStack() as stack:
            if isinstance(self.lab, RunningLab):
                stack.callback(set_hash_seeds, self.lab, DEPLOYED)
            for index, one in enumerate(self.traffic, start=1):
                if isinstance(self.lab, RunningLab):
                    set_hash_seeds(self.lab, one.seed)
                runs.append(self._measure(index, one))
                self._tell(Phase.RUN, index, index, len(self.traffic))
                if not runs[-1].goes_on:
                    break
        if idle is not None and runs[-1].goes_on:
            self._judge_idle_rtt(idle, runs)
        return self.with_state(self.outcome(runs, self._approximations()))

    def _approximations(self) -> list[str]:
        return approximations(self.whole, self.scenario)

    def with_state(self, outcome: PointOutcome) -> PointOutcome:
        """Say which state of its file the lab is in: it may have been changed since it was deployed."""
        if self.running is None:
            return outcome
        record = self.running.record
        lab = replace(outcome.result.lab, state=state_of(record.model), revision=record.revision)
        return replace(outcome, result=replace(outcome.result, lab=lab))

    def _idle_rtt(self) -> RttReport | None:
        """Measures the round trip of every class of paths; None for a lab without wires to probe."""
        if not isinstance(self.lab, RunningLab):
            return None
        return measure_rtt(self.lab, probes=IDLE_PROBES)

    def _judge_idle_rtt(self, before: RttReport, runs: Sequence[RunOutcome]) -> None:
        """Measure it again, and add what it says of the machine to the last run that measured anything."""
        last = next((one for one in reversed(runs) if one.result is not None), None)
        if last is not None and last.result is not None and (after := self._idle_rtt()) is not None:
            last.result = replace(last.result, checks=[*last.result.checks, *check_idle_rtt(before, after)])

    def _measure(self, index: int, traffic: RunTraffic) -> RunOutcome:
        started = datetime.now(UTC)
        measured = Measured()
        try:
            if self.scenario.workload.is_program:
                self._run_program(index, traffic, measured)
            elif self.scenario.by_programs:
                self._run_timed(index, traffic, measured)
            else:
                self._run_workers(index, traffic, measured)
        except (FlowFailed, DriverError, LabLeftChanged) as error:
            measured.failure = error
        result = None
        if measured.anything:
            result = self.run_result(index, stamp(started), measured)
            result = replace(result, checks=judge_run(self._evidence(traffic, measured, result)))
            self._keep_samples(index, measured.observation)
        return RunOutcome(result=result, failure=measured.failure, interrupted=measured.interrupted)

    def _keep_samples(self, index: int, seen: Observation) -> None:
        if seen.port_samples is not None and seen.port_table is not None:
            from testbed.run.measuring.port_samples import port_samples

            samples = port_samples(seen.port_samples, seen.port_table, seen.begin_ns)
            keep_samples(self.directory, self.point.name, index, samples)

    def _run_timed(self, index: int, traffic: RunTraffic, measured: Measured) -> None:
        measured.window_s = SAMPLE_S
        watch = FlowWatch(
            interrupt=self.interrupt,
            around=lambda: self.watched(measured, traffic),
            on_listening=lambda count, whole: self._tell(Phase.SERVERS, index, count, whole),
            on_elapsed=lambda elapsed_s, whole_s: self._tell(Phase.TRAFFIC, index, elapsed_s, whole_s),
        )
        transport_on(self.lab, self.scenario.transport).run_timed(self.scenario.workload, traffic, watch, measured)

    def _run_program(self, index: int, traffic: RunTraffic, measured: Measured) -> None:
        from testbed.run.programs.launched import LaunchedProgram, ProgramWatch, launched_on

        workload = self.scenario.workload
        stands = represent(workload, bdp_bytes=bdp_bytes(self.lab, traffic.placement), k=self.lab.plan.k)
        stated = stands.bytes_here is not None
        program = launched_on(
            self.lab,
            lambda lab: LaunchedProgram(
                lab=lab,
                scenario=self.scenario,
                traffic=traffic,
                stands=stands,
                ideal_s=self.ideals.roofline_s(traffic) if stated else None,
            ),
        )
        watch = ProgramWatch(
            interrupt=self.interrupt,
            around=lambda: self.watched(measured, traffic),
            on_warm=lambda: self._judge_machine_from_now(measured),
            on_step=self._on_step,
            on_elapsed=lambda elapsed_s, whole_s: self._tell(Phase.TRAFFIC, index, elapsed_s, whole_s),
        )
        self._kill_ranks = program.kills.kill
        try:
            program.run(watch, measured)
        finally:
            self._kill_ranks = None

    def _lateness(self) -> Lateness | None:
        """Return how late the machine has woken a real-time thread since this was last asked."""
        return None if self.canary is None else self.canary.read()

    def _judge_machine_from_now(self, measured: Measured) -> None:
        """Leave out what a program does before its first steps, such as importing its modules."""
        self._lateness()
        self._softnet = read_softnet()
        if not self.scenario.workload.parameters.get("polls"):  # whose time is known of the whole run alone
            measured.observation.count_cpu_from_now()

    def _on_step(self, step: int, at_ns: int) -> None:
        if self._running_faults is not None:
            self._running_faults.step_done(step, at_ns)

    def _run_workers(self, index: int, traffic: RunTraffic, measured: Measured) -> None:
        options = WorkloadRunOptions(
            seed=traffic.seed,
            lead_s=self.lead_s,
            limit_s=self.scenario.workload.time_limit.seconds,
            interrupt=self.interrupt,
            over=self.over,
            around=lambda: self.watched(measured, traffic),
            on_progress=lambda share: self._tell(Phase.TRAFFIC, index, share, 1.0),
            on_behind=lambda behind: self._tell(Phase.TRAFFIC, index, self._share, 1.0, behind),
        )
        runner = self.workload_runners(self.lab, self.scenario)
        runner.run(traffic.workload, traffic.placement.nics, options, measured)
        if measured.begin_monotonic_ns and measured.observation.elapsed_s:
            end_ns = measured.begin_monotonic_ns + round(measured.elapsed_s * 1e9)
            measured.observation.traffic_ns = (measured.begin_monotonic_ns, end_ns)

    @contextlib.contextmanager
    def watched(self, measured: Measured, traffic: RunTraffic) -> Iterator[None]:
        """Resolves the neighbours of the traffic; then, while it runs, observes the lab, sends probes and does the
        scenario's faults.

        Raises `LabLeftChanged` where a fault could not be undone.
        """
        if isinstance(self.lab, RunningLab):
            nics = traffic.placement.nics
            pairs = ((nics[a], nics[b]) for a, b in fabric_pairs(traffic.workload))
            silent = resolve_next_hops(self.lab.name, next_hops(self.lab.whole.plan, pairs))
            measured.unresolved = [f"{hop.place}: {hop.of}" for hop in silent]
        timeline = self._timeline()
        with contextlib.ExitStack() as stack:
            if timeline is not None:
                stack.callback(measured.keep_faults, timeline)  # once the timeline has been left
                stack.enter_context(timeline)
            probes = self._probes(stack, traffic)
            reset_reactions(self.lab)
            with observe(self.lab, self.whole) as measured.observation:
                if timeline is not None:
                    timeline.begin(measured.observation.begin_ns)
                self._lateness()
                self._softnet = read_softnet()
                if probes is not None:
                    probes.begin(measured.observation.begin_ns)
                self._running_faults = timeline
                try:
                    yield
                finally:
                    self._running_faults = None
                    if timeline is not None:
                        timeline.end()
                    if probes is not None:
                        probes.halt()
                    measured.lateness, measured.softnet = self._lateness(), (self._softnet, read_softnet())
            if probes is not None:
                measured.probes = probes.report(self._unqueued_s + measured.observation.longest_wait_s())
            measured.ports = read_ports(self.lab, measured.observation)
            if self.running is not None:
                seen = measured.observation
                measured.touches = read_touches(self.running, seen.begin_ns, seen.elapsed_s)
        if timeline is not None:
            timeline.require_whole()

    def _timeline(self) -> FaultTimeline | None:
        """The scenario's faults on this lab; None where it has none. Raises `ScenarioError` without a real lab."""
        if not self.scenario.faults:
            return None
        if self.running is None:
            raise ScenarioError("faults need a lab that is really there")
        subnet = None
        if self.running.whole.model.infiniband is not None:
            from testbed.run.faults.subnet import SubnetSite

            subnet = SubnetSite(self.running)
        return FaultTimeline(self.running, self.scenario.faults, kill_worker=self._kill_worker, subnet=subnet)

    def _kill_worker(self, host: str) -> None:
        """Ends the worker of a host at once, or the ranks of a program there. Raises `ScenarioError` where the host has
        none."""
        if self._kill_ranks is not None:
            self._kill_ranks(host)
            return
        if self.scenario.by_programs:
            raise ScenarioError(f"{host} has no worker: the traffic is that of programs such as iperf3")
        self.workload_runners(self.lab, self.scenario).kill(host)

    def _evidence(self, traffic: RunTraffic, measured: Measured, result: RunResult) -> Evidence:
        """Return what the trust checks look at; the base round trip is the shortest of transports in user space."""
        transports = lab_transports(self.scenario, self.lab)
        held = [one for one in transports if one.in_user_space]
        lost = measured.observation.lost_packets
        return Evidence(
            scenario=self.scenario,
            lab=self.lab,
            measured=measured,
            base_rtt_ns=min(one.base_rtt_ns for one in held or transports),
            in_order=channels_in_order(self.scenario, self.lab, traffic, measured.channels, lost=lost),
            congestion_controls=self._congestion_controls(traffic),
            result=result,
        )

    def _congestion_controls(self, traffic: RunTraffic) -> dict[str, str] | None:
        """Return the congestion control of TCP in the hosts of the traffic, by host.

        None where no transport is the kernel's, or the scenario says it.
        """
        some = [transport_on(part.view(self.lab), part.transport) for part in traffic.parts]
        some = some or [transport_on(self.lab, self.scenario.transport)]
        if not any(one.protocol == TCP_PROTOCOL and one.transport.cc is None for one in some):
            return None
        return congestion_controls(self.lab, dict.fromkeys(nic.node for nic in traffic.placement.nics))

    def _probes(self, stack: contextlib.ExitStack, traffic: RunTraffic) -> ProbeTraffic | None:
        """The probes of a run, in the traffic's own class; None where the run has none or the lab no wires."""
        if not isinstance(self.lab, RunningLab):
            return None
        plan = plan_probes(self.scenario, self.lab, traffic, cpus=os.cpu_count() or 1)
        if plan is None:
            return None
        return stack.enter_context(
            ProbeTraffic(
                self.lab.name,
                [replace(flow, tos=self.ideals.dscp_at(flow.source, traffic) << 2) for flow in plan.flows],
                rate_pps=plan.rate_pps,
                train=plan.train,
            )
        )

    def _tell(
        self, phase: Phase, run: int, done: float, total: float, behind: Sequence[RankBehind] | None = None
    ) -> None:
        self._share = done
        self.on_progress(
            Progress(
                phase=phase,
                run=run,
                runs=self.scenario.repeat.runs,
                done=done,
                total=total,
                point=self.point.index,
                message=self.point.name,
                lab=self.whole.name,
                behind=behind,
            )
        )
