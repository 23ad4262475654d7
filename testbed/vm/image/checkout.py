"""The files of this checkout that belong into the lab VM, as a tar archive that depends on their content alone."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from testbed.base.files import CHECKOUT

GUEST_CHECKOUT = "/srv/testbed"
_LEFT_OUT = frozenset({"__pycache__", "node_modules"})
_LEFT_OUT_AT_THE_TOP = frozenset({"results", "build", "dist", "docs"})
"""Products of this machine, and pages for people."""


def checkout_files(checkout: Path = CHECKOUT, folder: str = "") -> Iterator[tuple[str, Path]]:
    """Name and path of each file, of one folder alone if it is given, in the order of their names."""
    for directory, folders, names in os.walk(checkout / folder):
        left_out = _LEFT_OUT | (_LEFT_OUT_AT_THE_TOP if Path(directory) == checkout else frozenset())
        folders[:] = sorted(
            name for name in folders if not name.startswith(".") and name not in left_out and ".egg-" not in name
        )
        for name in sorted(names):
            path = Path(directory, name)
            if not name.startswith(".") and path.is_file():
                yield str(path.relative_to(checkout)), path


def fingerprint(checkout: Path = CHECKOUT) -> str:
    """Hash of all the files and their names."""
    digest = hashlib.sha256()
    for name, path in checkout_files(checkout):
        digest.update(repr((name, os.access(path, os.X_OK), path.read_bytes())).encode())
    return digest.hexdigest()[:16]


def archive(checkout: Path = CHECKOUT, *, prefix: str = "", folder: str = "") -> bytes:
    """All the files, or those of one folder, their names below `prefix`."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, path in checkout_files(checkout, folder):
            add(tar, prefix + name, path.read_bytes(), executable=os.access(path, os.X_OK))
    return buffer.getvalue()


def add(tar: tarfile.TarFile, name: str, content: bytes, *, executable: bool = False) -> None:
    """Add a file whose time follows from its content: Python's compiled modules are valid for a time and a size."""
    info = tarfile.TarInfo(name)
    info.size = len(content)
    info.mode = 0o755 if executable else 0o644
    info.mtime = 1_000_000_000 + zlib.crc32(content) % 500_000_000
    tar.addfile(info, io.BytesIO(content))
