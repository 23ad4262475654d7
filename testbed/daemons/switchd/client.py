"""Starting a domain's switch, asking how it does, letting links of it go wrong, and ending it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.base.descriptors import wait_readable
from testbed.base.linux.processes import disown, last_line, launch, package_environment
from testbed.daemons.portd.control import socket_path
from testbed.daemons.switchd.description import SwitchDescription
from testbed.daemons.switchd.errors import SwitchError, SwitchMissing
from testbed.daemons.switchd.process import DESCRIPTION_NAME, SOCKET_NAME
from testbed.protocols.scale_up.domain import build as scale_up_domain
from testbed.protocols.scale_up.domain.link import LinkErrors
from testbed.protocols.scale_up.domain.presence import ENDS_NAME

START_TIMEOUT_S = 60.0
ANSWER_TIMEOUT_S = 10.0
END_TIMEOUT_S = 10.0
LOG_NAME = "switch.log"


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainSwitch:
    """The switch of one domain, by its run directory, which is its own. Methods raise `SwitchError` and its kinds."""

    run_directory: Path

    def start(self, namespace: str, description: SwitchDescription) -> int:
        """Start it in a published namespace that has its interfaces, and wait until it switches; its process id."""
        scale_up_domain.build()  # here, where someone can be told that there is no compiler
        self.run_directory.mkdir(parents=True, exist_ok=True)
        (self.run_directory / DESCRIPTION_NAME).write_text(description.to_json())
        reader, writer = os.pipe()
        try:
            try:
                process = self._spawn(namespace, writer)
            finally:
                os.close(writer)
            if not wait_readable(reader, START_TIMEOUT_S):
                process.kill()
                process.wait()
                raise SwitchError(f"the switch does not start within {START_TIMEOUT_S:g} s", hint=self._log)
            if not os.read(reader, 16):
                process.wait()
                reason = last_line(self.run_directory / LOG_NAME)
                raise SwitchMissing(f"the switch ended at its start: {reason}".rstrip(": "), hint=self._log)
        finally:
            os.close(reader)
        disown(process)
        return process.pid

    def _spawn(self, namespace: str, ready: int) -> subprocess.Popen[bytes]:
        return launch(
            "testbed.daemons.switchd",
            ["--run-directory", str(self.run_directory), "--ready-fd", str(ready)],
            self.run_directory / LOG_NAME,
            namespace=namespace,
            env=package_environment() | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            pass_fds=(ready,),
            start_new_session=True,
        )

    def status(self) -> dict[str, Any]:
        """What it has counted: `frames`, `times`, `socket_drops`, and of each of its `ports` what a link counts."""
        return self._ask("status")

    def forget_peaks(self) -> None:
        """Have its `times`, and the `deepest` of its buffers, be those of what comes from now on."""
        self._ask("forget_peaks")

    def is_running(self) -> bool:
        """Tell whether there is a process that listens, without asking it anything."""
        try:
            self._connect().close()
        except OSError:
            return False
        return True

    def set_link(self, gpu: int, plane: int, **changes: Any) -> LinkErrors:
        """Let something go wrong on a GPU's link to a plane (from 0), in both directions, until it is reset.

        `changes` are fields of `LinkErrors`; others stay as they were. Returns all of them.
        """
        return LinkErrors(**self._ask("set_link", gpu=gpu, plane=plane, changes=changes)["errors"])

    def set_links(self, links: Sequence[tuple[int, int]], changes: Mapping[str, Any] | None) -> None:
        """Let the same go wrong on many links, each a GPU and a plane (from 0), at one moment; None: nothing."""
        self._ask("set_links", links=[list(link) for link in links], changes=changes)

    def reset_link(self, gpu: int, plane: int) -> None:
        """Nothing goes wrong on this link any more."""
        self._ask("reset_link", gpu=gpu, plane=plane)

    def stop(self) -> None:
        """End it and wait for its end. Fine where there is none."""
        try:
            pid = self.status()["pid"]
        except SwitchMissing:
            self._tidy()
            return
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            try:
                with contextlib.suppress(SwitchMissing):
                    self._ask("shutdown")
                _wait_for_end(descriptor)
            finally:
                os.close(descriptor)
        self._tidy()

    def _tidy(self) -> None:
        for name in (DESCRIPTION_NAME, SOCKET_NAME, ENDS_NAME):
            (self.run_directory / name).unlink(missing_ok=True)

    @property
    def _log(self) -> str:
        return f"see {self.run_directory / LOG_NAME}"

    def _ask(self, command: str, **fields: Any) -> dict[str, Any]:
        received = bytearray()
        try:
            with self._connect() as item:
                item.sendall(json.dumps({"command": command, **fields}).encode() + b"\n")
                deadline = time.monotonic() + ANSWER_TIMEOUT_S
                while not received.endswith(b"\n"):
                    item.settimeout(max(0.001, deadline - time.monotonic()))
                    data = item.recv(1 << 18)
                    if not data:
                        raise SwitchMissing("the switch ended while it was asked", hint=self._log)
                    received += data
        except TimeoutError as error:
            raise SwitchError(f"the switch does not answer {command}", hint=self._log) from error
        except OSError as error:
            raise SwitchMissing(f"no switch answers: {error.strerror}", hint=self._log) from error
        answer = json.loads(received)
        if not answer.pop("ok"):
            raise SwitchError(answer["error"], hint=answer["hint"])
        return dict(answer)

    def _connect(self) -> socket.socket:
        item = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            item.settimeout(ANSWER_TIMEOUT_S)
            directory = os.open(self.run_directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                item.connect(socket_path(directory, SOCKET_NAME))
            finally:
                os.close(directory)
        except BaseException:
            item.close()
            raise
        return item


def _wait_for_end(process: int) -> None:
    if wait_readable(process, END_TIMEOUT_S):
        return
    signal.pidfd_send_signal(process, signal.SIGKILL)
    select.select([process], [], [], END_TIMEOUT_S)
