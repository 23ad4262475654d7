"""Trust check of requests: clients began them, and servers sent their tokens, when they were due."""

from __future__ import annotations

from collections.abc import Mapping

from testbed.record.record import Check

MAX_LATENESS_MS = 5.0
"""How late requests may begin and tokens be sent, as the 99th percentile: what a real-time thread is granted, too."""


def check_request_lateness(counters: Mapping[str, float]) -> list[Check]:
    """Judges how late the generator was; nothing where there were no requests.

    An open loop that is late offers less than it says, and what it measures is this machine: such a run is invalid, and
    not slow.
    """
    if not counters.get("requests_begun"):
        return []
    asked_ms = counters.get("request_lateness_p99_us", 0.0) / 1e3
    sent_ms = counters.get("token_lateness_p99_us", 0.0) / 1e3
    return [
        Check.at_most(
            name="request-lateness",
            title="Requests and tokens were sent when due",
            value=max(asked_ms, sent_ms),
            limit=MAX_LATENESS_MS,
            message=f"{counters['requests_begun']:.0f} requests began p99 {asked_ms:.2f} ms late, and their tokens were"
            f" sent p99 {sent_ms:.2f} ms late (limit {MAX_LATENESS_MS:g} ms)",
        )
    ]
