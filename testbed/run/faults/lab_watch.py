"""Hearing what a lab says of itself while faults befall it: lost carriers, ended daemons, BGP sessions that go down."""

from __future__ import annotations

import threading
import time

from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.watch.events import EventStream
from testbed.run.faults.outcome import TimedEvent, error_words

DETECTIONS = {
    "bgp-down": "detected",
    "link-down": "carrier-lost",
    "daemon-ended": "daemon-ended",
    "plane-down": "signal-lost",
    "plane-up": "signal-back",
    "switch-ended": "switch-ended",
    "switch-started": "switch-started",
}
"""What the lab says, and what the record calls it; a session that goes down is a failure detected."""


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
        """Whatever ends it before it is stopped is kept: figures rest on what was heard."""
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
