"""Waiting for files: what is told, and from which directory."""

from pathlib import Path

import pytest

from testbed.base.linux.inotify import IN_MODIFY, DirectoryWatch


def test_files_that_appear_are_told_with_their_directory(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    second.mkdir()
    watch = DirectoryWatch()
    try:
        watch.add(first)
        watch.add(second)
        assert list(watch.read()) == []
        assert not watch.wait(0)
        (first / "zebra.vty").touch()
        (tmp_path / "moved").touch()
        (tmp_path / "moved").rename(second / "a-name-of-another-length")
        assert watch.wait(0)
        assert set(watch.read()) == {(first, "zebra.vty"), (second, "a-name-of-another-length")}
        assert not watch.wait(0)
    finally:
        watch.close()


def test_growth_is_told_only_where_asked_for(tmp_path: Path) -> None:
    log = tmp_path / "bgpd.log"
    log.touch()
    watch = DirectoryWatch()
    try:
        watch.add(tmp_path, IN_MODIFY)
        log.write_text("x")
        assert (tmp_path, "bgpd.log") in set(watch.read())
        (tmp_path / "other").touch()
        assert not watch.wait(0)
    finally:
        watch.close()


def test_a_watched_directory_that_goes_is_told(tmp_path: Path) -> None:
    """The end of a lab is noticed by it."""
    directory = tmp_path / "lab"
    directory.mkdir()
    watch = DirectoryWatch()
    try:
        watch.add(directory)
        directory.rmdir()
        assert watch.wait(0)
        assert (directory, "") in list(watch.read())
    finally:
        watch.close()


def test_a_directory_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    watch = DirectoryWatch()
    try:
        with pytest.raises(FileNotFoundError):
            watch.add(tmp_path / "none")
    finally:
        watch.close()
