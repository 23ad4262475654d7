"""One run on the simulator: programs compiled as for an emulated lab, endpoints made, the clock run to the end."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

from testbed.base.errors import ScenarioError, TestbedError
from testbed.endpoints.sockets import Marking
from testbed.endpoints.worker.domain import Domains
from testbed.endpoints.worker.program import Program
from testbed.lab.observe.port_table import tabulate_ports
from testbed.lab.observe.reconcile import PATIENCE_NS, Reconciliation, reconcile
from testbed.lab.observe.telemetry import take_snapshot
from testbed.protocols.simulation.errors import SimulationError
from testbed.run.emulated.workers import Event, WorkerFailed
from testbed.run.measuring.marking import marking_curves, read_marks
from testbed.run.measuring.measured import Measured, TimeLimitReached
from testbed.run.measuring.observation import Observation
from testbed.run.measuring.reports import put_together, settle_digests
from testbed.run.placed.lab import LiveLab
from testbed.run.placed.placed_workload import DATA_LIMIT_BYTES, PlacedWorkload, choose_checked, compile_programs
from testbed.run.placed.scale_up import scale_up_domains
from testbed.run.placed.traffic import RunTraffic
from testbed.run.schema.model import Fault
from testbed.run.simulated.counters import QueueSampler, count_fabric, count_ports, empty_maps
from testbed.run.simulated.endpoints import ProgramsWatch, SimulatedProgram
from testbed.run.simulated.fabric import TIME_SCALE, Hosts, SimulatedFabric, build_fabric
from testbed.run.simulated.faults import do_faults
from testbed.run.simulated.site import RunSite
from testbed.run.simulated.transport_registry import simulated_transport
from testbed.run.transports.lab_transport import LabTransport

SAMPLES_PER_RTT = 4
"""Samples of each channel's state in a base round trip: as many as an emulated lab has at its usual scale."""
QUEUE_SAMPLES_PER_RTT = 8
SETTLE_RTTS = 4
"""The time for which the last acknowledgements may still be on their way when all is done."""
TOLD_EVERY_S = 0.2


@dataclass(slots=True, kw_only=True)
class SimulatedRun:
    """A run as it was measured, with what the simulator alone knows of it."""

    measured: Measured
    balance: Reconciliation | None = None
    """The balance of the counters of all ports; None without `qos:`."""
    unaccounted: int = 0
    """Datagrams that were sent and are neither delivered, nor on their way, nor counted as lost."""
    sent: int = 0
    hops: int = 0
    """Packets that were put on a line, anywhere."""
    seconds: float = 0.0
    """Seconds of this machine's time, while the clock ran."""


def execute(
    lab: LiveLab,
    transport: LabTransport,
    traffic: RunTraffic,
    *,
    limit_s: float,
    on_progress: Callable[[float], bool],
    faults: tuple[Fault, ...] = (),
    data_limit_bytes: int = DATA_LIMIT_BYTES,
) -> SimulatedRun:
    """Run the traffic of one run. `on_progress` gets the share of bytes that have arrived, and returns whether to stop.

    `limit_s` is in simulated time. What goes wrong with the traffic is told by the result. Raises `ScenarioError` for
    a workload that does not fit the ranks. Collectives carry data as far as `data_limit_bytes` go.
    """
    with without_collector():
        return _Execution(lab, transport, traffic, limit_s, on_progress, data_limit_bytes).run(faults)


class _Execution:
    """One run, step by step."""

    def __init__(
        self,
        lab: LiveLab,
        transport: LabTransport,
        traffic: RunTraffic,
        limit_s: float,
        on_progress: Callable[[float], bool],
        data_limit_bytes: int,
    ) -> None:
        self._lab = lab
        self._transport = transport
        self._simulated = simulated_transport(transport.transport.kind.value)
        self._traffic = traffic
        self._limit_ns = round(limit_s * 1e9)
        self._on_progress = on_progress
        nics = traffic.placement.nics
        self._placement = PlacedWorkload(
            workload=traffic.workload,
            ranks=nics,
            channels=transport.plan_channels(traffic.workload, nics, seed=traffic.seed),
            k=TIME_SCALE,
            seed=traffic.seed,
            domains=scale_up_domains(lab.model, TIME_SCALE),
        )
        self._checked = choose_checked(traffic.workload, data_limit_bytes)
        self._site = RunSite(traffic.seed)
        self._programs: dict[str, SimulatedProgram] = {}
        self._watch = ProgramsWatch(0, self._look)
        self._told_at = time.monotonic()
        self._bytes = 0
        self._seconds = 0.0

    def run(self, faults: tuple[Fault, ...]) -> SimulatedRun:
        plans = self._compile()
        domains = Domains()
        for host, plan in plans.items():
            program = self._programs[host] = SimulatedProgram(plan, self._site, self._watch.on_end, domains)
            program.prepare()
        fabric = self._build(self._simulated.marking_of(next(iter(plans.values())).transport))
        events = do_faults(faults, fabric, self._lab.plan)
        observation = Observation(cpu=None)
        sampler = self._sampler(fabric, observation)
        failure = self._failure() or self._move(fabric, sampler)
        observation.elapsed_s = fabric.network.now / 1e9
        # Who has not ended is stopped before the last packets arrive; who has, counts them.
        stopped = self._report() if self._watch.going else None
        if failure is None and not self._watch.interrupted:
            self._settle(fabric)
        reports = stopped or self._report()
        measured = Measured(
            events=events, observation=observation, interrupted=self._watch.interrupted, failure=failure
        )
        put_together(self._placement, reports, self._checked, self._transport.ideals(), measured)
        run = SimulatedRun(measured=measured)
        self._observe(fabric, sampler, run)
        if measured.complete and self._watch.going:
            left = {host: count for host, count in measured.steps_left.items() if count}
            measured.failure = TimeLimitReached(self._limit_ns / 1e9, left)
        return run

    # --- setting up --------------------------------------------------------------------------------------

    def _compile(self) -> dict[str, Program]:
        transport, placement = self._transport, self._placement
        plans = compile_programs(
            placement,
            self._simulated.settings_of(transport, placement),
            checked=self._checked,
            sample_ns=max(1, transport.base_rtt_ns // SAMPLES_PER_RTT),
        )
        self._watch.going = len(plans)
        self._bytes = sum(
            step.size_bytes
            for plan in plans.values()
            for step in plan.steps
            if step.channel is not None and step.destination in plan.own
        )
        return plans

    def _build(self, marking: Marking) -> SimulatedFabric:
        fabric = build_fabric(
            self._lab,
            list(self._site.endpoints.values()),
            Hosts(make=self._simulated.host, port=self._simulated.port, marking=marking),
            pipeline_ns=self._transport.pipeline_ns,
            seed=self._traffic.seed,
        )
        self._site.network = fabric.network
        for program in self._programs.values():
            for address, completions in program.completions.items():
                host = fabric.network.nics[address]
                host.completions, host.on_completions = completions, program.act
        return fabric

    def _sampler(self, fabric: SimulatedFabric, observation: Observation) -> QueueSampler | None:
        if self._lab.plan.qos is None:
            return None
        observation.table = tabulate_ports(self._lab.plan)
        return QueueSampler(fabric, observation.table, self._transport.base_rtt_ns // QUEUE_SAMPLES_PER_RTT)

    # --- moving ------------------------------------------------------------------------------------------

    def _move(self, fabric: SimulatedFabric, sampler: QueueSampler | None) -> TestbedError | None:
        if sampler is not None:
            sampler.begin()
        for program in self._programs.values():
            program.begin()
        begin = time.perf_counter()
        try:
            fabric.network.run(until=self._limit_ns, stop=self._watch.is_over)
            self._seconds = time.perf_counter() - begin
        except SimulationError as error:
            return ScenarioError(f"the simulation cannot go on: {error}")
        if sampler is not None:
            sampler.end()
        return self._failure()

    def _failure(self) -> TestbedError | None:
        failed = self._watch.failed
        if failed is None:
            return None
        host = next(name for name, program in self._programs.items() if program is failed)
        return WorkerFailed(host, failed.failure)

    def _look(self) -> bool:
        """Show how far the run is, if that is due; whether it is to end here."""
        if time.monotonic() - self._told_at < TOLD_EVERY_S:
            return False
        self._told_at = time.monotonic()
        arrived = sum(program.arrived_bytes for program in self._programs.values())
        return self._on_progress(min(1.0, arrived / self._bytes) if self._bytes else 1.0)

    def _settle(self, fabric: SimulatedFabric) -> None:
        """Let the last acknowledgements arrive, so that nothing is on its way when counters are read."""
        network = fabric.network
        deadline = network.now + SETTLE_RTTS * self._transport.base_rtt_ns
        step = max(1, self._transport.base_rtt_ns // SAMPLES_PER_RTT)
        while network.in_flight() and network.now < deadline:
            network.run(until=network.now + step)

    # --- what is known -----------------------------------------------------------------------------------

    def _report(self) -> dict[str, Event]:
        reports = {host: program.stop() for host, program in self._programs.items()}
        for host, pairs in settle_digests(reports).items():
            reports[host]["wrong"] += self._programs[host].count(pairs)
        return reports

    def _observe(self, fabric: SimulatedFabric, sampler: QueueSampler | None, run: SimulatedRun) -> None:
        """Read all counters, as they are after the last acknowledgement."""
        observation, qos = run.measured.observation, self._lab.plan.tables
        observation.sent = count_ports(fabric, with_drops=qos is None)
        network = fabric.network
        run.hops, run.seconds = network.hops, self._seconds
        run.sent = sum(nic.sent for nic in network.nics.values())
        run.unaccounted = run.sent - network.accounted()
        if qos is None or observation.table is None:
            return
        none, maps = empty_maps(self._lab), count_fabric(fabric, self._lab)
        before, after = take_snapshot(none, now_ns=0), take_snapshot(maps, now_ns=network.now)
        observation.growth = after.since(before)
        observation.samples = None if sampler is None else sampler.samples()
        observation.marking = marking_curves(qos, observation.table, read_marks(none), read_marks(maps))
        # Counters change no more: after one look, all patience is over.
        clock_ns = count(PATIENCE_NS, PATIENCE_NS).__next__
        run.balance = reconcile(maps, observation.table, clock_ns=clock_ns, rest=lambda seconds: None)


@contextmanager
def without_collector() -> Iterator[None]:
    """Keep Python from looking for garbage in circles, which takes a third of the time of a run that makes hardly any.

    What packets and events leave is freed at once; circles wait until the run is over.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
