"""Runs a workload whose flows are carried by pairs of programs, iperf3 (TCP) or perftest (RDMA), into the same
channels.

The programs send for a time or, where latency is measured, a number of messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from testbed.errors import ScenarioError
from testbed.model.scenario import Scenario, TransportKind
from testbed.results import Channel
from testbed.scenario.ideals.latency_ideals import all_flows_s, flow_ideal_s
from testbed.scenario.run.flow_processes import SAMPLE_S, WARM_UP_S
from testbed.scenario.run.interrupt import Interrupt
from testbed.scenario.run.lab import LiveLab
from testbed.scenario.run.traffic import RunTraffic
from testbed.scenario.transports import iperf_flows, perftest_flows
from testbed.scenario.transports.iperf_traffic import IperfResult, IperfTraffic
from testbed.scenario.transports.perftest_traffic import PerftestMeasurement, PerftestResult, PerftestTraffic
from testbed.scenario.transports.settings import TransportSettings
from testbed.workload.oracles.serialisation import Framing


@dataclass(slots=True)
class TimedResult:
    """What the flows of one run measured; it is filled whatever happens to them."""

    channels: list[Channel] = field(default_factory=list)
    starts_s: list[float] | None = None
    """When each flow began, where they are to run together; None where they run one after the other."""
    interrupted: bool = False
    window_s: float = SAMPLE_S
    polling_s: float = 0.0
    """The CPU time of programs that look for work without a pause, and give way to all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedFlows:
    """Runs the flows of a workload as pairs of programs, and tells how far they are.

    `dscp` marks their packets, `framing` is what a packet takes on the wire. `around` is entered while flows send.
    """

    lab: LiveLab
    scenario: Scenario
    dscp: int
    framing: Framing
    interrupt: Interrupt
    around: Callable[[], AbstractContextManager[None]]
    on_listening: Callable[[int, int], None]
    """It gets how many servers listen, and how many will."""
    on_elapsed: Callable[[float, float], None]
    """It gets how many seconds have passed, and how many will."""

    def run(self, traffic: RunTraffic, result: TimedResult) -> None:
        """Runs all flows at once. Raises `FlowFailed`, and `ScenarioError` where there is nothing to send or a NIC
        cannot.
        """
        if self.scenario.transport.kind is TransportKind.RDMA:
            self._run_perftest(traffic, result)
        else:
            self._run_iperf(traffic, result)

    def _run_iperf(self, traffic: RunTraffic, result: TimedResult) -> None:
        assert self.scenario.workload.duration is not None
        flows = iperf_flows.plan_flows(traffic.workload, traffic.placement, seed=traffic.seed)
        _require_any(flows)
        found = IperfResult()
        generator = IperfTraffic(
            lab=self.lab,
            transport=self.scenario.transport,
            duration=self.scenario.workload.duration,
            tos=self.dscp << 2,
            interrupt=self.interrupt,
            around=self.around,
            on_listening=self.on_listening,
            on_elapsed=self.on_elapsed,
        )
        try:
            generator.run(flows, found)
        finally:
            result.interrupted = found.interrupted
            result.channels = [
                iperf_flows.channel_of(item.flow, item.report, measured_from_s=item.started_s + WARM_UP_S)
                for item in found.measurements
            ]
            result.starts_s = [item.started_s for item in found.measurements]

    def _run_perftest(self, traffic: RunTraffic, result: TimedResult) -> None:
        scenario, latency = self.scenario, self.scenario.transport.measures_latency
        duration = scenario.workload.time_limit if latency else scenario.workload.duration
        assert duration is not None
        options = scenario.transport.options
        flows = perftest_flows.plan_perftest_flows(
            traffic.workload, traffic.placement, seed=traffic.seed, options=options
        )
        _require_any(flows)
        settings = TransportSettings(self.lab, scenario.transport)
        ideal_s = {flow.id: flow_ideal_s(settings, flow) for flow in flows} if latency else {}
        found = PerftestResult()
        generator = PerftestTraffic(
            lab=self.lab,
            devices=perftest_flows.devices_of(self.lab.plan, traffic.placement.nics),
            options=options,
            duration=duration,
            tos=settings.traffic_class,
            framing=self.framing,
            expected_s=all_flows_s(flows, ideal_s, options) if latency else 0.0,
            interrupt=self.interrupt,
            around=self.around,
            on_listening=self.on_listening,
            on_elapsed=self.on_elapsed,
        )
        try:
            generator.run(flows, found)
        finally:
            result.interrupted, result.polling_s = found.interrupted, found.polling_s
            result.channels = [
                self._channel(item, found, duration_s=duration.seconds, ideal_s=ideal_s) for item in found.measurements
            ]
            if not latency or options.get("together"):
                result.starts_s = [item.started_s for item in found.measurements]

    def _channel(
        self, item: PerftestMeasurement, found: PerftestResult, *, duration_s: float, ideal_s: Mapping[int, float]
    ) -> Channel:
        counters = found.counters.get(item.flow.id, {})
        if item.bandwidth is None:
            return perftest_flows.latency_channel_of(
                item.flow, item.latencies_us, ideal_s=ideal_s[item.flow.id], framing=self.framing, counters=counters
            )
        return perftest_flows.channel_of(
            item.flow,
            item.bandwidth,
            framing=self.framing,
            samples=found.samples.get(item.flow.id),
            duration_s=duration_s,
            counters=counters,
        )


def _require_any(flows: tuple[object, ...]) -> None:
    if not flows:
        raise ScenarioError("this workload sends nothing over the fabric")
