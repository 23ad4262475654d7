"""A sandbox for labs on the real kernel: state, run and working directories of its own, and a look for leftovers.

Directories lie under /run, because FRR drops to a user that must reach them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from testbed.base.linux.namespaces import NETNS_DIRECTORY
from testbed.lab.core.deploy.lifecycle import DeployOptions, DeployOutcome, deploy_lab, destroy_lab
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.deploy.steps import StepCallback, ignore_steps
from testbed.lab.core.drivers.routing.frr import CRASH_DIRECTORY
from testbed.lab.core.fabric import generate_fabric
from testbed.lab.core.fabric.params import FabricParams
from testbed.lab.core.model import Lab, Routing
from testbed.lab.core.schema.load import load_topology_text

TIMEOUT_S = 90.0
MEASURED = ("calibration.json", "packet-costs.json", "cpu-readings.json", "capabilities.json", "pause-reaction.json")
"""What the state directory keeps of this machine. Measured by the first lab that needs it, then handed on."""


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
            "PYTHONPATH": str(Path(__file__).parents[3]),
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

    def load(self, text: str, suffix: str = "a", **values: object) -> Lab:
        """The lab of a topology text, in whose place of `{name}` goes a name of the sandbox."""
        return load_topology_text(text.format(name=self.name(suffix), **values), file="lab.yml")

    def lab(self, text: str, suffix: str = "a", **options: Any) -> RunningLab:
        """Deploy what `load` returns."""
        return self.deploy(self.load(text, suffix), **options).lab

    def running(self, suffix: str = "a") -> RunningLab:
        """A lab that is up, as it is recorded now."""
        return RunningLab.open(self.name(suffix), self.state)

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
        for place in (self.state.run, *self.work.glob("testbed-*")):
            found += [f"file {path}" for path in (place, *place.rglob("*")) if path.exists()]
        crash = [CRASH_DIRECTORY / f"{command}.{pid}" for command, pid in self._daemons]
        return found + [f"crash directory {path}" for path in crash if path.exists()]
