"""One run on the simulator: programs compiled as for an emulated lab, endpoints made, the clock run to the end."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

import numpy as np

from testbed.base.errors import ScenarioError, TestbedError
from testbed.endpoints.worker.domain import Domains
from testbed.endpoints.worker.program import Program
from testbed.lab.features.scale_up.counters.balance import PlaneBalance
from testbed.lab.observe.port_table import tabulate_ports
from testbed.lab.observe.reconcile import PATIENCE_NS, Reconciliation, reconcile
from testbed.protocols.simulation.errors import SimulationError
from testbed.protocols.simulation.events import Ended
from testbed.run.emulated.workers import Event, WorkerFailed
from testbed.run.measuring.marking import marking_curves
from testbed.run.measuring.measured import Measured, TimeLimitReached
from testbed.run.measuring.mixed_parts import CarriedPart, MixedParts
from testbed.run.measuring.observation import Observation, full_queue_s
from testbed.run.measuring.reports import put_together, settle_digests
from testbed.run.placed.channels import ChannelPlan
from testbed.run.placed.lab import LiveLab
from testbed.run.placed.placed_workload import DATA_LIMIT_BYTES, PlacedWorkload, choose_checked, compile_programs
from testbed.run.placed.traffic import RunTraffic
from testbed.run.placed.traffic_parts import TrafficPart, split_traffic
from testbed.run.scale_up.domains import carried_domains
from testbed.run.scale_up.simulated import SimulatedDomains
from testbed.run.simulated.beside import NOTHING_BESIDE, Beside, Happening
from testbed.run.simulated.counters import QueueSampler, count_fabric, count_ports, counted_since
from testbed.run.simulated.endpoints import ProgramsWatch, SimulatedProgram
from testbed.run.simulated.fabric import Hosts, SimulatedFabric, build_fabric
from testbed.run.simulated.site import RunSite
from testbed.run.simulated.time_scale import REAL_TIME
from testbed.run.simulated.transport_registry import SimulatedTransport, simulated_transport
from testbed.run.transports.lab_transport import LabTransport, address_of
from testbed.run.transports.registry import transport_on

SAMPLES_PER_RTT = 4
"""Samples of each channel's state in a base round trip: as many as an emulated lab has at its usual scale."""
SAMPLE_NS = 25_000_000
"""The time between two of them in a run at the lab's scale: as an emulated lab has it."""
FIRST_NS = 1
"""When ends of scale-up links begin: 0 is no time to them."""
SET_UP_NS = 60_000_000_000
"""In so long all ends must have found each other."""
QUEUE_SAMPLES_PER_RTT = 8
SETTLE_RTTS = 4
"""The time for which the last acknowledgements may still be on their way when all is done."""
QUEUED_RTTS = 8
"""So many times longer it may take until all queues are empty."""
TOLD_EVERY_S = 0.2
_ON_LOSS = "a fault may have taken its last path: `until:` ends a fault"


@dataclass(slots=True, kw_only=True)
class SimulatedRun:
    """A run as it was measured, with what the simulator alone knows of it."""

    measured: Measured
    balance: Reconciliation | None = None
    """The balance of the counters of all ports; None without `qos:`."""
    planes: PlaneBalance | None = None
    """The balance of the counters of scale-up domains; None where no packets went over their links."""
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
    beside: Beside = NOTHING_BESIDE,
    data_limit_bytes: int = DATA_LIMIT_BYTES,
) -> SimulatedRun:
    """Run the traffic of one run. `on_progress` gets the share of bytes that have arrived, and returns whether to stop.

    `limit_s` is in simulated time, from the begin of the traffic. What goes wrong with the traffic is told by the
    result. Raises `ScenarioError` for a workload that does not fit the ranks. Collectives carry data as far as
    `data_limit_bytes` go.
    """
    with without_collector():
        return Execution(lab, transport, traffic, limit_s, on_progress, data_limit_bytes).run(beside)


class Execution:
    """One run, step by step."""

    def __init__(
        self,
        lab: LiveLab,
        transport: LabTransport,
        traffic: RunTraffic,
        limit_s: float,
        on_progress: Callable[[float], bool],
        data_limit_bytes: int = DATA_LIMIT_BYTES,
    ) -> None:
        self._lab = lab
        self._transport = transport
        self._traffic = traffic
        self._limit_ns = round(limit_s * 1e9)
        self._on_progress = on_progress
        self._carried = self._carry()
        self._mixed = MixedParts(traffic.workload, traffic.placement.nics, self._carried)
        self._placement = self._mixed.placement
        self._base_rtt_ns = max(one.transport.base_rtt_ns for one in self._carried)
        self._checked = choose_checked(traffic.workload, data_limit_bytes)
        self._site = RunSite(traffic.seed)
        self._domains = SimulatedDomains(lab.whole, self._site)
        self._begin_ns = 0
        """When the traffic began: at once, but where ends have to find each other before."""
        self._programs: dict[str, SimulatedProgram] = {}
        self._watch = ProgramsWatch(0, self._look)
        self._told_at = time.monotonic()
        self._bytes = 0
        self._seconds = 0.0
        self._on_loss: str | None = None

    def run(self, beside: Beside) -> SimulatedRun:
        try:
            return self._run(beside)
        finally:
            for program in self._programs.values():
                program.close()
            self._domains.close()

    def _run(self, beside: Beside) -> SimulatedRun:
        self._on_loss = _ON_LOSS if beside.faults else None
        plans = self._compile()
        domains = Domains(self._domains)
        for host, plan in plans.items():
            program = self._programs[host] = SimulatedProgram(plan, self._site, self._watch.on_end, domains)
            program.prepare()
        fabric = self._build(plans)
        failure = self._failure() or self._set_up(fabric)
        observation = Observation(cpu=None, begin_ns=self._begin_ns, full_queue_s=full_queue_s(self._lab.plan))
        sampler = self._sampler(fabric, observation)
        happening = self._happening(beside, fabric)
        failure = failure or self._move(fabric, sampler, happening)
        observation.elapsed_s = (fabric.network.now - self._begin_ns) / 1e9
        happening.end()
        # Who has not ended is stopped before the last packets arrive; who has, counts them.
        stopped = self._report() if self._watch.going else None
        if failure is None and not self._watch.interrupted and stopped is None:
            self._settle(fabric)
        reports = stopped or self._report()
        measured = Measured(observation=observation, interrupted=self._watch.interrupted, failure=failure)
        self._put_together(reports, measured)
        run = SimulatedRun(measured=measured)
        self._observe(fabric, sampler, run)
        happening.tell(measured)
        run.sent += happening.probes_sent
        run.unaccounted += happening.probes_sent
        if measured.complete and self._watch.going:
            measured.failure = self._time_over(measured)
        return run

    # --- what other runs do otherwise --------------------------------------------------------------------

    def _plan_channels(self) -> ChannelPlan:
        """Return the channels of the run."""
        return self._transport.plan_channels(
            self._traffic.workload, self._traffic.placement.nics, seed=self._traffic.seed
        )

    def _carry(self) -> tuple[CarriedPart, ...]:
        """Return the parts of the traffic with the transports that carry them, each with channels of its own."""
        nics, seed = self._traffic.placement.nics, self._traffic.seed
        if not self._traffic.parts:
            [part] = split_traffic(self._lab, self._traffic.workload, nics, self._transport.transport)
            return (self._carried_part(part, self._transport, self._plan_channels()),)
        found = []
        for part in self._traffic.parts:
            transport = transport_on(part.view(self._lab), part.transport)
            channels = transport.plan_channels(part.workload, nics, seed=seed)
            found.append(self._carried_part(part, transport, channels))
        return tuple(found)

    def _carried_part(self, part: TrafficPart, transport: LabTransport, channels: ChannelPlan) -> CarriedPart:
        lab, traffic = self._lab, self._traffic
        placement = PlacedWorkload(
            workload=part.workload,
            ranks=traffic.placement.nics,
            channels=channels,
            k=lab.plan.k,
            seed=traffic.seed,
            domains=carried_domains(lab.model, lab.plan, part.transport, lab.plan.k),
        )
        return CarriedPart(part=part, transport=transport, placement=placement)

    def _put_together(self, reports: Mapping[str, Event], measured: Measured) -> None:
        """Put what hosts have reported into what was measured."""
        put_together(self._placement, reports, self._checked, self._mixed.ideals(), measured)

    def _time_over(self, measured: Measured) -> TestbedError | None:
        """Return what is wrong with a run whose time was over before its steps were."""
        left = {host: count for host, count in measured.steps_left.items() if count}
        return TimeLimitReached(self._limit_ns / 1e9, left)

    def _share(self) -> float:
        """Return how far the run is, of 1."""
        arrived = sum(program.arrived_bytes for program in self._programs.values())
        return arrived / self._bytes if self._bytes else 1.0

    # --- setting up --------------------------------------------------------------------------------------

    def _compile(self) -> dict[str, Program]:
        nics = self._traffic.placement.nics
        plans = compile_programs(
            self._placement,
            self._mixed.settings(lambda one: _simulated(one).settings_of(one.transport, one.placement)),
            pulled=lambda step: self._mixed.transport(step.source).pulls(step, nics),
            checked=self._checked,
            sample_ns=self._sample_ns,
        )
        self._watch.going = len(plans)
        self._bytes = sum(
            step.size_bytes
            for plan in plans.values()
            for step in plan.steps
            if step.channel is not None and step.destination in plan.own
        )
        of_rings = (ring for plan in plans.values() for ring in plan.rings if ring.incoming is not None)
        self._bytes += sum(ring.rounds * sum(ring.sizes) for ring in of_rings)
        return plans

    def _build(self, plans: Mapping[str, Program]) -> SimulatedFabric:
        """Return the network, which the endpoints of programs are in from now on."""
        fabric = self._build_network(plans)
        self._site.network = fabric.network
        for running in self._programs.values():
            for address, completions in running.completions.items():
                host = fabric.network.nics[address]
                host.completions, host.on_completions = completions, running.act
        return fabric

    def _build_network(self, plans: Mapping[str, Program]) -> SimulatedFabric:
        workers = self._mixed.workers()
        hosts = []
        for one in self._carried:
            plan = next((plan for name, plan in plans.items() if workers[name][1] is one), None)
            if plan is not None:
                hosts.append(self._hosts_of(one, plan))
        return build_fabric(
            self._lab,
            list(self._site.endpoints.values()),
            hosts,
            placed=self._traffic.placement.nics,
            seed=self._traffic.seed,
        )

    def _hosts_of(self, one: CarriedPart, program: Program) -> Hosts:
        """Return the hosts of a part, of which this is the program of one."""
        simulated = _simulated(one)
        nics = self._traffic.placement.nics
        return Hosts(
            make=simulated.host,
            port=simulated.port,
            marking=simulated.marking_of(program.transport),
            pipeline_ns=one.transport.pipeline_ns,
            addresses=frozenset(address_of(nics[rank]) for rank in one.part.ranks) if one.part.name else None,
        )

    @property
    def _sample_ns(self) -> int:
        """The time between two samples of each channel's state: that of an emulated lab at the lab's scale."""
        return max(1, self._base_rtt_ns // SAMPLES_PER_RTT) if self._lab.plan.k == REAL_TIME else SAMPLE_NS

    def _happening(self, beside: Beside, fabric: SimulatedFabric) -> Happening:
        return Happening(beside, fabric, self._lab, self._domains, seed=self._traffic.seed, begin_ns=self._begin_ns)

    def _sampler(self, fabric: SimulatedFabric, observation: Observation) -> QueueSampler | None:
        if self._lab.plan.qos is None:
            return None
        observation.table = tabulate_ports(self._lab.plan)
        return QueueSampler(fabric, observation.table, self._base_rtt_ns // QUEUE_SAMPLES_PER_RTT)

    # --- moving ------------------------------------------------------------------------------------------

    def _set_up(self, fabric: SimulatedFabric) -> TestbedError | None:
        """Have all programs reach whom they are to reach, so that they can begin together."""
        network, programs = fabric.network, self._programs.values()
        try:
            if self._placement.domains.packets is not None:
                network.run(until=FIRST_NS)
            for program in programs:
                program.set_up()
            if not all(program.ready for program in programs):
                network.run(
                    until=SET_UP_NS,
                    stop=lambda: self._watch.failed is not None or all(program.ready for program in programs),
                )
        except SimulationError as error:
            return ScenarioError(f"the simulation cannot go on: {error}")
        self._begin_ns = network.now
        late = [host for host, program in self._programs.items() if not program.ready]
        if late and self._watch.failed is None:
            return WorkerFailed(late[0], f"it is not ready after {SET_UP_NS / 1e9:.0f} s")
        return self._failure()

    def _move(self, fabric: SimulatedFabric, sampler: QueueSampler | None, happening: Happening) -> TestbedError | None:
        if sampler is not None:
            sampler.begin()
        self._domains.begin_counting()
        happening.begin()
        for program in self._programs.values():
            program.begin(self._begin_ns)
        begin = time.perf_counter()
        try:
            fabric.network.run(until=self._begin_ns + self._limit_ns, stop=self._is_over)
            self._seconds = time.perf_counter() - begin
        except SimulationError as error:
            return ScenarioError(f"the simulation cannot go on: {error}")
        if sampler is not None:
            sampler.end()
        return self._failure()

    def _is_over(self) -> bool:
        """Tell whether the traffic is at its end, or can be none any more."""
        return self._watch.is_over()

    def _failure(self) -> TestbedError | None:
        failed = self._watch.failed
        if failed is None:
            return None
        host = next(name for name, program in self._programs.items() if program is failed)
        return WorkerFailed(host, failed.failure, on_loss=self._on_loss)

    def _look(self) -> bool:
        """Show how far the run is, if that is due; whether it is to end here."""
        if time.monotonic() - self._told_at < TOLD_EVERY_S:
            return False
        self._told_at = time.monotonic()
        return self._on_progress(min(1.0, self._share()))

    def _settle(self, fabric: SimulatedFabric) -> None:
        """Let the last acknowledgements arrive, so that nothing is on its way when counters are read."""
        network = fabric.network
        deadline = network.now + SETTLE_RTTS * self._base_rtt_ns
        step = max(1, self._base_rtt_ns // SAMPLES_PER_RTT)
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
        observation.networks = self._lab.model.network_names
        observation.scale_up, run.planes = self._domains.readings(), self._domains.balance()
        observation.sent = count_ports(fabric, () if qos is None else self._lab.plan.port_numbers)
        network = fabric.network
        run.hops, run.seconds = network.hops, self._seconds
        run.sent = sum(nic.sent for nic in network.nics.values())
        run.unaccounted = run.sent - network.accounted()
        if qos is None or observation.table is None:
            self._drain(fabric, run)
            return
        maps = count_fabric(fabric, self._lab)
        observation.growth = counted_since(self._begin_ns, maps, network.now)
        observation.samples = None if sampler is None else sampler.samples()
        marks = maps.by_port("curves")
        observation.marking = marking_curves(qos, observation.table, np.zeros_like(marks), marks)
        if self._drain(fabric, run):
            maps = count_fabric(fabric, self._lab)
        # Counters change no more: after one look, all patience is over.
        clock_ns = count(PATIENCE_NS, PATIENCE_NS).__next__
        run.balance = reconcile(maps, observation.table, clock_ns=clock_ns, rest=lambda seconds: None)

    def _drain(self, fabric: SimulatedFabric, run: SimulatedRun) -> bool:
        """Have all that still waits arrive, once counters of the traffic are read: a queue may have seconds of packets,
        probes and the last data among them. Return whether there was anything, and the run came to its end."""
        network = fabric.network
        left, since = network.in_flight(), network.now
        if not left or not run.measured.complete:
            return False
        for nic in network.nics.values():  # whoever goes on, as flows do that last for a time, is silenced
            nic.kill()
        patience_ns = QUEUED_RTTS * SETTLE_RTTS * self._base_rtt_ns
        while left and network.now - since < patience_ns:
            if network.run(until=network.now + self._base_rtt_ns) is Ended.QUIET:
                break
            still = network.in_flight()
            if still < left:
                left, since = still, network.now
        run.unaccounted = run.sent - network.accounted()  # what was under way has arrived, or is counted as lost
        return True


def _simulated(one: CarriedPart) -> SimulatedTransport:
    return simulated_transport(one.transport.transport.kind.value)


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
