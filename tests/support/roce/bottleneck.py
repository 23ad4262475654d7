"""Senders with a queue pair each to one receiver, over a simulated switch whose port to it marks by a line (RED).

What a test looks at is sampled: the queue of that port, and what every reaction point has for its rate.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

import numpy as np
import numpy.typing as npt
from dcqcn_fluid import DcqcnFluid, FixedPoint

from testbed.base.datapath.markers import MarkAt
from testbed.base.datapath.traffic_class import ClassPlan
from testbed.protocols.congestion.dcqcn import PARAMETER_SETS, Dcqcn
from testbed.protocols.roce.config import HEADER_BYTES, RoceConfig
from testbed.protocols.roce.memory import Access
from testbed.protocols.roce.packets.opcodes import UDP_PORT
from testbed.protocols.roce.qp import QueuePair
from testbed.protocols.roce.rnic import Rnic
from testbed.protocols.roce.work import RemoteBuffer
from testbed.protocols.simulation import FabricNetwork, FabricPortSettings, LinkSettings, SwitchSettings
from testbed.run.simulated.execution import without_collector
from testbed.run.simulated.transports.roce import RnicHost

MESSAGE_BYTES = 1 << 20
SAMPLE_NS = 20_000
DATA, NOTIFICATIONS = 3, 6
OVERHEAD_BYTES = 42
"""Ethernet, IPv4 and UDP headers: what a port counts beside the payload of a datagram."""
RECEIVER = "10.0.0.1"
RKEY = 7

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Bottleneck:
    """Marks are made as packets leave, so that they tell of the queue as it is then, whatever the wait has been."""

    flows: int
    one_way_ns: int = 2_000
    """The delay of each of the two links between a sender and the receiver."""
    capacity_bps: int = 10_000_000_000
    """The rate of every link."""
    mtu: int = 2048
    curve: tuple[int, int, float] = (20_000, 3_200_000, 0.2)
    """Kmin and Kmax in bytes, Pmax."""
    parameters: str = "paper"
    overrides: dict[str, float] = field(default_factory=dict)
    seed: int = 1

    @property
    def model(self) -> DcqcnFluid:
        """The fluid model of these flows, of parameters that it knows."""
        return DcqcnFluid.of(
            replace(PARAMETER_SETS[self.parameters], **self.overrides),
            flows=self.flows,
            capacity_bps=self.capacity_bps,
            packet_bytes=self.mtu + HEADER_BYTES,
            curve=self.curve,
        )

    @property
    def feedback_s(self) -> float:
        """tau*: a mark's way to the receiver, the CNP's to the sender, and that of the next packet to the switch; and
        two full packets' time on a line."""
        return (4 * self.one_way_ns + 2 * 8e9 * (self.mtu + HEADER_BYTES) / self.capacity_bps) / 1e9

    def run(self, seconds: float, *, begin_at: FixedPoint | None = None) -> Measured:
        """Send all the time. `begin_at`: as if all flows had been there for long; else each begins at line rate."""
        config = RoceConfig(
            link_rate_bps=self.capacity_bps,
            base_rtt_ns=4 * self.one_way_ns + 10_000,
            mtu=self.mtu,
            cc="dcqcn",
            parameters=self.parameters,
            cc_parameters=self.overrides,
            timeout=20,
        )
        addresses = [RECEIVER, *(f"10.0.1.{number}" for number in range(1, self.flows + 1))]
        rnics = [Rnic(address, config, Random(f"{self.seed} {address}"), 0) for address in addresses]
        network = self._network(rnics)
        rnics[0].regions.register(bytearray(MESSAGE_BYTES), Access.REMOTE_WRITE, 0, base=0, rkey=RKEY)
        qps = []
        for number, rnic in enumerate(rnics[1:], start=1):
            target, source = rnics[0].create_qp(number=256 + number), rnic.create_qp(number=256)
            target.connect(rnic.address, source.number)
            source.connect(RECEIVER, target.number)
            for _ in range(4 + int(seconds * self.capacity_bps / 8 / MESSAGE_BYTES)):
                source.write(bytes(MESSAGE_BYTES), RemoteBuffer(0, RKEY), 0)
            if begin_at is not None:
                _set_state(source, begin_at)
            qps.append(source)
        sampler = _Sampler(network, qps)
        with without_collector():
            network.run(until=int(seconds * 1e9))
        return sampler.measured()

    def _network(self, rnics: list[Rnic]) -> FabricNetwork:
        kmin, kmax, pmax = self.curve
        data = ClassPlan(priority=DATA, kmin_bytes=kmin, kmax_bytes=kmax, pmax=pmax, mark_at=MarkAt.DEQUEUE)
        port = FabricPortSettings(
            classes=(data, ClassPlan(priority=NOTIFICATIONS, strict=True)),
            priority_of=(DATA, DATA, DATA, NOTIFICATIONS, NOTIFICATIONS),
        )
        network = FabricNetwork(
            rnics, seed=self.seed, overhead_bytes=OVERHEAD_BYTES, destination_port=UDP_PORT, host=RnicHost
        )
        network.add_fabric_switch("switch", SwitchSettings())
        link = LinkSettings(rate_bps=self.capacity_bps, delay_ns=self.one_way_ns)
        for rnic in rnics:
            network.connect(f"{rnic.address} up", rnic.address, "switch", link, out=port, into=port)
            network.connect(f"{rnic.address} down", "switch", rnic.address, link, out=port, into=port)
            network.route("switch", rnic.address, [f"{rnic.address} down"])
        return network


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The samples of a run, and the counters of its network."""

    times_s: Floats
    queue_bytes: Floats
    rates_bps: Floats
    """A column for each flow."""
    alphas: Floats
    acked_bytes: Floats
    network: FabricNetwork
    qps: list[QueuePair]

    def since(self, begin_s: float) -> Measured:
        """The samples from a time on."""
        late = self.times_s >= begin_s
        return Measured(
            times_s=self.times_s[late],
            queue_bytes=self.queue_bytes[late],
            rates_bps=self.rates_bps[late],
            alphas=self.alphas[late],
            acked_bytes=self.acked_bytes[late],
            network=self.network,
            qps=self.qps,
        )

    @property
    def jain(self) -> float:
        """Jain's index of what was acknowledged of each flow."""
        moved = self.acked_bytes[-1] - self.acked_bytes[0]
        return float(moved.sum() ** 2 / (len(moved) * (moved**2).sum()))

    @property
    def utilisation(self) -> float:
        """The sum of all rates over what the port carries, on average."""
        capacity = self.network.lines[f"{RECEIVER} down"].rate_bps
        return float(self.rates_bps.sum(axis=1).mean() / capacity)

    @property
    def swing(self) -> float:
        """The standard deviation of the sum of all rates over what the port carries."""
        capacity = self.network.lines[f"{RECEIVER} down"].rate_bps
        return float(self.rates_bps.sum(axis=1).std() / capacity)


class _Sampler:
    def __init__(self, network: FabricNetwork, qps: list[QueuePair]) -> None:
        self._network = network
        self._qps = qps
        self._queue = network.outputs[f"{RECEIVER} down"].queue_of(DATA)
        self._times: list[int] = []
        self._depths: list[int] = []
        self._rates: list[list[float]] = []
        self._alphas: list[list[float]] = []
        self._acked: list[list[int]] = []
        network.at(0, self._take)

    def _take(self, now: int) -> None:
        for qp in self._qps:
            qp.control.update(now)
        self._times.append(now)
        self._depths.append(self._queue.bytes)
        controls = [qp.control for qp in self._qps]
        self._rates.append([control.rate_bps for control in controls])
        self._alphas.append([control.alpha for control in controls if isinstance(control, Dcqcn)])
        self._acked.append([qp.requester.acked_bytes for qp in self._qps])
        self._network.at(now + SAMPLE_NS, self._take)

    def measured(self) -> Measured:
        return Measured(
            times_s=np.array(self._times, dtype=np.float64) / 1e9,
            queue_bytes=np.array(self._depths, dtype=np.float64),
            rates_bps=np.array(self._rates, dtype=np.float64),
            alphas=np.array(self._alphas, dtype=np.float64),
            acked_bytes=np.array(self._acked, dtype=np.float64),
            network=self._network,
            qps=self._qps,
        )


def _set_state(qp: QueuePair, point: FixedPoint) -> None:
    control = qp.control
    assert isinstance(control, Dcqcn)
    control.on_notification(0)
    control.rate_bps, control.target_bps, control.alpha = point.rate_bps, point.target_bps, point.alpha
