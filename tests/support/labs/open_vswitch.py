"""Open vSwitch in a network namespace: its user-space datapath, and a bond that speaks LACP.

It is another implementation of IEEE 802.1AX than ours, and needs no module of the kernel.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from waiting import until

SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
BRIDGE, BOND = "ovs0", "bond0"
PATIENCE_S = 10.0


class OpenVSwitch:
    """A switch with one bond of `ports`, which are interfaces of the namespace. A context: leaving it ends its
    daemons."""

    def __init__(self, namespace: str, directory: Path, ports: Sequence[str]) -> None:
        self._inside = ["ip", "netns", "exec", namespace]
        self._ports = ports
        self._database, self._control = directory / "database", directory / "control"
        self._environment = os.environ | {f"OVS_{name}DIR": str(directory) for name in ("RUN", "LOG", "DB", "SYSCONF")}
        self._directory = directory
        self._daemons: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        directory = self._directory
        directory.mkdir()
        socket = directory / "socket"
        self._run("ovsdb-tool", "create", str(self._database), str(SCHEMA))
        try:
            self._start("ovsdb-server", f"--remote=punix:{socket}", f"--unixctl={directory}/ovsdb", str(self._database))
            until(socket.exists, "the database of Open vSwitch answers")
            self.configure("--no-wait", "init")
            self._start("ovs-vswitchd", f"--unixctl={self._control}", f"unix:{socket}")
            until(self._control.exists, "Open vSwitch answers")
            bridge = ["add-br", BRIDGE, "--", "set", "bridge", BRIDGE, "datapath_type=netdev"]
            bond = ["add-bond", BRIDGE, BOND, *self._ports, "lacp=active", "bond_mode=balance-tcp"]
            self.configure(*bridge, "--", *bond, "other_config:lacp-time=fast")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def configure(self, *words: str) -> None:
        """Change the configuration, and wait until it is in force."""
        self._run("ovs-vsctl", f"--timeout={PATIENCE_S:.0f}", f"--db=unix:{self._directory}/socket", *words)

    def members(self) -> dict[str, dict[str, str]]:
        """Return LACP's view of each member, by its name: "state" and the lines below it."""
        found: dict[str, dict[str, str]] = {}
        inside: dict[str, str] | None = None
        for line in self._run("ovs-appctl", "-t", str(self._control), "lacp/show", BOND).splitlines():
            if name := re.match(r"(?:member|slave): (\S+): (.+)", line):
                inside = found.setdefault(name[1], {"state": name[2]})
            elif inside is not None and (field := re.match(r"\s+(\S.*): (.+)", line)):
                inside[field[1]] = field[2]
        return found

    def attached(self) -> list[str]:
        """The members whose partner is heard, and which are in sync."""
        return sorted(name for name, member in self.members().items() if member["state"] == "current attached")

    def _start(self, *argv: str) -> None:
        log = f"--log-file={self._directory}/{argv[0]}.log"
        command = [*self._inside, *argv, "-vconsole:off", log]
        self._daemons.append(subprocess.Popen(command, env=self._environment, stdin=subprocess.DEVNULL))

    def _run(self, *argv: str) -> str:
        done = subprocess.run(
            argv, env=self._environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{argv}: {done.stderr}"
        return done.stdout

    def _end(self) -> None:
        for daemon in reversed(self._daemons):
            daemon.terminate()  # `ip netns exec` has become the daemon
            daemon.wait(PATIENCE_S)
