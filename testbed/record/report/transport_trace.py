"""The trace of a transport endpoint as a picture: window and bytes in flight, round trips, paths and losses over time.

The file is what `testbed.protocols.uet.trace.Trace.json_lines` writes. It may come from a stranger: it is data alone.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from testbed.base.errors import TestbedError
from testbed.record.report.chart import XYChart, draw_sheet, label_room, linear_axis

_LOSSES = {"retransmitted": 4, "nacked": 3, "inferred-loss": 2, "timeout": 5}
"""The kinds of loss, with the number of the series whose colour each has."""
_WIDTH = 960.0
LONGEST_LINE = 1 << 16


@dataclass(slots=True)
class PdcTrace:
    """The trace of one PDC. Times in ms from the first event, sizes in bytes, round trips in us."""

    windows: list[tuple[float, float, float]] = field(default_factory=list)
    """Time, cwnd, in flight."""
    round_trips: list[tuple[float, float, bool]] = field(default_factory=list)
    """Time, round trip, whether its packet was marked."""
    paths: list[tuple[float, int]] = field(default_factory=list)
    """Time and entropy value of each packet sent."""
    losses: dict[str, list[float]] = field(default_factory=dict)
    """Times by kind: retransmitted, nacked, inferred-loss, timeout."""


def load_trace(path: Path) -> list[dict[str, object]]:
    """The events of a trace file. Raises `TestbedError` naming the line that is not one."""
    events: list[dict[str, object]] = []
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE), ""), 1):
                if line.strip():
                    events.append(_event(path, number, line))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise TestbedError(f"cannot read {path}: {reason}") from error
    if not events:
        raise TestbedError(f"{path}: no events in this trace")
    return events


def _event(path: Path, number: int, line: str) -> dict[str, object]:
    try:
        event = json.loads(line)
    except json.JSONDecodeError as error:
        raise TestbedError(
            f"{path}:{number}:{error.colno}: {error.msg}", hint="a trace has one JSON object a line"
        ) from None
    if (
        not isinstance(event, dict)
        or not isinstance(event.get("time_ns"), int)
        or not isinstance(event.get("kind"), str)
    ):
        raise TestbedError(f"{path}:{number}: not an event of a trace", hint="expected time_ns, pdcid and kind")
    return event


def busiest_pdc(events: Iterable[dict[str, object]]) -> int:
    """The PDC that has sent most packets. Raises `TestbedError` if none has."""
    sent = Counter(
        pdcid for event in events if event["kind"] == "sent" and isinstance(pdcid := event.get("pdcid"), int)
    )
    if not sent:
        raise TestbedError("this trace has no packet that was sent")
    return sent.most_common(1)[0][0]


def gather(events: Iterable[dict[str, object]], pdcid: int) -> PdcTrace:
    """Return what happened to one PDC; values that are not numbers are left out."""
    trace = PdcTrace()
    start: int | None = None
    for event in events:
        at = event["time_ns"]
        assert isinstance(at, int)
        start = at if start is None else start
        if event.get("pdcid") != pdcid:
            continue
        time_ms = (at - start) / 1e6
        kind = str(event["kind"])
        cwnd, inflight = _number(event.get("cwnd_bytes")), _number(event.get("inflight_bytes"))
        if cwnd is not None and inflight is not None:
            trace.windows.append((time_ms, cwnd, inflight))
        rtt = _number(event.get("rtt_ns"))
        if kind == "acked" and rtt is not None and rtt > 0:
            trace.round_trips.append((time_ms, rtt / 1000, bool(event.get("marked"))))
        entropy = _number(event.get("ev"))
        if kind in ("sent", "retransmitted") and entropy is not None:
            trace.paths.append((time_ms, int(entropy)))
        if kind in _LOSSES:
            trace.losses.setdefault(kind, []).append(time_ms)
    return trace


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def draw_trace(trace: PdcTrace, title: str) -> str:
    """The text of an SVG file with three charts over one time: window and losses, round trips, and paths."""
    times = [at for at, *_ in (*trace.windows, *trace.round_trips, *trace.paths)]
    times += [at for moments in trace.losses.values() for at in moments]
    time = linear_axis("time", "s", [at / 1000 for at in times], tight=True)
    window_axis = linear_axis("window", "byte", [max(0.0, *sizes) for _, *sizes in trace.windows])
    trip_axis = linear_axis("round trip", "s", [trip / 1e6 for _, trip, _ in trace.round_trips])
    path_axis = linear_axis("entropy value", "", [float(ev) for _, ev in trace.paths], from_zero=False)
    left = max(map(label_room, (window_axis, trip_axis, path_axis)))
    window, trips, paths = (
        XYChart(x=time, y=axis, width=_WIDTH, height=height, left=left)
        for axis, height in ((window_axis, 330.0), (trip_axis, 230.0), (path_axis, 230.0))
    )
    window.steps([(at / 1000, sent) for at, _, sent in trace.windows], series=1, label="in flight", weight="fine")
    window.steps([(at / 1000, cwnd) for at, cwnd, _ in trace.windows], label="cwnd")
    for lane, (kind, series) in enumerate(_LOSSES.items()):
        moments = trace.losses.get(kind, [])
        height = window_axis.high * 0.035 * lane  # so that two kinds at one moment are both seen
        window.dots([(at / 1000, height) for at in moments], series=series, label=f"{kind} ({len(moments)})", big=True)
    for marked, series, label in ((False, 0, "unmarked"), (True, 4, "marked (CE)")):
        points = [(at / 1000, trip / 1e6) for at, trip, ce in trace.round_trips if ce is marked]
        trips.dots(points, series=series, label=label)
    paths.dots([(at / 1000, float(ev)) for at, ev in trace.paths], series=5)
    return draw_sheet(
        title,
        [
            (chart.draw(described), chart.height)
            for chart, described in (
                (window, "Congestion window, bytes in flight and losses over time"),
                (trips, "Round trips over time"),
                (paths, "Entropy value of each packet over time"),
            )
        ],
        width=_WIDTH,
    )
