"""One way to replace a file: old content or new, its mode, and nothing beside it whatever happens."""

import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from testbed.base import files
from testbed.base.files import remains_of, remove_remains, write_atomically


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("content", ["grün\n", "grün\n".encode()])
def test_content_is_there_and_nothing_beside_it(tmp_path: Path, content: bytes | str, durable: bool) -> None:
    path = tmp_path / "x.json"
    for _ in range(2):  # made, then replaced
        write_atomically(path, content, durable=durable)
        assert path.read_bytes() == "grün\n".encode()
        assert list(tmp_path.iterdir()) == [path]


@pytest.mark.process
@pytest.mark.parametrize(("mask", "mode", "expected"), [(0o022, 0o666, 0o644), (0o077, 0o666, 0o600),
                                                        (0o022, 0o600, 0o600), (0o022, 0o777, 0o755)])  # fmt: skip
def test_the_mode_is_that_of_a_new_file(tmp_path: Path, mask: int, mode: int, expected: int) -> None:
    """In a process of its own, since the umask is a process's."""
    path = tmp_path / "x"
    path.touch(0o444)
    code = (
        f"import os; os.umask({mask}); from pathlib import Path; from testbed.base.files import write_atomically as w; "
    )
    subprocess.run([sys.executable, "-c", f"{code} w(Path({str(path)!r}), b'new', mode={mode})"], check=True)
    assert path.stat().st_mode & 0o777 == expected
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("failing", ["open", "fsync", "replace"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_what_fails_or_is_interrupted_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, error: BaseException
) -> None:
    path = tmp_path / "x.json"
    path.write_text("old")

    def fail(*_: Any) -> None:
        raise error

    with monkeypatch.context() as patched:
        if failing == "fsync":
            patched.setattr(files.os, "fsync", fail)
        elif failing == "replace":
            patched.setattr(Path, "replace", fail)
        else:
            patched.setattr(files.os, "open", fail)
        with pytest.raises(type(error)) as caught:
            write_atomically(path, "new")
    if isinstance(caught.value, OSError):
        assert caught.value.filename == str(path), "the file that was asked for, not the temporary one"
        assert caught.value.errno == errno.ENOSPC
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_directory_that_is_not_there_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        write_atomically(tmp_path / "none" / "x", "new")
    assert caught.value.filename == str(tmp_path / "none" / "x")


def test_content_and_name_reach_the_disk_in_that_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The content before the rename, the directory after it: a power cut in between leaves the old file."""
    path = tmp_path / "x"
    seen: list[tuple[bool, bool]] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        seen.append((Path(f"/proc/self/fd/{descriptor}").readlink() == tmp_path, path.exists()))
        real(descriptor)

    monkeypatch.setattr(files.os, "fsync", fsync)
    write_atomically(path, "new", durable=False)
    assert not seen
    path.unlink()
    write_atomically(path, "new")
    assert seen == [(False, False), (True, True)]


@pytest.mark.process
def test_a_writer_that_is_killed_leaves_the_old_file_and_remains_that_are_found(tmp_path: Path) -> None:
    path, other = tmp_path / "x.json", tmp_path / "x.json.bak"
    path.write_text("old")
    code = (
        "import os, signal; from pathlib import Path; from testbed.base.files import write_atomically; "
        "os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL); "
        f"write_atomically(Path({str(path)!r}), 'new')"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    assert path.read_text() == "old"
    left = [item for item in tmp_path.iterdir() if item != path]
    assert remains_of(path) == left and len(left) == 1
    assert not remains_of(other) and not remains_of(tmp_path / "none" / "x")
    assert not list(tmp_path.glob("*.json"))[1:], "who lists the directory's files by their suffix finds none"
    write_atomically(path, "newer")
    assert path.read_text() == "newer"


def test_remains_of_writers_that_live_stay(tmp_path: Path) -> None:
    (tmp_path / "node").mkdir()
    living = tmp_path / "node" / f".x.json.{os.getpid()}-3.new"
    of_killed = [tmp_path / ".lab.json.4194305-0.new", tmp_path / "node" / ".frr.conf.new"]  # more than pid_max
    for path in (living, *of_killed, tmp_path / "a.new", tmp_path / ".hidden"):
        path.touch()
    remove_remains(tmp_path)
    assert {path.name for path in tmp_path.rglob("*")} == {"node", living.name, "a.new", ".hidden"}


def test_readers_and_several_writers_only_ever_meet_whole_files(tmp_path: Path) -> None:
    path = tmp_path / "x"
    contents = [bytes([65 + number]) * 100_000 for number in range(3)]
    write_atomically(path, contents[0], durable=False)
    done = threading.Event()

    def write(content: bytes) -> None:
        while not done.is_set():
            write_atomically(path, content, durable=False)

    writers = [threading.Thread(target=write, args=(content,)) for content in contents]
    for writer in writers:
        writer.start()
    try:
        assert all(path.read_bytes() in contents for _ in range(200))
    finally:
        done.set()
        for writer in writers:
            writer.join()
    assert list(tmp_path.iterdir()) == [path]
