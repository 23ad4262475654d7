"""Copies of lab directories (`testbed-<lab>/`) that verbs on another machine brought here. They go with their labs.

A copy says in a file of its own which machine it is from, so that nothing else of that name is ever removed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path, PurePosixPath

from testbed.lab.core.deploy.records.labdir import ORIGIN_FILE, remove_paths


def mark_copies(written: Iterable[Path], origin: str) -> None:
    """Note in the lab directories among the files that came back that they are from `origin`."""
    for path in written:
        if path.name == "topology-data.json" and path.parent.name.startswith("testbed-"):
            (path.parent / ORIGIN_FILE).write_text(f"{origin}\n")


def remove_copies(removed: str, work: PurePosixPath, origin: str) -> None:
    """Remove what is here of the paths that labs of `origin` had there, which are in the lines of `removed`.

    A verb there has a directory in `work` that stands for our root, and the one that deployed had one of another name.
    Directories go once they are empty, and what a user put there stays.
    """
    by_directory: dict[Path, list[Path]] = {}
    for line in removed.splitlines():
        path = PurePosixPath(json.loads(line))
        if path.is_relative_to(work) and ".." not in path.parts:
            here = Path("/", *path.relative_to(work).parts[1:])
            directory = next((above for above in (here, *here.parents) if above.name.startswith("testbed-")), None)
            if directory is not None:
                by_directory.setdefault(directory, []).append(here)
    for directory, paths in by_directory.items():
        with suppress(OSError):
            if (directory / ORIGIN_FILE).read_text().rstrip("\n") == origin:
                remove_paths([directory, *paths, directory / ORIGIN_FILE])
