"""Sending real datagrams between NICs of a live lab and seeing which arrive, and how long a round trip takes.

Both ends are this process's sockets (`testbed.lab.core.drivers.nodes.udp_prober`), so a probe is known to have arrived
without any daemon in the host, and one that was lost is known by name.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from testbed.lab.core.drivers.nodes.probe_packet import PAYLOAD_BYTES, ProbeNumber
from testbed.lab.core.drivers.nodes.udp_prober import ProbeEnd, Sent, UdpProber
from testbed.lab.core.plan.lab_plan import PortPlan

IP_HEADERS_BYTES = 28
"""IPv4 and UDP headers."""
IP6_HEADERS_BYTES = 48
"""IPv6 and UDP headers."""

ROUND_TIMEOUT_S = 1.5
ROUNDS, MOST_ROUNDS = 2, 20
PATH_LINKS = 6
"""The links of a path through three tiers, up and down."""
FALSE_LOSS = 1e-4
"""The chance that any of all probes is told as lost although the links lose no more than they are declared to."""
BURST = 256
BURST_TIMEOUT_S = 0.3
SILENCE_S = 1.0
"""The time for which a datagram is waited for that must not arrive: a neighbour is resolved within."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One datagram from `source` to `target`, `size_bytes` long at the IP layer, on its own source port if `entropy`.

    `entropy` chooses among the source sockets of the sender, and with it the path.
    """

    source: PortPlan
    target: PortPlan
    size_bytes: int = 64
    entropy: int = 0


def rounds_for(loss: float, probes: int) -> int:
    """Return how often probes are sent, of links of which the worst loses this share of its packets by declaration."""
    of_path = 1 - (1 - loss) ** PATH_LINKS
    if not 0 < of_path < 1 or not probes:
        return ROUNDS
    return max(ROUNDS, min(MOST_ROUNDS, math.ceil(math.log(FALSE_LOSS / probes) / math.log(of_path))))


class Prober:
    """Sockets on NICs, opened once for several rounds of probes."""

    def __init__(
        self,
        lab: str,
        nics: Sequence[PortPlan],
        *,
        sockets_per_nic: int = 1,
        ipv6: bool = False,
        link_local: bool = False,
    ) -> None:
        """`ipv6`: on their addresses of IPv6, `link_local`: on those of ports of unnumbered links, between neighbours.

        Where a NIC does not have its address, its probes are lost, and `path_text` tells that. Raises `DriverError`
        where a socket cannot be had for another reason.
        """
        self._headers_bytes = IP6_HEADERS_BYTES if ipv6 or link_local else IP_HEADERS_BYTES
        self._ends = {
            (nic.node, nic.name): [ProbeEnd.on_link(nic)]
            if link_local
            else [ProbeEnd.on(nic, copy=copy, ipv6=ipv6) for copy in range(sockets_per_nic)]
            for nic in nics
        }
        self._sockets = UdpProber(lab, (end for ends in self._ends.values() for end in ends), may_be_absent=True)
        self._asked = 0

    def close(self) -> None:
        self._sockets.close()

    def lost(self, probes: Sequence[Probe], loss: float = 0.0) -> list[Probe]:
        """Send every probe, and again if it does not arrive: `ROUNDS` times, or more where the worst of the links is
        declared to lose a share of `loss`. Those that never arrived at their target come back.

        A round ends when nothing has come for `ROUND_TIMEOUT_S`.
        """
        rounds = rounds_for(loss, len(probes))
        return [probes[index] for index in self._unanswered(probes, rounds, ROUND_TIMEOUT_S)]

    def arrived(self, probes: Sequence[Probe]) -> list[Probe]:
        """Send every probe once, none of which may arrive; those come back that did, at their very target."""
        lost = self._unanswered(probes, 1, SILENCE_S) if probes else ()
        return [probe for index, probe in enumerate(probes) if index not in lost]

    def _unanswered(self, probes: Sequence[Probe], rounds: int, timeout_s: float) -> Collection[int]:
        self._asked += 1  # what is late of an earlier question is no answer to this one
        waiting = dict(enumerate(probes))
        self._sockets.listen({self._target(probe) for probe in probes})
        for _ in range(rounds):
            self._send_all(waiting)
            self._receive(waiting, timeout_s)
            if not waiting:
                break
        return waiting.keys()

    def round_trip_ns(self, probe: Probe, timeout_s: float) -> int | None:
        """The time of a datagram there and of the same one back; None where it is lost for `timeout_s`."""
        self._asked += 1
        number = ProbeNumber(self._asked, 0)
        here, there = self._source(probe), self._target(probe)
        start = time.monotonic_ns()
        deadline = start + int(timeout_s * 1e9)
        for origin, end in ((here, there), (there, here)):
            if self._sockets.send(origin, end, number, self._payload_bytes(probe)) is not Sent.TAKEN:
                return None  # unreachable, or its port is behind
            if not self._sockets.await_arrival(end, number, deadline):
                return None
        return time.monotonic_ns() - start

    def path_text(self, probe: Probe) -> str:
        """Return `a -> b` of a probe, and which of them does not have its address, where that is so."""
        absent = [
            f"{nic_text(nic)} does not have its address {end.address}"
            for nic, end in ((probe.source, self._source(probe)), (probe.target, self._target(probe)))
            if end in self._sockets.absent
        ]
        path = f"{nic_text(probe.source)} -> {nic_text(probe.target)}"
        return f"{path} ({', and '.join(absent)})" if absent else path

    def paths_text(self, probes: Iterable[Probe]) -> list[str]:
        """Return the distinct texts of the paths of probes, in order."""
        return list(dict.fromkeys(map(self.path_text, probes)))

    def _source(self, probe: Probe) -> ProbeEnd:
        ends = self._ends[probe.source.node, probe.source.name]
        return ends[probe.entropy % len(ends)]

    def _target(self, probe: Probe) -> ProbeEnd:
        return self._ends[probe.target.node, probe.target.name][0]

    def _send_all(self, waiting: dict[int, Probe]) -> None:
        """Send what is waited for, no faster than it arrives: slow ports drop what overflows their queues."""
        queue = deque(waiting.items())
        while queue:
            sent = 0
            held: list[tuple[int, Probe]] = []
            for _ in range(min(BURST, len(queue))):
                index, probe = queue.popleft()
                if self._send(index, probe) is Sent.FULL:
                    held.append((index, probe))
                else:  # one that is refused is lost, which is what we ask
                    sent += 1
            queue.extend(held)
            if not queue:
                return  # who sent all of it waits for the rest
            before = len(waiting)
            self._receive(waiting, BURST_TIMEOUT_S, until=before - sent // 2)
            if not sent and len(waiting) == before:
                return  # senders that stay full: what they hold counts as lost in this round

    def _send(self, index: int, probe: Probe) -> Sent:
        number = ProbeNumber(self._asked, index)
        return self._sockets.send(self._source(probe), self._target(probe), number, self._payload_bytes(probe))

    def _payload_bytes(self, probe: Probe) -> int:
        return max(PAYLOAD_BYTES, probe.size_bytes - self._headers_bytes)

    def _receive(self, waiting: dict[int, Probe], timeout_s: float, until: int = 0) -> None:
        """Take in what arrives; return when no more than `until` are waited for, or nothing came for `timeout_s`."""
        quiet_until = time.monotonic() + timeout_s
        while len(waiting) > until:
            found = False
            for number, _, end in self._sockets.arrivals(max(0.0, quiet_until - time.monotonic())):
                if number is None or number.stream != self._asked:
                    continue
                probe = waiting.get(number.sequence)
                if probe is not None and self._target(probe) == end:  # tenants' addresses repeat
                    del waiting[number.sequence]
                    found = True
            now = time.monotonic()
            if found:
                quiet_until = now + timeout_s
            elif now >= quiet_until:
                return


def nic_text(port: PortPlan) -> str:
    return f"{port.node}:{port.name}"
