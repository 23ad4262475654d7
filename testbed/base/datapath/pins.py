"""Where a lab's maps and links are pinned: a BPF file system of its own. Unmounting it removes them all."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

from testbed.base.errors import CapabilityError

_MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 2, 4, 8
_MNT_DETACH = 2
_libc = ctypes.CDLL(None, use_errno=True)


def lab_directory(run_directory: Path) -> Path:
    """The mount point for a lab with this run directory."""
    return run_directory / "bpf"


def mount(directory: Path) -> None:
    """Mount an empty BPF file system that only root can enter. Raises `CapabilityError`."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    if _libc.mount(b"bpf", os.fsencode(directory), b"bpf", flags, b"mode=0700"):
        code = ctypes.get_errno()
        raise CapabilityError(
            f"cannot mount a BPF file system: {os.strerror(code)}",
            missing="CONFIG_BPF_SYSCALL",
            hint="qos: needs eBPF; `testbed doctor` shows what this kernel has",
        )


def unmount(directory: Path) -> None:
    """Unmount whatever is mounted there, and with it drop every pin. Nothing mounted is fine."""
    while _libc.umount2(os.fsencode(directory), _MNT_DETACH) == 0:
        pass
    code = ctypes.get_errno()
    if code not in (errno.EINVAL, errno.ENOENT):
        raise OSError(code, os.strerror(code), str(directory))
