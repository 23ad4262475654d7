"""The VRFs of a switch that are network namespaces, as its routing daemons see them.

zebra takes every file of /run/netns for a VRF and its name for the VRF's (`--vrfwnetns`), and the others open a VRF by
that name. So each of them has mounts of its own, with a /run/netns that has the switch's VRFs alone. One that comes
while they run is put there by entering their mounts: zebra hears of the file (inotify of its zebra_netns_notify.c), and
of its removal. The namespace must be empty when it comes: zebra takes no notice of the links that are there before.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from testbed.base.cleanup import closed_at_end
from testbed.base.errors import DriverError
from testbed.base.linux import syscalls
from testbed.base.linux.namespaces import NETNS_DIRECTORY
from testbed.base.linux.processes import Process
from testbed.base.linux.views import own_mounts

VRFS_ARE_NAMESPACES = "--vrfwnetns"
"""The option of zebra and mgmtd that has namespaces for VRFs."""
_ZEBRA = "zebra"


def see_own_vrfs(vrfs: Mapping[str, str]) -> None:
    """Give the calling thread, and what it starts, a /run/netns that has these VRFs alone: namespaces by their names.

    Raises `OSError`.
    """
    own_mounts()
    with _opened(vrfs) as descriptors:
        syscalls.mount("vrfs", str(NETNS_DIRECTORY), "tmpfs", 0)
        for name, descriptor in descriptors.items():
            _bind(name, descriptor)


def takes_vrfs(daemons: Sequence[Process]) -> bool:
    """Tell whether a switch with these daemons takes namespaces for VRFs, so that it may be given some more."""
    for daemon in daemons:
        if daemon.command == _ZEBRA:
            arguments = Path(f"/proc/{daemon.pid}/cmdline").read_bytes().split(b"\0")
            return VRFS_ARE_NAMESPACES.encode() in arguments
    return False


def show_vrfs(daemons: Sequence[Process], vrfs: Mapping[str, str]) -> None:
    """Have the running daemons of a switch see VRFs, namespaces by their names, beside those that they see.

    zebra comes last: it tells the others. Raises `DriverError`.
    """
    with _opened(vrfs) as descriptors:

        def show() -> None:
            for name, descriptor in descriptors.items():
                if not os.path.ismount(NETNS_DIRECTORY / name):
                    (NETNS_DIRECTORY / name).unlink(missing_ok=True)
                    _bind(name, descriptor)

        for daemon in sorted(daemons, key=lambda daemon: daemon.command == _ZEBRA):
            with _paused(daemon):  # it would find a file that is no namespace yet, and look again a second later
                _in_mounts(daemon, show)


def hide_vrf(daemons: Sequence[Process], name: str) -> None:
    """Take a VRF from what the running daemons of a switch see; zebra, the first, tells the others that it is gone.

    zebra hears of one at a time: what else is removed before it has taken note of it, it does not hear of. Raises
    `DriverError`.
    """

    def hide() -> None:
        path = NETNS_DIRECTORY / name
        if os.path.ismount(path):
            syscalls.umount(str(path))
        path.unlink(missing_ok=True)

    for daemon in sorted(daemons, key=lambda daemon: daemon.command != _ZEBRA):
        _in_mounts(daemon, hide)


def _bind(name: str, descriptor: int) -> None:
    path = NETNS_DIRECTORY / name
    os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL, 0))
    syscalls.mount(f"/proc/self/fd/{descriptor}", str(path), "none", syscalls.MS_BIND)


@contextmanager
def _opened(vrfs: Mapping[str, str]) -> Iterator[Mapping[str, int]]:
    """Open namespaces by the names that they have on the machine."""
    descriptors: dict[str, int] = {}
    try:
        for name, namespace in vrfs.items():
            descriptors[name] = os.open(NETNS_DIRECTORY / namespace, os.O_RDONLY | os.O_CLOEXEC)
        yield descriptors
    finally:
        for descriptor in descriptors.values():
            os.close(descriptor)


@contextmanager
def _paused(daemon: Process) -> Iterator[None]:
    try:
        os.kill(daemon.pid, signal.SIGSTOP)
        yield
    except OSError as error:
        raise _failed(daemon, error) from error
    finally:
        os.kill(daemon.pid, signal.SIGCONT)


def _in_mounts(daemon: Process, work: Callable[[], None]) -> None:
    """Do something among the mounts of a daemon, which must be its own."""
    ours = Path("/proc/self/ns/mnt").stat()

    def enter() -> None:
        with closed_at_end(os.open(f"/proc/{daemon.pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)) as mounts:
            theirs = os.fstat(mounts)
            if (theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino):
                raise DriverError(f"{daemon.command} ({daemon.pid}) has no VRFs of its own", operation="VRFs")
            syscalls.unshare(syscalls.CLONE_FS)
            syscalls.setns(mounts, syscalls.CLONE_NEWNS)
        work()

    try:
        syscalls.in_thread(enter)
    except OSError as error:
        raise _failed(daemon, error) from error


def _failed(daemon: Process, error: OSError) -> DriverError:
    return DriverError(
        f"the VRFs of {daemon.command} ({daemon.pid}): {error.strerror}", operation="VRFs", errno=error.errno or 0
    )
