"""The command line."""

import gc
import sys
from types import ModuleType

COLLECT_AT_OBJECTS = 50_000
"""The number of new objects that has the garbage collector look for cycles among them."""


def main() -> None:
    """Carry out the command line of this process, and end with its exit code."""
    # What a start makes stays: looking through it every 700 objects (the default) takes an eighth of the start.
    gc.set_threshold(COLLECT_AT_OBJECTS)
    from testbed.base import quick_dataclasses

    quick_dataclasses.install()
    _look_for_no_plugins()
    from testbed.cli.app import main as carry_out

    try:
        carry_out()
    except SystemExit as ended:
        from testbed.cli.signals import leave

        leave(ended)


def _look_for_no_plugins() -> None:
    """Have pydantic look for no plugins of its own: it would import twenty modules to ask each package that is
    installed for some, which takes a twentieth of what it takes to find that a lab needs no change."""
    loader = ModuleType("pydantic.plugin._loader")
    vars(loader)["get_plugins"] = tuple
    sys.modules.setdefault(loader.__name__, loader)


__all__ = ["main"]
