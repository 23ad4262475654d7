"""The machine, kernel and versions that a measurement ran on, stored with every record."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from testbed.base.compiled.finder import left_out
from testbed.base.errors import CapabilityError
from testbed.base.files import CHECKOUT
from testbed.base.version import __version__
from testbed.lab.core.drivers.probing.machine import find_frr
from testbed.lab.core.drivers.probing.machine_probe import clock
from testbed.protocols import is_compiled
from testbed.record.record import Environment

_ASK_TIMEOUT_S = 60.0


def collect_environment(approximations: Sequence[str]) -> Environment:
    """Ask the machine. What cannot be asked is None; nothing here raises."""
    return Environment(
        testbed=__version__,
        python=platform.python_version(),
        kernel=platform.release(),
        distribution=_distribution(),
        cpu_model=parse_cpu_model(_read(Path("/proc/cpuinfo"))),
        cores=os.cpu_count() or 1,
        memory_bytes=parse_memory_bytes(_read(Path("/proc/meminfo"))),
        iperf3=parse_iperf3_version(_ask(["iperf3", "--version"])),
        frr=_frr_version(),
        git_commit=_git_commit(CHECKOUT),
        clock=clock(),
        transports="compiled" if is_compiled() else "interpreted",
        interpreted=list(left_out()),
        approximations=list(approximations),
    )


def parse_cpu_model(cpuinfo: str) -> str | None:
    """The `model name` of the first CPU (x86); other architectures may not have one."""
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return None


def parse_memory_bytes(meminfo: str) -> int | None:
    for line in meminfo.splitlines():
        fields = line.split()
        if fields[:1] == ["MemTotal:"]:
            return int(fields[1]) * 1024
    return None


def parse_iperf3_version(output: str) -> str | None:
    """`iperf 3.12 (cJSON 1.7.15)` -> `3.12`."""
    fields = output.split()
    return fields[1] if len(fields) > 1 and fields[0] == "iperf" else None


def _distribution() -> str | None:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        return None


def _frr_version() -> str | None:
    try:
        return find_frr().version_text
    except CapabilityError:
        return None


def _git_commit(directory: Path) -> str | None:
    """The commit of a source checkout, with `+` where files differ from it; None for an installed package."""
    if not (directory / ".git").exists():
        return None
    commit = _ask(["git", "-C", str(directory), "rev-parse", "--short=12", "HEAD"]).strip()
    if not commit:
        return None
    changed = _ask(["git", "-C", str(directory), "status", "--porcelain", "--untracked-files=no"]).strip()
    return f"{commit}+" if changed else commit


def _ask(argv: Sequence[str]) -> str:
    """Return what a command prints, "" if it is missing, fails or hangs."""
    if shutil.which(argv[0]) is None:
        return ""
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_ASK_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace") if done.returncode == 0 else ""


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
