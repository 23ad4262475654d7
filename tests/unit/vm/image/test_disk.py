"""Disks: the same for the same files; and which inodes of a file system are those of files."""

import os
import shutil
from pathlib import Path

import pytest

from testbed.vm.image.build import DISK_TOOLS, make_disk, used_inodes

DESCRIPTION = """\
Filesystem volume name:   testbed
Inode count:              32
Free inodes:              13
First inode:              11

Group 0: (Blocks 0-32767) csum 0x1c5d
  0 free blocks, 0 free inodes, 2 directories
  Free blocks:{space}
  Free inodes:{space}
Group 1: (Blocks 32768-65535) csum 0xb2ef [ITABLE_ZEROED]
  31 free blocks, 13 free inodes, 0 directories
  Free blocks: 36-48, 50
  Free inodes: 18, 21-32
""".replace("{space}", " ")


def test_all_but_the_free_ones_and_those_of_the_file_system() -> None:
    assert used_inodes(DESCRIPTION) == [2, 11, 12, 13, 14, 15, 16, 17, 19, 20]


def test_a_full_one() -> None:
    full = "Inode count:              12\n  Free inodes: \n"
    assert used_inodes(full) == [2, 11, 12]


@pytest.mark.process
@pytest.mark.skipif(any(shutil.which(tool) is None for tool in DISK_TOOLS), reason="apt-get install e2fsprogs")
def test_the_same_files_are_the_same_disk(tmp_path: Path) -> None:
    """Whenever, and in whatever order, they came to be where they are taken from."""
    epoch = 1_767_225_600
    names = ["etc/passwd", "bin/sh", "bin/ls", "a file"]
    for copy, order in (("first", names), ("second", names[::-1])):
        for name in order:
            path = tmp_path / copy / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(name * 1000)
        (tmp_path / copy / "link").symlink_to("bin/sh")
        for path in [*(tmp_path / copy).rglob("*"), tmp_path / copy]:
            os.utime(path, (epoch + len(copy), epoch - 5), follow_symlinks=False)
        make_disk(tmp_path / copy, tmp_path / f"{copy}.raw", size="8M", epoch=epoch)
    assert (tmp_path / "first.raw").read_bytes() == (tmp_path / "second.raw").read_bytes()
    (tmp_path / "second/bin/sh").write_text("else")
    os.utime(tmp_path / "second/bin/sh", (epoch, epoch - 5))
    make_disk(tmp_path / "second", tmp_path / "third.raw", size="8M", epoch=epoch)
    assert (tmp_path / "first.raw").read_bytes() != (tmp_path / "third.raw").read_bytes()
