"""Unpacking tar archives by the standard library, also where it cannot filter members yet (Python before 3.11.4).

Debian 12 has Python 3.11.2. Filters came with PEP 706; what is refused here is what its filter "data" refuses.
"""

from __future__ import annotations

import tarfile
from pathlib import Path


def extract_member(tar: tarfile.TarFile, member: tarfile.TarInfo, directory: Path) -> None:
    """Unpack one member below a directory. Raises `tarfile.TarError` for one that would reach out of it."""
    if hasattr(tarfile, "data_filter"):
        tar.extract(member, directory, filter="data")
        return
    if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
        raise tarfile.ExtractError(f"{member.name} is a special file")
    places = [Path(member.name)]
    if member.issym():
        places.append(Path(member.name).parent / member.linkname)
    elif member.islnk():
        places.append(Path(member.linkname))
    root = directory.resolve()
    for place in places:
        if place.is_absolute() or not (root / place).resolve().is_relative_to(root):
            raise tarfile.ExtractError(f"{member.name} reaches out of {directory}")
    tar.extract(member, directory)


def extract_own(tar: tarfile.TarFile, directory: Path) -> None:
    """Unpack a whole archive that this program made itself."""
    if hasattr(tarfile, "tar_filter"):
        tar.extractall(directory, filter="tar")
    else:
        tar.extractall(directory)
