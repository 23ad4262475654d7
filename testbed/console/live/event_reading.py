"""The events of a lab, told as they happen by a thread of their own, and as pages get them."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from typing import Any

from testbed.base.errors import TestbedError
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.watch.events import EventStream, LabEvent


def event_json(event: LabEvent) -> dict[str, Any]:
    """Return an event as pages get it: its fields, and `t`, seconds since the epoch."""
    return dataclasses.asdict(event) | {"t": datetime.fromisoformat(event.time).timestamp()}


class EventWatch:
    """Calls `happened` with each event of a lab, in a thread of its own, until it is closed; and `began` once before:
    what was read until then may have changed without an event.
    """

    def __init__(self, lab: RunningLab, happened: Callable[[LabEvent], None], began: Callable[[], None]) -> None:
        self._lab = lab
        self._happened = happened
        self._began = began
        self._lock = threading.Lock()
        self._stream: EventStream | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=f"events of {lab.name}", daemon=True)

    def start(self) -> None:
        """Begin. A lab that goes in this moment tells nothing."""
        self._thread.start()

    def _run(self) -> None:
        try:
            stream = EventStream(self._lab)
        except (TestbedError, OSError):
            return
        with closing(stream):
            with self._lock:
                self._stream = stream
                if self._closed:
                    return
            self._began()
            try:
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
            if self._stream is not None:
                self._stream.stop()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=5)
