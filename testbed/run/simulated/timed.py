"""Flows for a duration on the simulator: they send for as long as the run lasts, and are measured as iperf3 does.

Each has the ports that iperf3's would have, so that the same seed hashes it the same way.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

from testbed.base.errors import ScenarioError, TestbedError
from testbed.base.units import Duration
from testbed.endpoints.worker.curves import MOST_CHANNELS, MOST_SAMPLES
from testbed.endpoints.worker.program import LARGEST_TRANSFER, Channel
from testbed.endpoints.worker.worker import Event
from testbed.run.measuring.measured import Measured
from testbed.run.placed.channels import ChannelPlan
from testbed.run.placed.lab import LiveLab
from testbed.run.placed.traffic import RunTraffic
from testbed.run.programs.iperf3 import Interval, Iperf3Report, IperfFlow, channel_of, plan_flows
from testbed.run.programs.timed_flows import SAMPLE_S, WARM_UP_S, require_flows
from testbed.run.simulated.beside import Beside
from testbed.run.simulated.execution import Execution, SimulatedRun, without_collector
from testbed.run.transports.lab_transport import LabTransport
from testbed.workload.oracles.serialisation import tcp_framing
from testbed.workload.steps import Transfer

TIMED: Final = ("tcp",)
"""The transports whose flows may last for a duration."""
_NS = 1e9


def execute_timed(
    lab: LiveLab,
    transport: LabTransport,
    traffic: RunTraffic,
    duration: Duration,
    *,
    on_progress: Callable[[float], bool],
    beside: Beside,
) -> SimulatedRun:
    """Run flows for a duration of the lab's time, behind a warm-up. `on_progress` as of `execution.execute`.

    Raises `ScenarioError` where there is nothing to send, or more than can be measured.
    """
    flows = plan_flows(traffic.workload, traffic.placement, seed=traffic.seed)
    require_flows(flows)
    require_samples(flows)
    with without_collector():
        return _TimedExecution(lab, transport, traffic, flows, duration, on_progress).run(beside)


def require_samples(flows: Sequence[IperfFlow]) -> None:
    """Raise `ScenarioError` where a host sends more flows than it samples: what they carry is read off samples."""
    [(host, count)] = Counter(flow.source.node for flow in flows).most_common(1)
    if count > MOST_CHANNELS:
        raise ScenarioError(
            f"--backend simulation measures {MOST_CHANNELS} flows of a host for a given time, and {host} sends {count}",
            hint="workload.bytes instead of workload.duration, or a workload of fewer flows",
        )


class _TimedExecution(Execution):
    """A run whose transfers are never at their end."""

    def __init__(
        self,
        lab: LiveLab,
        transport: LabTransport,
        traffic: RunTraffic,
        flows: tuple[IperfFlow, ...],
        duration: Duration,
        on_progress: Callable[[float], bool],
    ) -> None:
        self._flows = flows
        self._duration_s = duration.seconds
        lasts_s = duration.seconds + WARM_UP_S
        self._sample_s = sample_s(lasts_s)
        fastest_bps = max(nic.nic_bps for nic in traffic.placement.nics)
        if lasts_s * fastest_bps / 8 > LARGEST_TRANSFER:
            raise ScenarioError(
                f"a flow of {fastest_bps / 1e9:g} Gbit/s may send more than {LARGEST_TRANSFER} bytes in {lasts_s:g} s",
                hint="a shorter workload.duration, or a larger scale.time",
            )
        endless = min(LARGEST_TRANSFER, int(2 * lasts_s * fastest_bps / 8))
        self._numbers = [step.number for step, *_ in traffic.placement.over_fabric(traffic.workload)]
        steps = tuple(
            replace(step, size_bytes=endless) if isinstance(step, Transfer) else step for step in traffic.workload.steps
        )
        super().__init__(
            lab, transport, replace(traffic, workload=replace(traffic.workload, steps=steps)), lasts_s, on_progress
        )

    @property
    def _sample_ns(self) -> int:
        return round(self._sample_s * _NS)

    def _plan_channels(self) -> ChannelPlan:
        channels = tuple(
            Channel(
                index=index,
                source=flow.source_rank,
                destination=flow.destination_rank,
                source_port=flow.source_port,
                destination_port=flow.destination_port,
            )
            for index, flow in enumerate(self._flows)
        )
        return ChannelPlan(channels=channels, of_step={number: index for index, number in enumerate(self._numbers)})

    def _share(self) -> float:
        network = self._site.network
        return 0.0 if network is None else (network.now - self._begin_ns) / self._limit_ns

    def _time_over(self, measured: Measured) -> TestbedError | None:
        """Find nothing wrong: it is what the run was to last for."""
        return None

    def _put_together(self, reports: Mapping[str, Event], measured: Measured) -> None:
        ends: dict[int, Mapping[str, Any]] = {}
        columns: dict[int, Mapping[str, Any]] = {}
        for report in reports.values():
            ends |= {end["channel"]: end for end in report["channels"] if end["sent_bytes"] is not None}
            columns |= {int(channel): found for channel, found in report["samples"].items()}
        lasted_s = min(self._duration_s, measured.observation.elapsed_s - WARM_UP_S)
        if lasted_s <= 0:
            return
        measured.window_s = self._sample_s
        measured.channels = [
            channel_of(
                flow,
                report_of(flow, columns[index], lasted_s, self._sample_s),
                ideal_bps=self._transport.goodput_bps(flow.source, flow.destination),
                measured_from_s=WARM_UP_S,
            )
            for index, flow in enumerate(self._flows)
            if index in ends
        ]
        measured.flow_starts_s = [0.0] * len(self._flows)


def sample_s(lasts_s: float) -> float:
    """Return the time between two samples of a run: iperf3's, doubled until none of them has to go for others."""
    step_s = SAMPLE_S
    while lasts_s / step_s > MOST_SAMPLES - 2:
        step_s *= 2
    return step_s


def report_of(flow: IperfFlow, columns: Mapping[str, Any], lasted_s: float, step_s: float = SAMPLE_S) -> Iperf3Report:
    """Return a flow's samples as iperf3 reports them: what was acknowledged, interval by interval, behind the warm-up.

    `step_s` lies between two samples. `columns` are those of `endpoints.worker.curves`, which leave out samples at
    which nothing had changed.
    """
    at_ns: list[int] = columns["at_ns"]

    def known(name: str, at_s: float) -> int:
        place = bisect_right(at_ns, round(at_s * _NS))
        return int(columns[name][place - 1]) if place else 0

    steps = max(1, round(lasted_s / step_s))
    edges = [WARM_UP_S + lasted_s * step / steps for step in range(steps + 1)]
    intervals = tuple(
        Interval(
            seconds=round(end - begin, 6),
            bytes=known("acked_bytes", end) - known("acked_bytes", begin),
            retransmits=known("retransmits", end) - known("retransmits", begin),
            cwnd_bytes=known("cwnd_bytes", end),
            rtt_us=known("rtt_us", end),
        )
        for begin, end in pairwise(edges)
    )
    carried = sum(one.bytes for one in intervals)
    return Iperf3Report(
        mss_bytes=tcp_framing(flow.source.mtu_bytes).payload_bytes,
        sent_bytes=carried,
        sent_s=lasted_s,
        received_bytes=carried,
        received_s=lasted_s,
        retransmits=sum(one.retransmits for one in intervals),
        intervals=intervals,
    )
