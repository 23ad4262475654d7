"""The delay of the emulated path, applied by the endpoint that receives: the wire's part where the kernel has no netem.

A lab whose links say `by: endpoint` has no queue in the kernel that delays packets, so the path's whole one-way delay
is made up here, before the transport sees a datagram. Queueing, marking and loss have happened by then, as on a wire.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from ipaddress import ip_address, ip_network
from operator import itemgetter

from testbed.protocols.datagram import Incoming

REMEMBERED = 1 << 16


class DelayLine:
    """Holds datagrams, copied, until `delay_ns` after they were received; then hands them out in exact order.

    `delay_ns` is one for all, or one for each prefix of sources ("10.0.4.0/24"): the longest that fits counts,
    `default_ns` where none does. The order is that of the due times, and of arrival where these are equal.
    More than `capacity` datagrams are not held: `overruns` counts those that were lost so. A run with overruns, or
    whose `latest_ns` is not small against the delay, does not show the path that was asked for.
    """

    def __init__(self, delay_ns: int | Mapping[str, int], *, default_ns: int = 0, capacity: int = 1 << 16) -> None:
        table = {} if isinstance(delay_ns, int) else dict(delay_ns)
        self._default = delay_ns if isinstance(delay_ns, int) else default_ns
        if min((self._default, *table.values())) < 0:
            raise ValueError("a delay is negative")
        prefixes = [(ip_network(prefix), delay) for prefix, delay in table.items()]
        self.least_ns = min(table.values(), default=self._default)
        """The least delay of those that are known: nothing of theirs is due before. Others are known once one came."""
        self._prefixes = sorted(prefixes, key=lambda item: item[0].prefixlen, reverse=True)
        # One queue for each delay: within it the order of arrival is the order of due times.
        self._lanes: dict[int, deque[tuple[int, int, Incoming]]] = {}
        self._lane_of: dict[str, tuple[int, deque[tuple[int, int, Incoming]]]] = {}
        self._capacity = capacity
        self._arrivals = 0
        self._held = 0
        self.overruns = 0
        """Datagrams lost because the line was full."""
        self.handed = 0
        """Datagrams handed out."""
        self.excess_ns = 0
        """The time that they were held longer than their delay, all together."""
        self.latest_ns = 0
        """The lateness of the latest datagram, behind its due time."""

    def __len__(self) -> int:
        return self._held

    def delay_of(self, remote: str) -> int:
        """The delay in ns of datagrams from the IP address `remote`."""
        address = ip_address(remote)
        for prefix, delay in self._prefixes:
            if address in prefix:
                return delay
        return self._default

    def _find_lane(self, remote: str) -> tuple[int, deque[tuple[int, int, Incoming]]]:
        if len(self._lane_of) >= REMEMBERED:
            self._lane_of.clear()
        delay = self.delay_of(remote)
        self.least_ns = min(self.least_ns, delay)
        found = self._lane_of[remote] = (delay, self._lanes.setdefault(delay, deque()))
        return found

    def hold(self, datagrams: Sequence[Incoming], now: int, arrivals: Sequence[int] = ()) -> None:
        """Take in what has arrived at `now`, or each at its time in `arrivals`: times that never run backwards."""
        for index, item in enumerate(datagrams):
            if self._held >= self._capacity:
                self.overruns += 1
                continue
            found = self._lane_of.get(item.remote)
            delay, lane = self._find_lane(item.remote) if found is None else found
            kept = item
            if not isinstance(item.data, bytes):  # it may be gone when it is due
                kept = item._replace(data=bytes(item.data))
            lane.append(((arrivals[index] if arrivals else now) + delay, self._arrivals, kept))
            self._arrivals += 1
            self._held += 1

    def next_due(self) -> int | None:
        """Return when the next datagram is due, in ns; None if none is held."""
        earliest: int | None = None
        for lane in self._lanes.values():  # no generator: it is asked in every turn
            if lane:
                due_at = lane[0][0]
                if earliest is None or due_at < earliest:
                    earliest = due_at
        return earliest

    def take(self, now: int) -> list[Incoming]:
        """Return what is due at `now`."""
        due: list[tuple[int, int, Incoming]] = []
        lanes = 0
        for lane in self._lanes.values():
            if lane and lane[0][0] <= now:
                lanes += 1
                while lane and lane[0][0] <= now:
                    due.append(lane.popleft())
        if not due:
            return []
        if lanes > 1:
            due.sort(key=itemgetter(0, 1))
        self.latest_ns = max(self.latest_ns, now - due[0][0])
        self._held -= len(due)
        self.handed += len(due)
        for due_at, _, _ in due:
            self.excess_ns += now - due_at
        return [item for _, _, item in due]
