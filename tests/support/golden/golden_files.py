"""Files with the exact text that something must say, which people have reviewed: how tests compare, and rewrite them.

A test asks the fixture `golden` for a file below tests/golden and has its text checked. `pytest --regenerate-goldens`
rewrites the files instead of failing; the difference is then reviewed with `git diff`, line by line, and committed.
In CI the option is refused.
"""

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

GOLDEN = Path(__file__).parents[2] / "golden"
OPTION = "--regenerate-goldens"
_MOST_LINES = 80


class GoldenMismatchError(AssertionError):
    """A text differs from the reviewed one; the message is the difference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenFile:
    """One reviewed file. `regenerate`: it is rewritten where it differs."""

    path: Path
    regenerate: bool = False

    def check(self, found: str | bytes) -> None:
        """Compare what was found with the file, byte for byte. Raises `GoldenMismatchError` with the difference."""
        data = found.encode() if isinstance(found, str) else found
        reviewed = self.path.read_bytes() if self.path.exists() else None
        if data == reviewed:
            return
        if self.regenerate:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_bytes(data)
            return
        name = self.path.name
        if reviewed is None:
            raise GoldenMismatchError(f"{name} does not exist; pytest {OPTION} writes it")
        raise GoldenMismatchError(f"{name} says something else (pytest {OPTION} rewrites it)\n{_diff(reviewed, data)}")


Golden = Callable[[str | Path], GoldenFile]
"""The type of the fixture: the reviewed file of a name."""


def golden_file(name: str | Path, *, regenerate: bool = False) -> GoldenFile:
    """The reviewed file of that name, a path below tests/golden."""
    return GoldenFile(path=GOLDEN / name, regenerate=regenerate)


def _diff(reviewed: bytes, found: bytes) -> str:
    before, after = (data.decode(errors="backslashreplace").splitlines() for data in (reviewed, found))
    lines = list(difflib.unified_diff(before, after, "reviewed", "found", lineterm="", n=1))
    more = [f"... and {len(lines) - _MOST_LINES} more lines"] if len(lines) > _MOST_LINES else []
    return "\n".join([*lines[:_MOST_LINES], *more])
