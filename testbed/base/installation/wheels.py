"""The Python packages of an image whose Python is not this machine's: what pip is told to fetch them."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

SOURCES_ONLY = ("mininet",)
"""Packages of which no wheels are published; they are pure Python."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedWheels:
    """Requirements, and the Python that they are for: its version ("3.13") and its platforms (PEP 600)."""

    requirements: tuple[str, ...]
    python: str
    platforms: tuple[str, ...]

    @classmethod
    def of(cls, checkout: Path, extras: Sequence[str]) -> Self:
        """Return what an image of this checkout is given, with these extras, and what testbed is built with.

        The image's Python is that of `images/versions.toml`.
        """
        project = tomllib.loads((checkout / "pyproject.toml").read_text())
        python = tomllib.loads((checkout / "images/versions.toml").read_text())["python"]
        optional = project["project"]["optional-dependencies"]
        return cls(
            requirements=(
                *project["project"]["dependencies"],
                *(line for name in extras for line in optional[name]),
                *project["build-system"]["requires"],
            ),
            python=python["version"],
            platforms=tuple(python["platforms"]),
        )

    def commands(self, target: Path) -> list[list[str]]:
        """Return the commands that fill the directory `target`, with this machine's own pip and its settings."""
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input"]
        commands = []
        if unbuilt := [line for line in self.requirements if line.startswith(SOURCES_ONLY)]:
            commands.append([*pip, "wheel", "--no-deps", "--wheel-dir", str(target), *unbuilt])
        compact = self.python.replace(".", "")
        options = ["--only-binary=:all:", "--python-version", compact, "--implementation", "cp"]
        for abi in (f"cp{compact}", "abi3", "none"):
            options += ["--abi", abi]
        for platform in (*self.platforms, "any"):
            options += ["--platform", platform]
        options += ["--find-links", str(target), "--dest", str(target)]
        return [*commands, [*pip, "download", *options, *self.requirements]]
