"""The Python environment of a checkout, `.venv`: whether it is complete, and how it is made.

A stamp in it says what it was made from. It is made anew when that changes, and by one `./lab` at a time.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from testbed.base.installation.errors import InstallationError, say
from testbed.base.installation.log import Log

EXTRAS = {"run": "[all,compiled]", "docs": "[all,docs]", "dev": "[dev]"}
"""The purposes of an environment, with the extra of `pyproject.toml` that pip installs for each."""


def requirements(pyproject: str) -> str:
    """Return what of a `pyproject.toml` an environment depends on: the settings of tools are no part of it."""
    return re.split(r"^\[tool\.", pyproject, maxsplit=1, flags=re.MULTILINE)[0]


class VirtualEnvironment:
    """`.venv` of the checkout `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.directory = root / ".venv"
        self.log = Log(self.directory / "setup.log")
        self._stamp = self.directory / ".stamp"

    def program(self, name: str) -> str:
        """Return the path of a program in it."""
        return str(self.directory / "bin" / name)

    def serves(self, purpose: str) -> bool:
        """Tell whether it is complete for a purpose, a key of `EXTRAS`.

        The tests' environment serves everything, that of the documentation the command line too.
        """
        if not os.access(self.program("python"), os.X_OK):
            return False
        try:
            stamp = self._stamp.read_text()
        except OSError:
            return False
        serving = {"dev", purpose} | ({"docs"} if purpose == "run" else set())
        return stamp in {self._stamp_for(other) for other in serving}

    def stamp(self, purpose: str) -> None:
        """Note that it is complete for a purpose."""
        self._stamp.write_text(self._stamp_for(purpose))

    def is_looked_at(self) -> None:
        """Note that it is as its stamp says, so that `lab` need not ask again until `pyproject.toml` changes."""
        with contextlib.suppress(OSError):  # it is somebody else's
            os.utime(self._stamp)

    def _stamp_for(self, purpose: str) -> str:
        wanted = requirements((self.root / "pyproject.toml").read_text())
        return f"{hashlib.sha256(wanted.encode()).hexdigest()[:32]} {purpose} {self.root}"

    @contextlib.contextmanager
    def being_changed(self) -> Iterator[None]:
        """Keep every other `./lab` waiting: two at once would fill one directory."""
        descriptor = os.open(self.root, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            try:
                self.directory.mkdir(exist_ok=True)
                self.log.begin()
            except OSError as error:
                raise InstallationError(
                    f"cannot write {self.directory}", f"run this as the owner of {self.root}, or with sudo"
                ) from error
            yield
        finally:
            os.close(descriptor)

    def install(self, purpose: str) -> None:
        """Have pip install what a purpose needs, unless that is there. Raises `InstallationError`."""
        if self.serves(purpose):
            return
        say("installing Python packages into .venv ...")
        self._stamp.unlink(missing_ok=True)
        if not self._has_pip():
            self._make()
        pip = [self.program("python"), "-m", "pip", "install", "--no-compile", "--disable-pip-version-check"]
        if self.log.run([*pip, "--no-input", "-e", f"{self.root}{EXTRAS[purpose]}"]):
            self.log.show_end()
            raise InstallationError(
                f"pip could not install the Python packages (above: the end of {self.log.path})",
                self.log.hint_at_the_network(),
            )
        self.stamp(purpose)

    def _has_pip(self) -> bool:
        code = "import sys, pip; sys.exit(sys.version_info < (3, 11))"
        return self.log.run([self.program("python"), "-c", code]) == 0

    def _make(self) -> None:
        import shutil

        for path in self.directory.iterdir():
            if path == self.log.path:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        if self.log.run(["python3", "-m", "venv", str(self.directory)]):
            self.log.show_end()
            raise InstallationError(f"python3 -m venv failed (above: the end of {self.log.path})")

    def compile_modules(self) -> None:
        """Compile the transports where that has not been done for the sources as they are: some minutes, once.

        A few modules that have changed since are interpreted instead, beside the others as they were compiled. What
        hinders it is no reason not to go on: the same sources run interpreted.
        """
        if os.environ.get("TESTBED_PURE", "0") != "0":
            return
        import subprocess

        with self.log.path.open("ab") as log:
            process = subprocess.Popen(
                [self.program("python"), "-m", "testbed.base.compiled", "--quick"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.PIPE,
                cwd=self.root,
            )
            assert process.stderr is not None
            for line in process.stderr:
                say(f"transports: {line.decode(errors='replace').strip()}")
            process.wait()


if __name__ == "__main__":  # images/vm/install-packages: CHECKOUT PURPOSE
    VirtualEnvironment(Path(sys.argv[1])).stamp(sys.argv[2])
