"""Kernel modules: built in, loaded, available on disk, or not there. Source: modules.dep(5), sysfs."""

from __future__ import annotations

import platform
import shutil
from enum import StrEnum
from functools import cache
from pathlib import Path

from testbed.base.errors import CapabilityError
from testbed.base.programs import captured

_MODPROBE_TIMEOUT_S = 60


class ModuleState(StrEnum):
    BUILT_IN = "built in"
    LOADED = "loaded"
    AVAILABLE = "module, not loaded"
    ABSENT = "absent"


def module_state(name: str, *, modules: Path | None = None, sysfs: Path = Path("/sys/module")) -> ModuleState:
    """Return where the module `name` (with underscores) stands. Loads nothing.

    A built-in without parameters has no directory in sysfs, so that a kernel without its list of built-ins on disk
    may have what looks absent here.
    """
    directory = modules or Path("/lib/modules") / platform.release()
    if name in _names(directory / "modules.builtin"):
        return ModuleState.BUILT_IN
    loaded = sysfs / name
    if (loaded / "initstate").exists():
        return ModuleState.LOADED
    if loaded.is_dir():
        return ModuleState.BUILT_IN
    return ModuleState.AVAILABLE if name in _names(directory / "modules.dep") else ModuleState.ABSENT


def load_module(name: str, *options: str, hint: str) -> None:
    """`modprobe NAME OPTION...`. Raises `CapabilityError`, with a hint at what does without it."""
    program = shutil.which("modprobe") or shutil.which("modprobe", path="/usr/sbin:/sbin")
    if program is None:
        raise CapabilityError("modprobe is not installed", missing="modprobe", hint="apt-get install kmod")
    done = captured([program, name, *options], _MODPROBE_TIMEOUT_S)
    if done.returncode:
        raise CapabilityError(f"the module {name} does not load: {done.stderr.strip()}", missing=name, hint=hint)


@cache
def _names(path: Path) -> frozenset[str]:
    """The modules that a list names, one path a line."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return frozenset()
    files = (line.partition(":")[0].rsplit("/", 1)[-1] for line in lines)
    return frozenset(file.partition(".ko")[0].replace("-", "_") for file in files)
