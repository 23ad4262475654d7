"""Views of this machine: a program in a node sees the node's name, its files, and the shared memory of the node alone.

A view is made of a UTS namespace and a mount namespace (namespaces(7)). They end with the last process in them, nobody
else sees anything of them, and nothing of them is on a disk: what lies over the machine's files is written elsewhere.
Beside them all views of a node have one IPC namespace (`testbed.base.linux.node_memory`).
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from testbed.base.linux import syscalls
from testbed.base.linux.node_memory import NodeMemory

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
    """The view that programs of a node have: `binds` are files and directories by the path at which they are seen.

    `memory` is None for a view of the machine's own shared memory.
    """

    hostname: str
    binds: Mapping[Path, Path]
    memory: NodeMemory | None = None

    def join(self) -> None:
        """Give the calling thread, which must have the machine's mounts still, what the views of a node share.

        Raises `OSError`.
        """
        if self.memory is not None:
            self.memory.join()

    def enter(self) -> None:
        """Give it to the calling thread, and to what it starts. A path that this machine lacks is left out.

        The thread must have joined (`join`), and have mounts of its own since (`own_mounts`). Raises `OSError`.
        """
        own_hostname(self.hostname)
        for target, source in self.binds.items():
            if target.exists():
                syscalls.mount(str(source), str(target), None, syscalls.MS_BIND)
        if self.memory is not None:
            self.memory.mount()
