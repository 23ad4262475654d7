"""A sandbox for labs on the real kernel: state, run and working directories of its own, and a look for leftovers.

Directories lie under /run, because FRR drops to a user that must reach them.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from testbed.base.errors import CapabilityError
from testbed.base.linux.namespaces import NETNS_DIRECTORY
from testbed.lab.core.deploy.lifecycle import DeployOptions, DeployOutcome, deploy_lab, destroy_lab
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.deploy.scale import machine_profile
from testbed.lab.core.deploy.steps import StepCallback, ignore_steps
from testbed.lab.core.drivers.probing.machine import find_frr, require_root
from testbed.lab.core.drivers.routing.frr import CRASH_DIRECTORY
from testbed.lab.core.fabric import generate_fabric
from testbed.lab.core.fabric.params import FabricParams
from testbed.lab.core.model import Lab, Routing

TIMEOUT_S = 90.0
MEASURED = ("calibration.json", "packet-costs.json", "cpu-readings.json", "capabilities.json", "pause-reaction.json")
"""What the state directory keeps of this machine. Measured by the first lab that needs it, then handed on."""
_numbers = itertools.count(1)


class Sandbox:
    """Labs whose names begin with `prefix`, and everything that belongs to them."""

    def __init__(self, root: Path, prefix: str) -> None:
        self.root = root
        self.prefix = prefix
        self.state = StateDirectory(root / "state", root / "run")
        self.work = root / "work"
        self.work.mkdir(parents=True)
        self.environment = os.environ | {
            "TESTBED_STATE_DIR": str(self.state.state),
            "TESTBED_RUN_DIR": str(self.state.run),
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }
        self._daemons: set[tuple[str, int]] = set()

    def name(self, suffix: str = "a") -> str:
        return f"{self.prefix}{suffix}"

    def model(self, suffix: str = "a", *, bfd: str = "off", **params: Any) -> Lab:
        """A small fabric: 2 segments of 2 hosts with 2 GPUs, 2 spines, 4 rail switches."""
        chosen: dict[str, Any] = {"design": "rail-optimized", "segments": 2, "hosts": 2, "gpus": 2, "spines": 2}
        chosen["routing"] = Routing(bfd_auto=bfd == "auto")
        return generate_fabric(FabricParams(**(chosen | params)), name=self.name(suffix))

    def tiny(self, suffix: str = "a") -> Lab:
        """One rail switch under one spine, two hosts."""
        return self.model(suffix, segments=1, gpus=1, spines=1)

    def deploy(self, model: Lab, *, notify: StepCallback = ignore_steps, **options: Any) -> DeployOutcome:
        options = {"k": 10_000.0, "timeout_s": TIMEOUT_S, "directory": self.work} | options
        try:
            return deploy_lab(model, self.state, DeployOptions(**options), notify)
        finally:
            self.note_daemons()

    def destroy(self, suffix: str = "a") -> int:
        return destroy_lab(self.name(suffix), self.state).nodes

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
        """`python -m testbed ARGUMENTS`, its output in `work/out`."""
        with (self.root / "out").open("ab") as output:
            options = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output, "cwd": self.work} | options
            argv = [sys.executable, "-m", "testbed", *arguments]
            return subprocess.Popen(argv, env=self.environment, **options)

    def cli(self, *arguments: str, timeout_s: float = TIMEOUT_S) -> subprocess.CompletedProcess[str]:
        """`python -m testbed ARGUMENTS` to its end."""
        return subprocess.run(
            [sys.executable, "-m", "testbed", *arguments],
            env=self.environment,
            cwd=self.work,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def note_daemons(self) -> None:
        """Remember which daemons run now, to look for their crash directories afterwards; a container has its own."""
        place = CRASH_DIRECTORY.parent
        for pid, command in self.processes().items():
            with suppress(FileNotFoundError, ProcessLookupError):
                if Path(f"/proc/{pid}/root", *place.parts[1:]).samefile(place):
                    self._daemons.add((command, pid))

    def processes(self) -> dict[int, str]:
        """Processes that have our directory in their command line: pid to the program's name."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    arguments = (entry / "cmdline").read_bytes().split(b"\0")
                except (FileNotFoundError, ProcessLookupError):
                    continue
                if any(str(self.root).encode() in argument for argument in arguments):
                    found[int(entry.name)] = Path(arguments[0].decode()).name
        return found

    def namespaces(self) -> dict[str, int]:
        if not NETNS_DIRECTORY.is_dir():
            return {}
        paths = [path for path in NETNS_DIRECTORY.iterdir() if path.name.startswith(self.prefix)]
        return {path.name: path.stat().st_ino for path in paths}

    def leftovers(self) -> list[str]:
        """All that labs of this sandbox left on the machine."""
        found = [f"namespace {name}" for name in self.namespaces()]
        found += [f"process {pid} {command}" for pid, command in self.processes().items()]
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        found += [f"mount {line.split()[4]}" for line in mounts if f"/{self.prefix}" in line or f"{self.root}/" in line]
        if self.state.state.is_dir():
            kept = {"labs", "lock", *MEASURED}
            found += [f"file {path}" for path in self.state.state.iterdir() if path.name not in kept]
            found += [f"lab {path}" for path in self.state.labs.glob("*")]
        found += [f"file {path}" for path in (self.state.run, *self.work.glob("testbed-*")) if path.exists()]
        crash = [CRASH_DIRECTORY / f"{command}.{pid}" for command, pid in self._daemons]
        return found + [f"crash directory {path}" for path in crash if path.exists()]


@pytest.fixture(scope="session")
def machine() -> None:
    """Skip where this machine cannot carry a lab, saying why."""
    try:
        require_root()
        find_frr()
    except CapabilityError as error:
        pytest.skip(error.message)


@pytest.fixture(scope="session")
def calibration(machine: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This machine's calibration, measured once for all tests."""
    state = StateDirectory(tmp_path_factory.mktemp("state"), tmp_path_factory.mktemp("run"))
    machine_profile(state)
    return state.state / "calibration.json"


@contextmanager
def _sandboxed(calibration: Path) -> Iterator[Sandbox]:
    """A sandbox that must be empty at the end."""
    number = next(_numbers)
    prefix = f"tb{os.getpid()}x{number}"
    box = Sandbox(Path(f"/run/testbed-test-{os.getpid()}-{number}"), prefix)
    box.state.state.mkdir()
    _copy_measured(calibration.parent, box.state.state)
    try:
        yield box
        for lab in box.state.names():
            destroy_lab(lab, box.state)
        assert box.leftovers() == []
        _copy_measured(box.state.state, calibration.parent)
    finally:
        for lab in box.state.names():
            destroy_lab(lab, box.state)
        shutil.rmtree(box.root, ignore_errors=True)


def _copy_measured(source: Path, destination: Path) -> None:
    for name in MEASURED:
        if (source / name).exists():
            shutil.copy(source / name, destination / name)


@pytest.fixture
def sandbox(machine: None, calibration: Path) -> Iterator[Sandbox]:
    """A sandbox of one test."""
    with _sandboxed(calibration) as box:
        yield box


@pytest.fixture(scope="module")
def shared_sandbox(machine: None, calibration: Path) -> Iterator[Sandbox]:
    """A sandbox of all tests of a file, which share its labs."""
    with _sandboxed(calibration) as box:
        yield box
