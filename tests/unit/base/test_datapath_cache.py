"""The place of what is compiled of the package's C: root's cache, or one's own."""

import os
import shutil
from pathlib import Path

import pytest

from testbed.base import files
from testbed.base.datapath import build

SOURCES = {"one.c": b"int one(void) { return 1; }\n"}
FLAGS = ("-shared", "-fPIC")


@pytest.fixture
def user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Be somebody who is not root; return the own cache."""
    monkeypatch.delenv("TESTBED_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "own"))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(files, "SYSTEM_CACHE", tmp_path / "system")
    return tmp_path / "own" / "testbed"


def test_each_user_has_a_cache_that_may_be_written_to(user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert files.cache_directory() == user
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert files.cache_directory() == files.SYSTEM_CACHE
    monkeypatch.setenv("TESTBED_CACHE_DIR", "/somewhere")
    assert files.cache_directory() == Path("/somewhere")


def test_what_root_has_compiled_is_taken_and_the_rest_is_made(user: Path) -> None:
    if shutil.which("clang") is None:
        pytest.skip("clang is not installed")
    own = build.compiled("one", ".so", SOURCES, FLAGS)
    assert own.parent == user
    files.SYSTEM_CACHE.mkdir()
    shared = Path(shutil.copy(own, files.SYSTEM_CACHE))
    assert build.compiled("one", ".so", SOURCES, FLAGS) == shared
