"""The fate of a run's probes: which were sent when, which arrived, which came too early or twice.

No I/O and no clock: times come in with every call. Sources: RFC 6412 (loss-derived convergence time: packets lost over
the rate they were offered at, where one that takes longer than a threshold is lost, too) and RFC 4737 (a packet is
reordered when one with a higher number was there before it).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.lab.core.drivers.nodes.probe_packet import FRAME_BYTES, ProbeNumber
from testbed.workload.metrics.timeline import blackhole_time_loss

_MISSING = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeStream:
    """A flow of probes: always the same addresses and ports, so that a switch that hashes flows gives it one path.

    Ends are "node:interface".
    """

    source: str
    destination: str
    source_port: int

    def __str__(self) -> str:
        return f"{self.source} -> {self.destination}, port {self.source_port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamResult:
    """One stream of a run. Times are s from the begin of the run."""

    stream: ProbeStream
    sent: int
    arrived: int
    """Different ones, those that came too late included."""
    late: int
    """Arrived after more than the threshold: held somewhere, such as where a neighbour was asked for its address."""
    duplicates: int
    inversions: int
    """Arrived behind one that was sent later (RFC 4737, section 4.1)."""
    lost_s: tuple[float, ...]
    """When each of those was sent that never arrived or came too late, ascending."""

    def lost_since(self, since_s: float) -> int:
        return sum(at >= since_s for at in self.lost_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReport:
    """All streams of a run. `rate_pps` is that of each of them."""

    rate_pps: float
    train: int
    """Probes sent back to back."""
    streams: tuple[StreamResult, ...]
    foreign: int = 0
    """Packets that arrived and were no probes of this run."""
    latest_s: float = 0.0
    """The lateness of the latest probe."""
    skipped: int = 0
    """Probes that were not sent, because the machine came to them far too late."""

    @property
    def sent(self) -> int:
        return sum(item.sent for item in self.streams)

    @property
    def sent_bytes(self) -> int:
        """Return the bytes sent, as shaped ports count frames."""
        return FRAME_BYTES * self.sent

    @property
    def lost(self) -> int:
        return sum(len(item.lost_s) for item in self.streams)

    def lost_time_s(self, since_s: float = 0.0) -> list[float]:
        """Return the time lost of each stream: probes sent after `since_s` and lost, over its rate, s (RFC 6412, loss-
        derived method)."""
        return [blackhole_time_loss(item.lost_since(since_s), self.rate_pps) or 0.0 for item in self.streams]


class ProbeLedger:
    """Counts the probes of one run while they are sent and arrive. Not for several threads at once."""

    def __init__(self, streams: Sequence[ProbeStream]) -> None:
        self.foreign = 0
        self._streams = tuple(streams)
        self._sent_ns = [array("q") for _ in streams]
        self._took_ns = [array("q") for _ in streams]
        """The time for which each was under way; `_MISSING` for those that have not arrived."""
        self._highest = [-1] * len(streams)
        self._inversions = [0] * len(streams)
        self._duplicates = [0] * len(streams)

    def send(self, stream: int, now: int) -> ProbeNumber:
        """The number of the next probe of a stream, which is sent at `now` (ns of any clock)."""
        sequence = len(self._sent_ns[stream])
        self._sent_ns[stream].append(now)
        self._took_ns[stream].append(_MISSING)
        return ProbeNumber(stream, sequence)

    def receive(self, number: ProbeNumber | None, now: int) -> None:
        """A datagram has arrived at `now`; None: it is no probe of this run. One that was never sent is none either."""
        if (
            number is None
            or number.stream >= len(self._took_ns)
            or number.sequence >= len(self._took_ns[number.stream])
        ):
            self.foreign += 1
            return
        stream, sequence = number
        if self._took_ns[stream][sequence] != _MISSING:
            self._duplicates[stream] += 1
            return
        self._took_ns[stream][sequence] = max(0, now - self._sent_ns[stream][sequence])
        if sequence < self._highest[stream]:
            self._inversions[stream] += 1
        else:
            self._highest[stream] = sequence

    def missing(self, since_ns: int) -> int:
        """Probes sent at or after this that have not arrived so far."""
        count = 0
        for times, took in zip(self._sent_ns, self._took_ns, strict=True):
            for place in range(len(times) - 1, -1, -1):
                if times[place] < since_ns:
                    break
                count += took[place] == _MISSING
        return count

    def report(
        self, *, threshold_ns: int, begin_ns: int, rate_pps: float, train: int, latest_ns: int = 0, skipped: int = 0
    ) -> ProbeReport:
        """Return what there is to tell; what took longer than `threshold_ns`, or has not arrived by now, is lost."""
        return ProbeReport(
            rate_pps=rate_pps,
            train=train,
            streams=tuple(self._result(place, begin_ns, threshold_ns) for place in range(len(self._streams))),
            foreign=self.foreign,
            latest_s=latest_ns / 1e9,
            skipped=skipped,
        )

    def _result(self, place: int, begin_ns: int, threshold_ns: int) -> StreamResult:
        times, took = self._sent_ns[place], self._took_ns[place]
        return StreamResult(
            stream=self._streams[place],
            sent=len(times),
            arrived=len(took) - took.count(_MISSING),
            late=sum(one > threshold_ns for one in took),
            duplicates=self._duplicates[place],
            inversions=self._inversions[place],
            lost_s=tuple(
                (at - begin_ns) / 1e9
                for at, one in zip(times, took, strict=True)
                if one == _MISSING or one > threshold_ns
            ),
        )
