"""Frames as untagged messages of UET: reliably, in any order (RUD), so that the packets of each take all paths.

Receives are one pool for all peers, so that a NIC's memory does not grow with its connections. What comes while none is
posted is kept by the endpoint (UE Specification 1.0, section 3.4.3, unexpected messages), within its own bounds.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping

from testbed.endpoints.agent import Agent
from testbed.endpoints.sockets import Marking, SocketConfig
from testbed.protocols.errors import UsageError
from testbed.protocols.uet.addressing import FepAddress
from testbed.protocols.uet.config import UetConfig
from testbed.protocols.uet.packets.codes import RETURN_CODE_MEANINGS, ReturnCode
from testbed.protocols.uet.semantics.operations import Operation, OpKind
from testbed.run.carrier.endpoint_settings import EndpointSettings
from testbed.run.carrier.frames import HEADER_BYTES
from testbed.run.carrier.messengers.messenger import ArrivedMessage, Undelivered

POSTED = 64
"""Receives that are posted."""
_RESOURCE_INDEX = 1


class UetFlow:
    """Data go to the peer's endpoint as all else does."""

    is_ready = True

    def __init__(self, messenger: UetMessenger, peer: FepAddress) -> None:
        self.word = 0
        self._messenger = messenger
        self._peer = peer

    def connect(self, peer_word: int) -> None:
        """Do nothing: a message names its endpoint."""

    def on_told(self) -> None:
        """Do nothing: an endpoint is always ready."""

    def send(self, message: memoryview, context: object) -> None:
        self._messenger.send(self._peer, message, context)

    def close(self, *, at_once: bool) -> None:
        """Do nothing: there is nothing of a connection's own."""


class UetMessenger:
    """A fabric endpoint. Opening it raises `OSError`, `ValueError` or `UsageError`, as `Agent.open` does."""

    def __init__(self, agent: Agent, address: str, settings: EndpointSettings, *, job_id: int, data_bytes: int) -> None:
        marking = Marking(data=settings.dscp, retransmission=settings.dscp, control=settings.control_dscp)
        config = UetConfig(**settings.config, least_rtts_ns=settings.least_rtts_ns)  # type: ignore[arg-type]
        self._fep = agent.open(
            address,
            config,
            sockets=SocketConfig(marking=marking),
            delay_ns=settings.delays_ns or 0,
            paced=True,
        )
        self.address = self._fep.address
        self._agent = agent
        self._job_id = job_id
        self._endpoint = self._fep.endpoint(job_id=job_id, resource_index=_RESOURCE_INDEX)
        self.completions = self._endpoint.completions
        self._peers: dict[str, FepAddress] = {}
        self.strays = 0
        """Messages that were longer than any of ours."""
        size = HEADER_BYTES + data_bytes
        room = memoryview(bytearray(POSTED * size))
        for number in range(POSTED):
            self._post(room[number * size : (number + 1) * size])

    def _post(self, room: memoryview) -> None:
        self._endpoint.recv(room, time.monotonic_ns())

    def _peer(self, address: str) -> FepAddress:
        if address not in self._peers:
            self._peers[address] = FepAddress(address, 0, _RESOURCE_INDEX, self._job_id)
        return self._peers[address]

    def open_flow(self, peer: str) -> UetFlow:
        return UetFlow(self, self._peer(peer))

    def tell(self, peer: str, frame: bytes, context: object) -> None:
        self.send(self._peer(peer), frame, context)

    def send(self, peer: FepAddress, message: bytes | memoryview, context: object) -> None:
        """Send a message, and have the loop ask for its packets."""
        self._endpoint.send(peer, message, time.monotonic_ns(), context=context)
        self._agent.loop.touch(self._fep)

    def poll(self) -> Iterator[ArrivedMessage | Undelivered]:
        completions = self.completions
        while completions:
            operation = completions.popleft()
            if operation.kind is OpKind.SEND:
                if not operation.ok:
                    yield Undelivered(operation.context, _reason(operation))
                continue
            room = operation.buffer
            assert room is not None
            if not operation.ok or operation.source is None:
                self.strays += 1
            else:
                yield ArrivedMessage(operation.source.ip, room[: operation.length])
            if operation.status is not ReturnCode.CANCELLED:
                self._post(room)
                self._agent.loop.touch(self._fep)

    def counters(self) -> Mapping[str, int]:
        found: Counter[str] = Counter(socket_overflows=self._agent.sockets(self.address).overflows)
        for peer in self._peers:
            for is_ours in (True, False):
                found.update(self._fep.peers.of(peer, initiator=is_ours))
        return {name.replace("-", "_"): count for name, count in found.items()}


def open_messenger(
    agent: Agent, address: str, settings: EndpointSettings, *, job_id: int, data_bytes: int
) -> UetMessenger:
    """Open the endpoint of an address. Raises `OSError` where it cannot be."""
    try:
        return UetMessenger(agent, address, settings, job_id=job_id, data_bytes=data_bytes)
    except (ValueError, UsageError) as error:
        raise OSError(f"no fabric endpoint at {address}: {error}") from error


def _reason(operation: Operation) -> str:
    code = operation.status or ReturnCode.NULL
    return operation.error or RETURN_CODE_MEANINGS[code]
