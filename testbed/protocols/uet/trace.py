"""Events inside an endpoint, in a structured form from which plots of cwnd, RTT and paths are drawn.

A core that traces has a `Trace`; one that does not has None and pays for one comparison at each place.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple


class TraceEvent(NamedTuple):
    time_ns: int
    pdcid: int
    """Local PDCID; 0 for the endpoint itself."""
    kind: str
    """`sent`, `retransmitted`, `acked`, `nacked`, `timeout`, `inferred-loss`, `state`, `completed`, `refused`, ..."""
    values: dict[str, int | float | str]
    """By `kind`: psn, ev, cwnd_bytes, inflight_bytes, rtt_ns, marked, state, ..."""


class Trace:
    """The latest `limit` events of one endpoint, oldest first."""

    def __init__(self, limit: int = 1_000_000) -> None:
        self._events: deque[TraceEvent] = deque(maxlen=limit)
        self.dropped = 0

    def record(self, time_ns: int, pdcid: int, kind: str, **values: int | float | str) -> None:
        if len(self._events) == self._events.maxlen:
            self.dropped += 1
        self._events.append(TraceEvent(time_ns, pdcid, kind, values))

    def __iter__(self) -> Iterator[TraceEvent]:
        return iter(self._events)

    def __len__(self) -> int:
        return len(self._events)

    def of(self, kind: str, pdcid: int | None = None) -> Iterator[TraceEvent]:
        """Events of one kind, of one PDC or all."""
        return (event for event in self._events if event.kind == kind and pdcid in (None, event.pdcid))

    def json_lines(self) -> Iterator[str]:
        """One JSON object a line: `{"time_ns": ..., "pdcid": ..., "kind": ..., ...}`."""
        for event in self._events:
            yield json.dumps({"time_ns": event.time_ns, "pdcid": event.pdcid, "kind": event.kind, **event.values})
