"""The way to the assembly, which stands above the core and all features: it reads files and makes plans of both.

The core does not import it. `testbed.lab` names its module, which is imported when it is asked for the first time.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

_modules: list[str] = []


def register_assembly(module: str) -> None:
    """Make the assembly known."""
    _modules[:] = [module]


def assembly() -> ModuleType:
    """Return the assembly; whoever asks says by a protocol what of it is used."""
    return import_module(_modules[0])
