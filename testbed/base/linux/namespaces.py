"""Network namespaces of nodes: made in this process, published under /run/netns, found again, removed.

A namespace exists unnamed first, so that its identity (its cookie) can be journalled
before anything of it is visible; publishing binds it to `/run/netns/<lab>-<node>` as ip-netns(8) does.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from testbed.base.errors import DriverError, NameInUse
from testbed.base.linux import syscalls
from testbed.base.linux.offload import generic_socket
from testbed.base.linux.rtnetlink import RouteSocket
from testbed.base.linux.sysctl import write_setting

_T = TypeVar("_T")

NETNS_DIRECTORY = Path("/run/netns")
OWN_NAMESPACE = "/proc/thread-self/ns/net"
SO_NETNS_COOKIE = 71
RPS_DEFAULT_MASK = "/proc/sys/net/core/rps_default_mask"
MANY = 16
"""Namespaces that are worth a thread."""


@dataclass(slots=True, kw_only=True)
class Namespace:
    """An open namespace: descriptor, identity and the two netlink sockets that live in it.

    `identity` is its cookie (SO_NETNS_COOKIE, Linux 5.14): the kernel never gives one twice in a boot,
    while the inode of a namespace that went is the next one's at once.
    """

    name: str
    fd: int
    identity: int
    route: RouteSocket
    generic: RouteSocket

    def close(self) -> None:
        self.route.close()
        self.generic.close()
        os.close(self.fd)


def create_namespaces(names: Sequence[str], cpu_masks: Mapping[str, int]) -> dict[str, Namespace]:
    """New unnamed namespaces, one for each name.

    `cpu_masks[name]` pins receive steering of every interface later made in it (a veth spreads packets
    over CPUs otherwise, and reorders): net.core.rps_default_mask, Linux 6.3. The kernel makes several at a time.
    """
    threads = max(1, min(os.cpu_count() or 1, len(names) // MANY))

    def create_all() -> dict[str, Namespace]:
        with ThreadPoolExecutor(threads, thread_name_prefix="namespaces") as pool:
            parts = [pool.submit(_create, names[index::threads], cpu_masks) for index in range(threads)]
        made = {name: item for part in parts if part.exception() is None for name, item in part.result().items()}
        if error := next((error for part in parts if (error := part.exception()) is not None), None):
            for namespace in made.values():
                namespace.close()
            raise error
        return {name: made[name] for name in names}

    return syscalls.in_thread(create_all)


def _create(names: Sequence[str], cpu_masks: Mapping[str, int]) -> dict[str, Namespace]:
    """Leaves the calling thread in the last one."""
    made: dict[str, Namespace] = {}
    steering = Path(RPS_DEFAULT_MASK).exists()
    try:
        for name in names:
            syscalls.unshare(syscalls.CLONE_NEWNET)
            if steering:
                write_setting(RPS_DEFAULT_MASK, f"{cpu_masks[name]:x}")
            made[name] = _open_current(name)
    except OSError:
        for namespace in made.values():
            namespace.close()
        raise
    return made


def open_namespaces(names: Iterable[str]) -> dict[str, Namespace]:
    """Namespaces that exist under /run/netns, opened; missing ones raise `DriverError`."""

    def enter() -> dict[str, Namespace]:
        found: dict[str, Namespace] = {}
        for name in names:
            enter_namespace(name)
            found[name] = _open_current(name)
        return found

    return syscalls.in_thread(enter)


def adopt_namespaces(pids: Mapping[str, int], cpu_masks: Mapping[str, int]) -> dict[str, Namespace]:
    """The namespaces that processes of somebody else's making live in, by the names in `pids`; steered as new ones.

    Raises `DriverError` for a process that has ended.
    """

    def enter() -> dict[str, Namespace]:
        found: dict[str, Namespace] = {}
        steering = Path(RPS_DEFAULT_MASK).exists()
        try:
            for name, pid in pids.items():
                fd = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
                try:
                    syscalls.setns(fd, syscalls.CLONE_NEWNET)
                finally:
                    os.close(fd)
                if steering:
                    write_setting(RPS_DEFAULT_MASK, f"{cpu_masks[name]:x}")
                found[name] = _open_current(name)
        except OSError as error:
            for namespace in found.values():
                namespace.close()
            raise DriverError(
                f"cannot enter the network namespace of {name} (process {pid}): {error.strerror}",
                operation="enter",
                errno=error.errno or 0,
            ) from error
        return found

    return syscalls.in_thread(enter)


def in_namespace(name: str, work: Callable[[], _T]) -> _T:
    """Do `work` in the published namespace `name`, in a thread that ends with it, and return its result."""

    def entered() -> _T:
        enter_namespace(name)
        return work()

    return syscalls.in_thread(entered)


def enter_namespace(name: str) -> None:
    """Move the calling thread into the published namespace `name`."""
    try:
        fd = os.open(NETNS_DIRECTORY / name, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise DriverError(
            f"the network namespace {name} is gone", operation="enter", hint="`testbed destroy` removes what is left"
        ) from error
    try:
        syscalls.setns(fd, syscalls.CLONE_NEWNET)
    except OSError as error:
        raise DriverError(
            f"cannot enter the network namespace {name}: {error.strerror}", errno=error.errno or 0
        ) from error
    finally:
        os.close(fd)


def _open_current(name: str) -> Namespace:
    fd = os.open(OWN_NAMESPACE, os.O_RDONLY | os.O_CLOEXEC)
    return Namespace(name=name, fd=fd, identity=own_identity(), route=RouteSocket(), generic=generic_socket())


def own_identity() -> int:
    """The cookie of the calling thread's network namespace."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as item:
        return int.from_bytes(item.getsockopt(socket.SOL_SOCKET, SO_NETNS_COOKIE, 8), sys.byteorder)


def identities_of(paths: Iterable[str]) -> dict[str, int]:
    """The identity of each namespace file that can be entered; one that is gone, or is no namespace, is left out."""

    def enter() -> dict[str, int]:
        found: dict[str, int] = {}
        for path in paths:
            with contextlib.suppress(OSError):
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    syscalls.setns(fd, syscalls.CLONE_NEWNET)
                    found[path] = own_identity()
                finally:
                    os.close(fd)
        return found

    return syscalls.in_thread(enter)


def prepare_directory() -> None:
    """Make /run/netns a shared mount of its own, as `ip netns add` does, so that both tools see one set."""
    NETNS_DIRECTORY.mkdir(mode=0o755, exist_ok=True)
    target = str(NETNS_DIRECTORY)
    try:
        # Only a mount point can be made shared. (os.path.ismount does not see a directory mounted on itself, and
        # each further bind mount would double all the mounts in it.)
        syscalls.mount("", target, "none", syscalls.MS_SHARED | syscalls.MS_REC)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        syscalls.mount(target, target, "none", syscalls.MS_BIND | syscalls.MS_REC)
        syscalls.mount("", target, "none", syscalls.MS_SHARED | syscalls.MS_REC)


def published(names: Iterable[str]) -> list[str]:
    """Return those of `names` that exist under /run/netns, whoever made them."""
    return [name for name in names if (NETNS_DIRECTORY / name).exists()]


def publish(namespace: Namespace) -> None:
    """Bind the namespace to its name; a name that exists is somebody else's and raises `NameInUse`."""
    path = NETNS_DIRECTORY / namespace.name
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL, 0))
    except FileExistsError as error:
        raise NameInUse(
            f"a network namespace {namespace.name} exists and is not ours",
            hint="choose another lab name (-n), or remove it with `ip netns del`",
        ) from error
    syscalls.mount(f"/proc/self/fd/{namespace.fd}", str(path), "none", syscalls.MS_BIND)


def still_published(identities: Mapping[str, int]) -> list[str]:
    """Return those names that still are the namespace of that identity."""
    actual = identities_of(str(NETNS_DIRECTORY / name) for name in identities)
    return [name for name, identity in identities.items() if actual.get(str(NETNS_DIRECTORY / name)) == identity]


def foreign(names: Iterable[str], ours: Mapping[str, int]) -> list[str]:
    """Return those of `names` that exist and that `unpublish(ours)` would leave alone."""
    taken = published(names)
    known = {name: ours[name] for name in taken if name in ours}
    removable = {*still_published(known), *(name for name in known if _is_leftover(NETNS_DIRECTORY / name))}
    return [name for name in taken if name not in removable]


def unpublish(identities: Mapping[str, int]) -> int:
    """Remove each name that still is the namespace of that identity, or the empty file of a creation cut short.

    Returns how many were removed. A namespace of that name with another identity is left alone.
    """
    actual = identities_of(str(NETNS_DIRECTORY / name) for name in identities)
    removed = 0
    for name, identity in identities.items():
        path = NETNS_DIRECTORY / name
        if actual.get(str(path)) == identity:
            syscalls.umount(str(path))
        elif not _is_leftover(path):
            continue
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        removed += 1
    return removed


def _is_leftover(path: Path) -> bool:
    """An empty regular file on the file system of /run/netns: a mount point without its mount."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return False
    return status.st_size == 0 and status.st_dev == path.parent.stat().st_dev
