"""Building the lab VM's image with mmdebstrap: a disk, a kernel and what starts it, in the cache.

Needs root: the files of the image belong to its own root. The disk is one ext4 file system, without a partition table,
that is the same for the same files. mke2fs takes the times of last access and change from this machine's copies, and
nothing but writing to the file system can set them otherwise; so they are set afterwards, in each inode. Source:
mke2fs(8), debugfs(8).
"""

from __future__ import annotations

import io
import os
import re
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.base.errors import CapabilityError
from testbed.base.installation.packages import package_with
from testbed.lab.features.containers.images.mmdebstrap import KEYRING, mmdebstrap_command, mmdebstrap_options
from testbed.vm import cache
from testbed.vm.archives import extract_own
from testbed.vm.errors import ImageError
from testbed.vm.image import checkout
from testbed.vm.image.recipe import HOOK, VmRecipe, version_numbers
from testbed.vm.image.tool import run_tool

KIND, BASE_KIND = "vm", "debian"
BASE = "base.tar"
DISK, KERNEL, INITRAMFS = "disk.raw", "vmlinuz", "initramfs.cpio"
EPOCH = 1_767_225_600
"""The time at which all files of the image say that they were made: 1 January 2026."""
DISK_TOOLS = ("mke2fs", "debugfs")
LABEL = "testbed"
UUID = "7e57bed0-0000-4000-8000-000000000001"
_ROOT_INODE, _FIRST_INODE = 2, 11
"""The inodes between are the file system's own (ext4, Documentation/filesystems/ext4/special_inodes.rst)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VmImage:
    """A finished image: files, and the version of its kernel."""

    directory: Path
    kernel_version: str

    @property
    def disk(self) -> Path:
        return self.directory / DISK

    @property
    def kernel(self) -> Path:
        return self.directory / KERNEL

    @property
    def initramfs(self) -> Path:
        return self.directory / INITRAMFS


def find_image(recipe: VmRecipe) -> VmImage:
    """The image of this recipe from the cache. Raises `ImageError` where there is none, or a damaged one."""
    entry = cache.whole(KIND, recipe.fingerprint)
    if entry is None:
        raise ImageError("the image of the lab VM is not built, or its recipe has changed", hint="testbed vm build")
    return VmImage(directory=entry, kernel_version=cache.manifest(entry)["kernel"])


def build_image(recipe: VmRecipe, tell: Callable[[str], None], *, rebuild: bool = False) -> tuple[VmImage, bool]:
    """The image of this recipe, built if the cache does not have it whole; whether it was built."""
    entry, built = cache.cached(
        KIND, recipe.fingerprint, lambda directory: _build(recipe, directory, tell), rebuild=rebuild
    )
    return VmImage(directory=entry, kernel_version=cache.manifest(entry)["kernel"]), built


def require_tools() -> None:
    """Raise `CapabilityError` where this machine cannot build images."""
    if os.geteuid() != 0:
        raise CapabilityError("building an image needs root", missing="root", hint="run the same with sudo")
    missing = sorted({package_with(tool) for tool in ("mmdebstrap", *DISK_TOOLS) if shutil.which(tool) is None})
    if not KEYRING.exists():
        missing.append("debian-archive-keyring")
    if missing:
        raise CapabilityError(
            f"building an image needs {', '.join(missing)}",
            missing=missing[0],
            hint=f"apt-get install {' '.join(missing)}",
        )


def _build(recipe: VmRecipe, directory: Path, tell: Callable[[str], None]) -> dict[str, Any]:
    require_tools()
    tell(f"Debian {recipe.suite}")
    base, _ = cache.cached(BASE_KIND, recipe.base_fingerprint, lambda target: _debootstrap(recipe, target))
    work = directory / "work"
    root = work / "root"
    root.mkdir(parents=True)
    tell("Python packages")
    wheels = _fetch_wheels(recipe, work / "wheels")
    with tarfile.open(fileobj=io.BytesIO(checkout.archive())) as tar:
        extract_own(tar, work / "checkout")
    tell("files")
    run_tool(["tar", "-x", "--numeric-owner", "--xattrs", "-f", str(base / BASE), "-C", str(root)], {})
    environment = {
        "TESTBED_CHECKOUT": str(work / "checkout"),
        "TESTBED_WHEELS": str(work / "wheels"),
        "SOURCE_DATE_EPOCH": str(EPOCH),
    }
    shutil.copytree(recipe.directory, work / "recipe")  # a shell reads its script while it runs
    run_tool([str(work / "recipe/install-packages"), str(root)], environment)
    kernel = (root / "boot/testbed-kernel").read_text().strip()
    tell("disk")
    shutil.copyfile(root / f"boot/vmlinuz-{kernel}", directory / KERNEL)
    shutil.copyfile(root / "boot/testbed-initramfs.cpio", directory / INITRAMFS)
    make_disk(root, directory / DISK, size=recipe.size, epoch=EPOCH)
    shutil.rmtree(work)
    return {"kernel": kernel, "packages": cache.manifest(base)["packages"], "wheels": wheels}


def _debootstrap(recipe: VmRecipe, directory: Path) -> dict[str, Any]:
    """Debian's packages as an archive."""
    sources, status = directory / "sources.list", directory / "status"
    sources.write_text(recipe.sources)
    packages = [*recipe.packages, f"{recipe.kernel_package}/{recipe.kernel_suite}"]
    run_tool(
        [
            *mmdebstrap_command(),
            *("--variant=minbase", f"--include={','.join(packages)}"),
            *mmdebstrap_options(),
            f"--essential-hook={recipe.directory / HOOK}",
            "--dpkgopt=force-confold",
            f"--customize-hook=download /var/lib/dpkg/status {status}",
            *(recipe.suite, str(directory / BASE), str(sources)),
        ],
        {"SOURCE_DATE_EPOCH": str(EPOCH)},
        name="mmdebstrap",
    )
    installed = dict(re.findall(r"^Package: (\S+)\n(?:[^\n]+\n)*?Version: (\S+)$", status.read_text(), re.MULTILINE))
    kernels = [name.removeprefix("linux-image-") for name in installed if re.match(r"linux-image-\d", name)]
    if not kernels or version_numbers(kernels[0]) < recipe.oldest_kernel:
        raise ImageError(f"{recipe.kernel_suite} has Linux {kernels}, too old", hint="see images/versions.toml")
    return {"packages": installed}


def _fetch_wheels(recipe: VmRecipe, target: Path) -> list[str]:
    """Fetch the Python packages for the image's Python."""
    target.mkdir()
    for command in recipe.wheels.commands(target):
        run_tool(command, {})
    return sorted(path.name for path in target.iterdir())


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
