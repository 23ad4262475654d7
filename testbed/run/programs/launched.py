"""A program of the user's own as the traffic of a run: its ranks are launched, and its lines are read as they come.

The ranks are started, prefixed and ended by `testbed.run.launch`, in a thread of their own. This thread reads what they
print: it tells the run's faults which step is done, and keeps the last lines of each rank. An interrupt asks the launch
to stop.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.base.errors import ExitCode, ScenarioError
from testbed.base.interrupt import Interrupt
from testbed.lab.core.deploy.live import RunningLab
from testbed.record.samples import ProgramRank, ProgramRecord, ProgramStepTable
from testbed.run.launch import HostKills, LaunchEnd, LaunchOptions, RankLine, launch_ranks
from testbed.run.measuring.measured import Measured, TimeLimitReached
from testbed.run.placed.lab import LiveLab
from testbed.run.placed.program import PADDING, Represented
from testbed.run.placed.traffic import RunTraffic
from testbed.run.schema.model import Scenario
from testbed.workload.program_steps import StepPattern, StepReader
from testbed.workload.steps import fabric_bytes

if TYPE_CHECKING:
    from testbed.run.launch import LaunchResult

PYTHON = "{python}"
"""The word of a command that stands for the interpreter that testbed has itself."""
LINES_OF_FIRST = 40
"""The last lines that are kept of the rank that failed first, or of rank 0."""
LINES_OF_OTHERS = 3
LONGEST_LINE = 400
"""The characters of a line that are kept."""
_IDLE = ("chrt", "--idle", "0")
"""Has a command run when nobody else wants the CPU (sched(7), SCHED_IDLE)."""
_TICK_S = 0.2
_MOST_WAITING = 10_000
"""Lines that may wait to be read; a program that prints faster waits."""


class ProgramOutOfTime(TimeLimitReached):
    """A program had not ended by its time limit, and was ended."""

    def __init__(self, limit_s: float, steps: int, said: Sequence[str]) -> None:
        told = f"it had told of {steps} steps" if steps else "it had told of no step"
        last = f"; its last line was: {said[-1]}" if said else ""
        ScenarioError.__init__(
            self,
            f"the program was ended after its time limit of {limit_s:g} s: {told}{last}",
            hint="a higher workload.time_limit, fewer steps, or a smaller time scale",
        )
        self.hosts = ()


class LaunchBroke(ScenarioError):
    """A process that started a program's ranks, or carried their sockets, ended while the program ran."""

    exit_code = ExitCode.INVALID


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramWatch:
    """The watch over a program while it runs.

    `around` is entered before the first rank is started and left when the last has ended. `on_warm` is called once,
    when the steps of its warm-up are done. `on_step` gets the number of each step and when it was done
    (CLOCK_MONOTONIC, ns), `on_elapsed` how many seconds have passed, of how many.
    """

    interrupt: Interrupt
    around: Callable[[], AbstractContextManager[None]]
    on_warm: Callable[[], None]
    on_step: Callable[[int, int], None]
    on_elapsed: Callable[[float, float], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchedProgram:
    """A program of a scenario on a lab, to be run once.

    `ideal_s` is the least time of what a step is stated to send; None where nothing is stated. `kills` ends the ranks
    of one host, from any thread.
    """

    lab: RunningLab
    scenario: Scenario
    traffic: RunTraffic
    stands: Represented
    ideal_s: float | None
    kills: HostKills = field(default_factory=HostKills)

    @property
    def polls(self) -> bool:
        """Tell whether its ranks look for messages without a pause."""
        return bool(self.scenario.workload.parameters.get("polls"))

    def run(self, watch: ProgramWatch, measured: Measured) -> None:
        """Run it to its end, and put what it did into `measured`.

        Raises `TestbedError` where it could not be started; what its ranks do later is measured, and is no error here.
        """
        said = _Said(_reader(self.scenario))
        begun_s = time.monotonic()
        with self.kills, watch.around():
            result = self._launch(watch, said, begun_s)
        if self.polls:
            measured.polling_s = result.cpu_s
        measured.elapsed_s = result.ended_s - result.started_s
        probes_bytes = 0 if measured.probes is None else measured.probes.sent_bytes
        measured.program = self._as_recorded(result, said, measured.observation.begin_ns / 1e9, probes_bytes)
        limit_s = self.scenario.workload.time_limit.seconds
        match result.ended_by:
            case LaunchEnd.TIMEOUT:
                measured.failure = ProgramOutOfTime(limit_s, said.steps, said.lines[0])
            case LaunchEnd.INTERRUPTED:
                measured.interrupted = True
            case LaunchEnd.SERVED | LaunchEnd.LOST:
                measured.failure = LaunchBroke(result.failure)

    def _launch(self, watch: ProgramWatch, said: _Said, begun_s: float) -> LaunchResult:
        thread = _LaunchThread(self.lab, self._command(), self._options(), self.kills)
        thread.start()
        warm = False
        limit_s = self.scenario.workload.time_limit.seconds
        try:
            while (line := thread.next_line()) is not None:
                if watch.interrupt.requested:
                    thread.interrupt.request()
                if isinstance(line, RankLine):
                    step = said.take(line)
                    if step is not None:
                        watch.on_step(step, round(line.at_s * 1e9))
                        if not warm and said.is_warm:
                            warm = True
                            watch.on_warm()
                watch.on_elapsed(time.monotonic() - begun_s, limit_s)
        except BaseException:
            thread.interrupt.request()
            thread.drain()
            raise
        return thread.outcome()

    def _command(self) -> list[str]:
        written = self.scenario.workload.parameters["command"]
        assert isinstance(written, tuple)
        return [*(_IDLE if self.polls else ()), *(sys.executable if word == PYTHON else str(word) for word in written)]

    def _options(self) -> LaunchOptions:
        parameters, transport = self.scenario.workload.parameters, self.scenario.transport
        carried = "libfabric" if parameters.get("libfabric") else transport.kind.value
        return LaunchOptions(
            nics=self.traffic.placement.nics,
            transport=carried,
            pmi=bool(parameters.get("pmi")),
            env=self._environment(),
            cc=transport.cc or "",
            timeout_s=self.scenario.workload.time_limit.seconds,
            directory=Path(self.scenario.source).resolve().parent if self.scenario.source else None,
        )

    def _environment(self) -> Mapping[str, str]:
        written = self.scenario.workload.parameters.get("env") or ()
        assert isinstance(written, tuple)
        own = dict(str(word).split("=", 1) for word in written)
        padding = {PADDING: f"{self.stands.padding_s:.9g}"} if self.stands.padding_s else {}
        return {**padding, **own}

    def _as_recorded(self, result: LaunchResult, said: _Said, begin_s: float, probes_bytes: int) -> ProgramRecord:
        failed = [one for one in result.ranks if one.status]
        first = min(failed, key=lambda one: one.ended_s).rank if failed else 0
        steps = [] if said.reader is None else said.reader.steps
        stated = self.ideal_s is not None
        return ProgramRecord(
            command=[str(word) for word in self.scenario.workload.parameters["command"]],  # type: ignore[union-attr]
            exit_code=result.exit_code,
            failure=result.failure,
            ranks=[
                ProgramRank(
                    rank=one.rank,
                    host=one.host,
                    interface=place.nic.name,
                    status=one.status,
                    reason=one.reason,
                    seconds=round(one.ended_s - one.started_s, 6),
                    last_lines=[*said.lines[one.rank]][-(LINES_OF_FIRST if one.rank == first else LINES_OF_OTHERS) :],
                )
                for one, place in zip(result.ranks, result.places, strict=True)
            ],
            speaker=first,
            steps=ProgramStepTable(
                number=[one.number for one in steps],
                at_s=[round(one.at_s - begin_s, 6) for one in steps],
                seconds=[None if one.seconds is None else round(one.seconds, 6) for one in steps],
                warm_up=[one.warm_up for one in steps],
            ),
            sent_bytes=max(0, result.rail_bytes - probes_bytes),
            stated_bytes=fabric_bytes(self.traffic.workload) if stated else None,
            ideal_step_s=None if self.ideal_s is None else self.ideal_s + self.stands.padding_s,
            padding_s=self.stands.padding_s or None,
            represented=self.stands.factor if self.stands.factor != 1.0 else None,
            congestion_control=result.congestion_control,
            sent_again=result.sent_again,
        )


def launched_on(lab: LiveLab, program: Callable[[RunningLab], LaunchedProgram]) -> LaunchedProgram:
    """Return the program on a lab. Raises `ScenarioError` for one that is not really there."""
    if not isinstance(lab, RunningLab):
        raise ScenarioError("a program needs a lab that is really there")
    return program(lab)


def _reader(scenario: Scenario) -> StepReader | None:
    parameters = scenario.workload.parameters
    pattern, warm_up = parameters.get("step"), parameters.get("warm_up")
    if pattern is None:
        return None
    return StepReader(StepPattern.parse(str(pattern)), warm_up=1 if warm_up is None else int(str(warm_up)))


class _Said:
    """The lines that ranks have printed: what they tell of steps, and the last ones of each rank."""

    def __init__(self, reader: StepReader | None) -> None:
        self.reader = reader
        self.lines: defaultdict[int, deque[str]] = defaultdict(lambda: deque(maxlen=LINES_OF_FIRST))

    def take(self, line: RankLine) -> int | None:
        """Take a line in. Return the number of a step that is done now; None where it tells of none."""
        self.lines[line.rank].append(line.text[:LONGEST_LINE])
        return None if self.reader is None else self.reader.read(line.rank, line.text, line.at_s)

    @property
    def steps(self) -> int:
        return 0 if self.reader is None else self.reader.count

    @property
    def is_warm(self) -> bool:
        return self.reader is not None and self.reader.is_warm


class _Nothing:
    """No line has come for a while."""


class _LaunchThread(threading.Thread):
    """Launches ranks, and hands what they print to another thread, line by line."""

    def __init__(self, lab: RunningLab, command: Sequence[str], options: LaunchOptions, kills: HostKills) -> None:
        super().__init__(name="program", daemon=True)
        self.interrupt = Interrupt()
        """Ends all ranks."""
        self._lab, self._command, self._options, self._kills = lab, command, options, kills
        self._lines: queue.Queue[RankLine | None] = queue.Queue(_MOST_WAITING)
        self._read = threading.Event()
        """All lines are read, and nobody asks for its end any more."""
        self._result: LaunchResult | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        with self.interrupt:  # not in the main thread, it catches no signal
            try:
                self._result = launch_ranks(
                    self._lab,
                    self._command,
                    self._options,
                    on_line=self._lines.put,
                    interrupt=self.interrupt,
                    kills=self._kills,
                )
            except BaseException as error:  # whoever reads the lines raises it
                self._error = error
            finally:
                self._lines.put(None)
                self._read.wait()

    def next_line(self) -> RankLine | _Nothing | None:
        """Wait for the next line, but not for long; None once there will be no more."""
        try:
            return self._lines.get(timeout=_TICK_S)
        except queue.Empty:
            return _Nothing()

    def drain(self) -> None:
        """Wait for the end, and read no line any more."""
        while self.next_line() is not None:
            pass
        self._read.set()
        self.join()

    def outcome(self) -> LaunchResult:
        """Return what came of it, once there are no more lines. Raises what kept it from starting."""
        self._read.set()
        self.join()
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result
