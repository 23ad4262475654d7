"""Transfers over unreliable datagrams: each is cut into messages of a path MTU, of which nobody acknowledges any.

A channel has a queue pair at either end. The immediate data of a message is its step's number; messages of a step are
placed one behind the other as they come, since a channel's path keeps their order. A transfer has ended at its source
when its last message has been sent, and at its destination when all of its bytes are there: one of which a message is
lost never ends.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

from testbed.base.program_errors import TrafficError
from testbed.endpoints.worker.curves import MOST_CHANNELS, ChannelState, mean_state
from testbed.endpoints.worker.datagrams.datagram_traffic import DatagramTraffic, named
from testbed.endpoints.worker.datagrams.hosting import Hosting
from testbed.endpoints.worker.program import Channel, Program, Step
from testbed.endpoints.worker.traffic import ChannelEnd, Listener
from testbed.protocols.errors import UsageError
from testbed.protocols.roce.config import RoceConfig
from testbed.protocols.roce.packets.opcodes import Service
from testbed.protocols.roce.qp import QueuePair
from testbed.protocols.roce.rnic import LEAST_QPN, QPN_LIMIT, Rnic
from testbed.protocols.roce.work import ReceiveRequest, WorkRequest
from testbed.workload.builder import MAX_STEPS

if TYPE_CHECKING:
    from testbed.endpoints.worker.buffers import CollectiveBuffers
    from testbed.endpoints.worker.transports.ib import IbSettings

QKEY: Final = 0x1B
"""The Q_Key of all queue pairs of a run: no others are there."""
POSTED: Final = 64
"""The messages of a channel that wait to be sent, and the receives that are posted, at most."""


@dataclass(slots=True)
class DatagramQueue:
    """The transfers that a channel is yet to send, in order."""

    rnic: Rnic
    qp: QueuePair
    remote: tuple[str, int, int]
    waiting: deque[tuple[Step, memoryview]] = field(default_factory=deque)
    unsent: Counter[int] = field(default_factory=Counter)
    """Bytes of a step that have not been sent."""
    sent_bytes: int = 0
    messages: int = 0


class UdTraffic(DatagramTraffic):
    """Raises `TrafficError` where something cannot be set up. `Traffic` says what the methods do."""

    header_bytes: ClassVar[int] = 28

    def __init__(
        self,
        program: Program,
        settings: IbSettings,
        hosting: Hosting,
        open_rnic: Callable[[str, RoceConfig], Rnic],
        buffers: CollectiveBuffers | None,
        listener: Listener,
    ) -> None:
        super().__init__(program, hosting, buffers, listener)
        self._settings = settings
        self._open_rnic = open_rnic
        self._rnics: dict[str, Rnic] = {}
        self._ended: dict[str, deque[Any]] = {}
        self._out: dict[int, DatagramQueue] = {}
        """By the index of the channel that begins here."""
        self._in: dict[int, QueuePair] = {}
        self._steps = {step.number: step for step in program.steps}
        self._rooms_of: dict[int, memoryview] = {}
        """The room of each transfer that arrives here, by step."""
        self._arrived: Counter[int] = Counter()
        """Bytes of each that have arrived."""

    @property
    def completions(self) -> Mapping[str, deque[Any]]:
        return self._ended

    # --- setting up --------------------------------------------------------------------------------------

    def listen(self) -> None:
        try:
            for channel in self._outgoing:
                qp = self._open(channel, self._addresses[channel.source], 0)
                remote = self._addresses[channel.destination]
                qp.remote_ip = remote  # by which its lane is found
                self._out[channel.index] = DatagramQueue(
                    self._rnics[self._addresses[channel.source]],
                    qp,
                    (remote, self._number(2 * channel.index + 1), QKEY),
                )
            for channel in self._incoming:
                qp = self._in[channel.index] = self._open(channel, self._addresses[channel.destination], 1)
                for _ in range(POSTED):
                    self._post(qp, 0)
        except (OSError, ValueError, TypeError, UsageError) as error:
            raise TrafficError(f"cannot set up queue pairs for datagrams: {error}") from error
        for step in self._program.steps:
            if step.channel is not None and step.destination in self._program.own:
                self._rooms_of[step.number] = self._room_of(step)

    def _open(self, channel: Channel, address: str, side: int) -> QueuePair:
        if address not in self._rnics:
            settings = self._settings
            config = RoceConfig(**settings.config, cc_parameters=settings.cc_parameters)  # type: ignore[arg-type]
            self._rnics[address] = self._open_rnic(address, config)
            self._ended[address] = deque()
        qp = self._rnics[address].create_qp(
            Service.UD,
            completions=self._ended[address],
            domain=self._settings.domain,
            number=self._number(2 * channel.index + side),
        )
        qp.open_datagrams(QKEY)
        return qp

    def _number(self, place: int) -> int:
        return LEAST_QPN + (self._settings.first_qpn + place) % (QPN_LIMIT - LEAST_QPN)

    @staticmethod
    def _post(qp: QueuePair, now: int) -> None:
        qp.receive(memoryview(bytearray(qp.config.mtu)), now, context=qp)

    def expect(self, transfer: Step) -> None:
        self._steps[transfer.number] = transfer
        self._rooms_of[transfer.number] = self._room_of(transfer)

    def connect(self) -> None:
        """Do nothing: datagrams have no connections."""

    # --- moving ------------------------------------------------------------------------------------------

    def send(self, step: Step) -> None:
        assert step.channel is not None
        sending = self._out[step.channel]
        data = self._data_of(step)
        sending.waiting.append((step, data))
        sending.unsent[step.number] = len(data)
        sending.sent_bytes += step.size_bytes
        self._fill(sending)

    def _fill(self, sending: DatagramQueue) -> None:
        """Let as many messages wait as may."""
        qp = sending.qp
        assert qp.datagrams is not None
        now, mtu = self._hosting.now(), qp.config.mtu
        while sending.waiting and qp.datagrams.posted < POSTED:
            step, data = sending.waiting.popleft()
            if len(data) > mtu:
                sending.waiting.appendleft((step, data[mtu:]))
            sending.messages += 1
            qp.send_to(sending.remote, data[:mtu], now, immediate=step.number, context=step)
        self._hosting.touch(sending.rnic)

    def turn(self, now: int) -> None:
        for address, completions in self._ended.items():
            if not completions:
                continue
            self._estimate_progress(address, self._rnics[address].config.mtu)
            while completions:
                request = completions.popleft()
                if isinstance(request, WorkRequest):
                    self._on_sent(request)
                else:
                    self._on_received(request)

    def _on_sent(self, request: WorkRequest) -> None:
        step = request.context
        assert isinstance(step, Step) and step.channel is not None
        if not request.ok:
            self._listener.on_failed(f"{self._what(step)} failed: {request.error}")
            return
        sending = self._out[step.channel]
        sending.unsent[step.number] -= len(request.data)
        if sending.waiting:
            self._fill(sending)
        if not sending.unsent[step.number]:
            del sending.unsent[step.number]
            self._listener.on_sent(step, request.finished_ns)

    def _on_received(self, request: ReceiveRequest) -> None:
        qp = request.context
        assert isinstance(qp, QueuePair)
        if not request.ok:
            self._listener.on_failed(f"a queue pair for datagrams failed: {request.error}")
            return
        self._post(qp, request.finished_ns)
        step = self._steps.get(request.immediate if request.immediate is not None else -1)
        room = None if step is None else self._rooms_of.get(step.number)
        if step is None or room is None:
            self._listener.on_failed(f"{request.source_ip} sends for step {request.immediate}, which is none of ours")
            return
        begin = self._arrived[step.number]
        end = begin + request.length
        if end > len(room):
            self._listener.on_failed(f"{self._what(step)} is longer than {len(room)} bytes")
            return
        room[begin:end] = request.buffer[: request.length]
        self._arrived[step.number] = end
        if end == len(room):
            del self._arrived[step.number], self._rooms_of[step.number]
            if step.number >= MAX_STEPS:  # of a ring
                del self._steps[step.number]
            self._deliver(step)
            self._listener.on_arrived(step, request.finished_ns)

    # --- what is known -----------------------------------------------------------------------------------

    def sample(self) -> Iterable[tuple[int, ChannelState]]:
        for address, rnic in self._rnics.items():
            self._estimate_progress(address, rnic.config.mtu)
        now = self._hosting.now()
        for channel in self._outgoing[:MOST_CHANNELS]:
            sending = self._out[channel.index]
            control = sending.qp.control
            control.update(now)
            yield (
                channel.index,
                ChannelState(
                    acked_bytes=sending.sent_bytes - sum(sending.unsent.values()),
                    cwnd_bytes=round(control.rate_bps * sending.qp.config.base_rtt_ns / 8e9),
                    rtt_us=0.0,
                    retransmits=0,
                    rate_bps=control.rate_bps,
                    control=mean_state([control.state()]),
                ),
            )

    def ends(self) -> list[ChannelEnd]:
        found = []
        for channel in self._outgoing:
            sending = self._out[channel.index]
            found.append(
                ChannelEnd(
                    channel=channel.index,
                    sent_bytes=sending.sent_bytes,
                    retransmits=0,
                    packets=sending.messages,
                    min_rtt_us=None,
                    counters={"cnps": sending.qp.notifications, **named(sending.qp.counts)},
                )
            )
        for channel in self._incoming:
            qp = self._in[channel.index]
            found.append(ChannelEnd(channel=channel.index, counters={"marked": qp.marked, **named(qp.counts)}))
        return found

    def counters(self) -> Mapping[str, int]:
        total: Counter[str] = Counter()
        for address, rnic in self._rnics.items():
            total.update(named(rnic.counters))
            total.update(self._hosting.counters(address))
        return total
