"""The labs of this machine as the list of the console has them."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.api.console.failures import PartFailures
from testbed.api.console.sources.shape import digest
from testbed.base.errors import TestbedError
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.deploy.records.usage import FILE_NAME, command_text, holders
from testbed.lab.core.feature import features
from testbed.lab.core.model import Lab, NodeKind

EVERY_S = 5.0
LEAST_REST = 200
"""Reading the list takes at most one part in so many of a CPU: with many large labs it is read less often."""
_IDLE_EVERY_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LabWorker:
    """Somebody who works on a lab: the command line of a process that has locked it, and what it does."""

    who: str
    pid: int
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LabRow:
    """A lab in the list. It has only its name where its record cannot be read; `health` counts nodes by their state."""

    name: str
    base: str
    machine: str = ""
    state: str = "unknown"
    design: str = ""
    hosts: int = 0
    switches: int = 0
    links: int = 0
    k: float = 0.0
    created: str = ""
    topology: str = ""
    networks: tuple[str, ...] = ()
    revision: str = ""
    health: Mapping[str, int] = field(default_factory=dict)
    working: tuple[LabWorker, ...] = ()


Known = Callable[[str], Sequence[str]]
"""Returns the states of a lab's nodes where somebody reads them already, and nothing where nobody does."""


class LabList:
    """Reads all labs again and again. A lab's record and plan are read when they changed, its processes each time."""

    def __init__(self, state: StateDirectory, known: Known = lambda name: ()) -> None:
        self._state = state
        self._states = known
        self._known: dict[str, tuple[tuple[int, int], RunningLab]] = {}

    def read(self) -> tuple[LabRow, ...]:
        """Return a row for each lab, by their names."""
        names = self._state.names()
        self._known = {name: known for name, known in self._known.items() if name in names}
        return tuple(self._row(name) for name in names)

    def _row(self, name: str) -> LabRow:
        working = workers(self._state, name)
        try:
            lab = self._open(name)
            health = Counter(self._states(name) or (status.state for status in lab.status()))
            whole = set(health) <= {"running"} and not any(
                feature.broken(lab.plan, lab.processes_directory) for feature in features()
            )
            life_cycle = lab.life_cycle.value if lab.life_cycle else "unknown"
        except (TestbedError, OSError):  # gone meanwhile, never completed, or another version's
            self._known.pop(name, None)
            return LabRow(name=name, base=f"/api/labs/{name}", working=working)
        return LabRow(
            name=name,
            base=f"/api/labs/{name}",
            state=life_cycle if whole else "degraded",
            k=lab.record.k,
            created=lab.record.created,
            topology=lab.record.source,
            revision=digest(lab.record.created, lab.record.revision, lab.record.changed),
            health=dict(sorted(health.items())),
            working=working,
            **_counted(lab.model),
        )

    def _open(self, name: str) -> RunningLab:
        status = os.stat(self._state.lab_directory(name) / "lab.json")  # noqa: PTH116  # both of one moment
        stamp = status.st_mtime_ns, status.st_ino
        known = self._known.get(name)
        if known is None or known[0] != stamp:
            known = self._known[name] = stamp, RunningLab.open(name, self._state)
        return known[1]


def _counted(model: Lab) -> dict[str, Any]:
    kinds = Counter(node.kind for node in model.nodes)
    return {
        "design": model.design or "hand-written",
        "hosts": kinds[NodeKind.HOST],
        "switches": kinds[NodeKind.SWITCH],
        "links": len(model.links),
        "networks": model.network_names,
    }


def workers(state: StateDirectory, name: str) -> tuple[LabWorker, ...]:
    """Return who has locked a lab: to change it, or to measure on it."""
    measuring = state.lab_directory(name) / FILE_NAME
    return changers(state, name) + _workers_of(measuring, "uses it")


def changers(state: StateDirectory, name: str) -> tuple[LabWorker, ...]:
    """Return who deploys a lab, changes it or destroys it now."""
    return _workers_of(state.state / f"{name}.lock", "changes it")


def _workers_of(lock: Path, what: str) -> tuple[LabWorker, ...]:
    return tuple(LabWorker(who=command_text(pid), pid=pid, what=what) for pid in holders(lock))


class LabsWatch:
    """Reads the list in a thread of its own, and calls `changed` where it is another one; at once where it is asked."""

    def __init__(
        self,
        state: StateDirectory,
        changed: Callable[[tuple[LabRow, ...]], None],
        looked_at: Callable[[], bool],
        known: Known,
        failures: PartFailures,
    ) -> None:
        self._failures = failures
        self._list = LabList(state, known)
        self._changed = changed
        self._looked_at = looked_at
        self._asked = threading.Event()
        self._stopped = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="labs", daemon=True)
        self.latest: tuple[LabRow, ...] = ()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def ask(self) -> None:
        """Read at once: something has changed."""
        self._asked.set()

    def read(self) -> tuple[LabRow, ...]:
        """Return the list as it is now. In any thread but the loop's."""
        with self._lock:
            found = self._list.read()
        if found != self.latest:
            self.latest = found
            self._changed(found)
        return found

    def close(self) -> None:
        """End the thread."""
        self._stopped = True
        self._asked.set()

    def _run(self) -> None:
        while not self._stopped:
            self._asked.clear()
            before_s = time.thread_time()
            self._failures.run("the list of labs", self._read_quietly)
            rest_s = LEAST_REST * (time.thread_time() - before_s)
            self._asked.wait(max(rest_s, EVERY_S if self._looked_at() else _IDLE_EVERY_S))

    def _read_quietly(self) -> None:
        with suppress(TestbedError, OSError):  # a lab that is being changed, or goes: it is read again
            self.read()
