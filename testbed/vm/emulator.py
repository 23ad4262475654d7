"""QEMU: the one in the cache, from the suite of the image, run in place and not installed; and whether KVM works.

One QEMU for everybody, because virtual time counts alike only in the same one. $TESTBED_QEMU names another.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.base.errors import CapabilityError
from testbed.base.files import cache_directory, write_atomically
from testbed.base.programs import captured
from testbed.lab.features.containers.images.debian_mirror import mirror
from testbed.lab.features.containers.images.mmdebstrap import mmdebstrap_command, mmdebstrap_options
from testbed.vm import cache
from testbed.vm.errors import ImageError
from testbed.vm.image.build import VmImage, require_tools
from testbed.vm.image.recipe import VmRecipe, version_numbers
from testbed.vm.image.tool import run_tool

KIND = "qemu"
_LOADER = "usr/lib64/ld-linux-x86-64.so.2"
_PROGRAM = "usr/bin/qemu-system-x86_64"
_LIBRARIES = "usr/lib/x86_64-linux-gnu"
KVM_DEVICE = Path("/dev/kvm")
KVM_PROBE_S = 15.0
"""A kernel that KVM really runs says within a second that it lives."""
_ALIVE = "testbed: alive"


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulator:
    """A way of running QEMU: `program` and `image_tool` are the beginnings of command lines."""

    program: tuple[str, ...]
    image_tool: tuple[str, ...]
    version: str


def find_emulator(recipe: VmRecipe) -> Emulator:
    """The emulator of this recipe. Raises `ImageError` or `CapabilityError` where there is none."""
    if given := os.environ.get("TESTBED_QEMU"):
        path = shutil.which(given)
        if path is None:
            raise CapabilityError(f"no QEMU: TESTBED_QEMU is {given}, and there is no such program", missing="qemu")
        return _new_enough(_described((path,), ("qemu-img",)), recipe)
    entry = cache.whole(KIND, recipe.qemu_fingerprint)
    if entry is None:
        raise CapabilityError("no QEMU in the cache", missing="qemu", hint="testbed vm build")
    return _in(entry)


def build_emulator(recipe: VmRecipe, *, rebuild: bool = False) -> Emulator:
    """The emulator, fetched from Debian's registry if the cache does not have it."""
    if os.environ.get("TESTBED_QEMU"):
        return find_emulator(recipe)

    def make(directory: Path) -> dict[str, Any]:
        require_tools()
        run_tool(
            [
                *(*mmdebstrap_command(), "--variant=extract", *mmdebstrap_options()),
                *(f"--include={','.join(recipe.qemu_packages)}", recipe.suite, str(directory / "root"), mirror()),
            ],
            {},
            name="mmdebstrap",
        )
        version = _new_enough(_described(*_commands(directory)), recipe).version
        (directory / "version").write_text(version)
        return {"version": version}

    entry, _ = cache.cached(KIND, recipe.qemu_fingerprint, make, rebuild=rebuild)
    return _in(entry)


def _in(entry: Path) -> Emulator:
    program, image_tool = _commands(entry)
    if not Path(program[0]).exists() or not (entry / "root" / _PROGRAM).exists():
        raise ImageError(f"the cached QEMU is damaged: {entry}", hint="testbed vm build --rebuild")
    return Emulator(program=program, image_tool=image_tool, version=cache.manifest(entry)["version"])


def _commands(entry: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    root = entry / "root"
    loader = (str(root / _LOADER), "--library-path", str(root / _LIBRARIES))
    firmware = ("-L", str(root / "usr/share/qemu"), "-L", str(root / "usr/share/seabios"))
    return (*loader, str(root / _PROGRAM), *firmware), (*loader, str(root / "usr/bin/qemu-img"))


def _described(program: tuple[str, ...], image_tool: tuple[str, ...]) -> Emulator:
    try:
        said = run_tool([*program, "--version"], {})
    except ImageError as error:
        raise CapabilityError(f"QEMU does not run: {error.message}", missing="qemu") from error
    found = re.search(r"version (\S+)", said)
    return Emulator(program=program, image_tool=image_tool, version=found[1] if found else said.strip())


def _new_enough(emulator: Emulator, recipe: VmRecipe) -> Emulator:
    if version_numbers(emulator.version) < recipe.oldest_qemu:
        oldest = ".".join(map(str, recipe.oldest_qemu))
        raise CapabilityError(
            f"QEMU {emulator.version} is older than {oldest}: see images/versions.toml",
            missing="qemu",
            hint="without TESTBED_QEMU one that is new enough is fetched",
        )
    return emulator


def environment() -> dict[str, str]:
    """The environment QEMU runs in: it looks for modules of its own only where it was built to be."""
    return {**os.environ, "QEMU_MODULE_DIR": "/nonexistent"}


def kvm_lacks(emulator: Emulator, image: VmImage, *, device: Path = KVM_DEVICE) -> str:
    """Why KVM does not run our kernel here, "" if it does: tried once a boot, for at most `KVM_PROBE_S`."""
    if not device.exists():
        return f"no {device}"
    if not os.access(device, os.R_OK | os.W_OK):
        return f"{device} is not ours to use"
    remembered = cache_directory() / "kvm.json"
    question = [Path("/proc/sys/kernel/random/boot_id").read_text(), emulator.version, image.kernel_version]
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        known = json.loads(remembered.read_text())
        if known["question"] == question:
            return str(known["lacks"])
    lacks = _try_kvm(emulator, image)
    with contextlib.suppress(OSError):
        write_atomically(remembered, json.dumps({"question": question, "lacks": lacks}), durable=False)
    return lacks


def _try_kvm(emulator: Emulator, image: VmImage) -> str:
    with tempfile.TemporaryDirectory(prefix="testbed-kvm-") as scratch:
        console = Path(scratch, "console")
        options = ["-machine", "q35", "-accel", "kvm", "-cpu", "host", "-m", "512", "-nic", "none", "-no-reboot"]
        options += ["-nodefaults", "-no-user-config", "-display", "none", "-serial", f"file:{console}"]
        options += ["-kernel", str(image.kernel), "-initrd", str(image.initramfs)]
        options += ["-append", "console=ttyS0 quiet panic=-1 testbed.probe"]
        try:
            done = captured([*emulator.program, *options], KVM_PROBE_S, env=environment())
        except subprocess.TimeoutExpired:
            return f"a kernel did not start under KVM within {KVM_PROBE_S:.0f} s"
        if console.exists() and _ALIVE in console.read_text(errors="replace"):
            return ""
        last = (done.stderr.strip().splitlines() or [f"QEMU ended with status {done.returncode}"])[-1]
        return f"a kernel did not start under KVM: {re.sub(r'^.*qemu-system-x86_64: ', '', last)}"
