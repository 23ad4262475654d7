"""Has Python import compiled modules instead of their sources, where there is a build that fits.

The question is asked when the first of them is imported, and once: a command that needs none does not pay for it.
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
_PREFIXES = ("testbed.protocols.", "testbed.endpoints.", "testbed.endpoints.worker.", "testbed.run.simulated.")


class CompiledFinder:
    """A meta-path finder (PEP 451) for the modules of a build."""

    def __init__(self) -> None:
        self._files: dict[str, str] | None = None
        """By module name, the file that it is loaded from; None: not looked for yet."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where a module is loaded from; None where it is interpreted."""
        if not name.startswith(_PREFIXES) and name != GROUP:
            return None
        if self._files is None:
            self._files = {}  # what looking for a build imports is no module of it
            self._files = find_build()
        file = self._files.get(name)
        if file is None:
            return None
        return importlib.util.spec_from_file_location(name, file, loader=ExtensionFileLoader(name, file))

    @property
    def found(self) -> bool:
        """Tell whether compiled modules are used; False until one was asked for."""
        return bool(self._files)


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


def install() -> None:
    """Have this process look for compiled modules. A second time does nothing."""
    if not any(isinstance(finder, CompiledFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, CompiledFinder())
