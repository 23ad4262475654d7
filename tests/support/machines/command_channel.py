"""Commands in the lab VM by its command server, over a channel of an SSH connection."""

from __future__ import annotations

import contextlib
import json
import shlex
import subprocess
from collections.abc import Sequence

from command_server import ERRORS, HEADER, OUTPUT, REQUEST, frame

from testbed.vm.remote.ssh import SshSession

PYTHON, SERVER = ".venv/bin/python", "tests/support/machines/command_server.py"
LOADED = (
    "rich.console",
    "testbed.endpoints.agent",
    "testbed.cli.counters.stats",
    "testbed.cli.counters.watch",
    "testbed.cli.lab_choice",
    "testbed.cli.labs.inspect",
    "testbed.cli.labs.inspect_views",
    "testbed.cli.machine.doctor",
    "testbed.cli.machine.doctor_report",
    "testbed.run.programs.perftest_flows",
    "testbed.lab.core.deploy.scale",
    "testbed.lab.core.deploy.watch.check",
    "testbed.lab.core.drivers.probing.calibration",
    "testbed.lab.core.drivers.probing.doctor",
    "testbed.lab.core.schema.load",
    "testbed.protocols.roce.qp",
)
"""Modules that verbs and programs of tests import in their functions: loaded once, when the server starts."""


class CommandChannel:
    """A command server. Its commands run one after another, in the directory of the checkout."""

    def __init__(self, session: SshSession, checkout: str, modules: Sequence[str] = LOADED) -> None:
        self._checkout = checkout
        self._channel = session._open(f"cd {shlex.quote(checkout)} && exec {shlex.join([PYTHON, SERVER, *modules])}")
        self._answers = self._channel.makefile("rb")

    @property
    def closed(self) -> bool:
        """True once the server is gone."""
        return self._channel.closed

    def run(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a command; where that is broken off here, interrupt it there, and end the server with it."""
        asked = {"command": list(command), "directory": self._checkout}
        written = {OUTPUT: bytearray(), ERRORS: bytearray()}
        try:
            self._channel.sendall(frame(REQUEST, json.dumps(asked).encode()))
            while True:
                kind, content = self._receive()
                if kind not in written:
                    break
                written[kind] += content
        except BaseException:
            self.close()
            raise
        output, errors = (bytes(written[kind]).decode() for kind in (OUTPUT, ERRORS))
        return subprocess.CompletedProcess(list(command), json.loads(content), output, errors)

    def _receive(self) -> tuple[bytes, bytes]:
        header = self._answers.read(HEADER.size)
        if len(header) == HEADER.size:
            kind, size = HEADER.unpack(header)
            if len(content := self._answers.read(size)) == size:
                return kind, content
        words = self._channel.makefile_stderr("rb").read().decode(errors="replace")
        raise AssertionError(f"the command server ended: {words}")

    def close(self) -> None:
        """End the server, and a command that runs. It has undone its work when this returns."""
        with contextlib.suppress(OSError, EOFError):  # the connection may be gone
            self._channel.shutdown_write()
            self._answers.read()
        self._channel.close()
