"""Probes beside the traffic of a simulated run: the packets that an emulated run sends, from the same plan.

Each stream sends one packet after the other from its NIC, in the class of the traffic's data, and whoever gets it takes
it out of the endpoint's way. What became of them is written down as for an emulated run.
"""

from __future__ import annotations

from testbed.lab.core.drivers.nodes.probe_packet import FRAME_BYTES, KEY_BYTES, decode_probe, encode_probe
from testbed.protocols.datagram import Priority
from testbed.protocols.simulation import FabricNetwork, Frame, NicHost
from testbed.run.probes.ledger import ProbeLedger, ProbeReport
from testbed.run.probes.planning import ProbePlan

KEY = bytes(KEY_BYTES)
"""Nobody else sends anything that begins as a probe does."""


class SimulatedProbes:
    """The probes of one run, from `begin` until `end`. Ends that take no part in the run have none."""

    def __init__(self, plan: ProbePlan, network: FabricNetwork) -> None:
        self.sent = 0
        self._plan = plan
        self._network = network
        flows = [
            (flow, str(flow.source.address.ip), str(flow.destination.address.ip))
            for flow in plan.flows
            if flow.source.address is not None and flow.destination.address is not None
        ]
        self._flows = [
            (flow, network.nics[source], network.nics[destination])
            for flow, source, destination in flows
            if source in network.nics and destination in network.nics
        ]
        self._ledger = ProbeLedger([flow.stream for flow, _, _ in self._flows])
        self._interval_ns = round(plan.train * 1e9 / plan.rate_pps)
        self._begin_ns = 0
        self._over = False

    def begin(self, now: int) -> None:
        """Send from now on; streams begin evenly spread over an interval."""
        self._begin_ns = now
        for nic in {nic.address: nic for _, _, nic in self._flows}.values():
            nic.tap = self._take
        for place, (flow, source, destination) in enumerate(self._flows):
            first = now + self._interval_ns * place // len(self._flows)
            self._send_at(first, place, source, destination, flow.source_port)

    def end(self) -> None:
        """Send no more."""
        self._over = True

    def _send_at(self, when: int, place: int, source: NicHost, destination: NicHost, port: int) -> None:
        def send(now: int) -> None:
            if self._over:
                return
            for _ in range(self._plan.train):
                self._send(now, place, source, destination, port)
            self._network.at(now + self._interval_ns, send)

        self._network.at(when, send)

    def _send(self, now: int, place: int, source: NicHost, destination: NicHost, port: int) -> None:
        data = encode_probe(KEY, self._ledger.send(place, now))
        frame = Frame(source.number, destination.number, port, int(Priority.DATA), data)
        frame.wire_bytes = FRAME_BYTES
        frame.group = source.group_of[destination.number]
        frame.kind += source.kinds
        self.sent += 1
        source.way_of(frame).offer(now, frame, None)

    def _take(self, frame: Frame, now: int) -> bool:
        """Tell whether a frame that has arrived is a probe; what it says is written down."""
        if frame.wire_bytes != FRAME_BYTES:
            return False
        number = decode_probe(KEY, frame.data)
        if number is None:
            return False
        self._ledger.receive(number, now)
        return True

    def report(self, threshold_s: float) -> ProbeReport:
        """Return what arrived, and what did not within `threshold_s`."""
        return self._ledger.report(
            threshold_ns=round(threshold_s * 1e9),
            begin_ns=self._begin_ns,
            rate_pps=self._plan.rate_pps,
            train=self._plan.train,
        )
