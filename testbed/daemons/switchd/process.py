"""The switch's process: ports, served by the native loop, and beside them the control socket.

It ends on SIGTERM, SIGINT or when it is asked to. Commands are `status`, `forget_peaks`, `set_link`, `set_links`,
`reset_link` and `shutdown`.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import json
import os
import resource
import select
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed.base.cleanup import closed_at_end
from testbed.daemons.kit import configuration, realtime
from testbed.daemons.kit.control import ControlServer
from testbed.daemons.switchd.description import SwitchDescription
from testbed.daemons.switchd.ends import LivingEnds
from testbed.daemons.switchd.errors import SwitchError
from testbed.daemons.switchd.guardian import start_guardian
from testbed.protocols.errors import UsageError
from testbed.protocols.scale_up.domain import binding
from testbed.protocols.scale_up.domain.build import library
from testbed.protocols.scale_up.domain.link import FlowControl, LinkErrors, plane_links
from testbed.protocols.scale_up.domain.packet_sockets import BUFFER_BYTES, PFC_ETHERTYPE, lost_frames, open_socket
from testbed.protocols.scale_up.domain.switch_core import SwitchCore

PORT_BUFFER_BYTES, MOST_BUFFER_BYTES = 4 << 20, 256 << 20
"""The most that may wait of each port, and of all together: it takes memory only while it waits."""
DESCRIPTION_NAME = "switch.json"
SOCKET_NAME = "switch.sock"
EVENTS_NAME = "switch.events"
"""The file in which it says, in a line of JSON each, that it switches (`pid`), and which links were taken down or
brought up: `gpu` and `plane` (from 0), `up`."""
_PATIENCE = 5
"""The switch waits so many times longer than a GPU's end before it takes silence for a link that is down: a GPU that
computes does not always serve its links."""


class SwitchProcess:
    """Owns `switch.sock` in its run directory, whose `switch.json` says what it is."""

    def __init__(self, run_directory: Path) -> None:
        """Raises `OSError` for an interface that is not there."""
        self._description = configuration.read(run_directory / DESCRIPTION_NAME, SwitchDescription)
        self._directory = os.open(run_directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        link, ports = self._description.link, self._description.ports
        pauses = link.flow_control is FlowControl.PFC
        buffer_bytes = max(BUFFER_BYTES, min(MOST_BUFFER_BYTES, len(ports) * PORT_BUFFER_BYTES))
        interfaces = [socket.if_nametoindex(port.interface) for port in ports]
        self._socket = open_socket("", buffer_bytes=buffer_bytes)
        self._pause_socket = open_socket("", PFC_ETHERTYPE) if pauses else None
        self._guardian = start_guardian(self._socket, ports)
        native = library()
        self._ring = native.packet_ring_new(
            self._socket.fileno(), link.switch_ring_frames(len(ports)), link.frame_bytes
        )
        planes, gpus = self._description.planes, self._description.gpus
        self._plane_links = plane_links(link, planes, self._description.plane_rates_bps)
        links = (binding.LinkConfig * len(ports))(
            *(self._plane_links[number // gpus].native(port.mac, port.peer) for number, port in enumerate(ports))
        )
        for end in links:
            end.silence_ns *= _PATIENCE
            end.cf_min_ns = max(end.cf_min_ns, self._description.quantum_ns)  # it has no more rounds than that anyway
        self._errors = [LinkErrors()] * len(ports)
        self._core = SwitchCore(
            native,
            max(self._plane_links, key=lambda item: item.rate_bps),
            links,
            gpus=gpus,
            planes=planes,
            voq=self._description.voq,
            now=time.monotonic_ns(),
        )
        self._epoll = select.epoll()
        self._loop = native.switch_loop_new(
            self._core.handle,
            self._socket.fileno(),
            self._ring,
            -1 if self._pause_socket is None else self._pause_socket.fileno(),
            (ctypes.c_int * len(ports))(*interfaces),
            self._epoll.fileno(),
            self._description.quantum_ns,
        )
        if not self._loop:
            raise SwitchError("no memory or descriptor to wait with")
        self._native = native
        self._control = ControlServer(self._directory, SOCKET_NAME, self._handle, self._epoll)
        self._ends = LivingEnds(self._directory, gpus, self._epoll, self._on_end)
        self._since_ns = time.monotonic_ns()
        self._lost = 0
        self._weaknesses: list[str] = []

    def run(self) -> None:
        """Switch until the end."""
        self._control.catch_signals()
        self._weaknesses = realtime.become_undisturbed()
        self._tell({"pid": os.getpid()})
        try:
            while not self._control.ending:
                self._native.switch_loop_run(self._loop)
                self._serve()
        finally:
            self._end()

    def _serve(self) -> None:
        ends = False
        for descriptor, _ in self._epoll.poll(0):
            if self._ends.has(descriptor):
                ends = True
            else:
                self._control.serve(descriptor)
        if ends:
            self._ends.serve()

    def _on_end(self, gpu: int, there: bool) -> None:
        self._core.set_peer(gpu, there, time.monotonic_ns())

    def _handle(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        match request:
            case {"command": "status"}:
                return self._status()
            case {"command": "forget_peaks"}:
                self._core.forget_peaks()
                return {}
            case {"command": "shutdown"}:
                self._control.ending = True
                return {}
            case {"command": "set_link", "gpu": int(gpu), "plane": int(plane), "changes": dict(changes)}:
                return self._set_link(gpu, plane, changes)
            case {"command": "set_links", "links": list(links), "changes": dict() | None as changes}:
                for gpu, plane in links:
                    self._set_link(gpu, plane, changes)
                return {}
            case {"command": "reset_link", "gpu": int(gpu), "plane": int(plane)}:
                return self._set_link(gpu, plane, None)
            case _:
                raise SwitchError("no such command, or not with these fields")

    def _set_link(self, gpu: int, plane: int, changes: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """Add to what goes wrong on a link; None: nothing does any more."""
        if not (0 <= gpu < self._description.gpus and 0 <= plane < self._description.planes):
            raise SwitchError(f"there is no link of GPU {gpu} to plane {plane}")
        number = plane * self._description.gpus + gpu
        try:
            errors = LinkErrors() if changes is None else dataclasses.replace(self._errors[number], **changes)
            self._core.set_errors(number, errors, time.monotonic_ns())
        except (TypeError, UsageError, ctypes.ArgumentError) as error:
            raise SwitchError(f"no such change of a link: {error}") from error
        before, self._errors[number] = self._errors[number], errors
        if errors.down != before.down:
            self._tell({"gpu": gpu, "plane": plane, "up": not errors.down})
        return {"errors": dataclasses.asdict(errors)}

    def _tell(self, event: Mapping[str, Any]) -> None:
        """Append to the events; where that fails, nobody is told, and frames go on."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        with (
            contextlib.suppress(OSError),
            closed_at_end(os.open(EVENTS_NAME, flags, 0o644, dir_fd=self._directory)) as descriptor,
        ):
            os.write(descriptor, json.dumps(event).encode() + b"\n")

    def _status(self) -> dict[str, Any]:
        self._lost += lost_frames(self._socket)
        used = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "pid": os.getpid(),
            "weaknesses": self._weaknesses,
            "open_gpus": self._ends.gpus,
            "up_ns": time.monotonic_ns() - self._since_ns,
            "cpu_ns": int((used.ru_utime + used.ru_stime) * 1e9),
            "asleep_ns": int(self._native.switch_loop_asleep_ns(self._loop)),
            "frames": int(self._native.switch_frames(self._core.handle)),
            "socket_drops": self._lost,
            "times": self._core.times(),
            "ports": [
                {**counters, "errors": dataclasses.asdict(errors)}
                for counters, errors in zip(self._core.counters(), self._errors, strict=True)
            ],
        }

    def _end(self) -> None:
        self._control.close()
        self._ends.close()
        self._native.switch_loop_free(self._loop)
        self._native.packet_ring_free(self._ring)
        self._core.close()
        self._socket.close()
        if self._pause_socket is not None:
            self._pause_socket.close()
        self._epoll.close()
        os.close(self._directory)
        os.close(self._guardian)
