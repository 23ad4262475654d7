"""A run of a record, played back: its lab's map, coloured by what was sampled of each port, from begin to end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from math import ceil
from pathlib import Path
from typing import Any, ClassVar, Literal
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from testbed.api.console.answers import RefusedRequest, not_found
from testbed.api.console.counters.history import PortSeries, summary
from testbed.api.console.counters.quantities import QUANTITIES, UNKNOWN, PortFrame
from testbed.api.console.sources.recorded_lab import find_lab
from testbed.api.console.sources.shape import LabShape, digest, shape_of
from testbed.api.console.sources.source import Moment, Source
from testbed.api.console.sources.state import LinkWord, SeenState
from testbed.base.errors import RecordError
from testbed.lab.core.model import Lab
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.record.port_samples import read_port_samples, samples_path
from testbed.record.record import Backend, PointResult, Record, RunResult
from testbed.record.samples import RunEvent
from testbed.record.store import RECORD_FILE, load_record

STEPS = 200
"""Moments of a run of which only curves are there."""
DIGITS = 9
"""Decimals of a moment of a run, in seconds: one that is simulated may take microseconds."""
_SHORTEST_S = 1e-6
_SLACK_S = 10**-DIGITS
UNDONE = "undone-"
_CHANGES = ("link-set", "plane-set")
_DOWN = ("link-down", "link-flap", "carrier-lost")
_OFF = ("node-kill", "power-off")


def run_address(shown: str, point: int, run: int) -> str:
    """Return the address of a run that is played back; `shown` is what pages call the directory of its record."""
    return f"/api/runs/{quote(shown.replace('/', '~'))}/{point}/{run}"


def shown_directory(part: str) -> str:
    """Return what pages call the directory of a record, from its part of an address."""
    return part.replace("~", "/")


class RecordedLab(Source):
    """A run of a record. Times are seconds from the begin of the run's workload."""

    live: ClassVar[bool] = False
    clock: ClassVar[Literal["wall", "run"]] = "run"

    def __init__(
        self, record: Record, point: PointResult, run: RunResult, directory: Path, *, base: str, shape: LabShape
    ) -> None:
        """`directory` has the record, and what lies beside it."""
        self.record = record
        self.point = point
        self.run = run
        self.directory = directory
        self.name = point.lab.name
        self.base = base
        self._shape = shape
        self._times, self._columns, self.sampled = _columns(run, shape, self._samples())
        self._states = list(_states(run, shape))

    @classmethod
    def open(cls, directory: Path, point: int, run: int, *, base: str, topologies: Sequence[Path]) -> RecordedLab:
        """Open a run of a record: the point from 0, and the run by its number. A record that has no lab beside it may
        have its topology in one of the directories `topologies`. Raises `RecordError`, and `RefusedRequest`."""
        if (directory / RECORD_FILE).is_symlink():
            raise RecordError(f"{directory / RECORD_FILE} is a link: it is not followed")
        record = load_record(directory)
        if not 0 <= point < len(record.points):
            raise not_found(f"this record has no point {point}", hint=f"it has {len(record.points)}, from 0")
        found = record.points[point]
        of_number = {one.index: one for one in found.runs}
        if run not in of_number:
            raise not_found(f"point {point} has no run {run}", hint=f"it has {', '.join(map(str, of_number))}")
        lab = find_lab(record, found, directory, topologies)
        plan = _plan(lab, record.environment.backend, k=found.lab.k)
        revision = digest(directory, point, run, record.finished)
        started = of_number[run].started
        shape = shape_of(lab, plan, k=found.lab.k, revision=revision, created=started)
        return cls(record, found, of_number[run], directory, base=base, shape=shape)

    @property
    def shape(self) -> LabShape:
        return self._shape

    @property
    def span(self) -> tuple[float, float] | None:
        return float(self._times[0]), float(self._times[-1])

    def now(self) -> Moment:
        return self._moment(0)

    def moment(self, t: float) -> Moment | None:
        place = int(np.searchsorted(self._times, t + _SLACK_S, side="right")) - 1
        return self._moment(place) if place >= 0 else None

    def _moment(self, place: int) -> Moment:
        t = float(self._times[place])
        dt = t - float(self._times[place - 1]) if place else 0.0
        columns = {name: self._columns[name][place] for name in QUANTITIES}
        state = next((state for at, state in reversed(self._states) if at <= t + _SLACK_S), self._states[0][1])
        return Moment(frame=PortFrame(t=t, dt=dt, columns=columns), state=state)

    def series(self, names: Sequence[str], ports: Sequence[int], begin: float, end: float) -> PortSeries:
        wanted, chosen = self._between(begin, end), np.asarray(ports, np.int64)
        values = {name: self._columns[name][wanted][:, chosen].astype(np.int64) for name in names}
        return PortSeries(times=self._times[wanted], values=values)

    def total(self, name: str, chosen: NDArray[np.bool_], begin: float, end: float) -> PortSeries:
        wanted = self._between(begin, end)
        values = self._columns[name][wanted][:, chosen].astype(np.int64)
        found = np.array([summary(name, row) for row in values], np.int64)
        return PortSeries(times=self._times[wanted], values={name: found.reshape(-1, 1)})

    def _between(self, begin: float, end: float) -> NDArray[np.bool_]:
        return np.asarray((self._times >= begin - 1e-9) & (self._times <= end + 1e-9))

    def events(self, begin: float, end: float) -> list[dict[str, Any]]:
        return [self._event(event) for event in self.run.events if begin <= event.at_s <= end]

    def _event(self, event: RunEvent) -> dict[str, Any]:
        node, _, subject = event.target.partition(":")
        return {
            "time": _later(self.run.started, event.at_s),
            "t": event.at_s,
            "lab": self.name,
            "node": node,
            "kind": event.kind,
            "subject": subject,
            "detail": event.detail,
        }

    def described(self) -> dict[str, Any]:
        return super().described() | {
            "write": False,
            "created": self.run.started,
            "topology": None,
            "record": {
                "directory": self.directory.name,
                "scenario": self.record.scenario.name,
                "point": self.point.name,
                "run": self.run.index,
                "runs": [one.index for one in self.point.runs],
                "points": [one.name for one in self.record.points],
                "verdict": self.record.verdict.outcome.value,
                "sampled": self.sampled,
            },
        }

    def _samples(self) -> tuple[NDArray[np.float64], tuple[str, ...], Mapping[str, NDArray[np.int32]]] | None:
        path = samples_path(self.directory / RECORD_FILE, self.point.name, self.run.index)
        if path.parent.is_symlink():
            raise RefusedRequest(404, f"{path.parent} is a link: it is not followed")
        found = read_port_samples(path)
        return None if found is None or not len(found.at_s) else (found.at_s, found.ports, found.columns)


def _plan(lab: Lab, backend: Backend, *, k: float) -> LabPlan:
    """Plan the lab of a record as its backend did: a simulated switch obeys pauses at once, and needs less buffer."""
    if backend is Backend.EMULATION:
        return plan_lab(lab, k=k)
    from testbed.run.simulated.fabric import planned_lab

    return planned_lab(lab, k).plan


def _later(started: str, seconds: float) -> str:
    try:
        return (datetime.fromisoformat(started) + timedelta(seconds=seconds)).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError):
        return started


# --- columns -----------------------------------------------------------------------------------------------

Columns = dict[str, NDArray[np.int32]]


def _columns(
    run: RunResult,
    shape: LabShape,
    samples: tuple[NDArray[np.float64], tuple[str, ...], Mapping[str, NDArray[np.int32]]] | None,
) -> tuple[NDArray[np.float64], Columns, bool]:
    """Return times, columns by quantity (times, ports), and whether all ports were sampled. Row 0 is the begin."""
    if samples is None:
        return _columns_of_curves(run, shape)
    at_s, names, sampled = samples
    places = [(column, shape.places[name]) for column, name in enumerate(names) if name in shape.places]
    source, target = [column for column, _ in places], [port for _, port in places]
    times = np.concatenate(([0.0], at_s)) if at_s[0] > 0 else at_s
    rows = len(times) - len(at_s)
    found: Columns = {}
    for name in QUANTITIES:
        values = np.full((len(times), shape.ports), UNKNOWN, np.int32)
        if name in sampled:
            values[:, target] = 0
            values[rows:, target] = sampled[name][:, source]
        found[name] = values
    return times, found, True


def _columns_of_curves(run: RunResult, shape: LabShape) -> tuple[NDArray[np.float64], Columns, bool]:
    """Make columns of a run without samples: the curves that its record has, and totals for all other ports."""
    length = max(run.elapsed_s, *(series.at_s[-1] for series in run.series if series.at_s), _SHORTEST_S)
    times = np.linspace(0.0, length, STEPS)
    found: Columns = {name: np.full((STEPS, shape.ports), UNKNOWN, np.int32) for name in QUANTITIES}
    for port in run.ports:
        place = shape.places.get(f"{port.node}:{port.interface}")
        if place is None:
            continue
        found["use"][:, place] = min(round(1000 * port.utilisation), 2**31 - 1)
        found["pauses"][:, place] = min(round(port.paused_us / 1e3 / run.elapsed_s) if run.elapsed_s else 0, 1000)
        found["losses"][:, place] = min(ceil(port.tx_dropped / run.elapsed_s) if run.elapsed_s else 0, 2**31 - 1)
    for series in run.series:
        kind, _, name = series.name.partition(":")
        if kind == "queue":
            name = name.rpartition(":")[0]
        place = shape.places.get(name)
        if kind not in ("queue", "utilisation") or place is None or not series.at_s:
            continue
        at = np.clip(np.searchsorted(series.at_s, times, side="right") - 1, 0, len(series.at_s) - 1)
        values = np.array([0.0 if value is None else value for value in series.values])[at]
        if kind == "utilisation":
            found["use"][:, place] = np.rint(1000 * values)
        else:
            found["queue"][:, place] = np.maximum(found["queue"][:, place], 0) + np.rint(values).astype(np.int32)
    return times, found, False


# --- states ------------------------------------------------------------------------------------------------


def _states(run: RunResult, shape: LabShape) -> Iterator[tuple[float, SeenState]]:
    """Yield the state of the lab from each time on at which an event of the run changed it."""
    nodes = ["running"] * len(shape.nodes)
    links = [int(LinkWord.UP)] * shape.ports
    conditions: dict[str, str] = {}
    yield 0.0, _state(nodes, links, conditions)
    for event in sorted(run.events, key=lambda one: one.at_s):
        if _change(event, shape, nodes, links, conditions):
            yield event.at_s, _state(nodes, links, conditions)


def _state(nodes: Sequence[str], links: Sequence[int], conditions: Mapping[str, str]) -> SeenState:
    return SeenState(nodes=tuple(nodes), links=tuple(links), conditions=dict(conditions))


def _change(event: RunEvent, shape: LabShape, nodes: list[str], links: list[int], conditions: dict[str, str]) -> bool:
    """Take in what an event says of links and nodes; False where it says nothing of them."""
    undone, kind = event.kind.startswith(UNDONE), event.kind.removeprefix(UNDONE)
    if kind == "touched":
        kind = event.detail.partition(" ")[0]
        undone = kind in ("link-up", "power-on")
        kind = {"link-up": "link-down", "power-on": "power-off"}.get(kind, kind)
    if kind == "link-reset":
        undone, kind = True, "link-set"
    node = shape.nodes.get(event.target)
    if kind in _OFF and node is not None:
        nodes[node] = "running" if undone else "off"
        for place, port in shape.places.items():
            if place.partition(":")[0] == event.target:
                _set(shape, links, port, LinkWord.UP if undone else LinkWord.DOWN)
        return True
    if kind in ("daemon-kill", "daemon-killed") and node is not None:
        nodes[node] = "running" if undone else "degraded"
        return True
    end = shape.places.get(event.target)
    if end is None or kind not in (*_DOWN, *_CHANGES):
        return False
    if kind in _DOWN:
        _set(shape, links, end, LinkWord.UP if undone else LinkWord.DOWN)
        return True
    links[end] = LinkWord.UP if undone else LinkWord.CHANGED
    conditions.pop(event.target, None)
    if not undone:
        conditions[event.target] = event.detail
    return True


def _set(shape: LabShape, links: list[int], port: int, word: LinkWord) -> None:
    """Both ends of a link are down where one is."""
    links[port] = word
    peer = int(shape.peer[port])
    if peer >= 0:
        links[peer] = word
