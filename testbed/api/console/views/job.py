"""The scenario that runs on a lab: how far it is, who is furthest behind, what holds their flow up; and its verdict.

A run tells of itself in a file (`testbed.run.sweep.published`), whoever has started it. What a record has of a run that
is played back is in the same form.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.api.console.answers import RefusedRequest, whole_number
from testbed.api.console.live.lab import WatchedLab
from testbed.api.console.sources.recorded import RecordedLab
from testbed.api.console.view import Publish, View, ViewCall, get
from testbed.api.console.views.targets import lab_of
from testbed.base.errors import RecordError
from testbed.base.rows import row_json
from testbed.run.sweep.published import running

if TYPE_CHECKING:
    from testbed.api.console.sources.source import Source
    from testbed.lab.core.deploy.live import RunningLab
    from testbed.lab.observe.flow_path import FlowPath
    from testbed.lab.observe.flow_trace import TraceRow
    from testbed.record.record import Record

INTERVAL_S = 0.5
OVER_S = 0.25
"""The time for which the load of the ports on a path is measured."""
HELD_S = 5.0
"""The time in which the deepest queue of a path is looked for: ten readings."""
MOST_NOTED = 10
"""Runs that ended while a page looked, the latest of which are told."""
_TRANSPORT_PROTOCOLS = {"tcp": 6, "roce": 17, "uet": 17}
UDP_PORT = 4791
"""The destination port of RoCEv2, for a run that does not say its own."""


def _job(call: ViewCall) -> dict[str, Any]:
    """Return the runs that use the lab, and those that ended since pages look; of a record, the run that is played."""
    source = call.base
    if isinstance(source, RecordedLab):
        return {"jobs": [], "ended": [], "recorded": recorded_job(source)}
    told = source.latest_view(VIEW.name) if isinstance(source, WatchedLab) else None
    return {"jobs": jobs_on(source), "ended": told["ended"] if isinstance(told, dict) else [], "recorded": None}


def jobs_on(source: Source) -> list[Mapping[str, Any]]:
    """Return what the runs that go on, on this lab, tell of themselves."""
    return [one for one in running(source.lab.state) if one["lab"] == source.name]


def _watch(source: Source, publish: Publish, stop: threading.Event) -> None:
    """Publish what runs tell whenever it changes, and the verdict of one that has ended."""
    if not source.live:
        return
    told = source.latest_view(VIEW.name) if isinstance(source, WatchedLab) else None
    # A run that went on when a page looked last may have ended while none did, as when its tab was hidden.
    before: list[Mapping[str, Any]] | None = told["jobs"] if isinstance(told, dict) else None
    ended: list[dict[str, Any]] = list(told["ended"]) if isinstance(told, dict) else []
    while not stop.wait(INTERVAL_S):
        now = jobs_on(source)
        going = {one["pid"] for one in now}
        over = [one for one in before or () if one["pid"] not in going]
        ended = [*ended, *map(verdict_of, over)][-MOST_NOTED:]
        if now != before or over:
            publish({"jobs": now, "ended": ended})
        before = now


def verdict_of(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outcome of a run that has ended, by the record that it left; a run that left none was broken off."""
    found = {"scenario": job["scenario"], "directory": job["directory"], "command": job["command"]}
    if job["directory"] is None:
        return found | {"verdict": "", "reasons": ["it keeps no record"]}
    from testbed.record.store import load_record

    try:
        record = load_record(Path(str(job["directory"])))
    except RecordError as error:
        return found | {"verdict": "", "reasons": [f"it was broken off: {error.message}"]}
    return found | {"name": Path(str(job["directory"])).name} | outcome_json(record)


def outcome_json(record: Record) -> dict[str, Any]:
    """Return the verdict of a record, with what was expected and measured."""
    titles = {metric.name: metric for point in record.points for metric in point.metrics}
    return {
        "verdict": record.verdict.outcome.value,
        "reasons": record.verdict.reasons,
        "incomplete": record.incomplete,
        "expectations": [
            {
                "title": titles[one.metric].title if one.metric in titles else one.metric,
                "unit": titles[one.metric].unit if one.metric in titles else "",
                "point": one.point,
                "minimum": one.minimum,
                "maximum": one.maximum,
                "measured": one.measured,
                "outcome": one.outcome.value,
            }
            for one in record.expectations
        ],
    }


def recorded_job(source: RecordedLab) -> dict[str, Any]:
    """Return the run of a record as a job that has ended: its collectives and events over time, and the verdict."""
    record, point, run = source.record, source.point, source.run
    slowest = sorted(
        (
            {
                "source": str(channel.source),
                "destination": str(channel.destination),
                "share": channel.goodput_bps / channel.ideal_bps if channel.ideal_bps else None,
                "goodput_bps": channel.goodput_bps,
                "source_port": channel.source_port or 0,
                "destination_port": channel.destination_port or 0,
                "source_rank": channel.source_rank,
                "destination_rank": channel.destination_rank,
                "retransmits": channel.retransmits,
            }
            for channel in run.channels
            if not channel.inside
        ),
        key=lambda one: (one["share"] is None, one["share"]),
    )
    return {
        "scenario": record.scenario.name,
        "description": record.scenario.description,
        "point": point.name,
        "run": run.index,
        "runs": [one.index for one in point.runs],
        "points": [one.name for one in record.points],
        "seed": run.seed,
        "elapsed_s": run.elapsed_s,
        "started": run.started,
        "transport": point.transport.get("kind", ""),
        "workload": point.workload.get("kind", ""),
        "collectives": [
            {
                "label": one.label or one.kind,
                "kind": f"{one.kind} ({one.algorithm})",
                "start_s": one.start_s,
                "end_s": one.start_s + one.seconds,
                "busbw_bps": one.busbw_bps,
                "ideal_busbw_bps": one.ideal_busbw_bps,
            }
            for one in run.collectives
        ],
        "events": run.events,
        "checks": run.checks,
        "slowest": slowest[:5],
        "metrics": [
            {"title": one.title, "unit": one.unit, "median": one.median, "minimum": one.minimum, "maximum": one.maximum}
            for one in point.metrics
            if one.headline
        ],
    } | outcome_json(record)


def _path(call: ViewCall) -> dict[str, Any]:
    """Return the ways that a flow takes now, port by port, and the queue among them that holds it up longest."""
    from testbed.base.datapath.flow_hash import FiveTuple
    from testbed.lab.observe.flow_ends import flow_ends
    from testbed.lab.observe.flow_path import FlowTracer
    from testbed.lab.observe.flow_trace import trace_rows

    lab = lab_of(call.base).whole
    near, far = flow_ends(lab, _word(call, "source"), _word(call, "destination"))
    transport = call.query.get("transport", "roce")
    packet = FiveTuple(
        source=near.address,
        destination=far.address,
        protocol=_TRANSPORT_PROTOCOLS.get(transport, 17),
        source_port=_port(call, "source_port") or 49152,
        destination_port=_port(call, "destination_port") or UDP_PORT,
    )
    with FlowTracer(lab) as tracer:
        path = tracer.trace(near.node, near.place, far.node, packet)
    rows = trace_rows(lab, path, class_name=_held_class(lab, path), over_s=OVER_S)
    deepest = _deepest(call.base, rows)
    waits = _waits(rows, deepest)
    worst = max(range(len(rows)), key=waits.__getitem__) if any(waits) else None
    return {
        "arrives": path.arrives,
        "certain": path.is_certain and bool(_port(call, "source_port")),
        "lost": path.lost,
        "over_s": HELD_S,
        "hops": [
            row_json(row) | {"deepest_bytes": most, "wait_s": wait}
            for row, most, wait in zip(rows, deepest, waits, strict=True)
        ],
        "ports": [f"{row.node}:{row.interface}" for row in rows],
        "holds": None if worst is None else f"{rows[worst].node}:{rows[worst].interface}",
    }


def _deepest(source: Source, rows: Sequence[TraceRow]) -> list[int]:
    """Return the deepest that the queue of each port has been within the last `HELD_S`, in bytes.

    A queue that PFC stops and lets go, or that fills with each burst, is empty at many a moment. Where nothing could be
    read for longer than that, what was read before says nothing of it.
    """
    deepest = [row.queue_bytes for row in rows]
    places, now = source.shape.places, time.time()
    ports = [places.get(f"{row.node}:{row.interface}") for row in rows]
    known = [(at, port) for at, port in enumerate(ports) if port is not None]
    seen = source.series(("queue",), [port for _, port in known], now - HELD_S, now).values["queue"]
    for (at, _), values in zip(known, seen.T, strict=True):
        deepest[at] = max(deepest[at], int(values.max(initial=0)))
    return deepest


def _waits(rows: Sequence[TraceRow], queues: Sequence[int]) -> list[float]:
    """Return how long what waits at each port takes to be sent, s, where its queue is as deep as that."""
    return [8 * queue / row.rate_bps if row.rate_bps else 0.0 for row, queue in zip(rows, queues, strict=True)]


def _held_class(lab: RunningLab, path: FlowPath) -> str | None:
    """Return the traffic class that waits longest on a path; None where no port of it has classes, or none waits."""
    from testbed.lab.observe.flow_trace import trace_rows
    from testbed.lab.observe.port_table import NothingSelected

    profiles = () if lab.plan.tables is None else lab.plan.tables.profiles
    longest: dict[str, float] = {}
    for name in {item.name for profile in profiles for item in profile.classes}:
        with suppress(NothingSelected):
            rows = trace_rows(lab, path, class_name=name, over_s=0.0)
            longest[name] = max(_waits(rows, [row.queue_bytes for row in rows]), default=0.0)
    return max(longest, key=longest.__getitem__) if any(longest.values()) else None


def _word(call: ViewCall, name: str) -> str:
    if not (text := call.query.get(name, "")):
        raise RefusedRequest(400, f"{name}: a node, or one of its NICs (NODE:IF), is needed")
    return text


def _port(call: ViewCall, name: str) -> int:
    return whole_number(call.query.get(name) or "0", name, most=65_535)


VIEW = View(
    name="job",
    title="Job",
    order=50,
    live=True,
    recorded=True,
    routes=(get("", _job), get("path", _path)),
    watch=_watch,
    style=True,
)
