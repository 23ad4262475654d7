"""Views of this machine: a program in a node sees the node's name, and files of the node in place of the machine's own.

A view is made of a UTS namespace and a mount namespace (namespaces(7)). They end with the last process in them, nobody
else sees anything of them, and nothing of them is on a disk: what lies over the machine's files is written elsewhere.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from testbed.base.linux import syscalls

CLONE_NEWUTS = 0x04000000


def own_mounts() -> None:
    """Give the calling thread, and what it starts, mounts of its own. The machine's still come and go among them."""
    syscalls.unshare(syscalls.CLONE_NEWNS)
    syscalls.mount("", "/", None, syscalls.MS_SLAVE | syscalls.MS_REC)


def own_hostname(name: str) -> None:
    """Give the calling thread, and what it starts, a name of the machine of its own."""
    syscalls.unshare(CLONE_NEWUTS)
    socket.sethostname(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """The view that programs of a node have: `binds` are files and directories by the path at which they are seen."""

    hostname: str
    binds: Mapping[Path, Path]

    def enter(self) -> None:
        """Give it to the calling thread, and to what it starts. A path that this machine lacks is left out.

        The thread must have mounts of its own (`own_mounts`). Raises `OSError`.
        """
        own_hostname(self.hostname)
        for target, source in self.binds.items():
            if target.exists():
                syscalls.mount(str(source), str(target), None, syscalls.MS_BIND)
