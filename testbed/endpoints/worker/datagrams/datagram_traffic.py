"""The part of a worker's traffic that transports in user space have in common: endpoints at its NICs' addresses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from testbed.endpoints.worker.datagrams.hosting import Hosting
from testbed.endpoints.worker.program import Program, Step
from testbed.endpoints.worker.traffic import Listener
from testbed.workload.steps import Combine

if TYPE_CHECKING:
    from testbed.endpoints.worker.buffers import CollectiveBuffers


class DatagramTraffic(ABC):
    """The base class of such transports. `Traffic` says what the methods do."""

    header_bytes: ClassVar[int]
    """The headers of a full packet, in the estimate of what has arrived."""

    def __init__(
        self, program: Program, hosting: Hosting, buffers: CollectiveBuffers | None, listener: Listener
    ) -> None:
        self._program = program
        self._hosting = hosting
        self._buffers = buffers
        self._listener = listener
        self._addresses = {endpoint.rank: endpoint.address for endpoint in program.endpoints}
        self._outgoing = [channel for channel in program.channels if channel.source in program.own]
        self._incoming = [channel for channel in program.channels if channel.destination in program.own]
        self._names = {endpoint.rank: str(endpoint) for endpoint in program.endpoints}
        self._sent_bytes: Counter[int] = Counter()
        self._seen_bytes: Counter[str] = Counter()
        self._rooms: dict[int, memoryview] = {}
        """The room in which transfers arrive that are to be added, by step."""
        # All that carries nothing of its own shares its memory, whatever is in it.
        longest = max((step.size_bytes for step in program.steps if step.channel is not None), default=0)
        longest = max([longest, *(size for ring in program.rings for size in ring.sizes)])
        self._shared = hosting.memory(longest)
        self._closed = False

    @property
    def ready(self) -> bool:
        return not self._closed

    @property
    @abstractmethod
    def completions(self) -> Mapping[str, deque[Any]]:
        """The operations that have ended at each endpoint and were not looked at yet, by address."""

    @abstractmethod
    def expect(self, transfer: Step) -> None:
        """Be ready for a transfer that is no step of the program. Raises `TrafficError`."""

    # --- data ---------------------------------------------------------------------------------------------

    def _room_of(self, step: Step) -> memoryview:
        """Return the room in which a transfer arrives: in the array, where it is copied, or in room of its own, where
        it is added."""
        if step.piece is None:
            return self._shared[: step.size_bytes]
        if step.piece.combine is Combine.REDUCE:
            room = self._rooms[step.number] = memoryview(bytearray(step.size_bytes))
            return room
        assert self._buffers is not None
        return self._buffers.landing(step)

    def _data_of(self, step: Step) -> memoryview:
        """Return the bytes that a transfer sends."""
        if step.piece is None:
            return self._shared[: step.size_bytes]
        assert self._buffers is not None
        return self._buffers.outgoing(step)

    def _deliver(self, step: Step) -> None:
        """Add a transfer that has arrived in room of its own."""
        room = self._rooms.pop(step.number, None)
        if room is not None:
            assert self._buffers is not None
            self._buffers.deliver(step, room)

    def _estimate_progress(self, address: str, payload_bytes: int) -> None:
        """Messages are told when they are whole; meanwhile, datagrams tell about how much of them is there."""
        received = self._hosting.received_bytes(address)
        new = received - self._seen_bytes[address]
        self._listener.on_bytes(new * payload_bytes // (payload_bytes + self.header_bytes))
        self._seen_bytes[address] = received

    def _what(self, step: Step) -> str:
        assert step.destination is not None
        return f"step {step.number} from {self._names[step.source]} to {self._names[step.destination]}"

    # --- the end ------------------------------------------------------------------------------------------

    def halt(self) -> None:  # noqa: B027  # doing nothing is what most do
        """Do nothing: peers may still need our acknowledgements."""

    def close(self) -> None:
        """Close all at once. The next program's endpoints know nothing of these."""
        if not self._closed:
            self._closed = True
            self._hosting.close()


def named(counters: Mapping[str, int]) -> dict[str, int]:
    """Return counters in a record's way of writing names, without those that are 0."""
    return {name.replace("-", "_"): count for name, count in counters.items() if count}
