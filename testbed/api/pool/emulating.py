"""The jobs of a seat that emulates, and its machine's lab, which one seat has at a time.

A file says which lab that is, and is locked while it may be there; whoever finds it unlocked with a lab in it, after a
machine was switched off for instance, removes that lab first, unless another has its name by now. Seats that simulate
import nothing of this.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from testbed.api.pool.answers import ScalesAnswer, ScaleTold, Tell, ToldError, TryAnswer
from testbed.base.errors import LabNotFound
from testbed.lab.core.deploy.lifecycle import destroy_lab
from testbed.lab.core.deploy.records.journal import boot_id
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.record.port_samples import DIRECTORY as SAMPLES
from testbed.run.emulated.sweep import run_on_own_labs
from testbed.run.measuring.measured import TimeLimitReached
from testbed.run.placed.lab import lab_of_runs
from testbed.run.sweep.labs import LabOptions
from testbed.run.sweep.points import Sweep, topology_key
from testbed.run.sweep.progress import Phase, Progress
from testbed.run.sweep.runner import RecordOptions
from testbed.run.sweep.scale_proof import scaled_to
from testbed.run.sweep.scales import ScenarioScales

MOST_SAMPLE_BYTES = 64 * 2**20
LAB_FILE = "pool-lab"
MOST_NOTE_BYTES = 16384


def at_scale(sweep: Sweep, number: int, k: float | None) -> Sweep:
    """Return the sweep of one point, which is tried once, at the time scale `k` if that is given."""
    alone = sweep.only(number)
    point, scenario = alone.points[0], replace(alone.scenario, repeat=replace(alone.scenario.repeat, retries=0))
    one = replace(point.scenario, repeat=replace(point.scenario.repeat, retries=0))
    labs = alone.labs
    if k is not None:
        one = scaled_to(one, k)
        labs = {topology_key(one.topology): lab_of_runs(alone.reader.load_topology(one.topology))}
    return replace(alone, scenario=scenario, points=(replace(point, scenario=one),), labs=labs)


def emulate(alone: Sweep, timeout_s: float, tell: Tell) -> TryAnswer:
    """Run a point on its lab, which stays up: the next point may need the same. Its routing has `timeout_s` (s)."""
    warnings: list[str] = []
    runs = alone.runs

    def on_progress(event: Progress) -> None:
        if event.phase is Phase.TRAFFIC and event.total:
            tell((event.run - 1 + min(1.0, event.done / event.total)) / runs)

    with tempfile.TemporaryDirectory(dir=".", prefix="results-") as directory:
        outcome = run_on_own_labs(
            alone,
            StateDirectory(),
            LabOptions(timeout_s=timeout_s, keep=True, warn=warnings.append),
            RecordOptions(directory=Path(directory)),
            on_progress,
        )
        samples = _samples(Path(directory) / SAMPLES)
    record, failure = outcome.record, outcome.failure
    return TryAnswer(
        result=record.points[0] if record.points else None,
        failure=ToldError.of(failure),
        out_of_time=failure is not None and isinstance(failure.__cause__, TimeLimitReached),
        interrupted=record.incomplete.startswith("interrupted"),
        approximations=record.environment.approximations,
        warnings=warnings,
        samples=samples,
    )


def _samples(directory: Path) -> dict[str, str]:
    """Return the samples of ports that a record has beside it, as long as they are not too much for a connection."""
    found, left = dict[str, str](), MOST_SAMPLE_BYTES
    for path in sorted(directory.glob("*.npz")):
        left -= path.stat().st_size
        if left >= 0:
            found[path.name] = base64.b64encode(path.read_bytes()).decode()
    return found


def scales(sweep: Sweep) -> ScalesAnswer:
    """Return the time scales that this machine would choose, which is measured for that if it never was."""
    state = StateDirectory()
    chosen = ScenarioScales(sweep.points, sweep.labs, state)
    told: dict[str, ScaleTold] = {}
    for point in sweep.points:
        lab = sweep.lab_of(point)
        if lab.scale.time is None:
            told[str(point.index)] = ScaleTold(k=chosen(point.topology, lab).k, largest=chosen.largest_k(lab))
    return ScalesAnswer(scales=told)


# --- the lab of this machine -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedLab:
    """A lab that a seat has brought up, or was about to.

    `source` is the file that it was read from, which lies in a parcel and so has a name that no other lab's has; `boot`
    tells one start of the machine from the next.
    """

    name: str
    source: str
    boot: str

    @classmethod
    def read(cls, content: bytes) -> NotedLab | None:
        """Return the lab that is noted; None for none, and for a note of an earlier version."""
        try:
            return cls(**{field: str(value) for field, value in json.loads(content).items()})
        except (ValueError, TypeError, AttributeError):
            return None

    def is_there(self, state: StateDirectory) -> bool:
        """Tell whether the lab is there, and not another one of that name.

        One of which nothing but its name is known was being made: it is ours if the machine was not started since.
        """
        if not state.exists(self.name):
            return False
        try:
            return state.read(self.name).source == self.source
        except LabNotFound:
            return self.boot == boot_id()


class LabClaim:
    """The right to have a lab up on this machine for a pool, which one seat has at a time; others wait for it."""

    def __init__(self, state: StateDirectory) -> None:
        self._state = state
        state.prepare(run=False)
        self._file = os.open(state.state / LAB_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._key = ""
        self._ours: NotedLab | None = None
        self._held = False

    def claim(self, alone: Sweep, wait: Callable[[], None]) -> None:
        """Get ready for a lab: one that another seat has left, and ours if it is another, are removed.

        `wait` is called as long as another seat has a lab.
        """
        [(key, lab)] = alone.labs.items()
        while not self._held and not self._take():
            wait()
        if self._key and self._key != key:
            self._remove_ours()
        if not self._key:
            self._key = key
            if not self._state.exists(lab.name):
                self._ours = NotedLab(name=lab.name, source=lab.source, boot=boot_id())
                self._note(self._ours)

    def let_go(self) -> None:
        """Remove the lab that is up, and one that a seat has left that was killed; then let others have one."""
        if self._held or self._take():
            self._remove_ours()
            fcntl.flock(self._file, fcntl.LOCK_UN)
            self._held = False

    def _take(self) -> bool:
        """Take the right if nobody has it, and remove the lab that was left; whether it is ours now."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        self._held = True
        if left := NotedLab.read(os.pread(self._file, MOST_NOTE_BYTES, 0)):
            self._remove(left)
        return True

    def _remove_ours(self) -> None:
        if self._ours is not None:
            self._remove(self._ours)
        self._key, self._ours = "", None

    def _remove(self, lab: NotedLab) -> None:
        if lab.is_there(self._state):
            destroy_lab(lab.name, self._state)
        self._note(None)

    def _note(self, lab: NotedLab | None) -> None:
        os.ftruncate(self._file, 0)
        if lab is not None:
            os.pwrite(self._file, json.dumps(asdict(lab)).encode(), 0)
        os.fsync(self._file)
