"""An attached lab: its events go through the core, and what the core wants is done on the wire."""

from __future__ import annotations

import dataclasses
import errno
import itertools
import os
import struct
import time
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from testbed.datapath.abi import EventKind
from testbed.datapath.maps import LabMaps
from testbed.datapath.ringbuf import RingBuffer
from testbed.portd.attachment import LabAttachment
from testbed.portd.core import CloseGate, OpenGate, PauseCore, Report, SendPause
from testbed.portd.errors import PauseAgentError
from testbed.portd.eventlog import EventLog
from testbed.portd.histogram import Histogram
from testbed.portd.ledger import Ledger
from testbed.portd.pfc import PRIORITIES
from testbed.portd.wire import Wire

EVENT = struct.Struct("<QHBBI8H")
"""`struct event` of the data path."""
EVENTS_AT_ONCE = 256
"""After so many, what they led to is done before more are read."""
ROUNDS = 8
"""After so many rounds other labs have their turn."""
CHECK_NS = 250_000_000
"""How often accounts are compared with the maps, and malformed frames counted."""

_XOFF, _XON, _PFC = int(EventKind.XOFF), int(EventKind.XON), int(EventKind.PFC)


class EventSource(Protocol):
    """The ring of events, or something like it."""

    def fileno(self) -> int: ...

    def read(self) -> Iterator[bytes]: ...

    def close(self) -> None: ...


class AttachedLab:
    """Raises on creation `TestbedError` where the lab's data path is not there. Nothing later raises."""

    def __init__(self, attachment: LabAttachment) -> None:
        maps = LabMaps.open(attachment.pin_directory, writable=True)
        events = RingBuffer(maps.events_fd())
        try:
            self._begin(attachment, maps, events)
        except ValueError as error:
            events.close()
            maps.close()
            raise PauseAgentError(f"the lab {attachment.lab}: {error}") from error

    @classmethod
    def over(cls, attachment: LabAttachment, maps: LabMaps, events: EventSource) -> AttachedLab:
        """As the constructor, with maps and events that are there already."""
        lab = cls.__new__(cls)
        lab._begin(attachment, maps, events)
        return lab

    def _begin(self, attachment: LabAttachment, maps: LabMaps, events: EventSource) -> None:
        self.attachment = attachment
        self._maps = maps
        self._events = events
        self._ports = {port.number: port for port in attachment.ports}
        self.log = EventLog(attachment.events_file, attachment.lab)
        self._ledger = Ledger(maps)
        self.core = PauseCore(attachment.ports, self._ledger)
        self._wire = Wire(self._ports, self._failed)
        self._malformed = self._ledger.malformed_frames()
        self._next_check = time.monotonic_ns() + CHECK_NS
        self.failures = 0
        self.broken_events = 0
        self.core.take_over(time.monotonic_ns())
        self._perform()

    def fileno(self) -> int:
        """Readable when there are events."""
        return self._events.fileno()

    def work(self) -> None:
        """Do all that is to be done now."""
        for _ in range(ROUNDS):
            read = self._read_events()
            now = time.monotonic_ns()
            due = self.core.next_timer()
            if due is not None and due <= now:
                self.core.on_timer(now)
            # A frame that we send is an event at the peer before `sendto` returns: look again at once.
            if not self._perform() and not read:
                break
        if now >= self._next_check:
            self._check(now)

    def next_deadline(self) -> int:
        """When `work` must be called though nothing was read."""
        due = self.core.next_timer()
        return self._next_check if due is None else min(due, self._next_check)

    def close(self) -> None:
        """Resume the peers, open the gates, let go of the maps."""
        self.core.stop()
        self._perform()
        self._wire.close()
        self._events.close()
        self._maps.close()

    def storm(self, port: int, priority: int, duration_ns: int) -> None:
        """Raises `LookupError`."""
        self.core.storm(port, priority, duration_ns, time.monotonic_ns())

    def status(self) -> dict[str, Any]:
        """What `client.LabStatus` is made of."""
        every = Histogram()
        for histogram in self.core.reactions.values():
            every.merge(histogram)
        return {
            "ports": len(self._ports),
            "pin_directory": str(self.attachment.pin_directory),
            "reaction": dataclasses.asdict(every.summary()),
            "event_to_frame": dataclasses.asdict(self.core.event_to_frame.summary()),
            "frame_to_gate": dataclasses.asdict(self.core.frame_to_gate.summary()),
            "queues": [
                [*divmod(index, PRIORITIES), dataclasses.asdict(histogram.summary())]
                for index, histogram in sorted(self.core.reactions.items())
            ],
            "strays": dataclasses.asdict(self.core.strays),
            "failures": self.failures,
            "broken_events": self.broken_events,
            "lost_lines": self.log.lost,
        }

    def _read_events(self) -> bool:
        count = 0
        core = self.core
        for record in itertools.islice(self._events.read(), EVENTS_AT_ONCE):
            count += 1
            if len(record) != EVENT.size:
                self.broken_events += 1
                continue
            ns, port, kind, priority, _, *quanta = EVENT.unpack(record)
            if kind == _XOFF:
                core.on_xoff(port, priority, ns)
            elif kind == _XON:
                core.on_xon(port, priority)
            elif kind == _PFC:
                core.on_pfc(port, priority, quanta, ns, time.monotonic_ns())
            else:
                self.broken_events += 1
        return count > 0

    def _perform(self) -> bool:
        """Do what the core wants; whether that was anything."""
        actions = self.core.flush(time.monotonic_ns())
        for action in actions:
            match action:
                case SendPause():
                    if self._wire.send(action):
                        self.core.sent(action, time.monotonic_ns())
                case CloseGate():
                    if self._wire.close_gates(action):
                        self.core.closed(action, time.monotonic_ns())
                case OpenGate():
                    self._wire.open_gates(action)
                    self.core.opened(action, time.monotonic_ns())
                case Report():
                    port = self._ports[action.port]
                    self.log.write(
                        action.kind.value, port.node, f"{port.interface} priority {action.priority}", action.detail
                    )
        return bool(actions)

    def _check(self, now: int) -> None:
        self._next_check = now + CHECK_NS
        self._wire.collect_errors()
        over = self._ledger.all_over()
        self.core.compare(over)
        malformed = self._ledger.malformed_frames()
        for number in np.flatnonzero(malformed > self._malformed).tolist():
            if number in self._ports:
                port = self._ports[number]
                frames = int(malformed[number] - self._malformed[number])
                self.log.write("pfc-malformed", port.node, port.interface, f"{frames} frames")
        self._malformed = malformed
        self._perform()

    def _failed(self, number: int, what: str, code: int) -> None:
        """A port that went with its link or namespace fails silently: it has nothing to pause."""
        self.failures += 1
        port = self._ports.get(number)
        if port is not None and code not in (errno.ENODEV, errno.ENXIO, errno.ENETDOWN, errno.ENOENT):
            self.log.write_seldom("pfc-failed", port.node, port.interface, f"{what}: {os.strerror(code)}")
