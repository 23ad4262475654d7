"""Pauses (PFC): who pauses whom, as a tree from the root of congestion outwards; and the ports that storms come from.

A port that asks its peer to pause does so because the switch that it stands in holds too much of what came in there:
the queue that does not drain is at another port of this switch. Where that port is itself paused, the cause lies one
switch further on. So a pause of A by B hangs below the pauses that stop the ports of B's switch from sending, and what
nobody stops is a root: a queue that is just full, or a port that pauses its peer without a reason (a storm).
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from testbed.api.console.answers import number
from testbed.api.console.view import Publish, View, ViewCall, get
from testbed.base.errors import TestbedError

if TYPE_CHECKING:
    from testbed.api.console.sources.source import Source
    from testbed.lab.observe.port_table import PortTable
    from testbed.lab.observe.telemetry import Snapshot

INTERVAL_S = 0.5
RECENT_S = 2.0
"""A pause that has ended is shown for this long: congestion pauses many times in a second, and not all of it."""
MOST_SHOWN = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A class of the port `paused` is stopped by the port `by`, the other end of its link.

    `now` says that it is stopped at this moment; `since_s` is how long this pause lasts, and `share` the part of the
    last interval in which it was stopped. `storm`: `by` pauses without a reason.
    """

    paused: str
    by: str
    share: float
    now: bool
    traffic_class: str = ""
    since_s: float = 0.0
    total_s: float = 0.0
    storm: bool = False
    freed: bool = False
    """The watchdog lets the port send nevertheless."""


@dataclass(slots=True, kw_only=True)
class Branch:
    """A node of the tree: what is the matter at a switch or host, and the pauses that come of it."""

    node: str
    cause: str
    """"queue", "storm" or "pause": full by itself, a storm from there, or stopped by others further on."""
    queue: str = ""
    """The port of it with the deepest queue, "" for none."""
    queue_bytes: int = 0
    pauses: list[Pause] = field(default_factory=list)
    """The pauses that it asks its neighbours for."""
    branches: list[Branch] = field(default_factory=list)
    """The neighbours that pause others for it."""


def build_tree(pauses: Sequence[Pause], queues: dict[str, int]) -> list[Branch]:
    """Put pauses together as a tree for each root, most pauses first. `queues` has the bytes that wait at each port.

    A circle of pauses (a deadlock of lossless classes) has no root: the node with the deepest queue stands for one.
    """
    by_node: defaultdict[str, list[Pause]] = defaultdict(list)
    stopped: defaultdict[str, set[str]] = defaultdict(set)
    for pause in pauses:
        asking = pause.by.partition(":")[0]
        by_node[asking].append(pause)
        stopped[pause.paused.partition(":")[0]].add(asking)
    deepest = _deepest(queues)
    roots = [node for node in by_node if not stopped[node] or any(one.storm for one in by_node[node])]
    done: set[str] = set()
    found = [_branch(node, by_node, deepest, done, is_root=True) for node in roots if node not in done]
    while left := [node for node in by_node if node not in done]:
        node = max(left, key=lambda name: (deepest.get(name, ("", 0))[1], name))
        found.append(_branch(node, by_node, deepest, done, is_root=True))
    return sorted(found, key=lambda branch: -_size(branch))


def _branch(
    node: str,
    by_node: dict[str, list[Pause]],
    deepest: dict[str, tuple[str, int]],
    done: set[str],
    *,
    is_root: bool = False,
) -> Branch:
    done.add(node)
    queue, waiting = deepest.get(node, ("", 0))
    pauses = sorted(by_node.get(node, []), key=lambda one: (-one.share, one.paused))
    cause = "storm" if any(one.storm for one in pauses) else "queue" if is_root else "pause"
    found = Branch(node=node, cause=cause, queue=queue, queue_bytes=waiting, pauses=pauses)
    neighbours = dict.fromkeys(one.paused.partition(":")[0] for one in pauses)
    for neighbour in neighbours:
        if neighbour in by_node and neighbour not in done:
            found.branches.append(_branch(neighbour, by_node, deepest, done))
    return found


def _size(branch: Branch) -> int:
    return len(branch.pauses) + sum(map(_size, branch.branches))


def _deepest(queues: dict[str, int]) -> dict[str, tuple[str, int]]:
    """Return the port of each node with the deepest queue, and how deep it is."""
    found: dict[str, tuple[str, int]] = {}
    for port, waiting in queues.items():
        node = port.partition(":")[0]
        if waiting > found.get(node, ("", 0))[1]:
            found[node] = (port, waiting)
    return found


# --- from the maps of a lab ------------------------------------------------------------------------------


class PauseReader:
    """Reads the pauses of a lab again and again; what a class was paused since the reading before is its share."""

    def __init__(self, table: PortTable) -> None:
        self._table = table
        self._before: Snapshot | None = None
        self._seen_s: dict[tuple[int, int], float] = {}
        """When each queue was last seen paused."""

    def read(self, snapshot: Snapshot) -> tuple[list[Pause], dict[str, int]]:
        """Return the pauses that last or have just ended, and what waits at each port that asks for one."""
        table, before = self._table, self._before
        self._before = snapshot
        now_s = snapshot.time_ns / 1e9
        interval_ns = 0 if before is None else snapshot.time_ns - before.time_ns
        pauses = snapshot.pauses
        grown = pauses["paused_ns"] - (pauses["paused_ns"] if before is None else before.pauses["paused_ns"])
        active = table.lossless & ((grown > 0) | (pauses["paused_since"] > 0))
        for port, priority in np.argwhere(active).tolist():
            self._seen_s[port, priority] = now_s
        self._seen_s = {place: at for place, at in self._seen_s.items() if now_s - at <= RECENT_S}
        found = [
            self._pause(place, snapshot, float(grown[place]) / interval_ns if interval_ns > 0 else 0.0)
            for place in list(self._seen_s)[:MOST_SHOWN]
        ]
        return found, self._queues(snapshot)

    def _pause(self, place: tuple[int, int], snapshot: Snapshot, share: float) -> Pause:
        table, (port, priority) = self._table, place
        own, peer = snapshot.pauses[place], int(table.peer[port])
        since = int(own["paused_since"])
        return Pause(
            paused=table.place(port),
            by=table.place(peer),
            traffic_class=table.class_name(port, priority),
            now=since > 0,
            since_s=round(max(0, snapshot.time_ns - since) / 1e9, 4) if since else 0.0,
            share=round(min(1.0, share), 4),
            total_s=round(int(own["paused_ns"]) / 1e9, 4),
            storm=bool(snapshot.pauses[peer, priority]["storm"]),
            freed=bool(own["ignored"]),
        )

    def _queues(self, snapshot: Snapshot) -> dict[str, int]:
        waiting = snapshot.queues["bytes"].astype(np.int64).sum(axis=1)
        return {self._table.place(int(port)): int(waiting[port]) for port in np.flatnonzero(waiting > 0)}


def _readings(source: Source) -> Iterator[dict[str, Any]]:
    """Yield the tree as it is, as often as it is asked for, until the lab is changed: its maps may be others then."""
    from testbed.lab.observe.port_table import tabulate_ports
    from testbed.lab.observe.telemetry import take_snapshot

    revision, lab = source.shape.revision, source.lab.whole
    table = tabulate_ports(lab.plan)
    reader = PauseReader(table)
    with closing(lab.maps()) as maps:
        while source.shape.revision == revision:
            pauses, queues = reader.read(take_snapshot(maps))
            yield {
                "lossless": bool(table.lossless.any()),
                "trees": build_tree(pauses, queues),
                "paused_now": sum(one.now for one in pauses),
                "storms": sorted({one.by for one in pauses if one.storm}),
            }


NO_PAUSES: dict[str, Any] = {"lossless": False, "trees": [], "paused_now": 0, "storms": []}


def _pauses(call: ViewCall) -> dict[str, Any]:
    """Return the tree over a tenth of a second; of a record, what each port was paused around a moment."""
    source = call.base
    if not source.live:
        return recorded_pauses(source, call.query.get("t"))
    if source.lab.plan.tables is None:
        return NO_PAUSES
    readings = _readings(source)
    next(readings, None)
    time.sleep(0.1)
    return next(readings, NO_PAUSES)


def _watch(source: Source, publish: Publish, stop: threading.Event) -> None:
    """Publish the tree while it changes."""
    if not source.live:
        return
    before: dict[str, Any] | None = None
    try:
        while not stop.wait(INTERVAL_S):
            for now in iter([NO_PAUSES]) if source.lab.plan.tables is None else _readings(source):
                if now != before:
                    publish(now)
                before = now
                if stop.wait(INTERVAL_S):
                    return
    except (TestbedError, OSError):  # the lab has gone, which the page hears of otherwise
        return


def recorded_pauses(source: Source, moment: str | None) -> dict[str, Any]:
    """Return the tree of a run that is played back, at a moment, by the samples of its ports."""
    found = source.now() if moment is None else source.moment(number(moment, "t"))
    columns = (found or source.now()).frame.columns
    names, peers = list(source.shape.places), source.shape.peer
    paused = [
        Pause(paused=names[port], by=names[peers[port]], share=int(columns["pauses"][port]) / 1000, now=True)
        for port in np.flatnonzero((columns["pauses"] > 0) & (peers >= 0)).tolist()[:MOST_SHOWN]
    ]
    queues = {names[port]: int(columns["queue"][port]) for port in np.flatnonzero(columns["queue"] > 0).tolist()}
    return {
        "lossless": bool((columns["pauses"] >= 0).any()),
        "trees": build_tree(paused, queues),
        "paused_now": len(paused),
        "storms": [],
    }


VIEW = View(
    name="pauses",
    title="Pauses",
    order=60,
    live=True,
    recorded=True,
    routes=(get("", _pauses),),
    watch=_watch,
    style=True,
)
