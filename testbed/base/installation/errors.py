"""The error that ends `./lab`: a reason, and advice."""

from __future__ import annotations

import sys


class InstallationError(Exception):
    """Something cannot be installed or started here. `advice` are lines of their own."""

    def __init__(self, reason: str, *advice: str) -> None:
        super().__init__(reason)
        self.advice = advice


def say(*lines: str) -> None:
    """Tell the user; what a command prints for other programs is not mixed with it."""
    print(*lines, sep="\n", file=sys.stderr, flush=True)
