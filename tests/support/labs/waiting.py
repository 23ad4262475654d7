"""Waiting for what nobody tells: shared memory, processes, and how old a session is."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

WAIT_S = 60.0


def until(condition: Callable[[], Any], what: str | Callable[[], str], timeout_s: float = WAIT_S) -> Any:
    """Look again and again until `condition` holds, and return what it found; `what` is told where it never does."""
    end = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < end, f"not within {timeout_s:g} s: {what() if callable(what) else what}"
        time.sleep(0.002)
    return found
