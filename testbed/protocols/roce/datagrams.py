"""The unreliable datagram service of a queue pair: messages of one packet each, to and from anybody who knows its key.

Source: InfiniBand Architecture Specification, volume 1, release 1.4, sections 9.8.3 (the service) and 10.2.5 (Q_Keys).
Unlike verbs, a receive has no 40 bytes of a routing header before the message: its source is told in the completion.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from testbed.protocols.datagram import Outgoing
from testbed.protocols.roce.packets.headers import (
    BTH_BYTES,
    DETH_BYTES,
    IMMEDIATE_BYTES,
    Bth,
    Deth,
    decode_deth,
    decode_immediate,
    encode_immediate,
)
from testbed.protocols.roce.packets.opcodes import Layout, Opcode
from testbed.protocols.roce.work import WorkRequest, WorkStatus

if TYPE_CHECKING:
    from testbed.protocols.roce.qp import QueuePair

_PSN_MASK: Final = 0xFF_FFFF


class Datagrams:
    """Both sides of a datagram queue pair. Made by `QueuePair`."""

    def __init__(self, qp: QueuePair, start_psn: int) -> None:
        self._qp = qp
        self._psn: int = start_psn
        self._waiting: deque[WorkRequest] = deque()

    @property
    def posted(self) -> int:
        """Messages that have not been sent."""
        return len(self._waiting)

    def post(self, request: WorkRequest) -> None:
        """Put a message at the end of the queue."""
        self._waiting.append(request)

    def next_packet(self, now: int) -> Outgoing:
        """The oldest message, which has ended with that: there must be one."""
        qp = self._qp
        request = self._waiting.popleft()
        has_immediate = request.immediate is not None
        opcode = Opcode.UD_SEND_ONLY_IMMEDIATE if has_immediate else Opcode.UD_SEND_ONLY
        padding = -len(request.data) & 3
        header = Bth(opcode, request.remote_qpn, self._psn, False, padding).encode()
        header += Deth(request.remote_qkey, qp.number).encode()
        if request.immediate is not None:
            header += encode_immediate(request.immediate)
        self._psn = (self._psn + 1) & _PSN_MASK
        datagram = qp.data_datagram(header, request.data, padding, now, remote=request.remote_ip)
        qp.complete(request, WorkStatus.SUCCESS, "", now)
        return datagram

    def on_packet(self, bth: Bth, layout: Layout, data: memoryview, source: str, now: int) -> int:
        """A packet of anybody's, BTH to padding; whose queue pair it is, or -1 where it was dropped.

        Raises `DecodeError`.
        """
        qp = self._qp
        deth = decode_deth(data, BTH_BYTES)
        if deth.qkey != qp.qkey:
            qp.count("wrong-qkey")
            return -1
        offset = BTH_BYTES + DETH_BYTES
        immediate: int | None = None
        if layout.immediate:
            immediate = decode_immediate(data, offset)
            offset += IMMEDIATE_BYTES
        payload = data[offset : len(data) - bth.pad_bytes]
        receive = qp.take_receive()
        if receive is None:
            qp.count("no-receive")
            return -1
        receive.source_ip = source
        receive.source_qpn = deth.source_qp
        receive.immediate = immediate
        if len(payload) > len(receive.buffer):
            qp.complete_receive(receive, WorkStatus.LOCAL_LENGTH_ERROR, "the message is longer", now)
            return deth.source_qp
        receive.buffer[: len(payload)] = payload
        receive.length = len(payload)
        qp.complete_receive(receive, WorkStatus.SUCCESS, "", now)
        return deth.source_qp

    def flush(self, now: int) -> None:
        """End every message that waits."""
        while self._waiting:
            self._qp.complete(self._waiting.popleft(), WorkStatus.FLUSHED, "", now)
