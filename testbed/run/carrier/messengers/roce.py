"""Frames as SENDs of RoCEv2: a queue pair for each connection's data, and one between each two NICs for all else.

So the data of a connection take one path and are paced by one DCQCN, as a NIC's queue pairs are. The numbers of the
queue pairs between NICs follow from the order of the NICs, which both ends know; those of connections are told in OPEN
and OPENED. Who accepts a connection sends data once its OPENED has been acknowledged: before, the opener's queue pair
is not ready to receive.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from testbed.endpoints.agent import Agent
from testbed.endpoints.sockets import Marking, SocketConfig
from testbed.protocols.errors import UsageError
from testbed.protocols.roce.config import RoceConfig
from testbed.protocols.roce.packets.opcodes import Operation, Service
from testbed.protocols.roce.qp import QueuePair
from testbed.protocols.roce.rnic import LEAST_QPN, QPN_LIMIT, Rnic
from testbed.protocols.roce.states import QpState
from testbed.protocols.roce.work import Completion, ReceiveRequest, WorkRequest, WorkStatus
from testbed.run.carrier.endpoint_settings import EndpointSettings
from testbed.run.carrier.frames import HEADER_BYTES
from testbed.run.carrier.messengers.messenger import ArrivedMessage, Told, Undelivered

RECEIVES = 16
"""Receives that are posted on each queue pair."""
FRAME_ROOM_BYTES = 128
"""The longest frame that is no data has 64."""
TIME_WAIT_TIMEOUTS = 3
"""A queue pair whose connection has ended still acknowledges what its peer sends again: as many times as it takes the
peer to miss an acknowledgement."""
MOST_LEAVING = 4096
"""Queue pairs that wait for that; of more, the oldest ends early."""
_PSN_BITS = 24
_PSN_MASK = (1 << _PSN_BITS) - 1
_PSN_STEP = 0x9E_3779
"""Between the first PSNs of queue pairs that follow each other: 2**24 over the golden ratio."""


class RoceFlow:
    """A queue pair of one connection. `word` is its number and the PSN of its first packet."""

    def __init__(self, messenger: RoceMessenger, peer: str, qp: QueuePair, psn: int) -> None:
        self.word = qp.number << _PSN_BITS | psn
        self.qp = qp
        self.unsent = 0
        """Messages that have not been acknowledged."""
        self.is_closing = False
        self._messenger = messenger
        self._peer = peer
        self._psn = psn
        self._is_told = False

    def connect(self, peer_word: int) -> None:
        """Use the peer's number and PSN. Raises `ValueError` for what can be none."""
        number, psn = peer_word >> _PSN_BITS, peer_word & _PSN_MASK
        if not LEAST_QPN <= number < QPN_LIMIT:
            raise ValueError(f"queue pair {number:#x}")
        self.qp.connect(self._peer, number, send_psn=self._psn, receive_psn=psn)
        self._messenger.post(self)

    def on_told(self) -> None:
        """Send from now on: the peer knows what it must."""
        self._is_told = True

    @property
    def is_ready(self) -> bool:
        return self._is_told and not self.is_full and self.qp.state is QpState.RTS

    @property
    def is_full(self) -> bool:
        """Tell whether the queue pair takes no more messages until one has been acknowledged."""
        return self.unsent >= self.qp.config.most_posted

    def send(self, message: memoryview, context: object) -> None:
        self.unsent += 1
        self.qp.send(message, time.monotonic_ns(), context=(self, context))
        self._messenger.touch()

    def close(self, *, at_once: bool) -> None:
        """End it when all that it has sent has arrived, or at once: what is on its way is lost then.

        All that the peer has sent has arrived, but it may not know so yet.
        """
        self.is_closing = True
        if at_once:
            self._messenger.destroy(self)
        elif not self.unsent:
            self._messenger.leave(self)


class RoceMessenger:
    """An RNIC. Opening it raises `OSError`, `ValueError` or `UsageError`, as `Agent.open_rnic` does."""

    def __init__(
        self,
        agent: Agent,
        address: str,
        settings: EndpointSettings,
        endpoints: Sequence[str],
        *,
        domain: int,
        data_bytes: int,
    ) -> None:
        marking = Marking(
            data=settings.dscp,
            retransmission=settings.dscp,
            control=settings.dscp,
            notification=settings.control_dscp,
        )
        self._rnic: Rnic = agent.open_rnic(
            address,
            RoceConfig(**settings.config),  # type: ignore[arg-type]
            sockets=SocketConfig(marking=marking),
            delay_ns=settings.delays_ns or 0,
            paced=True,
        )
        self.address = self._rnic.address
        self._agent = agent
        self._domain = domain
        self._size = HEADER_BYTES + data_bytes
        self.completions: deque[Completion] = deque()
        self._leaving: deque[tuple[int, RoceFlow]] = deque()
        """Flows that have ended, each with the time (ns) when its queue pair does."""
        self._time_wait_ns = TIME_WAIT_TIMEOUTS * self._rnic.config.timeout_ns
        self._gone: Counter[str] = Counter()
        """Counts of queue pairs that are gone."""
        self._control = {peer: self._between(endpoints, peer) for peer in endpoints if peer != address}
        self._next_number = LEAST_QPN + len(endpoints)

    def _between(self, endpoints: Sequence[str], peer: str) -> QueuePair:
        """The queue pair to another NIC for all that is no data."""
        own, other = endpoints.index(self.address), endpoints.index(peer)
        qp = self._rnic.create_qp(
            Service.RC, completions=self.completions, domain=self._domain, number=LEAST_QPN + other
        )
        psns = [
            (self._domain + (a * len(endpoints) + b) * _PSN_STEP) & _PSN_MASK for a, b in ((own, other), (other, own))
        ]
        qp.connect(peer, LEAST_QPN + own, send_psn=psns[0], receive_psn=psns[1])
        self._post(qp, FRAME_ROOM_BYTES)
        return qp

    def _post(self, qp: QueuePair, size: int) -> None:
        room = memoryview(bytearray(RECEIVES * size))
        now = time.monotonic_ns()
        for number in range(RECEIVES):
            qp.receive(room[number * size : (number + 1) * size], now, context=qp)

    def post(self, flow: RoceFlow) -> None:
        """Post the receives of a flow."""
        self._post(flow.qp, self._size)
        self.touch()

    def touch(self) -> None:
        """Have the loop ask for packets."""
        self._agent.loop.touch(self._rnic)

    def open_flow(self, peer: str) -> RoceFlow:
        self._end_leaving(time.monotonic_ns())
        while True:
            number = self._next_number
            self._next_number = number + 1 if number + 1 < QPN_LIMIT else LEAST_QPN
            try:
                qp = self._rnic.create_qp(Service.RC, completions=self.completions, domain=self._domain, number=number)
            except UsageError:  # it is taken
                continue
            return RoceFlow(self, peer, qp, self._rnic.draw_psn())

    def leave(self, flow: RoceFlow) -> None:
        """Forget the queue pair of a flow after a while; it receives nothing more until then."""
        while flow.qp.take_receive() is not None:
            pass  # whose memory is free
        now = time.monotonic_ns()
        self._leaving.append((now + self._time_wait_ns, flow))
        self._end_leaving(now)

    def _end_leaving(self, now: int) -> None:
        while self._leaving and (self._leaving[0][0] <= now or len(self._leaving) > MOST_LEAVING):
            self.destroy(self._leaving.popleft()[1])

    def destroy(self, flow: RoceFlow) -> None:
        """Forget the queue pair of a flow."""
        self._gone.update(packets=flow.qp.sent, packets_again=flow.qp.retransmitted)
        self._rnic.destroy_qp(flow.qp, time.monotonic_ns())

    def tell(self, peer: str, frame: bytes, context: object) -> None:
        qp = self._control[peer]
        try:
            qp.send(frame, time.monotonic_ns(), context=(None, context))
        except UsageError as error:  # more wait than a queue holds: it has no way to the peer
            lost = WorkRequest(Operation.SEND, memoryview(frame), None, (None, context))
            qp.complete(lost, WorkStatus.FLUSHED, str(error), time.monotonic_ns())
            return
        self.touch()

    def poll(self) -> Iterator[ArrivedMessage | Told | Undelivered]:
        completions = self.completions
        while completions:
            request = completions.popleft()
            if isinstance(request, ReceiveRequest):
                if not request.ok:
                    continue
                yield ArrivedMessage(request.source_ip, request.buffer[: request.length])
                qp = request.context
                assert isinstance(qp, QueuePair)
                if qp.receives:
                    qp.receive(request.buffer, time.monotonic_ns(), context=qp)
                    self.touch()
            else:
                yield from self._ended(request)

    def _ended(self, request: WorkRequest) -> Iterator[Told | Undelivered]:
        sent: Any = request.context
        flow: RoceFlow | None = sent[0]
        context: object = sent[1]
        was_full = False
        if flow is not None:
            was_full = flow.is_full
            flow.unsent -= 1
            if flow.is_closing and not flow.unsent and flow.qp.state is not QpState.RESET:
                if request.ok:
                    self.leave(flow)
                else:
                    self.destroy(flow)
        if not request.ok:
            assert request.status is not None
            yield Undelivered(context, request.error or request.status.name)
        elif flow is None or was_full:
            yield Told(context)

    def counters(self) -> Mapping[str, int]:
        found = Counter(self._gone)
        found["socket_overflows"] = self._agent.sockets(self.address).overflows
        for qp in self._rnic.qps:
            found.update(packets=qp.sent, packets_again=qp.retransmitted)
        found.update({name.replace("-", "_"): count for name, count in self._rnic.counters.items()})
        return dict(found)


def open_messenger(
    agent: Agent,
    address: str,
    settings: EndpointSettings,
    endpoints: Sequence[str],
    *,
    domain: int,
    data_bytes: int,
) -> RoceMessenger:
    """Open the RNIC of an address; `endpoints` are the addresses of all. Raises `OSError` where it cannot be."""
    try:
        return RoceMessenger(agent, address, settings, endpoints, domain=domain, data_bytes=data_bytes)
    except (ValueError, UsageError) as error:
        raise OSError(f"no RNIC at {address}: {error}") from error
