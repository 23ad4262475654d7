"""A note of the tests that have passed with the sources as they are, so that an interrupted run can go on."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

from outcomes import read_outcomes


def digest_of(root: Path) -> str:
    """Return a name for the sources of a checkout, with what is not committed; "" where git does not know
    them, or is not there."""
    digest = hashlib.sha256()
    for asked in (["rev-parse", "HEAD"], ["diff", "HEAD"], ["ls-files", "--others", "--exclude-standard"]):
        try:
            done = subprocess.run(["git", "-C", str(root), *asked], capture_output=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return ""
        digest.update(done.stdout)
    for name in done.stdout.splitlines():  # what git does not follow yet
        path = root / name.decode()
        digest.update(path.read_bytes() if path.is_file() else b"")
    return digest.hexdigest()[:16]


class Progress:
    """A directory with a file of outcomes for each tier. What belongs to other sources is thrown away."""

    def __init__(self, directory: Path, root: Path, *, keep: bool) -> None:
        self._directory = directory
        mark = directory / "sources"
        digest = digest_of(root)
        if not (keep and digest and mark.exists() and mark.read_text() == digest):
            shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True, exist_ok=True)
        mark.write_text(digest)

    def forget(self) -> None:
        """Throw all of it away: nothing is left to go on with."""
        shutil.rmtree(self._directory, ignore_errors=True)

    def outcomes(self, name: str) -> Path:
        """Return the file that a tier's outcomes go to."""
        return self._directory / f"{name}.jsonl"

    def passed_before(self, name: str) -> Path:
        """Write the tests of a tier that have passed, and return the file."""
        tests = [done.test for done in read_outcomes(self.outcomes(name)) if done.outcome == "passed"]
        path = self._directory / f"{name}.passed"
        path.write_text("".join(f"{test}\n" for test in tests))
        return path
