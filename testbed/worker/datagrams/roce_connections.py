"""What a channel's transfers go over in RoCEv2: queue pairs of its own (RC), or what a NIC shares among peers (DC)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from testbed.transport.roce.dynamic_initiator import Destination
from testbed.transport.roce.dynamic_target import DynamicTarget
from testbed.transport.roce.qp import QueuePair
from testbed.transport.roce.work import RemoteBuffer, write_request

_NOTHING = memoryview(bytearray())
"""Where the receives of WRITEs with immediate data have their room: they need none."""


class Stripe:
    """One of the connections that a channel is striped over, at its source: the base class of both kinds."""

    def write(self, data: memoryview, remote: RemoteBuffer, now: int, immediate: int, context: object) -> None:
        """Post a WRITE with immediate data. Raises `UsageError`."""
        raise NotImplementedError

    @property
    def acked_bytes(self) -> int:
        raise NotImplementedError

    @property
    def sent(self) -> int:
        raise NotImplementedError

    @property
    def retransmitted(self) -> int:
        raise NotImplementedError

    @property
    def notifications(self) -> int:
        """CNPs received."""
        raise NotImplementedError

    @property
    def latest_rtt_ns(self) -> int:
        raise NotImplementedError

    @property
    def least_rtt_ns(self) -> int:
        raise NotImplementedError

    @property
    def counts(self) -> Mapping[str, int]:
        raise NotImplementedError

    def allowed_bytes(self, now: int) -> float:
        """What may be under way: the window, or what the rate sends in a base round trip."""
        raise NotImplementedError


class QueuePairStripe(Stripe):
    """A reliable connection."""

    def __init__(self, qp: QueuePair) -> None:
        self._qp = qp

    def write(self, data: memoryview, remote: RemoteBuffer, now: int, immediate: int, context: object) -> None:
        self._qp.write(data, remote, now, immediate=immediate, context=context)

    @property
    def acked_bytes(self) -> int:
        return self._qp.requester.acked_bytes

    @property
    def sent(self) -> int:
        return self._qp.requester.sent

    @property
    def retransmitted(self) -> int:
        return self._qp.requester.retransmitted

    @property
    def notifications(self) -> int:
        return self._qp.notifications

    @property
    def latest_rtt_ns(self) -> int:
        return self._qp.latest_rtt_ns

    @property
    def least_rtt_ns(self) -> int:
        return self._qp.least_rtt_ns

    @property
    def counts(self) -> Mapping[str, int]:
        return self._qp.counts

    def allowed_bytes(self, now: int) -> float:
        return _allowed_bytes(self._qp, now)


class DestinationStripe(Stripe):
    """A target of the peer, which an initiator attaches to for as long as there is work."""

    def __init__(self, destination: Destination) -> None:
        self._destination = destination

    def write(self, data: memoryview, remote: RemoteBuffer, now: int, immediate: int, context: object) -> None:
        self._destination.post(write_request(data, remote, immediate=immediate, context=context), now)

    @property
    def acked_bytes(self) -> int:
        return self._destination.acked_bytes

    @property
    def sent(self) -> int:
        return self._destination.sent

    @property
    def retransmitted(self) -> int:
        return self._destination.retransmitted

    @property
    def notifications(self) -> int:
        return self._destination.notifications

    @property
    def latest_rtt_ns(self) -> int:
        return self._destination.latest_rtt_ns

    @property
    def least_rtt_ns(self) -> int:
        return self._destination.least_rtt_ns

    @property
    def counts(self) -> Mapping[str, int]:
        return self._destination.counts

    def allowed_bytes(self, now: int) -> float:
        initiator = self._destination.initiator
        return 0.0 if initiator is None else _allowed_bytes(initiator, now)


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


def _allowed_bytes(qp: QueuePair, now: int) -> float:
    qp.control.update(now)
    return min(qp.control.window_bytes, qp.control.rate_bps * qp.config.base_rtt_ns / 8e9)
