"""A lab that is up, as all pages share it: read by threads of its own, told in one feed.

Three threads change what is known of it: the ticker's, which reads counters; one that waits for events; and one that
reads shape and state anew, where something says that they changed. Each makes a new value and hands it to the loop's
thread, which alone publishes: so a snapshot always fits the messages around it.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from numpy.typing import NDArray

from testbed.api.console.answers import encode
from testbed.api.console.counters.history import TICK_S, History, PortSeries
from testbed.api.console.counters.quantities import PortFrame, Totals, differences, nothing_known, quantities
from testbed.api.console.counters.reading import LabCounters
from testbed.api.console.failures import RETRY_S, PartFailures
from testbed.api.console.live.event_reading import EventWatch, event_json
from testbed.api.console.live.state_reading import with_conditions, with_link, with_links, with_nodes, with_sessions
from testbed.api.console.sources.shape import LabShape, digest, shape_of
from testbed.api.console.sources.source import Moment, Source
from testbed.api.console.sources.state import SeenState, state_differences
from testbed.api.console.stream.feed import Feed
from testbed.base.errors import LabNotFound, TestbedError
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.kept_events import LAB_CHANGED
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.deploy.watch.event_history import past_events
from testbed.lab.core.deploy.watch.events import LabEvent

STATUS_EVERY_S = 5.0
"""Nodes are looked at so often, though nothing is told: a container may have stopped."""
SESSIONS_EVERY_S = 60.0
MOST_EVENTS = 2_000
MOST_STATES = 2_000
IDLE_EVERY = 4
"""Counters are read at each fourth tick while no page looks."""
LEAST_SPAN_S = TICK_S / 2
"""A tick that comes late is followed by one that is on time: the counts of a few milliseconds say nothing."""
_LATEST_S = 1e11
"""Seconds since the epoch: a time that no event is behind, and that still has a date."""
_NODES_CHANGED = ("daemon-", "thing-", "switch-", "service-", "power-")


class WatchedLab(Source):
    """One lab for all pages. `common` are the parts of a snapshot that are the same for all labs, as encoded JSON."""

    live = True
    clock = "wall"

    def __init__(
        self,
        name: str,
        state: StateDirectory,
        loop: asyncio.AbstractEventLoop,
        common: Callable[[], bytes],
        failures: PartFailures,
    ) -> None:
        """Open a lab. Raises `LabNotFound`, `LabUnreadable`, and `DriverError` where its counters are gone."""
        self.name = name
        self.base = f"/api/labs/{name}"
        self._state_directory = state
        self._loop = loop
        self._common = common
        self._failures = failures
        self._lock = threading.Lock()
        self._asked = threading.Event()
        self._stopped = threading.Event()
        self._wanting = threading.Lock()
        self._wanted: set[str] = {"nodes", "links", "sessions"}
        self._wanted_sessions: set[str] = set()
        self._lab = RunningLab.open(name, state)
        self._shape = _shape(self._lab)
        self._counters: LabCounters | None = LabCounters(self._lab)
        self._before: Totals | None = None
        self.history = History(self._shape.ports)
        self._latest = nothing_known(time.time(), self._shape.ports)
        self._shown = self._latest
        self._seen = SeenState()
        self._shown_state = self._seen
        self._states: deque[tuple[float, SeenState]] = deque(maxlen=MOST_STATES)
        self._events: deque[dict[str, Any]] = deque(maxlen=MOST_EVENTS)
        self._views: dict[str, object] = {}
        self._files = self._stamps()
        self._ticks = 0
        self._ticked_s = 0.0
        self.feed = Feed(self._snapshot)
        self._watch = EventWatch(self._lab, self._happened, lambda: self._want("links"), failures)
        self._reader = threading.Thread(target=self._read_on, name=f"state of {name}", daemon=True)
        self._watch.start()
        self._reader.start()

    # --- what is asked of it ----------------------------------------------------------------------------

    @property
    def shape(self) -> LabShape:
        return self._shape

    @property
    def lab(self) -> RunningLab:
        return self._lab

    @property
    def span(self) -> tuple[float, float] | None:
        return self.history.span

    def now(self) -> Moment:
        return Moment(frame=self._latest, state=self._seen)

    def moment(self, t: float) -> Moment | None:
        frame = self.history.moment(t)
        if frame is None:
            return None
        states = list(self._states)
        found = next((state for at, state in reversed(states) if at <= frame.t), None)
        return Moment(frame=frame, state=found or (states[0][1] if states else self._seen))

    def series(self, names: Sequence[str], ports: Sequence[int], begin: float, end: float) -> PortSeries:
        return self.history.series(names, ports, begin, end)

    def total(self, name: str, chosen: NDArray[Any], begin: float, end: float) -> PortSeries:
        return self.history.total(name, chosen, begin, end)

    def events(self, begin: float, end: float) -> list[dict[str, Any]]:
        """Return what is kept of the past, and what was told since somebody looks: much is told and not kept."""
        since = datetime.fromtimestamp(min(max(0.0, begin), _LATEST_S), UTC)
        kept = [event_json(event) for event in past_events(self._lab, since)]
        found = {(e["time"], e["node"], e["kind"], e["subject"]): e for e in (*kept, *list(self._events))}
        return sorted((e for e in found.values() if begin <= e["t"] <= end), key=lambda e: float(e["t"]))

    def described(self) -> dict[str, Any]:
        record = self._lab.record
        return super().described() | {
            "topology": record.source,
            "created": record.created,
            "state_revision": record.revision,
        }

    def publish_view(self, view: str, data: object) -> None:
        """Tell pages what a view has found. In any thread."""
        content = encode({"view": view, "data": data})
        self._call(lambda: self._show_view(view, data, content))

    def latest_view(self, view: str) -> object:
        """Return what a view has told pages last; None where it has told nothing."""
        return self._views.get(view)

    def _show_view(self, view: str, data: object, content: bytes) -> None:
        self._views[view] = data
        self.feed.publish("view", content)

    # --- the ticker's thread ----------------------------------------------------------------------------

    def tick(self) -> None:
        """Read the counters, if it is time to; publish what changed. Raises nothing for a lab that goes meanwhile."""
        self._ticks += 1
        self._look_at_files()
        now = time.monotonic()
        if (self.feed.listeners == 0 and self._ticks % IDLE_EVERY) or now - self._ticked_s < LEAST_SPAN_S:
            return
        self._ticked_s = now
        with self._lock:
            counters, before = self._counters, self._before
            if counters is None:
                return
            try:
                totals = counters.read()
            except (TestbedError, OSError):
                self._want("shape")
                return
            self._before = totals
            if before is None:
                return
            frame = quantities(before, totals, counters.rate_bps, time.time())
            self.history.append(frame)
            changed, self._latest = differences(self._latest, frame), frame
        data = encode({"t": round(frame.t, 3), "dt": round(frame.dt, 3), "d": changed})
        self._call(lambda: self._show_frame(frame, data))

    def _show_frame(self, frame: PortFrame, data: bytes) -> None:
        if len(frame.columns["use"]) != self._shown_ports:  # of the shape before
            return
        self._shown = frame
        self.feed.publish("tick", data)

    @property
    def _shown_ports(self) -> int:
        return len(self._shown.columns["use"])

    def _look_at_files(self) -> None:
        """Notice what nobody tells: changes of links and of the lab itself, by the times of their files."""
        files, self._files = self._files, self._stamps()
        for name, what in (("lab.json", "shape"), ("links.json", "conditions")):
            if files[name] != self._files[name]:
                self._want(what)

    def _stamps(self) -> Mapping[str, tuple[int, int]]:
        found = {}
        for name in ("lab.json", "links.json"):
            try:
                status = os.stat(self._state_directory.lab_directory(self.name) / name)  # noqa: PTH116  # both of a moment
                found[name] = status.st_mtime_ns, status.st_ino
            except OSError:
                found[name] = 0, 0
        return found

    # --- the thread of events ---------------------------------------------------------------------------

    def _happened(self, event: LabEvent) -> None:
        document = event_json(event)
        self._events.append(document)
        data = encode(document)
        self._call(lambda: self.feed.publish("event", data))
        if event.kind in ("link-up", "link-down"):
            self._change(
                lambda seen: with_link(seen, self._shape, f"{event.node}:{event.subject}", up=event.kind == "link-up")
            )
        elif event.kind in ("bgp-up", "bgp-down"):
            self._want("session", session=event.node)
        elif event.kind == "notifications-lost":
            self._want("nodes", "links", "sessions")
        elif event.kind == "lab-destroyed":
            self._call(lambda: self._end("the lab was destroyed"))
        elif event.kind == LAB_CHANGED:  # also of a node alone, which may have another namespace now
            self._want("shape")
        elif event.kind.startswith(_NODES_CHANGED):
            self._want("nodes")

    # --- the thread that reads shape and state ----------------------------------------------------------

    def _want(self, *what: str, session: str = "") -> None:
        with self._wanting:
            self._wanted.update(what)
            self._wanted_sessions.update([session] if session else [])
        self._asked.set()

    def _read_on(self) -> None:
        last_status = last_sessions = 0.0
        part = f"the state of {self.name}"
        while not self._stopped.is_set():
            self._asked.clear()
            now = time.monotonic()
            looked_at = self.feed.listeners > 0
            with self._wanting:
                wanted, self._wanted = self._wanted, set()
                nodes, self._wanted_sessions = self._wanted_sessions, set()
            if now - last_status >= STATUS_EVERY_S * (1 if looked_at else IDLE_EVERY):
                wanted.add("nodes")
            if looked_at and now - last_sessions >= SESSIONS_EVERY_S:
                wanted.add("sessions")
            if "nodes" in wanted:
                last_status = now
            if "sessions" in wanted:
                last_sessions = now
            try:
                self._read_anew(wanted, nodes)
            except LabNotFound:
                self._call(lambda: self._end("the lab was destroyed"))
                return
            except (TestbedError, OSError):
                self._want_again(wanted, nodes)  # it is being changed, or going
            except Exception as error:
                self._failures.note(part, error)
                self._want_again(wanted, nodes)
            else:
                self._failures.clear(part)
            self._asked.wait(STATUS_EVERY_S)

    def _want_again(self, wanted: set[str], nodes_of_sessions: set[str]) -> None:
        self._stopped.wait(RETRY_S)
        with self._wanting:
            self._wanted |= wanted
            self._wanted_sessions |= nodes_of_sessions

    def _read_anew(self, wanted: set[str], nodes_of_sessions: set[str]) -> None:
        if "shape" in wanted:
            self._read_shape()
            wanted |= {"nodes", "links", "sessions"}
        lab, shape = self._lab, self._shape
        if "links" in wanted:
            self._change(lambda seen: with_links(seen, lab, shape))
        elif "conditions" in wanted:
            self._change(lambda seen: with_conditions(seen, lab, shape))
        if "nodes" in wanted:
            nodes = with_nodes(SeenState(), lab).nodes
            self._change(lambda seen: replace(seen, nodes=nodes))
        if "sessions" in wanted:
            sessions = with_sessions(SeenState(), lab).sessions
            self._change(lambda seen: replace(seen, sessions=sessions))
        elif "session" in wanted:
            some = with_sessions(SeenState(), lab, nodes_of_sessions).sessions
            self._change(lambda seen: replace(seen, sessions={**seen.sessions, **some}))

    def _read_shape(self) -> None:
        """Take up a lab that was changed, with its counters. Raises `LabNotFound`, and what opening it does."""
        lab = RunningLab.open(self.name, self._state_directory)
        same = lab.record == self._lab.record and lab.identities == self._lab.identities  # or a node was made anew
        if same and self._counters is not None:
            return
        counters = LabCounters(lab)
        shape = _shape(lab)
        with self._lock:
            if self._counters is not None:
                self._counters.close()
            if list(shape.places) != list(self._shape.places):
                self.history = History(shape.ports)
                self._seen = SeenState()  # its numbers are those of the shape before
                self._states.clear()
            self._lab, self._shape, self._counters, self._before = lab, shape, counters, None
            self._latest = nothing_known(time.time(), shape.ports)
            latest = self._latest
        self._call(lambda: self._show_shape(latest, shape.revision))

    def _show_shape(self, frame: PortFrame, revision: str) -> None:
        self._shown, self._shown_state = frame, self._seen
        self.feed.publish_anew("shape", encode({"revision": revision}))

    def _change(self, change: Callable[[SeenState], SeenState]) -> None:
        """Change the state that is known, and publish how. In any thread."""
        with self._lock:  # also while it is told, so that two threads tell in the order in which they changed it
            before = self._seen
            after = self._seen = change(before)
            if found := state_differences(before, after):
                t = time.time()
                self._states.append((t, after))
                data = encode({"t": round(t, 3), **found})
                self._call(lambda: self._show_state(after, data))

    def _show_state(self, state: SeenState, data: bytes) -> None:
        self._shown_state = state
        self.feed.publish("state", data)

    # --- the loop's thread ------------------------------------------------------------------------------

    def _call(self, work: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(work)

    def _snapshot(self) -> bytes:
        own = {
            "t": round(self._shown.t, 3),
            "revision": self._shape.revision,
            "columns": dict(self._shown.columns),
            "state": self._shown_state.to_json(),
        }
        return encode(own)[:-1] + b"," + self._common()[1:]

    def _end(self, reason: str) -> None:
        self.feed.publish("gone", encode({"reason": reason}))
        self.feed.close()
        self._stopped.set()
        self._asked.set()
        self._failures.forget(self.name)

    @property
    def ended(self) -> bool:
        """The lab has gone: pages that ask for it anew get another one, or hear that there is none."""
        return self._stopped.is_set()

    def close(self) -> None:
        """End the threads and the feed, and let go of the lab's maps and sockets."""
        self._stopped.set()
        self._asked.set()
        self.feed.close()
        self._watch.close()
        self._failures.forget(self.name)
        with self._lock:
            if self._counters is not None:
                self._counters.close()
            self._counters = None


def _shape(lab: RunningLab) -> LabShape:
    record = lab.record
    return shape_of(
        lab.model,
        lab.plan,
        k=record.k,
        revision=digest(record.created, record.revision, record.changed),
        created=record.created,
    )
