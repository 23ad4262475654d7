"""Has Python import compiled modules instead of their sources, where there is a build that fits.

The question is asked when the first module is imported that may be compiled, and once: a command that needs none does
not pay for it.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from types import ModuleType

PURE = "TESTBED_PURE"
"""The environment variable that, set to anything but nothing and 0, has all modules interpreted."""
GROUP = "testbed_compiled__mypyc"
"""The library that all modules of a build are in; each has a file of its own that takes it from there."""
PARTIAL_FILE = "partial.json"
"""A build that has it is partial: it lists the modules that are left out (`testbed.base.compiled.partial`)."""
_PREFIXES = ("testbed.protocols.", "testbed.endpoints.", "testbed.run.simulated.", "testbed.run.flows.native.")


class CompiledFinder:
    """A meta-path finder (PEP 451) for the modules of a build."""

    def __init__(self) -> None:
        self._files: dict[str, str] | None = None
        """By module name, the file that it is loaded from; None: not looked for yet."""
        self.left_out: tuple[str, ...] = ()
        """The modules that are interpreted beside compiled ones, because they have changed since these were built."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where a module is loaded from; None where it is interpreted."""
        if not name.startswith(_PREFIXES) and name != GROUP:
            return None
        if self._files is None:
            from testbed.base.compiled.modules import is_interpreted

            if is_interpreted(name):
                return None  # and who asks for no others need not look for a build, for which all sources are read
            self._files = {}  # what looking for a build imports is no module of it
            self._files = find_build()
            self.left_out = left_out_of(os.path.dirname(self._files.get(GROUP, "")))  # noqa: PTH120
        file = self._files.get(name)
        if file is None:
            return None
        return importlib.util.spec_from_file_location(name, file, loader=ExtensionFileLoader(name, file))


def is_pure() -> bool:
    """Tell whether the environment asks for interpreted modules."""
    return os.environ.get(PURE, "") not in ("", "0")


def find_build() -> dict[str, str]:
    """Return the files of the build that fits the sources, by module name; none where there is no such build."""
    if is_pure():
        return {}
    from testbed.base.compiled.modules import PACKAGED, build_key, builds_directory

    key = build_key()
    try:
        files = list((PACKAGED / key).glob("*.so")) or list((builds_directory() / key).glob("*.so"))
    except (OSError, RuntimeError):  # no home, no cache
        return {}
    return {file.name.removesuffix(".so"): str(file) for file in files}


def left_out_of(directory: str) -> tuple[str, ...]:
    """Return the modules that are left out of a build and interpreted; none of a whole one."""
    path = os.path.join(directory, PARTIAL_FILE)  # noqa: PTH118  # a start has no time for pathlib
    if not os.path.exists(path):  # noqa: PTH110
        return ()
    import json

    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123
            found = json.load(file)
    except (OSError, ValueError):
        return ()
    return tuple(map(str, found)) if isinstance(found, list) else ()


def left_out() -> tuple[str, ...]:
    """Return the modules that are interpreted in this process beside compiled ones."""
    return next((finder.left_out for finder in sys.meta_path if isinstance(finder, CompiledFinder)), ())


def install() -> None:
    """Have this process look for compiled modules. A second time does nothing."""
    if not any(isinstance(finder, CompiledFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, CompiledFinder())
