"""What the translation to C needs of the machine: no package beside mypy, and no stubs of any."""

import subprocess
import sys
import venv
from pathlib import Path

import pytest

from testbed.base.compiled.build import MYPY_OPTIONS
from testbed.base.compiled.modules import compiled_sources
from testbed.base.files import CHECKOUT

TYPED = ("cryptography.",)
"""What the compiled modules import themselves; it brings its types."""


@pytest.mark.process
def test_the_types_of_the_modules_are_right_where_no_package_and_no_stubs_are_installed(tmp_path: Path) -> None:
    """A demo on a fresh machine has mypy, and none of the stubs that developers have."""
    venv.create(tmp_path / "bare", with_pip=False)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", *MYPY_OPTIONS, f"--cache-dir={tmp_path / 'cache'}"),
            f"--python-executable={tmp_path / 'bare/bin/python'}",
            *compiled_sources(),
        ],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    complaints = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert "checked" in done.stdout, done.stderr
    assert [line for line in complaints if not any(f'named "{name}' in line for name in TYPED)] == []
