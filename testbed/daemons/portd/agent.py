"""The pause agent's process: labs, served by the native loop, and beside them the control socket and the guard.

`python -m testbed.daemons.portd --run-directory DIR`. It ends with its last lab.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed.base.errors import TestbedError
from testbed.daemons.kit import realtime
from testbed.daemons.kit.control import ControlServer
from testbed.daemons.portd.attachment import DIRECTORY_NAME, AttachmentFiles
from testbed.daemons.portd.companion import SOCKET_NAME, Companion
from testbed.daemons.portd.errors import NoSuchPort, PauseAgentError
from testbed.daemons.portd.lab import AttachedLab, Loop

MAX_STORM_NS = 7 * 24 * 3600 * 1_000_000_000
GUARD_MODULE = "testbed.daemons.portd.guard"


class AlreadyRunning(PauseAgentError):
    """Another agent serves this run directory."""


class Agent:
    """Owns the run directory's `portd.sock` and `portd.labs/` while it lives."""

    def __init__(self, run_directory: Path, guard: Companion | None = None) -> None:
        """Raises `AlreadyRunning`. `guard` is the one that started us, where one did."""
        self._run_directory = run_directory
        self._directory = os.open(run_directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._files = AttachmentFiles(run_directory / DIRECTORY_NAME)
        self._files.directory.mkdir(mode=0o700, exist_ok=True)
        claim = self._files.claim()
        if claim is None:
            raise AlreadyRunning(f"another pause agent serves {run_directory}")
        self._claim = claim
        self._labs: dict[str, AttachedLab] = {}
        self._epoll = select.epoll()
        self._loop = Loop(self._epoll.fileno())
        self._guard = guard
        self._since = time.time()
        self._weaknesses: list[str] = []
        self._control = ControlServer(self._directory, SOCKET_NAME, self._handle, self._epoll)
        for lab in self._files.labs():
            self._take_up(lab)
        self._control.ending = guard is not None and not self._labs  # all that it was started for has gone

    def _take_up(self, lab: str) -> None:
        """Serve a lab that an agent before us served; one whose data path is gone is forgotten."""
        try:
            self._attach(lab)
        except TestbedError as error:
            print(f"the lab {lab} is not served: {error}", file=sys.stderr, flush=True)
            self._files.remove(lab)
        else:
            self._labs[lab].log.write("portd-resumed", detail=f"agent {os.getpid()}")

    def run(self) -> None:
        """Run until the last lab has gone, `shutdown`, or SIGTERM, which leaves the labs to the guard's next agent."""
        self._control.catch_signals()
        self._watch_guard()
        self._weaknesses = realtime.become_undisturbed()
        try:
            while not self._control.ending:
                self._turn()
        finally:
            self._end()

    def leave_unless_needed(self) -> bool:
        """Instead of `run`, where nobody waits for us: end at once unless there are labs to serve. Whether it did."""
        if self._labs:
            return False
        self._end()
        return True

    def _turn(self) -> None:
        self._loop.run()
        for descriptor, _ in self._epoll.poll(0):
            if self._guard is not None and descriptor == self._guard.fileno():
                self._on_guard_gone(self._guard)
            else:
                self._control.serve(descriptor)
        for lab in self._labs.values():
            lab.tell()

    # --- labs ----------------------------------------------------------------------------------------

    def _attach(self, name: str) -> AttachedLab:
        """Raises `TestbedError`. A lab that is attached already is attached anew, by what its file says now."""
        attachment = self._files.read(name)
        before = self._labs.pop(name, None)
        if before is not None:  # who is paused meanwhile stays so, or a full queue would be sent more than it can hold
            self._loop.remove(before)
        try:
            lab = AttachedLab(attachment)
        except BaseException:
            if before is not None:
                self._serve(name, before)
            raise
        self._serve(name, lab)
        if before is not None:
            lab.go_on_with_storms(before)  # a broken NIC is no better for a change of the lab
            before.hand_over()
        return lab

    def _serve(self, name: str, lab: AttachedLab) -> None:
        try:
            self._loop.add(lab)
        except OSError as error:
            lab.close()
            raise PauseAgentError(f"the lab {name} cannot be served: {error.strerror}") from error
        self._labs[name] = lab

    def _let_go(self, name: str) -> None:
        lab = self._labs.pop(name)
        self._loop.remove(lab)
        lab.close()

    # --- the guard -----------------------------------------------------------------------------------

    def _watch_guard(self) -> None:
        if self._guard is None:
            try:
                self._guard = Companion.spawn(GUARD_MODULE, self._run_directory, "--agent-fd")
            except OSError as error:
                print(f"no guard: {error}", file=sys.stderr, flush=True)
                return
        self._epoll.register(self._guard, select.EPOLLIN)

    def _on_guard_gone(self, guard: Companion) -> None:
        self._epoll.unregister(guard)
        guard.close()
        self._guard = None
        for lab in self._labs.values():
            lab.log.write("portd-guard-died", detail=f"guard {guard.pid}")
        self._watch_guard()

    # --- control -------------------------------------------------------------------------------------

    def _handle(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        match request:
            case {"command": "hello"}:
                return self._hello()
            case {"command": "attach", "lab": str(name)}:
                return self._on_attach(name)
            case {"command": "detach", "lab": str(name)}:
                return self._on_detach(name)
            case {"command": "status"}:
                return self._hello() | {"labs": {name: lab.status() for name, lab in self._labs.items()}}
            case {"command": "reset"}:
                for lab in self._labs.values():
                    lab.core.reset()
                return {}
            case {
                "command": "storm",
                "lab": str(name),
                "port": int(port),
                "priority": int(priority),
                "duration_ns": int(ns),
            }:
                return self._on_storm(name, port, priority, ns)
            case {"command": "shutdown"}:
                for name in list(self._labs):
                    self._on_detach(name)
                self._control.ending = True
                return {"last": True}
            case _:
                raise PauseAgentError("no such command, or not with these fields")

    def _hello(self) -> dict[str, Any]:
        return {
            "pid": os.getpid(),
            "guard_pid": self._guard.pid if self._guard else 0,
            "since": self._since,
            "weaknesses": self._weaknesses,
        }

    def _on_attach(self, name: str) -> Mapping[str, Any]:
        try:
            lab = self._attach(name)
        except ValueError as error:
            raise PauseAgentError(str(error)) from error
        lab.log.write("portd-attached", detail=f"{len(lab.attachment.ports)} ports, agent {os.getpid()}")
        realtime.stop_collecting()
        return {"ports": len(lab.attachment.ports)}

    def _on_detach(self, name: str) -> Mapping[str, Any]:
        """One that is not attached is let go of all the same: it may have been forgotten at a restart."""
        found = name in self._labs
        if found:
            self._let_go(name)
        with contextlib.suppress(ValueError):
            self._files.remove(name)
        self._control.ending = not self._labs
        realtime.stop_collecting()
        return {"found": found, "last": self._control.ending}

    def _on_storm(self, name: str, port: int, priority: int, duration_ns: int) -> Mapping[str, Any]:
        lab = self._labs.get(name)
        if lab is None:
            raise NoSuchPort(f"the pause agent does not serve the lab {name}")
        if not 0 < duration_ns <= MAX_STORM_NS:
            raise NoSuchPort(f"a storm lasts up to {MAX_STORM_NS // 1_000_000_000} s, not {duration_ns} ns")
        try:
            lab.storm(port, priority, duration_ns)
        except LookupError as error:
            raise NoSuchPort(str(error.args[0])) from error
        return {}

    def _end(self) -> None:
        """Gates open first. Attachments stay where the end was not asked for by a detach."""
        for name in list(self._labs):
            self._let_go(name)
        self._control.close()
        if self._guard is not None:
            self._guard.leave()
        self._loop.close()
        self._epoll.close()
        os.close(self._claim)
        os.close(self._directory)
