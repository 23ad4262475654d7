"""Starting a domain's switch, asking how it does, letting links of it go wrong, and ending it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.base.descriptors import wait_readable
from testbed.base.linux.processes import last_line
from testbed.daemons.kit import configuration
from testbed.daemons.kit.client import ask, connect
from testbed.daemons.kit.process import start_module, start_ready
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
        configuration.write(self.run_directory / DESCRIPTION_NAME, description)

        def spawn(ready: int) -> subprocess.Popen[bytes]:
            arguments = ["--ready-fd", str(ready)]
            module = "testbed.daemons.switchd"
            return start_module(module, self.run_directory, LOG_NAME, arguments, [ready], namespace=namespace)

        try:
            pid, ended = start_ready(spawn, START_TIMEOUT_S)
        except TimeoutError:
            message = f"the switch does not start within {START_TIMEOUT_S:g} s"
            raise SwitchError(message, hint=self._log) from None
        if ended is not None:
            reason = last_line(self.run_directory / LOG_NAME)
            raise SwitchMissing(f"the switch ended at its start: {reason}".rstrip(": "), hint=self._log)
        return pid

    def status(self) -> dict[str, Any]:
        """Return its counters: `frames`, `times`, `socket_drops`, and of each of its `ports` what a link counts."""
        return self._ask("status")

    def forget_peaks(self) -> None:
        """Have its `times`, and the `deepest` of its buffers, be those of what comes from now on."""
        self._ask("forget_peaks")

    def is_running(self) -> bool:
        """Tell whether there is a process that listens, without asking it anything."""
        try:
            connect(self.run_directory, SOCKET_NAME, ANSWER_TIMEOUT_S).close()
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
        try:
            answer = ask(self.run_directory, SOCKET_NAME, {"command": command, **fields}, ANSWER_TIMEOUT_S)
        except EOFError as error:
            raise SwitchMissing("the switch ended while it was asked", hint=self._log) from error
        except TimeoutError as error:
            raise SwitchError(f"the switch does not answer {command}", hint=self._log) from error
        except OSError as error:
            raise SwitchMissing(f"no switch answers: {error.strerror}", hint=self._log) from error
        if not answer.pop("ok"):
            raise SwitchError(answer["error"], hint=answer["hint"])
        return answer


def _wait_for_end(process: int) -> None:
    if wait_readable(process, END_TIMEOUT_S):
        return
    signal.pidfd_send_signal(process, signal.SIGKILL)
    select.select([process], [], [], END_TIMEOUT_S)
