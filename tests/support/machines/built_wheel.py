"""A wheel of this checkout, built from a copy of what is in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[3]
SOURCES = ("CHANGELOG.md", "LICENSE", "README.md", "pyproject.toml", "setup.py")
FOLDERS = ("scenarios", "testbed", "topologies")
TIMEOUT_S = 1500.0


def copy_sources(target: Path) -> Path:
    """Copy what a package is built from: this checkout has other tests' builds, and a `.venv`."""
    target.mkdir(parents=True)
    for name in SOURCES:
        shutil.copy(ROOT / name, target / name)
    for name in FOLDERS:
        shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__", "built"))
    return target


def build_wheel(
    sources: Path, target: Path, *, pure: bool = True, environment: Mapping[str, str] | None = None
) -> Path:
    """Build with pip, which fetches the tools that pyproject.toml names, and return the wheel."""
    told = {"TESTBED_PURE": str(int(pure)), "PIP_DISABLE_PIP_VERSION_CHECK": "1", **(environment or {})}
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    done = subprocess.run(
        [*pip, "--wheel-dir", str(target), str(sources)],
        # Where the sources lie is nobody's business: a wheel must not tell.
        cwd=tempfile.gettempdir(),
        env={**os.environ, **told},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    (wheel,) = target.glob("testbed-*.whl")
    return wheel
