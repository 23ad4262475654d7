"""Transfers over RoCEv2: connections for each channel, and a WRITE with immediate data for each transfer.

The immediate data is the step's number. Numbers of queue pairs, first PSNs, rkeys and addresses follow from the numbers
of channels and steps, so that nothing has to be exchanged: what an out-of-band connection would tell, both ends know. A
transfer has ended at its source when its last packet is acknowledged. With several queue pairs, or targets of a NIC
where connections are dynamic, a channel's transfers are striped over all of them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Final

from testbed.base.program_errors import TrafficError
from testbed.endpoints.worker.curves import MOST_CHANNELS, ChannelState, mean_state
from testbed.endpoints.worker.datagrams.datagram_traffic import DatagramTraffic, named
from testbed.endpoints.worker.datagrams.hosting import Hosting
from testbed.endpoints.worker.program import Channel, Program, Step
from testbed.endpoints.worker.traffic import ChannelEnd, Listener
from testbed.protocols.errors import UsageError
from testbed.protocols.roce.config import RoceConfig
from testbed.protocols.roce.dynamic import DynamicConnections
from testbed.protocols.roce.dynamic_initiator import Destination
from testbed.protocols.roce.dynamic_target import DynamicTarget
from testbed.protocols.roce.memory import Access
from testbed.protocols.roce.packets.opcodes import Service
from testbed.protocols.roce.qp import QueuePair
from testbed.protocols.roce.rnic import LEAST_QPN, QPN_LIMIT, Rnic
from testbed.protocols.roce.state_size import qp_state_bytes
from testbed.protocols.roce.work import CompletionQueue, ReceiveRequest, RemoteBuffer, WorkRequest
from testbed.workload.builder import MAX_STEPS

if TYPE_CHECKING:
    from testbed.endpoints.worker.buffers import CollectiveBuffers
    from testbed.endpoints.worker.transports.roce import RoceSettings

MOST_RECEIVES: Final = 4096
"""Receives of a queue pair that are posted ahead: later ones follow as these end."""
_BASE: Final = 1 << 20
"""The virtual address of every region: its rkey says which one is meant."""
_PSN_STEP: Final = 0x9E_3779
"""Between the first PSNs of queue pairs that follow each other: 2**24 over the golden ratio."""
_PSN_MASK: Final = 0xFF_FFFF
_NOTHING: Final = memoryview(bytearray())
"""The room of the receives of WRITEs with immediate data: they need none."""
Connection = QueuePair | Destination
"""A channel is striped over these: queue pairs of its own (RC), or targets of the peer with initiators (DC)."""


@dataclass(slots=True)
class Arrivals:
    """The queues in which the transfers of a channel arrive: queue pairs of its own, or the targets of a NIC, which all
    channels that end there share. Receives are posted ahead."""

    rnic: Rnic
    queues: Sequence[QueuePair | DynamicTarget]
    to_post: int = 0
    """Receives of each queue that are yet to be posted, as others end."""
    posted: int = 0
    """Receives of each queue that have been posted."""

    def post(self, now: int) -> None:
        """Post one receive on each queue. Raises `UsageError`."""
        self.to_post -= 1
        self.posted += 1
        for queue in self.queues:
            if isinstance(queue, QueuePair):
                queue.receive(_NOTHING, now)
            else:
                queue.receive(_NOTHING)

    def counts(self, source: str) -> Counter[str]:
        """Return what happened to packets from a peer's address."""
        found: Counter[str] = Counter()
        for queue in self.queues:
            if isinstance(queue, QueuePair):
                found.update(queue.counts)
                found["marked"] += queue.marked
            else:
                found.update(queue.counts_of(source))
        return found


@dataclass(slots=True)
class NicQueues:
    """An RNIC, the requests that have ended there, and with dynamic connections what its channels share."""

    rnic: Rnic
    completions: CompletionQueue = field(default_factory=deque)
    dynamic: DynamicConnections | None = None
    shared_arrivals: Arrivals | None = None


RnicOpener = Callable[[str, RoceConfig], Rnic]


class RoceTraffic(DatagramTraffic):
    """Raises `TrafficError` where something cannot be set up. `Traffic` says what the methods do.

    `open_rnic` opens an RNIC at an address, on what `hosting` says. It may raise `OSError`, and `ValueError`,
    `TypeError` or `UsageError` for what cannot work.
    """

    header_bytes: ClassVar[int] = 16

    def __init__(
        self,
        program: Program,
        settings: RoceSettings,
        hosting: Hosting,
        open_rnic: RnicOpener,
        buffers: CollectiveBuffers | None,
        listener: Listener,
    ) -> None:
        super().__init__(program, hosting, buffers, listener)
        self._settings = settings
        self._open_rnic = open_rnic
        self._nics: dict[str, NicQueues] = {}
        self._out: dict[int, list[Connection]] = {}
        """By the index of the channel that begins here."""
        self._in: dict[int, Arrivals] = {}
        """By the index of the channel that ends here."""
        self._steps = {step.number: step for step in program.steps}
        self._missing: Counter[tuple[int, bool]] = Counter()
        """Stripes of a step that have not ended, at its source (True) or its destination."""

    @property
    def completions(self) -> Mapping[str, deque[Any]]:
        return {address: nic.completions for address, nic in self._nics.items()}

    # --- setting up --------------------------------------------------------------------------------------

    def listen(self) -> None:
        settings = self._settings
        channels: dict[str, list[tuple[Channel, bool]]] = {}
        for channel in self._outgoing:
            channels.setdefault(self._addresses[channel.source], []).append((channel, True))
        for channel in self._incoming:
            channels.setdefault(self._addresses[channel.destination], []).append((channel, False))
        for address in sorted(channels):
            nic = self._nics[address] = NicQueues(self._open(address))
            try:
                if settings.connections == "dct":
                    self._share(nic)
                for channel, is_source in channels[address]:
                    if is_source:
                        self._out[channel.index] = self._stripes(nic, channel)
                    else:
                        self._in[channel.index] = self._arrivals(nic, channel)
            except UsageError as error:
                raise TrafficError(f"cannot set up the queue pairs of {address}: {error}") from error
        for step in self._program.steps:
            if step.channel is not None and step.destination in self._program.own:
                self._open_room(step, step.channel)
        for arrivals in self._in.values():
            for _ in range(min(arrivals.to_post, MOST_RECEIVES - arrivals.posted)):
                arrivals.post(0)

    def _open_room(self, step: Step, channel: int) -> None:
        """Let a transfer write to where it arrives."""
        assert step.destination is not None
        rnic = self._nics[self._addresses[step.destination]].rnic
        room = self._room_of(step)
        rnic.regions.register(room, Access.REMOTE_WRITE, self._settings.domain, base=_BASE, rkey=step.number + 1)
        self._in[channel].to_post += 1

    def expect(self, transfer: Step) -> None:
        assert transfer.channel is not None
        self._steps[transfer.number] = transfer
        try:
            self._open_room(transfer, transfer.channel)
            self._in[transfer.channel].post(self._hosting.now())
        except UsageError as error:
            raise TrafficError(f"{self._what(transfer)}: {error}") from error

    def _open(self, address: str) -> Rnic:
        settings = self._settings
        try:
            config = RoceConfig(**settings.config, cc_parameters=settings.cc_parameters)  # type: ignore[arg-type]
            return self._open_rnic(address, config)
        except (OSError, ValueError, TypeError, UsageError) as error:
            raise TrafficError(f"cannot open an RNIC at {address}: {error}") from error

    def _share(self, nic: NicQueues) -> None:
        """Make what channels of a NIC share with dynamic connections."""
        settings = self._settings
        nic.dynamic = DynamicConnections(nic.rnic, initiators=settings.dcis, first_number=self._number(settings.qps))
        targets = [
            nic.dynamic.create_target(
                settings.domain, number=self._number(stripe), domain=settings.domain, completions=nic.completions
            )
            for stripe in range(settings.qps)
        ]
        nic.shared_arrivals = Arrivals(nic.rnic, targets)

    def _stripes(self, nic: NicQueues, channel: Channel) -> list[Connection]:
        settings = self._settings
        if nic.dynamic is None:
            return list(self._connect(nic, channel, is_source=True))
        return [
            nic.dynamic.destination(
                self._addresses[channel.destination],
                self._number(stripe),
                settings.domain,
                completions=nic.completions,
                entropy=entropy_of(channel.source_port, stripe),
            )
            for stripe in range(settings.qps)
        ]

    def _arrivals(self, nic: NicQueues, channel: Channel) -> Arrivals:
        return nic.shared_arrivals or Arrivals(nic.rnic, self._connect(nic, channel, is_source=False))

    def _connect(self, nic: NicQueues, channel: Channel, *, is_source: bool) -> list[QueuePair]:
        """The queue pairs of a channel at this end of it."""
        settings = self._settings
        remote = self._addresses[channel.destination if is_source else channel.source]
        qps = []
        for stripe in range(settings.qps):
            place = channel.index * settings.qps + stripe
            numbers = [self._number(2 * place + side) for side in (0, 1)]
            psns = [(settings.first_psn + number * _PSN_STEP) & _PSN_MASK for number in numbers]
            own, peer = (0, 1) if is_source else (1, 0)
            qp = nic.rnic.create_qp(
                Service.RC, completions=nic.completions, domain=settings.domain, number=numbers[own]
            )
            qp.entropy = entropy_of(channel.source_port, stripe)
            qp.connect(remote, numbers[peer], send_psn=psns[own], receive_psn=psns[peer])
            qps.append(qp)
        return qps

    def _number(self, place: int) -> int:
        return LEAST_QPN + (self._settings.first_qpn + place) % (QPN_LIMIT - LEAST_QPN)

    def connect(self) -> None:
        """Do nothing: both ends know each other."""

    # --- moving ------------------------------------------------------------------------------------------

    def send(self, step: Step) -> None:
        assert step.channel is not None and step.destination is not None
        stripes = self._out[step.channel]
        data = self._data_of(step)
        now = self._hosting.now()
        rnic = self._nics[self._addresses[step.source]].rnic
        parts = stripes_of(len(data), len(stripes), rnic.config.mtu)
        self._missing[step.number, True] = len(parts)
        try:
            for stripe, (start, stop) in zip(stripes, parts, strict=False):
                remote = RemoteBuffer(_BASE + start, step.number + 1)
                stripe.write(data[start:stop], remote, now, immediate=step.number, context=step)
        except UsageError as error:
            raise TrafficError(f"{self._what(step)}: {error}") from error
        self._sent_bytes[step.channel] += step.size_bytes
        self._hosting.touch(rnic)

    def turn(self, now: int) -> None:
        for nic in self._nics.values():
            completions = nic.completions
            if not completions:
                continue
            self._estimate_progress(nic.rnic.address, nic.rnic.config.mtu)
            while completions:
                request = completions.popleft()
                if isinstance(request, WorkRequest):
                    self._on_sent(request)
                else:
                    self._on_received(request)

    def _on_sent(self, request: WorkRequest) -> None:
        step = request.context
        assert isinstance(step, Step)
        if not request.ok:
            self._listener.on_failed(f"{self._what(step)} failed with {reason_of(request)}")
        elif self._ended(step, is_source=True):
            self._listener.on_sent(step, request.finished_ns)

    def _on_received(self, request: ReceiveRequest) -> None:
        if not request.ok:
            self._listener.on_failed(f"a queue pair to {request.source_ip} failed with {reason_of(request)}")
            return
        step = self._steps.get(request.immediate if request.immediate is not None else -1)
        if step is None or step.channel not in self._in:
            self._listener.on_failed(f"{request.source_ip} writes for step {request.immediate}, which is none of ours")
            return
        arrivals = self._in[step.channel]
        rnic = arrivals.rnic
        if arrivals.to_post:
            arrivals.post(request.finished_ns)
        key = (step.number, False)
        if key not in self._missing:
            self._missing[key] = len(stripes_of(step.size_bytes, self._settings.qps, rnic.config.mtu))
        if self._ended(step, is_source=False):
            rnic.regions.invalidate(step.number + 1, self._settings.domain)
            if step.number >= MAX_STEPS:  # of a ring
                del self._steps[step.number]
            self._deliver(step)
            self._listener.on_arrived(step, request.finished_ns)

    def _ended(self, step: Step, *, is_source: bool) -> bool:
        """A stripe of a step has ended. Whether it was the last."""
        key = (step.number, is_source)
        self._missing[key] -= 1
        if self._missing[key]:
            return False
        del self._missing[key]
        return True

    # --- what is known -----------------------------------------------------------------------------------

    def sample(self) -> Iterable[tuple[int, ChannelState]]:
        now = self._hosting.now()
        for nic in self._nics.values():
            self._estimate_progress(nic.rnic.address, nic.rnic.config.mtu)
        for channel in self._outgoing[:MOST_CHANNELS]:
            stripes = self._out[channel.index]
            allowed = sum(allowed_bytes(one, now) for one in stripes)
            controls = [qp.control for qp in map(sending_qp, stripes) if qp is not None]
            yield (
                channel.index,
                ChannelState(
                    acked_bytes=sum(one.acked_bytes for one in stripes),
                    cwnd_bytes=round(allowed),
                    rtt_us=max(one.latest_rtt_ns for one in stripes) / 1e3,
                    retransmits=sum(one.retransmitted for one in stripes),
                    rate_bps=sum((one.rate_bps for one in controls), 0.0),
                    control=mean_state(one.state() for one in controls),
                ),
            )

    def ends(self) -> list[ChannelEnd]:
        found = []
        for channel in self._outgoing:
            stripes = self._out[channel.index]
            least = [one.least_rtt_ns for one in stripes if one.least_rtt_ns]
            counts: Counter[str] = Counter(cnps=sum(one.notifications for one in stripes))
            for one in stripes:
                counts.update(one.counts)
            found.append(
                ChannelEnd(
                    channel=channel.index,
                    sent_bytes=self._sent_bytes[channel.index],
                    retransmits=sum(one.retransmitted for one in stripes),
                    packets=sum(one.sent for one in stripes),
                    min_rtt_us=min(least) / 1e3 if least else None,
                    counters={"cnps": counts["cnps"], **named(counts)},
                )
            )
        for channel in self._incoming:
            seen = self._in[channel.index].counts(self._addresses[channel.source])
            counters = {"out_of_order": 0, "marked": seen["marked"], **named(seen)}
            found.append(ChannelEnd(channel=channel.index, counters=counters))
        return found

    def counters(self) -> Mapping[str, int]:
        """Return those of the RNICs by their names, and those of what they stand on.

        `qp_state_bytes`: what the queue pairs of the RNIC with the most of them take.
        """
        total: Counter[str] = Counter(connects=0)
        for address, nic in self._nics.items():
            total.update(named(nic.rnic.counters))
            total.update(self._hosting.counters(address))
        return {**total, "qp_state_bytes": max((qp_state_bytes(nic.rnic) for nic in self._nics.values()), default=0)}


def entropy_of(source_port: int, stripe: int) -> int:
    """The UDP source port of one of a channel's queue pairs: the first has that of the channel."""
    return source_port + stripe


def allowed_bytes(connection: Connection, now: int) -> float:
    """Return the bytes that may be under way: the window, or what the rate sends in a base round trip."""
    qp = sending_qp(connection)
    if qp is None:
        return 0.0
    qp.control.update(now)
    return min(qp.control.window_bytes, qp.control.rate_bps * qp.config.base_rtt_ns / 8e9)


def sending_qp(connection: Connection) -> QueuePair | None:
    """The queue pair that sends at present; None of a destination that no initiator is attached to."""
    return connection if isinstance(connection, QueuePair) else connection.initiator


def stripes_of(size: int, qps: int, mtu: int) -> list[tuple[int, int]]:
    """Return the offsets at which the parts of a message begin and end that go over the queue pairs of a channel: whole
    packets each, as equal as that allows, and no more than there are packets."""
    packets = max(1, -(-size // mtu))
    count = min(qps, packets)
    edges = [min(size, packets * part // count * mtu) for part in range(count)] + [size]
    return list(pairwise(edges))


def reason_of(request: WorkRequest | ReceiveRequest) -> str:
    """Return in words why a request failed."""
    assert request.status is not None
    return request.status.name + (f": {request.error}" if request.error else "")
