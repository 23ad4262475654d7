"""The trace of a transport endpoint as a picture: window and bytes in flight, round trips, paths and losses over time.

The file is what `testbed.transport.uet.trace.Trace.json_lines` writes. It may come from a stranger: it is data alone.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from testbed.errors import TestbedError

_INK, _BLUE, _ORANGE, _RED, _GREY = "#1c2733", "#2563a8", "#d97a1a", "#c22f2f", "#9aa5b1"
_LOSSES = {"retransmitted": "o", "nacked": "v", "inferred-loss": "s", "timeout": "X"}
LONGEST_LINE = 1 << 16


@dataclass(slots=True)
class PdcTrace:
    """What a trace tells of one PDC. Times in ms from the first event, sizes in bytes, round trips in us."""

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
    """What happened to one PDC; values that are not numbers are left out."""
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


def plot_trace(trace: PdcTrace, title: str, target: Path) -> None:
    """Draw it to a file whose name ends in .svg, .png or .pdf. Raises `TestbedError` if that cannot be written."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"text.parse_math": False, "font.size": 10, "axes.grid": True, "grid.color": "#e3e7eb"}):
        figure = Figure(figsize=(10, 8), layout="constrained")
        window, rtt, paths = figure.subplots(3, 1, sharex=True, height_ratios=[3, 2, 2])
        figure.suptitle(title, color=_INK)
        times = [item[0] for item in trace.windows]
        window.step(times, [item[1] / 1000 for item in trace.windows], color=_BLUE, lw=1.6, where="post", label="cwnd")
        window.step(
            times, [item[2] / 1000 for item in trace.windows], color=_ORANGE, lw=0.8, where="post", label="in flight"
        )
        for kind, marker in _LOSSES.items():
            at = trace.losses.get(kind, [])
            if at:
                window.plot(at, [0] * len(at), marker, color=_RED, ms=5, ls="", label=f"{kind} ({len(at)})")
        window.set_ylabel("kB")
        window.legend(loc="upper right", ncols=3, frameon=False)
        for marked, colour, label in ((False, _BLUE, "unmarked"), (True, _RED, "marked (CE)")):
            points = [(at, value) for at, value, ce in trace.round_trips if ce is marked]
            if points:
                rtt.plot(*zip(*points, strict=True), ".", color=colour, ms=3, label=label)
        rtt.set_ylabel("round trip, us")
        if trace.round_trips:
            rtt.legend(loc="upper right", ncols=2, frameon=False)
        paths.plot([at for at, _ in trace.paths], [ev for _, ev in trace.paths], ".", color=_GREY, ms=2)
        paths.set_ylabel("entropy value")
        paths.set_xlabel("ms")
        try:
            figure.savefig(target, dpi=120)
        except (OSError, ValueError) as error:
            raise TestbedError(
                f"cannot write {target}: {error}", hint="name a file ending in .svg, .png or .pdf"
            ) from error
