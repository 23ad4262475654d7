"""Running a tool that makes something of an image: what it prints, or why it failed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from testbed.base.errors import CapabilityError
from testbed.base.files import cache_directory
from testbed.base.programs import captured
from testbed.vm import cache
from testbed.vm.errors import ImageError

TIMEOUT_S = 1800


def run_tool(argv: Sequence[str], environment: Mapping[str, str], *, name: str = "") -> str:
    """Return what a tool prints. Raises `ImageError` with its last words if it fails.

    `name` is what it is called where another program starts it.
    """
    name = name or Path(argv[0]).name
    try:
        done = captured(list(argv), TIMEOUT_S, env={**os.environ, "LC_ALL": "C.UTF-8", **environment})
    except FileNotFoundError as error:
        raise CapabilityError(f"{argv[0]} is not installed", missing=argv[0]) from error
    except subprocess.TimeoutExpired as error:
        raise ImageError(f"{name} did not end within {TIMEOUT_S} s") from error
    if done.returncode:
        said = done.stderr.strip() or done.stdout.strip()
        if "No space left on device" in said:
            raise cache.disk_full(cache_directory())
        hint = "is Debian's registry reachable?" if "Temporary failure" in said or "Could not resolve" in said else None
        raise ImageError(f"{name} failed: {said[-1500:]}", hint=hint)
    return done.stdout
