"""The lab VM for tests: built if the cache does not have it, started by the command line, entered over SSH."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
import warnings
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
from command_channel import CommandChannel

from testbed.base.errors import CapabilityError
from testbed.vm.image.build import require_tools
from testbed.vm.image.checkout import GUEST_CHECKOUT
from testbed.vm.machine import Machine
from testbed.vm.remote.ssh import SshSession

CHECKOUT = Path(__file__).parents[3]
BUILD_TIMEOUT_S = 1800.0
UP_TIMEOUT_S = 900.0
COMMAND_TIMEOUT_S = 900.0
"""Beside other work an emulated machine gets a small part of a CPU, and everything takes several times as long."""


def skip_without_tools() -> None:
    """Skip the test where this machine cannot build the image."""
    try:
        require_tools()
    except CapabilityError as error:
        pytest.skip(error.message)


def command_line(
    *arguments: str, cwd: Path = CHECKOUT, timeout_s: float = COMMAND_TIMEOUT_S
) -> subprocess.CompletedProcess[str]:
    """Our command line, out here."""
    return subprocess.run(
        [sys.executable, "-m", "testbed", *arguments],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def vm_up(name: str, *options: str) -> subprocess.CompletedProcess[str]:
    """`testbed vm up`, with time to boot beside other work."""
    timeout = ("--timeout", f"{UP_TIMEOUT_S:.0f}")
    return command_line("vm", "up", "-n", name, *timeout, *options, timeout_s=UP_TIMEOUT_S + COMMAND_TIMEOUT_S)


class LabVm:
    """A lab VM of its own name. Leave the context and it is gone."""

    def __init__(self, name: str) -> None:
        self.machine = Machine(name)
        self.up_s = 0.0

    def __enter__(self) -> Self:
        skip_without_tools()
        built = command_line("vm", "build", timeout_s=BUILD_TIMEOUT_S)
        assert built.returncode == 0, built.stderr
        self.machine.down()
        began = time.monotonic()
        up = vm_up(self.machine.name, "--cpus", "2")
        assert up.returncode == 0, up.stderr
        self.up_s = time.monotonic() - began
        self._session: SshSession = self.machine.connect()
        self._commands: CommandChannel | None = None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.__exit__()
        self.machine.down()

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the checkout in there; one that only reads is a fork of the command server."""
        if self._commands is None or self._commands.closed:
            self._commands = CommandChannel(self._session, GUEST_CHECKOUT)
        return self._commands.run(argv)

    @cached_property
    def doctor(self) -> dict[str, Any]:
        """Return the findings of `testbed doctor` in there: asked once, for it tries everything that the kernel has."""
        found: dict[str, Any] = json.loads(self.check(".venv/bin/testbed", "doctor", "-f", "json"))
        return found

    def feature(self, name: str) -> tuple[str, str]:
        """The status of a feature that has several mechanisms, and which one is used."""
        (item,) = (item for item in self.doctor["mechanisms"] if item["feature"] == name)
        return item["status"], item["uses"]

    def check(self, *argv: str) -> str:
        """Return what a command prints, which must succeed."""
        done = self.run(*argv)
        assert done.returncode == 0, f"{shlex.join(argv)}: status {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout


def run_scenario(
    lab_vm: LabVm, path: Path, results: Path, *, timeout_s: float = COMMAND_TIMEOUT_S
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any], Path]:
    """`testbed --on vm run`, as a user would: what it said, the record and its file. Nothing of it may be missing.

    The verdict must not be `fail`. A machine that others slow down makes a run invalid, which says nothing of the
    fabric and is shown.
    """
    done = command_line(
        *("--on", f"vm:{lab_vm.machine.name}", "run", str(path), "--results", str(results)), timeout_s=timeout_s
    )
    assert done.returncode in (0, 1, 2), done.stderr
    (document,) = results.glob("*/record.json")
    record: dict[str, Any] = json.loads(document.read_text())
    assert not record["incomplete"], record["incomplete"] + done.stderr
    verdict = record["verdict"]
    if verdict["outcome"] == "invalid":
        warnings.warn(f"{path.stem} cannot be judged here: {'; '.join(verdict['reasons'])}", stacklevel=2)
    assert verdict["outcome"] != "fail", "; ".join(verdict["reasons"])
    return done, record, document
