"""testbed: a scale model of an AI data-centre fabric on one Linux machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.base.compiled.finder import install as _use_compiled_modules
from testbed.base.version import __version__

if TYPE_CHECKING:
    from testbed.api import Lab, RunOptions, ScenarioResult, run_scenario

__all__ = ["Lab", "RunOptions", "ScenarioResult", "__version__", "run_scenario"]


_use_compiled_modules()


def __getattr__(name: str) -> object:
    """Load the public API on first use, so that `testbed --help` stays fast."""
    if name in __all__:
        from testbed import api

        return getattr(api, name)
    raise AttributeError(f"module 'testbed' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public API before any of it is loaded, and nothing else but what Python itself keeps here."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
