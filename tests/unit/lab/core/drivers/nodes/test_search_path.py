"""Commands of a node are looked for where ours are, and last beside our interpreter."""

import sys
from pathlib import Path

import pytest

from testbed.base.linux.processes import clean_environment, search_path

SCRIPTS = str(Path(sys.executable).parent)


def test_our_own_tools_come_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert search_path() == f"/usr/bin:/bin:{SCRIPTS}"


def test_a_directory_is_not_named_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{SCRIPTS}:/bin")
    assert search_path() == f"{SCRIPTS}:/bin"


def test_a_node_may_have_a_path_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "x")
    assert clean_environment({"PATH": "/opt"})["PATH"] == "/opt"
    assert "SECRET" not in clean_environment({})
