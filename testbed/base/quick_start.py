"""The first steps of a program of ours, by which it is soon at work: it imports hundreds of modules."""

from __future__ import annotations

import gc
import sys
from types import ModuleType

from testbed.base import quick_dataclasses

COLLECT_AT_OBJECTS = 50_000
"""The number of new objects that has the garbage collector look for cycles among them."""


def start_quickly() -> None:
    """Have what is imported from here on cost this process little."""
    # What a start makes stays: looking through it every 700 objects (the default) takes an eighth of the start.
    gc.set_threshold(COLLECT_AT_OBJECTS)
    quick_dataclasses.install()
    _look_for_no_plugins()


def _look_for_no_plugins() -> None:
    """Have pydantic look for no plugins of its own: it would import twenty modules to ask each package that is
    installed for some, which takes a twentieth of what it takes to find that a lab needs no change."""
    loader = ModuleType("pydantic.plugin._loader")
    vars(loader)["get_plugins"] = tuple
    sys.modules.setdefault(loader.__name__, loader)
