"""What keeps an image from being built: told, and nothing of it left in the cache."""

import os
from pathlib import Path

import pytest

from testbed.base.errors import CapabilityError
from testbed.vm.emulator import build_emulator
from testbed.vm.errors import ImageError
from testbed.vm.image import build as image
from testbed.vm.image.build import build_image, find_image
from testbed.vm.image.recipe import load_recipe


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TESTBED_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def programs(own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of programs that are found first; those that only have to be there are. For root alone."""
    if os.geteuid() != 0:
        pytest.skip("images are built by root")
    directory = tmp_path / "bin"
    directory.mkdir()
    for tool in ("mmdebstrap", *image.DISK_TOOLS):
        program(directory / tool, "exit 0")
    (tmp_path / "keyring").touch()
    monkeypatch.setattr(image, "KEYRING", tmp_path / "keyring")
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
    return directory


def program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def entries(cache: Path) -> list[str]:
    """What is in the cache but locks and the directories of kinds."""
    return [str(path) for path in cache.rglob("*") if path.suffix != ".lock" and path.parent != cache]


def hears(_: str) -> None:
    pass


@pytest.mark.process
@pytest.mark.parametrize("what", ["image", "QEMU"])
@pytest.mark.parametrize(
    ("said", "message", "hint"),
    [
        (
            "E: Failed to fetch http://deb.debian.org/x.deb  Temporary failure resolving 'deb.debian.org'",
            "Temporary failure resolving",
            "is Debian's registry reachable?",
        ),
        ("tar: ./usr/bin/x: Cannot write: No space left on device", "no space left on the disk of", "make room"),
        ("E: broken packages", "^mmdebstrap failed: E: broken packages", None),
    ],
)
def test_mmdebstrap_fails(
    programs: Path, own_cache: Path, what: str, said: str, message: str, hint: str | None
) -> None:
    program(programs / "mmdebstrap", f'echo "{said}" >&2; exit 1')
    with pytest.raises(ImageError, match=message) as caught:
        if what == "image":
            build_image(load_recipe(), hears)
        else:
            build_emulator(load_recipe())
    assert (caught.value.hint or "").startswith(hint or "")
    assert (caught.value.hint is None) == (hint is None)
    assert entries(own_cache) == []


def test_tools_that_are_missing_are_named(programs: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (programs / "mmdebstrap").unlink()
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setattr(image, "KEYRING", own_cache / "none")
    with pytest.raises(CapabilityError, match="needs mmdebstrap, debian-archive-keyring") as caught:
        build_image(load_recipe(), hears)
    assert caught.value.hint == "apt-get install mmdebstrap debian-archive-keyring"
    assert entries(own_cache) == []


def test_only_root_builds(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(CapabilityError, match="building an image needs root"):
        build_image(load_recipe(), hears)


def test_one_that_is_not_built(own_cache: Path) -> None:
    with pytest.raises(ImageError, match="is not built, or its recipe has changed") as caught:
        find_image(load_recipe())
    assert caught.value.hint == "testbed vm build"
