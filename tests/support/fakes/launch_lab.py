"""A lab that is not there, for launches: ranks really run, on this machine and not in a node.

Its shims are started as they are in a host, or where `confined` as in a container: with no right to make namespaces.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fake_lab import small_lab

from testbed.base.linux.port_counters import PlainQueue, PortCounters

WITHOUT_NAMESPACES = ("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin")


class FakeLaunchLab:
    """What `launch_ranks` asks of a `RunningLab`. `sent` are the bytes that ports have sent, as a test has it."""

    def __init__(self, directory: Path, *, confined: bool = False) -> None:
        self.model, self.plan = small_lab(rails=2, spines=2)
        self.name = self.model.name
        self.state_directory = self.processes_directory = directory
        self.identities: Mapping[str, int] = {}
        self.sent: dict[tuple[str, str], int] = {}
        self.shims: list[subprocess.Popen[bytes]] = []
        self._confined = confined

    def of_network(self, *names: str) -> FakeLaunchLab:
        """It has the back end alone."""
        del names
        return self

    def runtime(self, node: str) -> None:
        """No node is a container."""
        del node

    def environment(self, node: str) -> dict[str, str]:
        """Nothing that the topology adds."""
        del node
        return {}

    def namespace(self, node: str) -> str:
        """A namespace that is not there."""
        return f"not-there-{node}"

    def counters(self) -> Mapping[tuple[str, str], PortCounters]:
        """What a test says that ports have sent."""
        return {port: PortCounters(tx_bytes=sent) for port, sent in self.sent.items()}

    def plain_queues(self) -> Mapping[tuple[str, str], PlainQueue]:
        """No queue has dropped anything."""
        return {}

    def spawn(self, node: str, argv: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        """Start a program on this machine."""
        del node
        options.pop("own_sysfs")
        process = subprocess.Popen([*(WITHOUT_NAMESPACES if self._confined else ()), *argv], **options)
        self.shims.append(process)
        return process


def python(code: str) -> list[str]:
    """The command that runs some Python."""
    return [sys.executable, "-I", "-S", "-c", code]


def marked(mark: str) -> dict[int, dict[str, str]]:
    """The processes of this machine that have `MARK=mark` in their environment, with all of that, by number."""
    found = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with contextlib.suppress(OSError):
                words = (path / "environ").read_bytes().decode(errors="replace").split("\0")
                variables = dict(word.split("=", 1) for word in words if "=" in word)
                if (
                    variables.get("MARK") == mark
                    and (path / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
                ):
                    found[int(path.name)] = variables
    return found


def parent_of(pid: int) -> int:
    """The parent of a process, as this machine numbers it."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
