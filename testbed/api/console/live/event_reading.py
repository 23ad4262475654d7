"""The events of a lab, told as they happen by a thread of their own, and as pages get them."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from typing import Any

from testbed.api.console.failures import RETRY_S, PartFailures
from testbed.api.console.machine.labs import changers
from testbed.base.errors import LabNotFound, TestbedError
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.watch.events import EventStream, LabEvent


def event_json(event: LabEvent) -> dict[str, Any]:
    """Return an event as pages get it: its fields, and `t`, seconds since the epoch."""
    return dataclasses.asdict(event) | {"t": datetime.fromisoformat(event.time).timestamp()}


class EventWatch:
    """Calls `happened` with each event of a lab, in a thread of its own, until the lab is gone or this is closed; and
    `began` before: what was read until then may have changed without an event.

    In the middle of a change a part of the lab may be missing, so that nobody can listen: it is tried again, with the
    lab as it is then, and a `notifications-lost` says that nobody listened meanwhile.
    """

    def __init__(
        self,
        lab: RunningLab,
        happened: Callable[[LabEvent], None],
        began: Callable[[], None],
        failures: PartFailures,
    ) -> None:
        self._failures = failures
        self._part = f"the events of {lab.name}"
        self._lab = lab
        self._happened = happened
        self._began = began
        self._lock = threading.Lock()
        self._stream: EventStream | None = None
        self._missed = False
        self._closed = False
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"events of {lab.name}", daemon=True)

    def start(self) -> None:
        """Begin. A lab that goes in this moment tells nothing."""
        self._thread.start()

    def _run(self) -> None:
        while not self._failures.run(self._part, self._follow):
            if self._ending.wait(RETRY_S):
                return

    def _follow(self) -> None:
        """Hear events until the lab is gone, or this is closed. Raises what hinders it and is no change of the lab."""
        while not self._ending.is_set():
            try:
                self._hear(RunningLab.open(self._lab.name, self._lab.state) if self._missed else self._lab)
                return
            except LabNotFound:
                return
            except (TestbedError, OSError):
                state, name = self._lab.state, self._lab.name
                if state.exists(name) and not changers(state, name):
                    raise
            finally:
                self._missed = True
            self._ending.wait(RETRY_S)

    def _hear(self, lab: RunningLab) -> None:
        with closing(EventStream(lab)) as stream:
            with self._lock:
                self._stream = stream
                if self._closed:
                    return
            try:
                self._began()
                self._failures.clear(self._part)
                if self._missed:
                    detail = "nobody listened for a while; what is known is read anew"
                    self._happened(stream.event("", "notifications-lost", "events", detail))
                for event in stream:
                    if event.kind != "snapshot":
                        self._happened(event)
            finally:
                with self._lock:
                    self._stream = None

    def close(self) -> None:
        """End the thread; it may be waiting for an event."""
        with self._lock:
            self._closed = True
            self._ending.set()
            if self._stream is not None:
                self._stream.stop()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=5)
