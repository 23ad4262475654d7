"""The kernel's soft RoCEv2 devices (rxe): workers' queue pairs, or perftest for a duration or a number of messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from testbed.base.errors import ScenarioError
from testbed.endpoints.worker.program import Settings
from testbed.endpoints.worker.transports.rdma import RdmaSettings
from testbed.lab.core.drivers.netlink import rdma
from testbed.lab.core.plan.lab_plan import LabPlan, PortPlan
from testbed.lab.core.plan.operations import CreateRdma, InstallPort, ShapePort
from testbed.lab.core.plan.user_space.uet import ETHERNET_BYTES, IPV4_BYTES, UDP_BYTES
from testbed.record.samples import Channel
from testbed.run.measuring.measured import Measured
from testbed.run.placed.lab import LiveLab
from testbed.run.placed.placed_workload import PlacedWorkload
from testbed.run.placed.traffic import RunTraffic
from testbed.run.programs.perftest_flows import (
    PerftestFlow,
    all_flows_s,
    channel_of,
    flow_ideal_s,
    latency_channel_of,
    plan_perftest_flows,
)
from testbed.run.programs.perftest_traffic import PerftestMeasurement, PerftestResult, PerftestTraffic
from testbed.run.programs.timed_flows import FlowWatch, require_flows
from testbed.run.schema.model import Workload
from testbed.run.schema.transport_rules import ROCE_MTUS
from testbed.run.transports.lab_transport import LabTransport
from testbed.workload.oracles.serialisation import Framing

ECT0 = 2
"""ECN-capable transport (RFC 3168)."""
_BTH_BYTES, _RETH_BYTES, _ICRC_BYTES = 12, 16, 4
_RXE_HEADROOM_BYTES = 80
"""rxe takes so much off an interface's MTU before it chooses its own (rxe_param.h, RXE_MAX_HDR_LENGTH)."""


class Rdma(LabTransport):
    """Options are those of perftest's test, and `path_mtu`."""

    workers_own_sysfs: ClassVar[bool] = True
    shares_workers: ClassVar[bool] = False

    @property
    def tos(self) -> int:
        """The TOS byte of its packets: switches mark them (ECT(0), RFC 3168) where they would drop others."""
        return self.dscp << 2 | ECT0

    def check_ranks(self, nics: Sequence[PortPlan]) -> None:
        devices_of(self.lab.plan, nics)

    def framing(self, nic: PortPlan) -> Framing:
        room = int(self.transport.options.get("path_mtu", nic.mtu_bytes))
        room = min(room, nic.mtu_bytes - _RXE_HEADROOM_BYTES)
        payload = next((size for size in ROCE_MTUS if size <= room), ROCE_MTUS[-1])
        below = ETHERNET_BYTES + IPV4_BYTES + UDP_BYTES
        return Framing(payload_bytes=payload, overhead_bytes=below + _BTH_BYTES + _ICRC_BYTES, first_bytes=_RETH_BYTES)

    def worker_settings(self, placement: PlacedWorkload) -> Callable[[str], Settings]:
        return lambda host: RdmaSettings()

    def observe_run(self, ranks: Sequence[PortPlan]) -> Callable[[Measured], None]:
        return RdmaDevices(self.lab, ranks, self.tos).add_to

    def approximations(self) -> list[str]:
        found = [
            "Transport is the kernel's soft RoCEv2 (rxe) in lab time: no congestion control (it neither sends nor heeds"
            " CNPs), go-back-N after a loss, and time-outs that are not scaled."
        ]
        if self.transport.measures_latency:
            shaped = [item for item in self.lab.plan.operations if isinstance(item, ShapePort | InstallPort)]
            burst = max((item.burst_bytes for item in shaped), default=0)
            found.append(
                f"A shaped port that is idle sends a packet and up to {burst:,} bytes at once and waits afterwards"
                " (token bucket): a message that is alone has its links' delays, but lacks as much of the time of being"
                " sent at each port. The machine's own time at every hop is in it instead, and is not scaled."
            )
        return found

    # --- perftest ----------------------------------------------------------------------------------------

    def plan_flows(self, traffic: RunTraffic) -> tuple[PerftestFlow, ...]:
        """Return the flows of a run. Raises `ScenarioError` where the test cannot have such messages."""
        return plan_perftest_flows(
            traffic.workload, traffic.placement, seed=traffic.seed, options=self.transport.options
        )

    def message_ideals_s(self, traffic: RunTraffic) -> Sequence[float]:
        if not self.transport.measures_latency:
            return ()
        return [flow_ideal_s(self, flow) for flow in self.plan_flows(traffic)]

    def expected_latency_s(self, traffic: RunTraffic) -> float:
        flows = self.plan_flows(traffic)
        return self._all_flows_s(flows, {flow.id: flow_ideal_s(self, flow) for flow in flows})

    def _all_flows_s(self, flows: Sequence[PerftestFlow], ideal_s: Mapping[int, float]) -> float:
        return all_flows_s(flows, ideal_s, self.transport.options) if flows else 0.0

    def run_timed(self, workload: Workload, traffic: RunTraffic, watch: FlowWatch, measured: Measured) -> None:
        latency, options = self.transport.measures_latency, self.transport.options
        duration = workload.time_limit if latency else workload.duration
        assert duration is not None
        flows = self.plan_flows(traffic)
        require_flows(flows)
        ideal_s = {flow.id: flow_ideal_s(self, flow) for flow in flows} if latency else {}
        framing = self.framing(min(traffic.placement.nics, key=lambda nic: nic.rate_bps))
        found = PerftestResult()
        generator = PerftestTraffic(
            lab=self.lab,
            duration=duration,
            tos=self.tos,
            watch=watch,
            devices=devices_of(self.lab.plan, traffic.placement.nics),
            options=options,
            framing=framing,
            expected_s=self._all_flows_s(flows, ideal_s) if latency else 0.0,
        )

        def channel(item: PerftestMeasurement) -> Channel:
            counters = found.counters.get(item.flow.id, {})
            if item.bandwidth is None:
                return latency_channel_of(
                    item.flow, item.latencies_us, ideal_s=ideal_s[item.flow.id], framing=framing, counters=counters
                )
            return channel_of(
                item.flow,
                item.bandwidth,
                framing=framing,
                samples=found.samples.get(item.flow.id),
                duration_s=duration.seconds,
                counters=counters,
            )

        try:
            generator.run(flows, found)
        finally:
            measured.interrupted, measured.polling_s = found.interrupted, found.polling_s
            measured.channels = [channel(item) for item in found.measurements]
            if not latency or options.get("together"):
                measured.flow_starts_s = [item.started_s for item in found.measurements]


class RdmaDevices:
    """The RDMA devices of one run's ranks: how their packets are marked, and what they counted.

    Raises `ScenarioError` for a rank that has none, `CapabilityError` and `DriverError` where they cannot be told how
    to mark.
    """

    def __init__(self, lab: LiveLab, ranks: Sequence[PortPlan], tos: int) -> None:
        self._devices = devices_of(lab.plan, ranks)
        rdma.mark_connections(self._devices.values(), tos)
        self._before = {device: rdma.counters(device) for device in self._devices.values()}

    def add_to(self, measured: Measured) -> None:
        """Add what the devices counted since to what was measured.

        They do so for all connections together, so that what was sent again is told at the first channel that begins
        at each. UDP ports are the kernel's secret.
        """
        grown = {
            device: Counter(rdma.counters(device)) - Counter(before)  # nothing of a device that has gone
            for device, before in self._before.items()
        }
        told: set[str] = set()
        channels = []
        for channel in measured.channels:
            device = self._devices[channel.source.node, channel.source.interface]
            first = device not in told
            told.add(device)
            channels.append(
                replace(
                    channel,
                    source_port=None,
                    destination_port=None,
                    retransmits=grown[device]["completer_retry_err"] if first else 0,
                    packets=None,
                )
            )
        counters = {name: float(sum(item[name] for item in grown.values())) for name in rdma.RETRANSMISSIONS}
        measured.channels, measured.counters = channels, measured.counters | counters


def devices_of(plan: LabPlan, nics: Sequence[PortPlan]) -> dict[tuple[str, str], str]:
    """Return the RDMA devices of these NICs by (node, interface). Raises `ScenarioError` for the first without one."""
    known = {(item.node, item.name): item.device for item in plan.operations if isinstance(item, CreateRdma)}
    for nic in nics:
        if (nic.node, nic.name) not in known:
            raise ScenarioError(
                f"transport rdma: {nic.node}:{nic.name} has no RDMA device",
                hint="topology: {set: {fabric.nic.rdma: rxe}}, or rdma: rxe at the host",
            )
    return {(nic.node, nic.name): known[nic.node, nic.name] for nic in nics}


TRANSPORT = Rdma
