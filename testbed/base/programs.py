"""Programs that are run to their end for what they print."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence


def captured(
    argv: Sequence[str], timeout_s: float | None = None, *, env: Mapping[str, str] | None = None, check: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run a program without input. Raises `OSError`, `subprocess.TimeoutExpired`, and with `check`
    `subprocess.CalledProcessError` for another status than 0."""
    return subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=timeout_s,
        env=env,
        check=check,
    )
