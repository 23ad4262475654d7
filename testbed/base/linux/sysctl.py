"""Writing settings of the kernel below /proc/sys, also in a container that has it read-only.

Docker mounts /proc/sys read-only in a container that is not privileged, though root in it may make network namespaces
(CAP_SYS_ADMIN), whose settings are nobody else's. There a setting is written through a procfs of this process's own,
which is mounted nowhere.
"""

from __future__ import annotations

import errno
import os
from functools import cache

from testbed.base.cleanup import closed_at_end
from testbed.base.linux import syscalls

ROOT = "/proc/"


def open_setting(path: str) -> int:
    """Open a setting, such as /proc/sys/net/ipv4/ip_forward of the calling thread's network namespace, for writing.

    Raises `OSError`.
    """
    try:
        return os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno != errno.EROFS:
            raise
        try:
            return os.open(path.removeprefix(ROOT), os.O_WRONLY | os.O_CLOEXEC, dir_fd=_own_procfs())
        except OSError:
            raise error from None


def write_setting(path: str, value: str) -> None:
    """Write a setting, as `open_setting` opens it. Raises `OSError`."""
    with closed_at_end(open_setting(path)) as descriptor:
        os.write(descriptor, value.encode())


@cache
def _own_procfs() -> int:
    """Return a descriptor of the root of a procfs, which stays open. Whose settings it has is told when one is opened:
    those of the network namespace of the thread that opens it (net/sysctl_net.c)."""
    return syscalls.detached_mount("proc")
