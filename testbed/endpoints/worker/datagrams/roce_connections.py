"""What a channel's transfers go over in RoCEv2: queue pairs of its own (RC), or what a NIC shares among peers (DC)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from testbed.protocols.roce.dynamic_initiator import Destination
from testbed.protocols.roce.dynamic_target import DynamicTarget
from testbed.protocols.roce.qp import QueuePair
from testbed.protocols.roce.work import RemoteBuffer, write_request

_NOTHING = memoryview(bytearray())
"""Where the receives of WRITEs with immediate data have their room: they need none."""


class Source(Protocol):
    """What carries transfers, by what it has done: a queue pair, or a target of a peer with its initiators."""

    @property
    def acked_bytes(self) -> int: ...

    @property
    def sent(self) -> int:
        """Packets."""

    @property
    def retransmitted(self) -> int:
        """Packets."""

    @property
    def notifications(self) -> int:
        """CNPs received."""

    @property
    def latest_rtt_ns(self) -> int: ...

    @property
    def least_rtt_ns(self) -> int: ...

    @property
    def counts(self) -> Mapping[str, int]: ...


class Stripe:
    """One of the connections that a channel is striped over, at its source: the base class of both kinds."""

    def __init__(self, source: Source) -> None:
        self.source: Final = source

    def write(self, data: memoryview, remote: RemoteBuffer, now: int, immediate: int, context: object) -> None:
        """Post a WRITE with immediate data. Raises `UsageError`."""
        raise NotImplementedError

    def _carrier(self) -> QueuePair | None:
        """What sends now; None for nothing."""
        raise NotImplementedError

    def allowed_bytes(self, now: int) -> float:
        """What may be under way: the window, or what the rate sends in a base round trip."""
        qp = self._carrier()
        if qp is None:
            return 0.0
        qp.control.update(now)
        return min(qp.control.window_bytes, qp.control.rate_bps * qp.config.base_rtt_ns / 8e9)


class QueuePairStripe(Stripe):
    """A reliable connection."""

    def __init__(self, qp: QueuePair) -> None:
        super().__init__(qp)
        self._qp: Final = qp

    def write(self, data: memoryview, remote: RemoteBuffer, now: int, immediate: int, context: object) -> None:
        self._qp.write(data, remote, now, immediate=immediate, context=context)

    def _carrier(self) -> QueuePair:
        return self._qp


class DestinationStripe(Stripe):
    """A target of the peer, which an initiator attaches to for as long as there is work."""

    def __init__(self, destination: Destination) -> None:
        super().__init__(destination)
        self._destination: Final = destination

    def write(self, data: memoryview, remote: RemoteBuffer, now: int, immediate: int, context: object) -> None:
        self._destination.post(write_request(data, remote, immediate=immediate, context=context), now)

    def _carrier(self) -> QueuePair | None:
        return self._destination.initiator


class Arrivals:
    """Where transfers arrive: the receives that are posted ahead. The base class of both kinds."""

    def __init__(self) -> None:
        self.to_post: int = 0
        """Receives of each queue that are yet to be posted, as others end."""
        self.posted: int = 0
        """Receives of each queue that have been posted."""

    def post(self, now: int) -> None:
        """Post one receive on each queue. Raises `UsageError`."""
        self.to_post -= 1
        self.posted += 1
        self._post(now)

    def _post(self, now: int) -> None:
        raise NotImplementedError

    def counts(self, source: str) -> Counter[str]:
        """What happened to packets from a peer's address."""
        raise NotImplementedError


class QueuePairArrivals(Arrivals):
    """The queue pairs of a channel."""

    def __init__(self, qps: Sequence[QueuePair]) -> None:
        super().__init__()
        self._qps = qps

    def _post(self, now: int) -> None:
        for qp in self._qps:
            qp.receive(_NOTHING, now)

    def counts(self, source: str) -> Counter[str]:
        found: Counter[str] = Counter()
        for qp in self._qps:
            found.update(qp.counts)
            found["marked"] += qp.marked
        return found


class TargetArrivals(Arrivals):
    """The targets of a NIC, which all channels that end there share."""

    def __init__(self, targets: Sequence[DynamicTarget]) -> None:
        super().__init__()
        self._targets = targets

    def _post(self, now: int) -> None:
        for target in self._targets:
            target.receive(_NOTHING)

    def counts(self, source: str) -> Counter[str]:
        found: Counter[str] = Counter()
        for target in self._targets:
            found.update(target.counts_of(source))
        return found
