"""What goes wrong with a lab while its traffic runs: done on time, watched, and undone whatever happens.

Times are those of lab and wall clock alike, from the begin of the traffic. A thread does them, and another one listens
to what the lab says of itself: links that lose carrier, daemons that end, BGP sessions that go down.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from testbed.deploy.links.changes import LinkChange, LinkControl
from testbed.deploy.live import RunningLab
from testbed.deploy.routing import running_daemons, start_routing
from testbed.deploy.steps import ignore_steps
from testbed.deploy.watch.converge import ConvergenceWatch
from testbed.deploy.watch.events import EventStream
from testbed.drivers.nodes.processes import kill_processes
from testbed.errors import ScenarioError, TestbedError
from testbed.model.scenario import Fault, FaultKind, Scalar
from testbed.results import RunEvent
from testbed.units import Duration, Rate

DETECTIONS = {"bgp-down": "detected", "link-down": "carrier-lost", "daemon-ended": "daemon-ended"}
"""What the lab says, and what the record calls it; a session that goes down is a failure detected."""
SETTLE_S = 60.0
"""In which routing must be whole again after the faults of a run."""
_STORM_LONGEST = Duration.parse("1h")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Act:
    """Something to be done at `at_s`."""

    at_s: float
    fault: Fault
    undo: bool
    order: int


class FaultTimeline:
    """The faults of one run. A context: leaving it undoes what is left, and waits until routing is whole again.

    `kill_worker` ends the process that moves a host's data. `begin` starts the clock.
    """

    def __init__(self, lab: RunningLab, faults: Sequence[Fault], *, kill_worker: Callable[[str], None]) -> None:
        """Raises `NoSuchNode`, `ScenarioError` for a target that the lab does not have."""
        self._lab = lab
        self._kill_worker = kill_worker
        self._acts = sorted(_acts(faults), key=lambda act: (act.at_s, act.order))
        self._links = LinkControl(lab)
        self._outstanding: dict[int, Fault] = {}
        self._stop = threading.Event()
        self._events: list[tuple[int, str, str, str]] = []
        self._error: TestbedError | None = None
        self._began_ns = 0
        self._threads: list[threading.Thread] = []
        self._stream: EventStream | None = None
        for fault in faults:
            self._check(fault)

    def _check(self, fault: Fault) -> None:
        node, _, interface = fault.target.partition(":")
        if interface:
            self._lab.port(node, interface)
            self._links.prepare(fault.target)
        else:
            self._lab.node(node)
        if fault.kind is FaultKind.DAEMON_KILL and str(fault.settings["daemon"]) not in self._lab.daemons.get(node, ()):
            known = ", ".join(self._lab.daemons.get(node, ())) or "none"
            raise ScenarioError(f"{node} has no daemon {fault.settings['daemon']}", hint=f"it has {known}")

    def __enter__(self) -> Self:
        if self._acts:
            self._stream = EventStream(self._lab)
            self._start(self._listen, "fault-events")
        return self

    def begin(self, begin_ns: int) -> None:
        """The traffic begins at `begin_ns` (CLOCK_MONOTONIC)."""
        self._began_ns = begin_ns
        if self._acts:
            self._start(self._perform_all, "faults")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._stream is not None:
            self._stream.stop()
        for thread in self._threads:
            thread.join()
        if self._stream is not None:
            self._stream.close()
        try:
            undone = bool(self._outstanding)
            for order, fault in list(self._outstanding.items()):
                self._undo(order, fault)
            if undone or self._disturbed_routing():
                self._await_routing()
        finally:
            self._links.close()

    @property
    def error(self) -> TestbedError | None:
        """A fault that could not be done."""
        return self._error

    def events(self) -> list[RunEvent]:
        """What was done and what was seen, in order of time."""
        return [
            RunEvent(at_s=round((at_ns - self._began_ns) / 1e9, 6), kind=kind, target=target, detail=detail)
            for at_ns, kind, target, detail in sorted(self._events)
            if at_ns >= self._began_ns > 0
        ]

    # --- doing -------------------------------------------------------------------------------------------

    def _start(self, body: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=body, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _perform_all(self) -> None:
        for act in self._acts:
            due_s = act.at_s - (time.monotonic_ns() - self._began_ns) / 1e9
            if self._stop.wait(max(0.0, due_s)):
                return
            try:
                if act.undo:
                    self._undo(act.order, act.fault)
                else:
                    self._do(act.order, act.fault)
            except TestbedError as error:
                self._error = error
                return

    def _do(self, order: int, fault: Fault) -> None:
        self._outstanding[order] = fault
        began_ns = time.monotonic_ns()
        node = fault.target.partition(":")[0]
        match fault.kind:
            case FaultKind.LINK_DOWN | FaultKind.LINK_FLAP:
                self._links.set(fault.target, LinkChange(up=False))
            case FaultKind.LINK_SET:
                both = bool(fault.settings.get("both", False))
                self._links.set(fault.target, link_change(fault.settings), both=both)
            case FaultKind.NODE_KILL:
                self._ports_up(node, up=False)
                kill_processes(running_daemons(self._lab, node))
            case FaultKind.DAEMON_KILL:
                wanted = str(fault.settings["daemon"])
                kill_processes([one for one in running_daemons(self._lab, node) if one.command == wanted])
            case FaultKind.AGENT_KILL:
                self._kill_worker(node)
            case FaultKind.PFC_STORM:
                self._storm(fault)
        self._note(began_ns, fault.kind.value, fault)

    def _undo(self, order: int, fault: Fault) -> None:
        if self._outstanding.pop(order, None) is None:
            return
        began_ns = time.monotonic_ns()
        node = fault.target.partition(":")[0]
        match fault.kind:
            case FaultKind.LINK_DOWN | FaultKind.LINK_FLAP:
                self._links.set(fault.target, LinkChange(up=True))
            case FaultKind.LINK_SET:
                self._links.reset(fault.target, both=bool(fault.settings.get("both", False)))
            case FaultKind.NODE_KILL:
                self._ports_up(node, up=True)
                start_routing(self._lab, node)
            case FaultKind.DAEMON_KILL:
                start_routing(self._lab, node)
            case FaultKind.AGENT_KILL:
                pass  # the next run starts it anew
            case FaultKind.PFC_STORM:
                self._storm(fault, ended=True)
        self._note(began_ns, f"undone-{fault.kind.value}", fault)

    def _ports_up(self, node: str, *, up: bool) -> None:
        for port in self._lab.plan.ports:
            if port.node == node:
                self._links.set(f"{port.node}:{port.name}", LinkChange(up=up))

    def _storm(self, fault: Fault, *, ended: bool = False) -> None:
        """The port asks its peer to pause without a reason; one of no length ends it."""
        numbers = {f"{port.node}:{port.name}": number for number, port in enumerate(self._lab.plan.ports, start=1)}
        length = _STORM_LONGEST if fault.until is None else Duration(fault.until.ns - fault.at.ns)
        duration_ns = 1 if ended else length.ns
        with contextlib.suppress(LookupError):
            self._lab.pause_agent.storm(
                self._lab.name, numbers[fault.target], int(fault.settings["priority"]), duration_ns
            )

    def _note(self, began_ns: int, kind: str, fault: Fault) -> None:
        """What was done counts from when it was begun: its first effects are seen before the last of it is done."""
        detail = " ".join(f"{key}={value}" for key, value in fault.settings.items())
        self._events.append((began_ns, kind, fault.target, detail))

    # --- seeing ------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        assert self._stream is not None
        for event in self._stream:
            now = time.monotonic_ns()
            kind = DETECTIONS.get(event.kind)
            if kind is not None:
                self._events.append((now, kind, event.node, f"{event.subject} {event.detail}".strip()))

    def _run_directory(self) -> Path:
        """Of all nodes."""
        return self._lab.run_directory(self._lab.plan.switches[0].node).parent

    def _disturbed_routing(self) -> bool:
        return any(kind == "detected" for _, kind, _, _ in self._events)

    def _await_routing(self) -> None:
        """Raises `ConvergenceError` when routes or sessions are not back in time."""
        watch = ConvergenceWatch(self._lab.plan, self._run_directory())
        try:
            watch.wait(SETTLE_S, ignore_steps)
        finally:
            watch.close()


def link_change(settings: Mapping[str, Scalar]) -> LinkChange:
    """The words of a scenario file as a change. Raises `ValueError` for what is none."""
    rate = None if settings.get("rate") is None else str(settings["rate"]).strip()
    is_share = rate is not None and rate.endswith("%")
    every = settings.get("loss_every")
    return LinkChange(
        rate=Rate.parse(rate) if rate is not None and not is_share else None,
        rate_share=_share(rate) if is_share else None,
        delay=_duration(settings.get("delay")),
        jitter=_duration(settings.get("jitter")),
        loss=_share(settings.get("loss")),
        loss_every=None if every is None else int(every),
        corruption=_share(settings.get("corruption")),
        silent=None if settings.get("silent") is None else bool(settings["silent"]),
    )


def _duration(value: Scalar | None) -> Duration | None:
    return None if value is None else Duration.parse(str(value))


def _share(value: Scalar | None) -> float | None:
    """A number, or a percentage as text."""
    if value is None:
        return None
    text = str(value).strip()
    return float(text.rstrip("% ")) / 100 if text.endswith("%") else float(text)


def _acts(faults: Sequence[Fault]) -> list[_Act]:
    """Every fault's begin and end; a flap's again and again."""
    acts: list[_Act] = []
    for fault in faults:
        begins = [fault.at.ns]
        if fault.kind is FaultKind.LINK_FLAP and fault.period is not None and fault.until is not None:
            begins = list(range(fault.at.ns, fault.until.ns, fault.period.ns))
        for begin in begins:
            order = len(acts)
            acts.append(_Act(at_s=begin / 1e9, fault=fault, undo=False, order=order))
            end = fault.until.ns if fault.until is not None else None
            if fault.kind is FaultKind.LINK_FLAP and fault.period is not None:
                end = begin + fault.period.ns // 2
            if end is not None:
                acts.append(_Act(at_s=end / 1e9, fault=fault, undo=True, order=order))
    return acts
