"""Partial builds: that of other sources, without the modules that have changed since, which are interpreted.

Who edits one controller and runs it again has the rest compiled at once. Left out are the modules whose source has
changed; those that use the native code of one that is left out, since they would go on with the old one; and those with
a base class of one that is left out, since an interpreted class cannot derive from a compiled one, unless that is
marked as open (`testbed.protocols.open_classes`). A controller that is called by an open base class alone, and named by
a registry that is interpreted, is left out by itself.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from testbed.base.compiled.finder import PARTIAL_FILE
from testbed.base.compiled.imports import Imports
from testbed.base.compiled.manifest import MANIFEST_FILE, Manifest, read_manifest

MOST_LEFT_OUT = 8
"""With more modules left out, the way of a packet is interpreted, and all are built anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Partial:
    """A build that others may be taken from, and the modules that are left out then, in order."""

    directory: Path
    left_out: tuple[str, ...]


def is_partial(directory: Path) -> bool:
    """Tell whether modules are left out of a build."""
    return (directory / PARTIAL_FILE).exists()


def find_partial(builds: Iterable[Path], maker: str, sources: Mapping[str, str], root: Path) -> Partial | None:
    """Return the whole build with which the fewest modules have to be left out; None where all leave out too many.

    `sources` are the digests of the sources as they are, by module, below `root`.
    """
    found: list[Partial] = []
    imports = Imports(root, sources)
    for directory in builds:
        manifest = None if is_partial(directory) else read_manifest(directory)
        if manifest is None or manifest.maker != maker or len(_changed(manifest, sources)) > MOST_LEFT_OUT:
            continue
        left_out = modules_to_leave_out(manifest, sources, imports)
        if len(left_out) <= MOST_LEFT_OUT and manifest.surroundings == imports.surroundings():
            found.append(Partial(directory=directory, left_out=tuple(sorted(left_out))))
    return min(found, key=lambda one: len(one.left_out), default=None)


def _changed(manifest: Manifest, sources: Mapping[str, str]) -> set[str]:
    """The modules whose sources are not those that were built, and those that are new."""
    built = manifest.modules
    return {name for name, one in built.items() if sources.get(name) != one.source} | (sources.keys() - built.keys())


def modules_to_leave_out(manifest: Manifest, sources: Mapping[str, str], imports: Imports) -> set[str]:
    """Return the modules that must be interpreted where a build of other sources is used."""
    built = manifest.modules
    left_out: set[str] = set()
    grown = _changed(manifest, sources)
    if any(name in built and imports.layout(name) != built[name].layout for name in grown):
        return set(sources)  # who reads such a tuple need not name its module
    while grown:
        left_out |= grown
        grown = {name for name, one in built.items() if one.needs & left_out}
        grown |= {base for name in left_out for base in imports.bases(name)}
        grown -= left_out
    return left_out


def take_over(partial: Partial, builds: Path, directory: Path) -> None:
    """Make the partial build in `directory`: links to the files of the other one, which may go before it does.

    Others may do the same at once; the first one's stays.
    """
    scratch = Path(tempfile.mkdtemp(prefix="taking-", dir=builds))
    try:
        for file in partial.directory.glob("*.so"):
            if file.name.removesuffix(".so") not in partial.left_out:
                _link(file, scratch / file.name)
        _link(partial.directory / MANIFEST_FILE, scratch / MANIFEST_FILE)
        (scratch / PARTIAL_FILE).write_text(json.dumps(partial.left_out))
        scratch.chmod(0o755)
        scratch.rename(directory)
    except OSError:
        if not directory.is_dir():
            raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _link(file: Path, target: Path) -> None:
    try:
        os.link(file, target)
    except OSError:  # another file system, or one without links
        shutil.copy2(file, target)
