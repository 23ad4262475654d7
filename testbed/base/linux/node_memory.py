"""The memory that all programs of a node share, and no others do: an IPC namespace (ipc_namespaces(7)) and a /dev/shm.

Who finds the shared memory of another takes it for a neighbour in the same machine: MPI's libraries send nothing over a
network to it. So a node has memory of its own, as a machine has. The first program that is started in a node makes it.
It stays until the node goes: the namespace is kept by a mount of its file, and what is in /dev/shm lies in a tmpfs of
the lab's, in a directory of the node's.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from testbed.base.cleanup import closed_at_end
from testbed.base.linux import syscalls

CLONE_NEWIPC = 0x08000000
SHARED_FILES = Path("/dev/shm")
_OWN_NAMESPACE = "/proc/thread-self/ns/ipc"
_NAMESPACES, _FILES = "ipc", "files"
_FLAGS = syscalls.MS_NOSUID | syscalls.MS_NODEV


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMemory:
    """The shared memory of a node, kept in a directory that all nodes of its lab have for it."""

    directory: Path
    node: str

    def join(self) -> None:
        """Give it to the calling thread, and to what it starts; make it where the node has none. Raises `OSError`.

        The thread must have the machine's mounts still, so that others find there what it makes.
        """
        if not self._enter():
            with _locked(self.directory):
                if not self._enter():
                    self._make()

    def mount(self) -> None:
        """Put the node's /dev/shm in the place of the machine's, for a thread that has mounts of its own."""
        if SHARED_FILES.is_dir():
            syscalls.mount(str(self._files), str(SHARED_FILES), None, syscalls.MS_BIND)

    @property
    def _namespace(self) -> Path:
        return self.directory / _NAMESPACES / self.node

    @property
    def _files(self) -> Path:
        return self.directory / _FILES / self.node

    def _enter(self) -> bool:
        """Enter the namespace; False where there is none, or not all of the memory."""
        if not self._files.is_dir():
            return False
        try:
            descriptor = os.open(self._namespace, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            syscalls.setns(descriptor, CLONE_NEWIPC)
        except OSError as error:
            if error.errno != errno.EINVAL:  # the file alone is there, and no namespace is mounted on it
                raise
            return False
        finally:
            os.close(descriptor)
        return True

    def _make(self) -> None:
        files = self.directory / _FILES
        for path in (files, self._namespace.parent):
            path.mkdir(exist_ok=True)
        if not files.is_mount():
            syscalls.mount("tmpfs", str(files), "tmpfs", _FLAGS, "mode=0755")
        self._files.mkdir(exist_ok=True)
        self._files.chmod(0o1777)
        syscalls.unshare(CLONE_NEWIPC)
        self._namespace.touch()
        syscalls.mount(_OWN_NAMESPACE, str(self._namespace), None, syscalls.MS_BIND)


def forget_memory(directory: Path, nodes: Iterable[str] | None = None) -> None:
    """Let go of the shared memory of `nodes`, or of all of a lab. It is gone with the last program that has it.

    Nothing is said of what is not there. Raises `OSError`.
    """
    known = [path.name for path in (directory / _NAMESPACES).glob("*")]
    for node in known if nodes is None else {*nodes} & {*known}:
        path = directory / _NAMESPACES / node
        syscalls.unmount_all(str(path))
        path.unlink(missing_ok=True)
        shutil.rmtree(directory / _FILES / node, ignore_errors=True)
    if nodes is None:
        syscalls.unmount_all(str(directory / _FILES))
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold a directory, which is made where it is not there, alone (flock(2))."""
    with suppress(FileExistsError):
        directory.mkdir(parents=True)
    with closed_at_end(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
