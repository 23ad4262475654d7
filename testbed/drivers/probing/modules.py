"""Kernel modules: built in, loaded, available on disk, or not there. Source: modules.dep(5), sysfs."""

from __future__ import annotations

import platform
from enum import StrEnum
from functools import cache
from pathlib import Path


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


@cache
def _names(path: Path) -> frozenset[str]:
    """The modules that a list names, one path a line."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return frozenset()
    files = (line.partition(":")[0].rsplit("/", 1)[-1] for line in lines)
    return frozenset(file.partition(".ko")[0].replace("-", "_") for file in files)
