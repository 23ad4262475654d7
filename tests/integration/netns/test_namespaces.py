"""Namespaces made many at a time."""

import errno
import os
import threading
from pathlib import Path

import pytest

from testbed.base.errors import DriverError
from testbed.base.linux import namespaces, syscalls, sysctl
from testbed.base.linux.iproute import converse_here
from testbed.base.linux.rtnetlink import IFF_UP

pytestmark = pytest.mark.netns

MS_RDONLY, MS_REMOUNT = 1, 32
NAMES = [f"n{number}" for number in range(5 * namespaces.MANY)]
MASKS = dict.fromkeys(NAMES, 1)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_each_has_its_own_and_this_thread_stays_where_it_is() -> None:
    own = namespaces.own_identity()
    made = namespaces.create_namespaces(NAMES, MASKS)
    try:
        assert list(made) == NAMES
        identities = {namespace.identity for namespace in made.values()}
        assert len(identities) == len(NAMES)
        assert own not in identities
        inodes = {os.fstat(namespace.fd).st_ino for namespace in made.values()}
        assert len(inodes) == len(NAMES)
    finally:
        for namespace in made.values():
            namespace.close()
    assert namespaces.own_identity() == own


def test_where_one_fails_none_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the machine's limit of namespaces is reached (namespaces(7), ENOSPC), in whichever thread that is."""
    before, real, calls, lock = descriptors(), syscalls.unshare, [0], threading.Lock()

    def unshare(flags: int) -> None:
        with lock:
            calls[0] += 1
            number = calls[0]
        if number == len(NAMES) - 2:
            raise OSError(errno.ENOSPC, "No space left on device", "unshare")
        real(flags)

    monkeypatch.setattr(syscalls, "unshare", unshare)
    with pytest.raises(OSError, match="No space left"):
        namespaces.create_namespaces(NAMES, MASKS)
    assert descriptors() == before


def test_a_conversation_by_pyroute2_leaves_no_thread_and_no_descriptor() -> None:
    def talk() -> None:
        syscalls.unshare(syscalls.CLONE_NEWNET)
        converse_here(lambda route: route.link("set", index=1, state="up"))
        assert converse_here(lambda route: [bool(link["flags"] & IFF_UP) for link in route.get_links()]) == [True]
        with pytest.raises(DriverError, match=r"^link of nobody: No such device$") as caught:
            converse_here(lambda route: route.link("set", index=99, state="up"), "link of nobody")
        assert (caught.value.operation, caught.value.errno) == ("link of nobody", errno.ENODEV)

    syscalls.in_thread(talk)
    before = descriptors(), threading.active_count()
    syscalls.in_thread(talk)
    assert (descriptors(), threading.active_count()) == before


FORWARDING = "/proc/sys/net/ipv4/ip_forward"


def read_only_settings() -> None:
    """Give this thread a network namespace, and a /proc/sys as Docker mounts it."""
    syscalls.unshare(syscalls.CLONE_FS | syscalls.CLONE_NEWNS | syscalls.CLONE_NEWNET)
    syscalls.mount("", "/", None, syscalls.MS_PRIVATE | syscalls.MS_REC)
    syscalls.mount("/proc/sys", "/proc/sys", None, syscalls.MS_BIND)
    syscalls.mount("", "/proc/sys", None, MS_REMOUNT | syscalls.MS_BIND | MS_RDONLY)


def test_settings_are_written_where_proc_is_read_only() -> None:
    def write() -> tuple[int, list[str]]:
        read_only_settings()
        with pytest.raises(OSError) as refused:
            os.close(os.open(FORWARDING, os.O_WRONLY))
        values = [Path(FORWARDING).read_text().strip()]
        for value in ("1", "0", "1"):
            sysctl.write_setting(FORWARDING, value)
            values.append(Path(FORWARDING).read_text().strip())
        return refused.value.errno or 0, values

    outside = Path(FORWARDING).read_text()
    assert syscalls.in_thread(write) == (errno.EROFS, ["0", "1", "0", "1"])
    assert Path(FORWARDING).read_text() == outside


def test_without_a_procfs_of_ones_own_the_first_refusal_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def write() -> int:
        read_only_settings()
        with pytest.raises(OSError) as refused:
            sysctl.write_setting(FORWARDING, "1")
        return refused.value.errno or 0

    def refuse() -> int:
        raise OSError(errno.EPERM, "fsopen: Operation not permitted")

    monkeypatch.setattr(sysctl, "_own_procfs", refuse)
    assert syscalls.in_thread(write) == errno.EROFS
