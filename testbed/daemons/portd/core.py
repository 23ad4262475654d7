"""The pause machine of a lab's ports as the agent holds it: attached, asked for a storm, read out, and ended.

The machine itself is `native/core.h`, which says how it works; events and frames go into it and come out of it there.
Times are CLOCK_MONOTONIC in ns. Queues are indexed `port * 8 + priority`.
"""

from __future__ import annotations

import ctypes
import enum
import os
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import assert_never

from testbed.base.datapath.maps import LabMaps
from testbed.daemons.portd import native
from testbed.daemons.portd.attachment import PRIORITIES, PortAttachment
from testbed.daemons.portd.histogram import Histogram


class ReportKind(enum.StrEnum):
    WATCHDOG_FREED = "pfc-watchdog-freed"
    WATCHDOG_RESTORED = "pfc-watchdog-restored"
    STORM_BEGAN = "pfc-storm-began"
    STORM_ENDED = "pfc-storm-ended"
    MALFORMED = "pfc-malformed"
    FAILED = "pfc-failed"


@dataclass(frozen=True, slots=True)
class Report:
    """Something for the lab's event log. `priority` is None for what is about the port."""

    kind: ReportKind
    port: int
    priority: int | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strays:
    """Inputs that had no effect, by reason."""

    unknown: int
    """Events of a port or priority that does not exist."""
    lossy: int
    """Pause asked of a priority that is not lossless at the receiving port."""
    healed: int
    """Accounts whose crossing was never told, found by looking."""


def attached_ports(
    ports: Sequence[PortAttachment], namespaces: Sequence[str] = (), gates: Sequence[int] = ()
) -> ctypes.Array[native.AttachedPort]:
    """`ports` for the native side; by their place in `namespaces`, and of their frame size in `gates`, if given."""
    namespace_of = {path: place for place, path in enumerate(namespaces)}
    gates_of = {mtu_bytes: place for place, mtu_bytes in enumerate(gates)}
    found = (native.AttachedPort * len(ports))()
    for item, port in zip(found, ports, strict=True):
        item.number, item.peer, item.ifindex = port.number, port.peer, port.ifindex
        item.lossless = sum(1 << priority for priority in set(port.lossless))
        item.rate_bps = port.rate_bps
        item.watchdog_detect_ns, item.watchdog_restore_ns = port.watchdog_detect_ns, port.watchdog_restore_ns
        item.namespace, item.gates = namespace_of.get(port.namespace, 0), gates_of.get(port.mtu_bytes, 0)
        item.mac[:] = bytes.fromhex(port.mac.replace(":", ""))
    return found


class PauseCore:
    """The pause machine of the ports of one lab."""

    def __init__(self, ports: Sequence[PortAttachment], maps: LabMaps) -> None:
        """`maps` must be writable, and stays in use. Raises `ValueError` for ports that the maps do not have."""
        queues = len(maps.pauses)
        last = max((port.number for port in ports), default=0)
        if (last + 1) * PRIORITIES > queues:
            raise ValueError(f"port {last} is beyond the {queues // PRIORITIES - 1} of the maps")
        if len({port.number for port in ports}) != len(ports):
            raise ValueError("two ports have the same number")
        self._maps = maps
        self._queues = queues
        self._native = native.library()
        self.handle: int | None = self._native.core_new(
            attached_ports(ports), len(ports), maps.ingress.ctypes.data, maps.pauses.ctypes.data, queues
        )
        if not self.handle:
            raise MemoryError(f"no memory for {len(ports)} ports")
        weakref.finalize(self, self._native.core_free, self.handle)

    def reset(self) -> None:
        """Forget the measured times."""
        self._native.core_reset(self.handle)

    def storm(self, port: int, priority: int, duration_ns: int, now: int) -> None:
        """Ask the peer to pause as if the account were above XOFF, for `duration_ns`. A new storm replaces the old.

        Raises `LookupError` for a port or priority that there is not, or that the peer would not obey.
        """
        if self._native.core_storm(self.handle, port, priority, duration_ns, now):
            raise LookupError(f"no port {port} whose peer obeys pause frames of priority {priority}")

    def take_over(self, now: int) -> None:
        """Continue from the maps where another agent ended: what was closed opens, what was asked is settled."""
        self._native.core_take_over(self.handle, now)

    def opened(self, port: int, vector: int, now: int) -> None:
        """The gates of the priorities in `vector` are open since `now`."""
        self._native.core_opened(self.handle, native.Action(native.ActionKind.OPEN_GATES, port, vector), now)

    def stop(self) -> None:
        """Let go of everything: peers are resumed, gates open; what comes in later has no effect."""
        self._native.core_stop(self.handle)

    # --- what is told --------------------------------------------------------------------------------

    def reports(self) -> Iterator[Report]:
        """Return what there is to report, once."""
        notes, note = self._native.core_notes(self.handle), native.Note()
        while self._native.notes_take(notes, note):
            yield _report(note)

    # --- what is measured ----------------------------------------------------------------------------

    @property
    def event_to_frame(self) -> Histogram:
        """The times from the crossing of XOFF to the frame that left."""
        return Histogram.copy_of(self._native.core_event_to_frame(self.handle).contents)

    @property
    def frame_to_gate(self) -> Histogram:
        """The times from the received frame to the closed gate."""
        return Histogram.copy_of(self._native.core_frame_to_gate(self.handle).contents)

    @property
    def reactions(self) -> dict[int, Histogram]:
        """The times from the crossing of XOFF to the closed gate, by the egress queue that was paused."""
        found = {}
        for queue in range(self._queues):
            steps = self._native.core_reactions(self.handle, queue)
            if steps and steps.contents.count:
                found[queue] = Histogram.copy_of(steps.contents)
        return found

    @property
    def strays(self) -> Strays:
        counters = self._native.core_strays(self.handle).contents
        return Strays(unknown=counters.unknown, lossy=counters.lossy, healed=counters.healed)

    @property
    def lost_reports(self) -> int:
        """Return those that nobody took in time."""
        return int(self._native.notes_lost(self._native.core_notes(self.handle)))


def _report(note: native.Note) -> Report:
    port, priority, value = int(note.port), int(note.priority), int(note.value)
    match native.NoteKind(note.kind):
        case native.NoteKind.WATCHDOG_FREED:
            return Report(ReportKind.WATCHDOG_FREED, port, priority, f"paused for {value / 1e6:g} ms")
        case native.NoteKind.WATCHDOG_RESTORED:
            return Report(ReportKind.WATCHDOG_RESTORED, port, priority)
        case native.NoteKind.STORM_BEGAN:
            return Report(ReportKind.STORM_BEGAN, port, priority, f"for {value / 1e9:g} s")
        case native.NoteKind.STORM_ENDED:
            return Report(ReportKind.STORM_ENDED, port, priority)
        case native.NoteKind.MALFORMED:
            return Report(ReportKind.MALFORMED, port, None, f"{value} frames")
        case native.NoteKind.FAILED_FRAME | native.NoteKind.FAILED_GATE | native.NoteKind.FAILED_KICK as kind:
            return Report(ReportKind.FAILED, port, None, f"{_FAILED[kind]}: {os.strerror(note.error)}")
        case kind:
            assert_never(kind)


_FAILED = {
    native.NoteKind.FAILED_FRAME: "send a PFC frame",
    native.NoteKind.FAILED_GATE: "change the gate",
    native.NoteKind.FAILED_KICK: "kick the queue",
}
