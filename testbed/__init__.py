"""testbed: a scale model of an AI data-centre fabric on one Linux machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.version import __version__

if TYPE_CHECKING:
    from testbed.api import Lab as Lab

__all__ = ["Lab", "__version__"]


def __getattr__(name: str) -> object:
    """Load the public API on first use, so that `testbed --help` stays fast."""
    if name == "Lab":
        from testbed.api import Lab

        return Lab
    raise AttributeError(f"module 'testbed' has no attribute {name!r}")
