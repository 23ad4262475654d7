"""Records of earlier versions, turned into the shape of this one before they are validated.

Schema 1 had one lab and no matrix, the flows of iperf3 and the rail switches' uplinks. Schema 2 had points, and beside
channels and ports still the lists of schema 1, and a seed in what makes records comparable. What is older than 3 goes
through both steps.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from testbed.record.samples import Channel, ChannelSamples, Count, FlowEnd, Number, PortLoad

_UPLINK = "uplink"
"""The tier of a rail switch's ports to its spines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Samples:
    """Columns of equal length; `start_s` counts from the end of the flow's own warm-up."""

    start_s: list[Number]
    seconds: list[Number]
    bytes: list[Count]
    retransmits: list[Count]
    cwnd_bytes: list[Count]
    rtt_us: list[Count]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Flow:
    """A flow of iperf3. `started_s`: when its client was started, from the start of the first one of the run."""

    source: FlowEnd
    destination: FlowEnd
    rail: Count
    source_port: Count
    destination_port: Count
    ideal_bps: Number
    sent_bytes: Count
    received_bytes: Count | None
    seconds: Number
    goodput_bps: Number
    retransmits: Count
    mss_bytes: Count
    started_s: Number
    samples: _Samples


@dataclass(frozen=True, slots=True, kw_only=True)
class _Uplink:
    switch: str
    interface: str
    peer: str
    rate_bps: Count
    tx_bytes: Count
    tx_dropped: Count
    utilisation: Number


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """The lists of a run that are no more."""

    flows: list[_Flow]
    uplinks: list[_Uplink]


@cache
def _runs() -> TypeAdapter[_Run]:
    return TypeAdapter(_Run)


def modernise(document: dict[str, Any]) -> dict[str, Any]:
    """A record's JSON in the present schema. One that lacks what its schema has is left for validation to refuse.

    Raises pydantic's `ValidationError` for flows and uplinks of an old record that are none.
    """
    if document.get("schema") == 1:
        document = _from_1(document)
    if document.get("schema") == 2:
        document = _from_2(document)
    return document


def _from_1(document: dict[str, Any]) -> dict[str, Any]:
    """One lab, its runs and metrics were at the top."""
    rest = {key: value for key, value in document.items() if key not in ("lab", "runs", "metrics")}
    scenario = document.get("scenario")
    written: dict[str, Any] = scenario if isinstance(scenario, dict) else {}
    point: dict[str, Any] = {
        "name": "",
        "values": {},
        "lab": document.get("lab"),
        "transport": written.get("transport"),
        "workload": written.get("workload"),
        "runs": document.get("runs"),
        "metrics": document.get("metrics"),
    }
    return {**rest, "schema": 2, "points": [point]}


def _from_2(document: dict[str, Any]) -> dict[str, Any]:
    """Two records of other seeds can be compared; a run has channels and ports alone."""
    changed = {**document, "schema": 3}
    comparability = document.get("comparability")
    if isinstance(comparability, dict):
        changed["comparability"] = {key: value for key, value in comparability.items() if key != "seed"}
    if isinstance(points := document.get("points"), list):
        changed["points"] = [_point(point) for point in points]
    return changed


def _point(point: Any) -> Any:
    if not isinstance(point, dict) or not isinstance(runs := point.get("runs"), list):
        return point
    return {**point, "runs": [_run(run) for run in runs]}


def _run(run: Any) -> Any:
    """Return what schema 2 filled in itself, channels and ports, is kept."""
    if not isinstance(run, dict):
        return run
    old = _runs().validate_python(run)
    rest = {key: value for key, value in run.items() if key not in ("flows", "uplinks")}
    if not rest.get("channels"):
        rest["channels"] = [asdict(_channel(flow)) for flow in old.flows]
    if not rest.get("ports"):
        rest["ports"] = [asdict(_port(uplink)) for uplink in old.uplinks]
    return rest


def _channel(flow: _Flow) -> Channel:
    """Nobody wrote down which ranks a flow's ends were. One that was interrupted counts what it had sent."""
    return Channel(
        source_rank=None,
        destination_rank=None,
        source=flow.source,
        destination=flow.destination,
        rail=flow.rail,
        source_port=flow.source_port,
        destination_port=flow.destination_port,
        sent_bytes=flow.sent_bytes,
        received_bytes=flow.sent_bytes if flow.received_bytes is None else flow.received_bytes,
        seconds=flow.seconds,
        busy_s=flow.seconds,
        ideal_bps=flow.ideal_bps,
        goodput_bps=flow.goodput_bps,
        retransmits=flow.retransmits,
        packets=-(-flow.sent_bytes // flow.mss_bytes) + flow.retransmits if flow.mss_bytes > 0 else None,
        min_rtt_us=min((rtt for rtt in flow.samples.rtt_us if rtt > 0), default=None),
        samples=_curve(flow),
        counters={"mss_bytes": flow.mss_bytes},
    )


def _curve(flow: _Flow) -> ChannelSamples:
    """Times of all flows count from the end of the first one's warm-up."""
    old = flow.samples
    curve = ChannelSamples(at_s=[flow.started_s], acked_bytes=[0], retransmits=[0])
    for start, took, size, again in zip(old.start_s, old.seconds, old.bytes, old.retransmits, strict=False):
        curve.at_s.append(flow.started_s + start + took)
        curve.acked_bytes.append(curve.acked_bytes[-1] + size)
        curve.retransmits.append(curve.retransmits[-1] + again)
    curve.cwnd_bytes.extend([*old.cwnd_bytes[:1], *old.cwnd_bytes])
    curve.rtt_us.extend([*old.rtt_us[:1], *old.rtt_us])
    return curve


def _port(uplink: _Uplink) -> PortLoad:
    return PortLoad(
        node=uplink.switch,
        interface=uplink.interface,
        peer=uplink.peer,
        tier=_UPLINK,
        rate_bps=uplink.rate_bps,
        tx_bytes=uplink.tx_bytes,
        tx_dropped=uplink.tx_dropped,
        utilisation=uplink.utilisation,
    )
