"""Running a scenario against a live lab: runs, their measurements, one record.

The lab comes from the caller, who also writes the record and removes the lab. What ends a scenario
early (Ctrl-C, a failed flow) still leaves a record of what was measured, marked incomplete.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from testbed.collect.cpu import CpuUse, cpu_use, read_cpu_times
from testbed.collect.environment import collect_environment
from testbed.errors import DriverError, ScenarioError, TestbedError
from testbed.model import LinkKind, Role
from testbed.model.counters import PortCounters
from testbed.model.scenario import Scenario
from testbed.plan.operations import PortPlan
from testbed.results import FlowEnd, FlowResult, Record, RunResult, Samples, UplinkLoad
from testbed.scenario.approximations import approximations
from testbed.scenario.as_run import lab_summary, scenario_as_run
from testbed.scenario.interrupt import Interrupt
from testbed.scenario.lab import LiveLab
from testbed.scenario.metrics import compute_metrics, ideal_goodput_bps, ideal_metrics, summarise_metrics
from testbed.scenario.permutation import Transfer, plan_permutation
from testbed.scenario.port_trust import PortFindings, watch_ports
from testbed.scenario.progress import Phase, Progress, ProgressListener, ignore_progress
from testbed.scenario.tcp_traffic import FlowFailed, Measurement, Traffic, TrafficResult
from testbed.scenario.verdict import check_run, decide_verdict, evaluate_expectations


class ScenarioStopped(ScenarioError):
    """A scenario failed on the way. `record` has what was measured until then, marked incomplete."""

    exit_code = 2  # its verdict is invalid: it cannot say

    def __init__(self, cause: TestbedError, record: Record) -> None:
        super().__init__(cause.message, hint=cause.hint)
        self.record = record


def run_scenario(
    scenario: Scenario,
    lab: LiveLab,
    *,
    on_progress: ProgressListener = ignore_progress,
    command: Sequence[str] = (),
) -> Record:
    """Run every repeat and judge the whole. `command` is what repeats it, for the report.

    An interrupt returns a record whose `incomplete` says so. Raises `ScenarioStopped` (with the record)
    when a flow fails or the lab breaks, and `ScenarioError` when this lab cannot carry the workload at all.
    """
    planned = [
        plan_permutation(lab.model, lab.plan, scope=scenario.workload.scope, seed=seed)
        for seed in scenario.repeat.seeds
    ]
    uplinks = rail_uplinks(lab)
    started = datetime.now(UTC)
    runs: list[RunResult] = []
    incomplete = ""
    failure: TestbedError | None = None
    with Interrupt() as interrupt:
        for index, transfers in enumerate(planned, start=1):
            run = _Run(
                scenario=scenario,
                lab=lab,
                uplinks=uplinks,
                interrupt=interrupt,
                index=index,
                transfers=transfers,
                on_progress=on_progress,
            )
            result, failure = run.measure()
            if result.flows:
                runs.append(result)
            if failure is not None:
                incomplete = failure.message
            elif interrupt.requested and (not result.complete or index < len(planned)):
                incomplete = f"interrupted in run {index} of {len(planned)}"
            if incomplete:
                break
    counts: dict[str, int] = {}
    for port in uplinks:
        counts[port.node] = counts.get(port.node, 0) + 1
    metrics = summarise_metrics(runs, ideal_metrics(planned[0], counts))
    expectations = evaluate_expectations(scenario.expect, metrics)
    record = Record(
        scenario=scenario_as_run(scenario),
        lab=lab_summary(lab),
        environment=collect_environment(approximations(lab, scenario)),
        started=_stamp(started),
        finished=_stamp(datetime.now(UTC)),
        incomplete=incomplete,
        runs=runs,
        metrics=metrics,
        expectations=expectations,
        verdict=decide_verdict(runs, expectations, incomplete=incomplete),
        command=list(command),
    )
    if failure is not None:
        raise ScenarioStopped(failure, record) from failure
    return record


def rail_uplinks(lab: LiveLab) -> tuple[PortPlan, ...]:
    """The ports by which rail switches reach the tier above, in the model's order."""
    ports = {(port.node, port.name): port for port in lab.plan.ports}
    rail_switches = {node.name for node in lab.model.switches if node.role is Role.RAIL}
    ends = [link.a for link in lab.model.links if link.kind is LinkKind.FABRIC and link.a.node in rail_switches]
    return tuple(ports[end.node, end.interface] for end in ends)


@dataclass(slots=True)
class _Window:
    """What was read around the traffic."""

    before: Mapping[tuple[str, str], PortCounters]
    after: Mapping[tuple[str, str], PortCounters]
    cpu: CpuUse
    elapsed_s: float
    ports: PortFindings = field(default_factory=PortFindings)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """One repeat."""

    scenario: Scenario
    lab: LiveLab
    uplinks: Sequence[PortPlan]
    interrupt: Interrupt
    index: int
    transfers: Sequence[Transfer]
    on_progress: ProgressListener

    def measure(self) -> tuple[RunResult, TestbedError | None]:
        """Run the traffic. A flow that fails, or a lab that goes away, is returned beside what was measured."""
        started = datetime.now(UTC)
        window = _Window({}, {}, CpuUse(busy=0.0, steal=0.0, softirq=0.0), 0.0)
        result = TrafficResult()
        failure: TestbedError | None = None
        traffic = Traffic(
            lab=self.lab,
            transport=self.scenario.transport,
            workload=self.scenario.workload,
            interrupt=self.interrupt,
            around=lambda: self._watched(window),
            on_listening=lambda count: self._tell(Phase.SERVERS, count, len(self.transfers)),
            on_elapsed=lambda elapsed: self._tell(Phase.TRAFFIC, elapsed, traffic.planned_s),
        )
        try:
            traffic.run(self.transfers, result)
        except (FlowFailed, DriverError) as error:
            failure = error
        self._tell(Phase.RUN, self.index, self.scenario.repeat.runs)
        flows = [flow_result(measurement) for measurement in result.measurements]
        loads = [_load(port, window) for port in self.uplinks]
        run = RunResult(
            index=self.index,
            seed=self.scenario.repeat.seeds[self.index - 1],
            started=_stamp(started),
            elapsed_s=window.elapsed_s,
            flows=flows,
            uplinks=loads,
            metrics=compute_metrics(flows, loads, window.cpu),
            checks=[*check_run(window.cpu, flows), *window.ports.checks],
            complete=failure is None and not result.interrupted,
        )
        return run, failure

    @contextlib.contextmanager
    def _watched(self, window: _Window) -> Iterator[None]:
        with watch_ports(self.lab) as window.ports:
            window.before, cpu, begin = self.lab.counters(), read_cpu_times(), time.monotonic()
            try:
                yield
            finally:
                window.elapsed_s = time.monotonic() - begin
                window.cpu = cpu_use(cpu, read_cpu_times())
                window.after = self.lab.counters()

    def _tell(self, phase: Phase, done: float, total: float) -> None:
        self.on_progress(Progress(phase=phase, run=self.index, runs=self.scenario.repeat.runs, done=done, total=total))


def flow_result(measurement: Measurement) -> FlowResult:
    """A sender's report as the record keeps it. An interrupted flow counts what it had sent."""
    transfer, report = measurement.transfer, measurement.report
    if report.received_bytes is None:
        payload, seconds = report.sent_bytes, report.sent_s
    else:
        payload, seconds = report.received_bytes, report.received_s
    ideal = ideal_goodput_bps(transfer)
    goodput = payload * 8 / seconds if seconds > 0 else 0.0
    samples = report.samples
    return FlowResult(
        id=transfer.id,
        source=_end(transfer.source),
        destination=_end(transfer.destination),
        rail=transfer.source.rail,
        source_port=transfer.source_port,
        destination_port=transfer.destination_port,
        ideal_bps=ideal,
        sent_bytes=report.sent_bytes,
        received_bytes=report.received_bytes,
        seconds=seconds,
        goodput_bps=goodput,
        share=goodput / ideal,
        retransmits=report.retransmits,
        mss_bytes=report.mss_bytes,
        congestion=report.congestion,
        started_s=measurement.started_s,
        samples=Samples(
            start_s=list(samples.start_s),
            seconds=list(samples.seconds),
            bytes=list(samples.bytes),
            retransmits=list(samples.retransmits),
            cwnd_bytes=list(samples.cwnd_bytes),
            rtt_us=list(samples.rtt_us),
        ),
    )


def _end(nic: PortPlan) -> FlowEnd:
    return FlowEnd(node=nic.node, interface=nic.name, address=str(nic.address.ip) if nic.address else "")


def _load(port: PortPlan, window: _Window) -> UplinkLoad:
    key = (port.node, port.name)
    none = PortCounters()
    sent = window.after.get(key, none).since(window.before.get(key, none))
    capacity = port.rate_bps * window.elapsed_s / 8
    return UplinkLoad(
        switch=port.node,
        interface=port.name,
        peer=port.peer,
        rate_bps=port.rate_bps,
        tx_bytes=sent.tx_bytes,
        tx_dropped=sent.tx_dropped,
        utilisation=sent.tx_bytes / capacity if capacity > 0 else 0.0,
    )


def _stamp(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
