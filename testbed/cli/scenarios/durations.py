"""How long something takes, as people say it."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """Round to what is worth saying: "40 s", "12 min"."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
