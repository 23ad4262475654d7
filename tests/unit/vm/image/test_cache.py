"""The cache of images: whole or not there, damage is seen, mounts are not walked into."""

import json
from pathlib import Path
from typing import Any

import pytest

from testbed.vm import cache
from testbed.vm.errors import ImageError


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TESTBED_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def make(directory: Path) -> dict[str, Any]:
    (directory / "disk").write_bytes(b"disk" * 1000)
    with (directory / "sparse").open("wb") as file:
        file.seek(1 << 20)
        file.write(b"end")
    return {"kernel": "7.3"}


def test_it_is_made_once() -> None:
    entry, made = cache.cached("vm", "abc", make)
    assert made
    assert cache.cached("vm", "abc", make) == (entry, False)
    assert cache.whole("vm", "abc") == entry
    assert cache.manifest(entry)["kernel"] == "7.3"


def test_other_inputs_replace_it(own_cache: Path) -> None:
    cache.cached("vm", "abc", make)
    cache.cached("vm", "def", make)
    assert [path.name for path in (own_cache / "vm").iterdir()] == ["def"]
    assert cache.whole("vm", "abc") is None


def test_one_that_was_interrupted_is_not_there(own_cache: Path) -> None:
    def interrupted(directory: Path) -> dict[str, Any]:
        make(directory)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.cached("vm", "abc", interrupted)
    assert list((own_cache / "vm").iterdir()) == []
    (own_cache / "vm/abc.unfinished").mkdir()  # of one that was killed
    assert cache.cached("vm", "abc", make)[1]


@pytest.mark.parametrize("keep_size", [False, True])
def test_damage_is_seen_and_mended(keep_size: bool) -> None:
    entry, _ = cache.cached("vm", "abc", make)
    content = (entry / "disk").read_bytes()
    (entry / "disk").write_bytes(b"DISK" + content[4:] if keep_size else content[:-1])
    with pytest.raises(ImageError, match="disk"):
        cache.whole("vm", "abc")
    again, made = cache.cached("vm", "abc", make)
    assert made
    assert (again / "disk").read_bytes() == content


def test_damage_is_seen_in_directories_and_behind_no_links() -> None:
    """QEMU is cached as a whole system, in which libraries are found by links, some of them to nowhere."""

    def make_tree(directory: Path) -> dict[str, Any]:
        (directory / "root/lib").mkdir(parents=True)
        (directory / "root/lib/library.so.1").write_bytes(b"library")
        (directory / "root/lib/library.so").symlink_to("library.so.1")
        (directory / "root/lib/nowhere").symlink_to("/no/such/file")
        return {}

    entry, _ = cache.cached("qemu", "abc", make_tree)
    assert cache.whole("qemu", "abc") == entry
    (entry / "root/lib/library.so.1").write_bytes(b"LIBRARY")
    with pytest.raises(ImageError, match=r"root/lib/library\.so\.1 is not what was built"):
        cache.whole("qemu", "abc")
    assert cache.cached("qemu", "abc", make_tree)[1]


def test_a_missing_file_or_manifest_is_damage() -> None:
    entry, _ = cache.cached("vm", "abc", make)
    (entry / "sparse").unlink()
    assert "sparse" in cache.damage(entry)
    (entry / cache.MANIFEST).write_text("{")
    assert cache.damage(entry)


def test_holes_are_hashed_as_zeros(tmp_path: Path) -> None:
    entry, _ = cache.cached("vm", "abc", make)
    kept = json.loads((entry / cache.MANIFEST).read_text())["files"]["sparse"]["sha256"]
    (entry / "sparse").write_bytes(bytes(1 << 20) + b"end")
    (entry / ".checked").unlink(missing_ok=True)
    assert cache.damage(entry) == ""
    assert kept


def test_a_full_disk_is_said_plainly() -> None:
    def full(directory: Path) -> dict[str, Any]:
        raise OSError(28, "No space left on device")

    with pytest.raises(ImageError, match="no space left"):
        cache.cached("vm", "abc", full)


def test_nothing_behind_a_mount_is_removed(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = own_cache / "vm/abc.unfinished/root/dev/shm"
    inside.mkdir(parents=True)
    (inside / "somebody's").touch()
    line = f"30 25 0:27 / {inside} rw,relatime - tmpfs tmpfs rw\n"
    real = Path.read_text

    def read_text(path: Path, *args: Any, **kwargs: Any) -> str:
        return line if str(path) == "/proc/self/mountinfo" else real(path, *args, **kwargs)

    monkeypatch.setattr(Path, "read_text", read_text)
    with pytest.raises(ImageError, match="mounted"):
        cache.cached("vm", "abc", make)
    assert (inside / "somebody's").exists()


def test_scratch_of_somebody_who_was_killed_goes(own_cache: Path) -> None:
    own_cache.mkdir()
    left = own_cache / "scratch-job-left"
    left.mkdir()
    with cache.scratch("job") as first:
        assert not left.exists()
        with cache.scratch("job") as second:
            assert first.exists()  # it is held
        assert not second.exists()
    assert list(own_cache.iterdir()) == []
