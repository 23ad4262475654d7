"""Which modules are compiled, when a build fits, and that one which does not is never imported."""

import ast
import importlib.util
import os
import time
from pathlib import Path

import pytest

from testbed.base.compiled import build as builder
from testbed.base.compiled import modules
from testbed.base.compiled.build import BuildError, build
from testbed.base.compiled.finder import GROUP, PURE, CompiledFinder, find_build
from testbed.base.files import CHECKOUT


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with one module of those that are compiled, and an empty cache."""
    source = tmp_path / "testbed" / "protocols" / "datagram.py"
    source.parent.mkdir(parents=True)
    source.write_text("VALUE = 1\n")
    (source.parent / "__init__.py").write_text("")
    monkeypatch.setattr(modules, "CHECKOUT", tmp_path)
    monkeypatch.setattr(modules, "PACKAGED", tmp_path / "packaged")
    monkeypatch.setattr(modules, "NATIVE_HEADERS", ())
    monkeypatch.setattr(builder, "CHECKOUT", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(PURE, raising=False)
    return source


def a_build(directory: Path) -> Path:
    directory.mkdir(parents=True)
    (directory / f"{GROUP}.so").touch()
    (directory / "testbed.protocols.datagram.so").touch()
    return directory


def test_what_is_in_the_way_of_a_packet_is_compiled() -> None:
    sources = modules.compiled_sources()
    assert "testbed/protocols/uet/fep.py" in sources and "testbed/endpoints/loop.py" in sources
    assert not any(name.endswith("__init__.py") for name in sources)
    assert "testbed/protocols/uet/atomics.py" not in sources, "a compiled comparison of numbers of 128 bits rounds"
    assert modules.module_name("testbed/endpoints/loop.py") == "testbed.endpoints.loop"


def test_no_error_that_is_interpreted_is_a_kind_of_one_that_compiled_code_takes_for_itself() -> None:
    """mypyc takes what `except X as error` has caught for an X by its exact type, or one of three that are compiled:
    an object of a subclass that is interpreted is then a TypeError (mypyc/codegen/emit.py, `emit_cast`)."""
    bases: dict[str, list[str]] = {}
    compiled: set[str] = set()
    sources = set(modules.compiled_sources())
    for path in (path for package in modules.PACKAGES for path in (CHECKOUT / package).rglob("*.py")):
        for node in ast.parse(path.read_bytes()).body:
            if isinstance(node, ast.ClassDef):
                bases.setdefault(node.name, []).extend(base.id for base in node.bases if isinstance(base, ast.Name))
                if str(path.relative_to(CHECKOUT)) in sources:
                    compiled.add(node.name)

    def kinds(name: str) -> set[str]:
        below = {one for one, its in bases.items() if name in its and one in compiled}
        return below.union(*(kinds(one) for one in below))

    def is_error(name: str) -> bool:
        return name == "Exception" or any(is_error(base) for base in bases.get(name, ()))

    errors = {name for name in compiled if is_error(name)}
    assert {"UsageError", "DecodeError", "TransportError"} <= errors
    closed = {name for name in errors if len(kinds(name)) < 3}
    assert "UsageError" in closed and "TransportError" not in closed
    assert {(one, base) for one, its in bases.items() if one not in compiled for base in its if base in closed} == set()


def test_a_build_is_found_by_its_sources(tree: Path) -> None:
    directory = a_build(modules.builds_directory() / modules.build_key())
    assert find_build()["testbed.protocols.datagram"] == str(directory / "testbed.protocols.datagram.so")


def test_a_changed_source_is_interpreted(tree: Path) -> None:
    a_build(modules.builds_directory() / modules.build_key())
    tree.write_text("VALUE = 2\n")
    assert find_build() == {}


def test_a_wheel_brings_its_own(tree: Path) -> None:
    a_build(modules.PACKAGED / modules.build_key())
    assert GROUP in find_build()


def test_the_environment_asks_for_interpreted_modules(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_build(modules.builds_directory() / modules.build_key())
    monkeypatch.setenv(PURE, "1")
    assert find_build() == {}
    monkeypatch.setenv(PURE, "0")
    assert find_build() != {}


def test_other_modules_are_not_looked_for() -> None:
    finder = CompiledFinder()
    assert finder.find_spec("json") is None and finder.find_spec("testbed.lab.core.model") is None
    assert finder._files is None


def test_no_build_is_looked_for_where_a_module_cannot_be_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("testbed.base.compiled.finder.find_build", lambda: asked.append("") or {})
    finder = CompiledFinder()
    for name in ("testbed.protocols.nvme.pdu", "testbed.protocols.uet", "testbed.protocols.congestion.registry"):
        assert finder.find_spec(name) is None and not asked
    finder.find_spec("testbed.protocols.datagram")
    assert asked


def test_what_compiling_lacks_is_said_and_nothing_stays(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "_COMPILERS", ("no-such-compiler",))
    assert "a C compiler" in builder.missing()
    with pytest.raises(BuildError, match="a C compiler"):
        build()
    assert [item.name for item in modules.builds_directory().iterdir()] == ["lock"]


def test_mypyc_needs_distutils(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.12 has it no longer, and setuptools has."""
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "distutils" else found(name))
    assert builder.missing() == ""
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in ("distutils", "setuptools") else found(name)
    )
    assert "pip install setuptools" in builder.missing()


@pytest.mark.process
def test_a_compiler_that_fails_is_quoted(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "failing"
    compiler.write_text("#!/bin/sh\necho 'no room on the device' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setattr(builder, "_compiler", lambda: str(compiler))
    with pytest.raises(BuildError, match="no room on the device"):
        build()
    assert [item.name for item in modules.builds_directory().iterdir()] == ["lock"]


def test_only_the_latest_builds_are_kept(tree: Path) -> None:
    builds = modules.builds_directory()
    for number in range(builder.KEPT_BUILDS + 2):
        a_build(builds / f"{number:024x}")
    for name, age_s in (("making-left", 0), ("taking-left", 2 * builder.TAKEN_OVER_WITHIN_S), ("taking-now", 0)):
        (builds / name).mkdir()
        os.utime(builds / name, (time.time() - age_s, time.time() - age_s))
    builder._remove_remains(builds)
    assert not (builds / "making-left").exists() and not (builds / "taking-left").exists()
    (builds / "taking-now").rmdir()
    builder._forget_oldest(builds, builds / f"{0:024x}")
    kept = [item.name for item in builds.iterdir() if item.is_dir()]
    assert len(kept) == builder.KEPT_BUILDS and f"{0:024x}" in kept
