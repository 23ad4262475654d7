"""The kernel's TCP: workers' connections, or iperf3 for a duration."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.run.transports.lab_transport import TCP_PROTOCOL, LabTransport
from testbed.workload.oracles.serialisation import Framing, tcp_framing

if TYPE_CHECKING:  # what moves the bytes is imported when they are to be moved: a transport is looked at more often
    from testbed.endpoints.worker.program import Settings
    from testbed.run.measuring.measured import Measured
    from testbed.run.placed.placed_workload import PlacedWorkload
    from testbed.run.placed.traffic import RunTraffic
    from testbed.run.programs.timed_flows import FlowWatch
    from testbed.run.schema.model import Workload


class Tcp(LabTransport):
    """TCP has no options beyond its congestion control, and sends in the default class unless told otherwise."""

    protocol: ClassVar[int] = TCP_PROTOCOL
    of_links_alone: ClassVar[bool] = True
    by_default_lossless: ClassVar[bool] = False

    def framing(self, nic: PortPlan) -> Framing:
        return tcp_framing(nic.mtu_bytes)

    def worker_settings(self, placement: PlacedWorkload) -> Callable[[str], Settings]:
        from testbed.endpoints.worker.transports.tcp import TcpSettings

        settings = TcpSettings(congestion_control=self.transport.cc, tos=self.tos)
        return lambda host: settings

    def approximations(self) -> list[str]:
        cc = self.transport.cc or self.lab_congestion_control
        return [
            f"Transport is the kernel's TCP ({cc}) in lab time: its timers (200 ms minimum RTO, delayed"
            " acknowledgements) are not scaled, and it stands in for RDMA, which has other loss recovery."
        ]

    def run_timed(self, workload: Workload, traffic: RunTraffic, watch: FlowWatch, measured: Measured) -> None:
        from testbed.run.programs.iperf3 import IperfResult, IperfTraffic, channel_of, plan_flows
        from testbed.run.programs.timed_flows import WARM_UP_S, require_flows

        assert workload.duration is not None
        flows = plan_flows(traffic.workload, traffic.placement, seed=traffic.seed)
        require_flows(flows)
        found = IperfResult()
        generator = IperfTraffic(
            lab=self.lab, duration=workload.duration, tos=self.tos, watch=watch, transport=self.transport
        )
        try:
            generator.run(flows, found)
        finally:
            measured.interrupted = found.interrupted
            measured.channels = [
                channel_of(
                    item.flow,
                    item.report,
                    ideal_bps=self.goodput_bps(item.flow.source, item.flow.destination),
                    measured_from_s=item.started_s + WARM_UP_S,
                )
                for item in found.measurements
            ]
            measured.flow_starts_s = [item.started_s for item in found.measurements]


TRANSPORT = Tcp
