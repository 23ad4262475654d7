"""The topologies and scenarios that come with testbed, and the programs that these run: a checkout has them at its
root, a wheel beside this module.

`setup.py` copies them into `shipped/` when it builds a package.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from testbed.base.errors import TestbedError
from testbed.base.files import CHECKOUT, SHIPPED_FOLDERS

PATTERNS = ("topologies/**/*.yml", "scenarios/**/*.yml", "scenarios/programs/*.py")
"""The shipped files. A scenario names a program of its own by `programs/`."""
PACKAGED = Path(__file__).parent / "shipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippedFile:
    """A file that comes with testbed, by its path below the folders, and the first sentence that it says of itself."""

    file: str
    about: str


def shipped_directory() -> Path:
    """Return the directory that has `SHIPPED_FOLDERS`. Raises `TestbedError` where they are missing."""
    directory = PACKAGED if PACKAGED.is_dir() else CHECKOUT
    lacking = [name for name in SHIPPED_FOLDERS if not (directory / name).is_dir()]
    if lacking:
        raise TestbedError(
            f"{directory} has no {' and no '.join(lacking)}",
            hint="install the wheel again, or run testbed from a checkout of the project (./lab)",
        )
    return directory


def shipped_paths(directory: Path) -> list[Path]:
    """Return the shipped files below `directory`, in the order of their names."""
    return [path for pattern in PATTERNS for path in sorted(directory.glob(pattern))]


def shipped_files() -> list[ShippedFile]:
    """Return what is shipped, with what each file is about."""
    directory = shipped_directory()
    return [
        ShippedFile(file=str(path.relative_to(directory)), about=_first_sentence(path.read_text()))
        for path in shipped_paths(directory)
    ]


def copy_shipped(target: Path) -> list[Path]:
    """Copy all of them below `target`, which is made where it is missing; return the files that were written.

    Files that are there and the same stay. Raises `TestbedError`, before anything is written, where one differs.
    """
    directory = shipped_directory()
    wanted = {target / path.relative_to(directory): path.read_bytes() for path in shipped_paths(directory)}
    missing = {path: content for path, content in wanted.items() if not path.exists()}
    others = [path for path, content in wanted.items() if path not in missing and not _is(path, content)]
    if others:
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        raise TestbedError(f"{others[0]}{more} would be overwritten", hint="name another directory, or move these away")
    for path, content in missing.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return list(missing)


def _is(path: Path, content: bytes) -> bool:
    return path.is_file() and path.read_bytes() == content


def _first_sentence(text: str) -> str:
    """Return the first sentence of the comment, or of the docstring, that a file begins with."""
    if text.startswith('"""'):
        sentence, end, _ = " ".join(text[3:].partition('"""')[0].split()).partition(". ")
        return sentence + end.strip()
    lines = []
    for line in text.splitlines():
        if not line.startswith("#") or line == "#":
            break
        if "$schema" not in line:
            lines.append(line.removeprefix("#").strip())
    sentence, end, _ = " ".join(lines).partition(". ")
    return sentence + end.strip()
