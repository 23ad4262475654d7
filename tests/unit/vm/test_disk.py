"""Which inodes of a file system are those of files."""

from __future__ import annotations

from testbed.vm.disk import used_inodes

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
