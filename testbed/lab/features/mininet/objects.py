"""Mininet's hosts, switches, links and interfaces for what a lab has: they look at it, they do not make it.

A node's shell runs in the node's namespace, which the lab's driver made; a link is the veth pair that the plan's
operation created, with the addresses, queues and eBPF programs that the plan gave it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from typing import Any

from testbed.base.errors import TestbedError
from testbed.base.linux.processes import disown, search_path, spawn
from testbed.base.linux.views import NodeView
from testbed.lab.core.drivers.probing.mininet import load_mininet

load_mininet()

from mininet.cli import CLI  # noqa: E402
from mininet.link import Intf, Link  # noqa: E402
from mininet.log import error  # noqa: E402
from mininet.node import Node, Switch  # noqa: E402
from mininet.util import isShellBuiltin  # noqa: E402

LOOPBACK_PORT = 0
"""Mininet's port number of a loopback; links are numbered from 1."""
_PRINT_PID = """sh -c 'printf "\\001%d\\012" $$; exec "$@"' sh """
"""The shell command that does what `mnexec -p` does: say the process number as Mininet's `monitor` looks for it, and
become the command."""


class LabNode(Node):  # type: ignore[misc]
    """A Mininet node in a namespace that exists.

    `namespace` is its published name, `view` what its programs see of this machine, `env` what the topology adds to the
    environment of commands. The shell shows as `mininet:<node>` in the process list, where Mininet's `m` looks for it,
    or with another `tag`. `outlive`: the shell stays when this process ends, until the lab is destroyed.
    """

    def __init__(
        self,
        name: str,
        *,
        namespace: str,
        view: NodeView,
        env: Mapping[str, str],
        tag: str = "mininet",
        outlive: bool = False,
        **params: Any,
    ) -> None:
        self._namespace = namespace
        self._view = view
        self._env = env
        self._tag = tag
        self._outlive = outlive
        super().__init__(name, **params)

    @classmethod
    def setup(cls) -> None:
        """Mininet ends the program here if `mnexec` or `ifconfig` is missing; we need neither."""

    def _popen(self, cmd: list[str], **params: Any) -> subprocess.Popen[bytes]:
        """Start a process as Mininet asks for it; the shell, `mnexec -cdn env ... bash`, in the namespace."""
        if cmd[0] != "mnexec":
            params.setdefault("start_new_session", True)  # as `mnexec -d`: Ctrl-C is not for it
            return subprocess.Popen(cmd, **params)
        argv = [*cmd[2:-1], f"{self._tag}:{self.name}"]
        params |= {"close_fds": True, "start_new_session": True}
        if self._outlive:
            params["pass_fds"] = (self.master,)  # a shell that holds its own terminal is not hung up on
        environment = {**os.environ, "PATH": search_path(), **self._env}
        shell = spawn(self._namespace, argv, own_sysfs=True, view=self._view, env=environment, **params)
        if self._outlive:
            disown(shell)
        return shell

    def popen(self, *args: Any, **kwargs: Any) -> Any:
        """Do as Mininet's does, with nsenter(1) of util-linux in place of `mnexec -a`."""
        kwargs.setdefault("mncmd", ["nsenter", "--target", str(self.pid), "--net", "--mount", "--uts", "--ipc", "--"])
        return super().popen(*args, **kwargs)

    def sendCmd(self, *args: Any, **kwargs: Any) -> None:  # noqa: N802 - Mininet's name
        """Do as Mininet's does, without `mnexec -p`."""
        words = args[0] if len(args) == 1 and isinstance(args[0], list) else args
        command = " ".join(str(word) for word in words)
        if kwargs.pop("printPid", False) and not command.endswith("&") and not isShellBuiltin(command):
            command = _PRINT_PID + command
        super().sendCmd(command, printPid=False, **kwargs)

    def config(self, **_: Any) -> dict[str, Any]:
        """The plan has configured the node."""
        return {}


class LabHost(LabNode):
    """A host. Its default interface is its first NIC port in rail order."""


class FrrSwitch(LabNode, Switch):  # type: ignore[misc]
    """A switch that FRR routes for. `start` and `stop` are those of its daemons; its links stay.

    `routing` starts (True) or ends (False) them. The loopback is its default interface, so that commands of Mininet
    that name a switch mean the address that its neighbours know it by.
    """

    controlIntf: Any = None  # noqa: N815 - Mininet's name

    def __init__(self, name: str, *, routing: Callable[[str, bool], None], **params: Any) -> None:
        self._routing = routing
        super().__init__(name, **(params | {"inNamespace": True}))

    def defaultDpid(self, dpid: str | None = None) -> str:  # noqa: N802 - Mininet's name
        """There is no OpenFlow here, and names need no number."""
        return dpid or ""

    def dpctl(self, *_: str) -> str:
        """Return what the prompt's `dpctl` says of it."""
        return f"no OpenFlow: FRR routes here ({self.name} vtysh -c 'show bgp summary')\n"

    def start(self, _controllers: object = None) -> None:
        """Start the routing daemons, unless they run."""
        self._routing(self.name, True)

    def stop(self, deleteIntfs: bool = False) -> None:  # noqa: N803 - Mininet's name
        """End the routing daemons in order: neighbours see their sessions closed, and route around it."""
        self._routing(self.name, False)


class LabIntf(Intf):  # type: ignore[misc]
    """An interface as planned. Mininet sets nothing of it; it may be taken up and down, and given addresses."""

    def config(self, **_: Any) -> dict[str, Any]:
        return {}

    def ifconfig(self, *args: str) -> Any:
        """Do as Mininet's does for "up", "down" and no argument, by ip(8): net-tools need not be there."""
        if args in (("up",), ("down",)):
            return self.cmd("ip", "link", "set", "dev", self.name, *args)
        return self.cmd("ip", "address", "show", "dev", self.name) if not args else super().ifconfig(*args)

    def isUp(self, setUp: bool = False) -> bool:  # noqa: N802 - Mininet's name
        if setUp:
            return not self.ifconfig("up")
        return "UP" in self.ifconfig().split("<", 1)[-1].split(">", 1)[0].split(",")

    def updateIP(self) -> str | None:  # noqa: N802 - Mininet's name
        """The planned address, as `IP`."""
        return str(self.ip) if self.ip is not None else None


class LabLink(Link):  # type: ignore[misc]
    """A veth pair that exists."""

    @classmethod
    def makeIntfPair(cls, *_: Any, **__: Any) -> None:  # noqa: N802 - Mininet's name
        """The plan's operation has made it, in place in both namespaces."""


class LabCLI(CLI):  # type: ignore[misc]
    """Mininet's prompt, with our names: `p1-s1-h1 ping p1-s2-h1`. What a command cannot do does not end it."""

    identchars = CLI.identchars + "-"

    def onecmd(self, line: str) -> Any:
        try:
            return super().onecmd(line)
        except TestbedError as problem:
            error(f"*** {problem}\n")
            return None
