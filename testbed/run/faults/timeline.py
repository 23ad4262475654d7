"""The faults of one run, each done when it is due and undone whatever happens.

Times are those of lab and wall clock alike, from the begin of the traffic. An act may be due at a step of a program
instead: when `step_done` tells of that step, or of a later one. A thread does one act after the other; what fails is
named and the next one follows. When the traffic has ended nothing more is done, and leaving the context undoes what is
left. The outcome tells every fault that did not happen as the scenario plans it: one that could not be done or undone,
one that was begun late, one whose time or step the traffic did not live to see.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from testbed.base.cleanup import on_failure
from testbed.lab.core.deploy.links.changes import LinkControl
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.steps import ignore_steps
from testbed.lab.core.deploy.watch.converge import ConvergenceWatch
from testbed.lab.core.deploy.watch.events import EventStream
from testbed.record.samples import RunEvent
from testbed.run.faults.acts import Act, plan_acts
from testbed.run.faults.lab_fault import FaultSite, LabFault
from testbed.run.faults.outcome import FaultOutcome, LabLeftChanged, TimedEvent, error_words
from testbed.run.faults.registry import lab_fault
from testbed.run.schema.model import Fault

if TYPE_CHECKING:
    from testbed.run.faults.subnet import SubnetSite

SETTLE_S = 60.0
"""In which routing must be whole again after the faults of a run."""


class FaultTimeline:
    """A context around the traffic of a run: entering it makes ready, `begin` starts the clock and `end` stops it.

    Leaving the context undoes what is left, and waits until routing is whole again; it raises nothing. What went wrong
    is in `outcome`, and `require_whole` refuses a lab that was left changed.
    """

    def __init__(
        self,
        lab: RunningLab,
        faults: Sequence[Fault],
        *,
        kill_worker: Callable[[str], None],
        subnet: SubnetSite | None = None,
        of_part: bool = False,
    ) -> None:
        """`kill_worker` ends the process that moves a host's data, and raises `ScenarioError` where there is none.
        `subnet` is the back end, where it is InfiniBand.

        `of_part`: other machines have the rest of the lab, and of its faults. What these do is seen here, too, and
        whoever asked for all of them looks for routing when all are undone.
        """
        self._lab = lab
        self._of_part = of_part
        self.disturbed = False
        """Routing may be another than before, which is known once the context has been left."""
        self._faults = [lab_fault(fault) for fault in faults]
        self._acts = plan_acts(self._faults)
        self._site = FaultSite(lab=lab, links=LinkControl(lab), kill_worker=kill_worker, subnet=subnet)
        self._changed = threading.Condition()
        """Reasons to go on other than time: a step, or the end."""
        self._stopped = False
        self._step_ns: dict[int, int] = {}
        """When each step was done that an act waits for (CLOCK_MONOTONIC)."""
        self._last_step: int | None = None
        self._watch: LabWatch | None = None
        self._done: list[TimedEvent] = []
        self._begun: set[int] = set()
        self._happened: set[int] = set()
        self._outstanding: dict[int, Act] = {}
        """The acts that undo those that have been begun, by their order."""
        self._troubles: list[str] = []
        self._left_changed: list[str] = []
        self._latest_ns = 0
        self._began_ns = 0
        self._ended_ns = 0
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        """Raises `NoSuchNode`, `ScenarioError` for what the lab does not have."""
        with on_failure(self._site.links.close):
            for fault in self._faults:
                fault.prepare(self._site)
            if self._acts or self._of_part:
                self._watch = LabWatch(self._lab)
                self._watch.start()
        return self

    def begin(self, begin_ns: int) -> None:
        """The traffic begins at `begin_ns` (CLOCK_MONOTONIC)."""
        self._began_ns = begin_ns
        if self._acts:
            self._thread = threading.Thread(target=self._perform_all, name="faults", daemon=True)
            self._thread.start()

    def step_done(self, step: int, at_ns: int) -> None:
        """A program has said at `at_ns` (CLOCK_MONOTONIC) that a step is done. It may be called from any thread."""
        with self._changed:
            self._last_step = step if self._last_step is None else max(step, self._last_step)
            for act in self._acts:
                if act.at_step is not None and act.at_step <= step:
                    self._step_ns.setdefault(act.at_step, at_ns)
            self._changed.notify_all()

    def end(self) -> None:
        """The traffic has ended: an act that is under way is completed, and none follows it."""
        with self._changed:
            if not self._ended_ns:
                self._ended_ns = time.monotonic_ns()
                self._stopped = True
                self._changed.notify_all()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
        if self._thread is not None:
            self._thread.join()
        with contextlib.closing(self._site.links):
            self._close_watch()
            if self._began_ns:
                self._name_the_missing()
            undone = bool(self._outstanding)
            for act in list(self._outstanding.values()):
                self._undo(act, last=True)
            self._settle_subnet()
            self.disturbed = undone or any(event.kind == "detected" for event in self._seen())
            if self.disturbed and not self._left_changed and not self._of_part:
                self._note_routing()

    def events(self) -> list[RunEvent]:
        """Return what was done and what was seen, in order of time."""
        return [
            RunEvent(
                at_s=round((event.at_ns - self._began_ns) / 1e9, 6),
                kind=event.kind,
                target=event.target,
                detail=event.detail,
            )
            for event in sorted([*self._done, *self._seen(), *self._rerouted()])
            if event.at_ns >= self._began_ns > 0
        ]

    def outcome(self) -> FaultOutcome:
        """Return how far the faults happened as planned; complete once the context has been left."""
        return FaultOutcome(
            planned=len(self._faults),
            acts=len(self._done),
            latest_s=self._latest_ns / 1e9,
            troubles=tuple(self._troubles),
            left_changed=tuple(self._left_changed),
        )

    def require_whole(self) -> None:
        """Raises `LabLeftChanged` where a fault was not undone."""
        if self._left_changed:
            raise LabLeftChanged(self.outcome())

    # --- the thread --------------------------------------------------------------------------------------

    def _perform_all(self) -> None:
        try:
            left = list(self._acts)
            while (act := self._next_due(left)) is not None:
                left.remove(act)
                if act.undo:
                    self._undo(act)
                else:
                    self._do(act)
        except BaseException as error:  # a thread has nobody else who would hear of it
            self._troubles.append(f"the thread that does the faults broke: {error_words(error)}")

    def _next_due(self, left: Sequence[Act]) -> Act | None:
        """Wait until one of these acts is due, and return it; None once the traffic has ended, or none is left."""
        with self._changed:
            while left and not self._stopped:
                due = [
                    (due_ns, act.order, act.undo, place)
                    for place, act in enumerate(left)
                    if (due_ns := self._due_ns(act)) is not None
                ]
                first_ns, _, _, place = min(due, default=(_NEVER_NS, 0, False, 0))
                wait_s = (first_ns - time.monotonic_ns()) / 1e9
                if wait_s <= 0:
                    return left[place]
                self._changed.wait(wait_s if due else None)
        return None

    def _due_ns(self, act: Act) -> int | None:
        """Return when an act is due (CLOCK_MONOTONIC); None where that is a step that is not done yet."""
        return self._began_ns + act.at_ns if act.at_step is None else self._step_ns.get(act.at_step)

    def _do(self, act: Act) -> None:
        self._begun.add(act.order)
        if act.fault.is_undone:
            self._outstanding[act.order] = self._undoing(act)
        began_ns = time.monotonic_ns()
        try:
            act.fault.do(self._site)
        except Exception as error:  # whatever it was, this one did not happen, and the next one is due
            self._troubles.append(f"{act.name} at {act.due} did not happen: {error_words(error)}")
            return
        self._happened.add(act.order)
        took_ns = time.monotonic_ns() - began_ns
        if took_ns > act.longest_ns:
            limit = f"limit {act.longest_ns / 1e6:.0f} ms"
            self._troubles.append(f"{act.name} at {act.due} took {took_ns / 1e6:.0f} ms to happen ({limit})")
        self._note(began_ns, act.fault.kind, act)

    def _undo(self, act: Act, *, last: bool = False) -> None:
        """Undo it unless that has been done. One that never happened is undone all the same: it may have half-way.

        What fails when it is due is tried again when the run has ended (`last`).
        """
        if act.order not in self._outstanding:
            return
        began_ns = time.monotonic_ns()
        try:
            act.fault.undo(self._site)
        except Exception as error:  # whatever it was, the others are to be undone
            what = f"{act.name} was not undone: {error_words(error)}"
            self._troubles.append(what)
            if last:
                self._left_changed.append(what)
            return
        del self._outstanding[act.order]
        if act.order in self._happened:
            self._note(began_ns, f"undone-{act.fault.kind}", act)

    def _undoing(self, act: Act) -> Act:
        """The act that undoes this one; where the scenario has none, the end of the run."""
        found = next((one for one in self._acts if one.undo and one.order == act.order), None)
        return found or Act(at_ns=_NEVER_NS, fault=act.fault, undo=True, order=act.order)

    def _note(self, began_ns: int, kind: str, act: Act) -> None:
        """Record an act at the time at which it was begun: its first effects are seen before the last of it is done."""
        detail = " ".join(f"{key}={value}" for key, value in act.fault.fault.settings.items())
        self._done.append(TimedEvent(at_ns=began_ns, kind=kind, target=act.fault.target, detail=detail))
        due_ns = self._due_ns(act)
        if due_ns is None:
            return  # it is undone at the end, before its step
        late_ns = min(began_ns, self._ended_ns or began_ns) - due_ns
        self._latest_ns = max(self._latest_ns, late_ns)
        if late_ns > act.latest_ns:
            what = f"was to end at {act.due} and ended" if act.undo else f"was to begin at {act.due} and began"
            limit = f"limit {act.latest_ns / 1e6:.0f} ms"
            self._troubles.append(f"{act.name} {what} {late_ns / 1e6:.0f} ms late ({limit})")

    # --- the end -----------------------------------------------------------------------------------------

    def _close_watch(self) -> None:
        if self._watch is not None:
            self._watch.close()
            if self._watch.error:
                self._troubles.append(f"what the lab says of itself was not heard to the end: {self._watch.error}")

    def _seen(self) -> Sequence[TimedEvent]:
        return () if self._watch is None else self._watch.seen

    def _name_the_missing(self) -> None:
        """Acts that were not begun: each that was overdue, and of those that the traffic did not live to see the first
        of each fault."""
        lasted_ns = max(0, self._ended_ns - self._began_ns)
        named: set[LabFault] = {act.fault for act in self._acts if act.order in self._begun}
        for act in self._acts:
            if act.undo or act.order in self._begun:
                continue
            due_ns = self._due_ns(act)
            if due_ns is not None and due_ns + act.latest_ns < self._began_ns + lasted_ns:
                self._troubles.append(f"{act.name} at {act.due} never happened: what was due before it took too long")
            elif act.fault not in named:
                ended = f"the traffic ended after {lasted_ns / 1e9:.3f} s"
                if act.at_step is not None:
                    came = "no step" if self._last_step is None else f"step {self._last_step}"
                    ended += f", and the program came to {came}"
                self._troubles.append(f"{act.name} at {act.due} never happened: {ended}")
            named.add(act.fault)

    def _rerouted(self) -> Sequence[TimedEvent]:
        return () if self._site.subnet is None else self._site.subnet.seen

    def _settle_subnet(self) -> None:
        """Wait until frames of InfiniBand go by the tables of the subnet as it is."""
        if self._site.subnet is None:
            return
        try:
            self._site.subnet.settle()
        except Exception as error:
            self._troubles.append(error_words(error))
            self._left_changed.append(error_words(error))

    def _note_routing(self) -> None:
        if what := routing_changed(self._lab):
            self._troubles.append(what)
            self._left_changed.append(what)


def routing_changed(lab: RunningLab) -> str:
    """Wait until routing is whole again; "" when it is, else a sentence about it."""
    if not lab.plan.switches:
        return ""
    try:
        with contextlib.closing(ConvergenceWatch(lab.plan, lab.processes_directory)) as watch:
            watch.wait(SETTLE_S, ignore_steps)
    except Exception as error:
        return f"routing is not what it was before the faults: {error_words(error)}"
    return ""


_NEVER_NS = 1 << 62


DETECTIONS = {
    "bgp-down": "detected",
    "link-down": "carrier-lost",
    "daemon-ended": "daemon-ended",
    "plane-down": "signal-lost",
    "plane-up": "signal-back",
    "switch-ended": "switch-ended",
    "switch-started": "switch-started",
}
"""Events of a lab, and their names in the record; a session that goes down is a failure detected."""


class LabWatch:
    """A thread that listens to a lab's events, from `start` until `close`."""

    def __init__(self, lab: RunningLab) -> None:
        self.seen: list[TimedEvent] = []
        self.error = ""
        """Why it could not listen to the end; "" where it could."""
        self._stream = EventStream(lab)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="fault-events", daemon=True)

    def start(self) -> None:
        """Listen from now on, to what happened since this was made."""
        self._thread.start()

    def close(self) -> None:
        """End the thread; `seen` and `error` are complete then."""
        self._stopping.set()
        self._stream.stop()
        self._thread.join()
        self._stream.close()

    def _listen(self) -> None:
        """Keep what the lab says; an error that ends it early is kept, too, since figures rest on what was heard."""
        try:
            for event in self._stream:
                at_ns = time.monotonic_ns()
                kind = DETECTIONS.get(event.kind)
                if kind is not None:
                    detail = f"{event.subject} {event.detail}".strip()
                    self.seen.append(TimedEvent(at_ns=at_ns, kind=kind, target=event.node, detail=detail))
            if not self._stopping.is_set():
                self.error = "the lab has gone"
        except BaseException as error:
            self.error = error_words(error)
