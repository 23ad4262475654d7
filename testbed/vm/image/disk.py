"""A disk of one ext4 file system, without a partition table, that is the same for the same files.

mke2fs takes the times of last access and change from this machine's copies, and nothing but writing to the file
system can set them otherwise; so they are set afterwards, in each inode. Source: mke2fs(8), debugfs(8).
"""

from __future__ import annotations

import re
from pathlib import Path

from testbed.vm.image.tool import run_tool

LABEL = "testbed"
UUID = "7e57bed0-0000-4000-8000-000000000001"
TOOLS = ("mke2fs", "debugfs")
_ROOT_INODE, _FIRST_INODE = 2, 11
"""The inodes between are the file system's own (ext4, Documentation/filesystems/ext4/special_inodes.rst)."""


def make_disk(root: Path, disk: Path, *, size: str, epoch: int) -> None:
    """Write a disk of `size` (as of mke2fs) with the files below `root`, all last changed at `epoch` or before (s)."""
    times = {"E2FSPROGS_FAKE_TIME": str(epoch), "SOURCE_DATE_EPOCH": str(epoch)}
    options = f"hash_seed={UUID},lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0"
    run_tool(
        [
            *("mke2fs", "-q", "-t", "ext4", "-b", "4096", "-L", LABEL, "-U", UUID, "-E", options, "-m", "0"),
            *("-d", str(root), str(disk), size),
        ],
        times,
    )
    commands = disk.with_name(f"{disk.name}.times")
    used = used_inodes(run_tool(["dumpe2fs", str(disk)], {}))
    commands.write_text("".join(f"sif <{inode}> {field} @{epoch}\n" for inode in used for field in ("ctime", "atime")))
    run_tool(["debugfs", "-w", "-f", str(commands), str(disk)], times)
    commands.unlink()


def used_inodes(description: str) -> list[int]:
    """The inodes of files, out of what dumpe2fs says of a file system: all but the free ones and its own."""
    (count,) = re.findall(r"^Inode count: +(\d+)$", description, re.MULTILINE)
    free: set[int] = set()
    for ranges in re.findall(r"^  Free inodes: ([\d, -]+)$", description, re.MULTILINE):
        for part in ranges.split(","):
            first, _, last = part.strip().partition("-")
            free.update(range(int(first), int(last or first) + 1))
    return [_ROOT_INODE, *(inode for inode in range(_FIRST_INODE, int(count) + 1) if inode not in free)]
