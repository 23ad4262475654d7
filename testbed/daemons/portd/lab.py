"""An attached lab: its maps, ring of events, core and port I/O, which the native side works on (`native/lab.h`).

The loop that serves the labs is here, too.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
import time
import weakref
from typing import Any

from testbed.base.datapath.maps import LabMaps, RingMemory
from testbed.daemons.kit import realtime
from testbed.daemons.kit.events import EventLog
from testbed.daemons.portd import native
from testbed.daemons.portd.attachment import PRIORITIES, LabAttachment
from testbed.daemons.portd.core import PauseCore
from testbed.daemons.portd.errors import PauseAgentError
from testbed.daemons.portd.histogram import Histogram
from testbed.daemons.portd.port_io import PortIo


class AttachedLab:
    """Raises on creation `TestbedError` where the lab's data path is not there. Nothing later raises."""

    def __init__(self, attachment: LabAttachment) -> None:
        maps = LabMaps.open(attachment.pin_directory, writable=True)
        try:
            self._begin(attachment, maps, RingMemory.open(maps.events_fd()))
        except ValueError as error:
            maps.close()
            raise PauseAgentError(f"the lab {attachment.lab}: {error}") from error

    @classmethod
    def over(cls, attachment: LabAttachment, maps: LabMaps, ring: RingMemory) -> AttachedLab:
        """Do as the constructor does, with maps and a ring that are there already."""
        lab = cls.__new__(cls)
        lab._begin(attachment, maps, ring)
        return lab

    def _begin(self, attachment: LabAttachment, maps: LabMaps, ring: RingMemory) -> None:
        self.attachment = attachment
        self._maps = maps
        self._ring = ring
        self._ports = {port.number: port for port in attachment.ports}
        self._storms: dict[tuple[int, int], int] = {}
        """When the storm of a port and priority ends, on the monotonic clock, in nanoseconds."""
        self.log = EventLog(attachment.events_file, attachment.lab)
        self.core = PauseCore(attachment.ports, maps)
        self._port_io = PortIo(attachment.ports)
        self._native = native.library()
        memory = (ring.consumed.ctypes.data, ring.produced.ctypes.data, ring.data.ctypes.data)
        self.handle: int | None = self._native.lab_new(self.core.handle, self._port_io.handle, *memory, ring.size)
        if not self.handle:
            raise MemoryError(f"no memory for the lab {attachment.lab}")
        weakref.finalize(self, self._native.lab_free, self.handle)
        self.core.take_over(time.monotonic_ns())
        self.work()  # not only what is left to do: who is told to pause again has no gate to open first

    def fileno(self) -> int:
        """Readable when there are events."""
        return self._ring.fd

    def work(self) -> None:
        """Do all that is to be done now."""
        while self._native.lab_work(self.handle):
            continue
        self.tell()

    def close(self) -> None:
        """Resume the peers, open the gates, let go of ports and maps. What was counted stays."""
        self.core.stop()
        self._perform()
        self._port_io.close()
        self._maps.close()

    def hand_over(self) -> None:
        """Let go of ports and maps, and leave gates and peers as they are for another one that has taken over.

        The ports' sockets are closed beside: the kernel waits for all CPUs with each of them (net/packet/af_packet.c,
        packet_release), tenths of a second in all, in which nobody would be paused.
        """
        self._maps.close()
        threading.Thread(target=self._port_io.close, daemon=True).start()

    def storm(self, port: int, priority: int, duration_ns: int) -> None:
        """Raises `LookupError`."""
        now = time.monotonic_ns()
        self.core.storm(port, priority, duration_ns, now)
        self._storms[port, priority] = now + duration_ns
        self._perform()

    def go_on_with_storms(self, before: AttachedLab) -> None:
        """Take over the storms that are not over yet, at ports that are still there and whose peers still obey."""
        for (port, priority), end_ns in before._storms.items():
            left_ns = end_ns - time.monotonic_ns()
            if left_ns > 0 and port in self._ports:
                with contextlib.suppress(LookupError):
                    self.storm(port, priority, left_ns)

    def tell(self) -> None:
        """Write what there is to report into the lab's log."""
        for report in self.core.reports():
            port = self._ports[report.port]
            subject = port.interface if report.priority is None else f"{port.interface} priority {report.priority}"
            self.log.write(report.kind.value, port.node, subject, report.detail)

    def status(self) -> dict[str, Any]:
        """Return what `client.LabStatus` is made of."""
        every, reactions = Histogram(), self.core.reactions
        for histogram in reactions.values():
            every.merge(histogram)
        return {
            "ports": len(self._ports),
            "pin_directory": str(self.attachment.pin_directory),
            "reaction": dataclasses.asdict(every.summary()),
            "event_to_frame": dataclasses.asdict(self.core.event_to_frame.summary()),
            "frame_to_gate": dataclasses.asdict(self.core.frame_to_gate.summary()),
            "queues": [
                [*divmod(index, PRIORITIES), dataclasses.asdict(histogram.summary())]
                for index, histogram in sorted(reactions.items())
            ],
            "strays": dataclasses.asdict(self.core.strays),
            "failures": self._native.lab_failures(self.handle),
            "broken_events": self.broken_events,
            "lost_lines": self.log.lost + self.core.lost_reports,
        }

    @property
    def broken_events(self) -> int:
        """Records that are no events."""
        return int(self._native.lab_broken_events(self.handle))

    def _perform(self) -> None:
        self._native.lab_perform(self.handle)
        self.tell()


class Loop:
    """The agent's waiting (`native/loop.h`): labs are served inside, and Python is called for the rest.

    `control` is a descriptor that becomes readable when there is something else to do.
    """

    def __init__(self, control: int) -> None:
        self._native = native.library()
        self._handle: int | None = self._native.loop_new(control, realtime.KICKER_PRIORITY)
        if not self._handle:
            raise OSError("no memory, descriptor or thread to wait with")

    def add(self, lab: AttachedLab) -> None:
        """Serve a lab until `remove`. Raises `OSError`."""
        error = self._native.loop_add(self._handle, lab.handle, lab.fileno())
        if error:
            raise OSError(error, os.strerror(error))

    def remove(self, lab: AttachedLab) -> None:
        self._native.loop_remove(self._handle, lab.handle)

    def run(self) -> None:
        """Serve the labs until `control` is readable, a signal came, or a lab has something to tell."""
        self._native.loop_run(self._handle)

    def close(self) -> None:
        self._native.loop_free(self._handle)
        self._handle = None
