"""The command line."""

import gc

COLLECT_AT_OBJECTS = 50_000
"""The number of new objects that has the garbage collector look for cycles among them."""


def main() -> None:
    """Carry out the command line of this process, and end with its exit code."""
    # What a start makes stays: looking through it every 700 objects (the default) takes an eighth of the start.
    gc.set_threshold(COLLECT_AT_OBJECTS)
    from testbed.base import quick_dataclasses

    quick_dataclasses.install()
    from testbed.cli.app import main as carry_out

    try:
        carry_out()
    except SystemExit as ended:
        from testbed.cli.signals import leave

        leave(ended)


__all__ = ["main"]
