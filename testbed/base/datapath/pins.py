"""The place where a lab's maps and links are pinned is a BPF file system of its own. Unmounting it removes them all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from testbed.base.errors import CapabilityError
from testbed.base.linux import syscalls

_FLAGS = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC


def lab_directory(run_directory: Path) -> Path:
    """The mount point for a lab with this run directory."""
    return run_directory / "bpf"


def mount(directory: Path) -> None:
    """Mount an empty BPF file system that only root can enter. Raises `CapabilityError`."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        syscalls.mount("bpf", str(directory), "bpf", _FLAGS, "mode=0700")
    except OSError as error:
        raise CapabilityError(
            f"cannot mount a BPF file system: {os.strerror(error.errno or 0)}",
            missing="CONFIG_BPF_SYSCALL",
            hint="qos: needs eBPF; `testbed doctor` shows what this kernel has",
        ) from error


def unmount(directory: Path) -> None:
    """Unmount whatever is mounted there, and with it drop every pin. Nothing mounted is fine."""
    syscalls.unmount_all(str(directory))


def remove(directory: Path) -> None:
    """Unmount what is mounted there, and remove the mount point. Done before is fine."""
    unmount(directory)
    with contextlib.suppress(FileNotFoundError):
        directory.rmdir()
