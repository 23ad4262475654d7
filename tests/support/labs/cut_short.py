"""Changes of labs that are killed anywhere: a lab with two files, and a process that dies at an act of its own."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab_snapshot import Snapshot, differences, snapshot

from testbed.lab.core.deploy.live import RunningLab

LIMIT_S = 600
"""How long a change may take before it hangs: on a busy core two minutes are too few for switches that become
containers."""
CUT_SHORT = """
import os, signal, sys
from pathlib import Path

acts, number = 0, int(sys.argv[2])
watched = {"socket.sendto", "socket.connect", "os.rename", "os.remove", "os.mkdir", "subprocess.Popen", "open"}
armed = False


def count(event, arguments):
    global acts
    if armed and event in watched:
        if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)):
            return
        acts += 1
        if acts == number:
            os.kill(os.getpid(), signal.SIGKILL)


from testbed.lab.core.deploy.changing.apply import ApplyOptions, apply_lab
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.plan.changes import Allow
from testbed.lab.core.schema.load import load_topology

lab = load_topology(Path(sys.argv[1]))
sys.addaudithook(count)
armed = True
apply_lab(lab, StateDirectory(), ApplyOptions(k=lab.scale.time, allow=frozenset(map(Allow, sys.argv[3:]))))
armed = False
print(acts)
"""
"""Applies a topology, and dies right before it does one thing more to the machine than it is told to; else it says how
many things it did: messages to the kernel, connections to daemons, files written, renamed and removed, programs
started."""


class Bench:
    """A lab that is deployed as `before`, its file; `after` is another file of it. `allow`: the words that changing it
    needs."""

    def __init__(self, sandbox: Any, before: str, after: str, allow: Sequence[str] = ()) -> None:
        self.sandbox = sandbox
        self._allow = allow
        self.before: Path = sandbox.root / "before.yml"
        self.after: Path = sandbox.root / "after.yml"
        for path, text in ((self.before, before), (self.after, after)):
            path.write_text(text)

    def deploy(self) -> None:
        self._done("deploy", "-q", "-t", str(self.before))

    def apply(self, path: Path) -> None:
        self._done("apply", "-q", "-t", str(path), *(word for name in self._allow for word in ("--allow", name)))
        assert not self.sandbox.state.is_changing(self.sandbox.name())

    def _done(self, *words: str) -> None:
        result = self.sandbox.cli(*words, timeout_s=LIMIT_S)
        self.sandbox.note_daemons()
        assert result.returncode == 0, f"{words}\n{result.stdout}{result.stderr}"

    def cut_short(self, path: Path, number: int) -> subprocess.CompletedProcess[str]:
        """Apply a file, and be killed right before it does its act of that number; 0 is none."""
        argv = [sys.executable, "-c", CUT_SHORT, str(path), str(number), *self._allow]
        box = self.sandbox
        result = subprocess.run(
            argv, env=box.environment, cwd=box.work, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        box.note_daemons()
        assert result.returncode in (0, -signal.SIGKILL), result
        return result

    def acts(self) -> int:
        """How many things it does to change the lab."""
        count = int(self.cut_short(self.after, 0).stdout)
        self.apply(self.before)
        return count

    @property
    def lab(self) -> RunningLab:
        return self.sandbox.running()

    def seen(self) -> Snapshot:
        """All that the kernel, FRR and our files have of the lab."""
        return snapshot(self.lab)

    def kill_at(self, points: int, chance: random.Random) -> None:
        """Kill the change at so many moments: what the next command asks for, the former file or the new one, is what
        the lab is then, and `check` passes."""
        self.deploy()
        first = self.seen()
        acts = self.acts()
        found = differences(self.seen(), first)
        assert found == [], f"changed there and back it is the lab that it was: {found[:12]}"
        self.apply(self.after)
        wanted = self.seen()
        self.apply(self.before)
        killed = 0
        for point in range(points):
            number = 1 + int(acts * (point + chance.random()) / points)
            killed += self.cut_short(self.after, number).returncode != 0
            path, expected = (self.after, wanted) if point % 2 == 0 else (self.before, first)
            self.apply(path)
            found = differences(self.seen(), expected)
            assert found == [], f"{path.name} after a SIGKILL at act {number} of {acts}: {found[:12]}"
            print(f"{point + 1} of {points} kills, at act {number} of {acts}: as {path.name} says")
            self.apply(self.before)
        assert killed >= points // 2, "most of the moments lay within the change"
        assert self.sandbox.cli("check", "-n", self.sandbox.name()).returncode == 0
