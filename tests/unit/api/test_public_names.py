"""The names that the package offers: `dir(testbed)` lists the public API, which is loaded when it is first used."""

import subprocess
import sys

import pytest

import testbed


def test_the_public_api_is_listed() -> None:
    assert [name for name in dir(testbed) if not name.startswith("__")] == [
        name for name in testbed.__all__ if not name.startswith("__")
    ]
    assert all(getattr(testbed, name) is not None for name in testbed.__all__)
    with pytest.raises(AttributeError, match="no attribute 'labs'"):
        _ = testbed.labs  # type: ignore[attr-defined]


@pytest.mark.process
def test_listing_it_loads_nothing() -> None:
    code = "import sys, testbed; print(*dir(testbed)); print(*sys.modules)"
    names, modules = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert {"Lab", "RunOptions", "ScenarioResult", "run_scenario", "__version__"} <= set(names.split())
    assert "testbed.api" not in modules.split()
