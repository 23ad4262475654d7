"""Channels and transfers as a run leaves them, of which a test says only what it is about."""

from __future__ import annotations

from typing import Any

from testbed.record.samples import Channel, FlowEnd, Transfers


def end(place: str | FlowEnd) -> FlowEnd:
    """The end of a flow at "node:interface", or at a node's first rail."""
    if isinstance(place, FlowEnd):
        return place
    node, _, interface = place.partition(":")
    return FlowEnd(node=node, interface=interface or "rail1", address="10.0.0.1")


def channel(source: str | FlowEnd, destination: str | FlowEnd, **changes: Any) -> Channel:
    """A channel that moved nothing, but for what is told."""
    values: dict[str, Any] = dict.fromkeys(("sent_bytes", "received_bytes", "retransmits", "packets"), 0)
    values |= dict.fromkeys(("rail", "destination_rank", "seconds", "busy_s", "ideal_bps", "goodput_bps"), 1)
    values |= {"source_rank": 0, "source_port": None, "destination_port": None}
    return Channel(source=end(source), destination=end(destination), **(values | changes))


def transfers(*rows: tuple[float, float | None], size_bytes: int = 1_000_000) -> Transfers:
    """A transfer on each channel, from rank i to rank i + 1, with its start and end in s; alone it takes a second."""
    count = len(rows)
    return Transfers(
        number=list(range(count)),
        source=list(range(count)),
        destination=list(range(1, count + 1)),
        size_bytes=[size_bytes] * count,
        channel=list(range(count)),
        start_s=[start for start, _ in rows],
        end_s=[done for _, done in rows],
        ideal_s=[1.0] * count,
    )
