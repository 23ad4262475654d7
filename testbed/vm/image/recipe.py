"""The recipe of an image: Debian packages, `images/versions.toml`, the files beside it, and pyproject.toml."""

from __future__ import annotations

import hashlib
import os
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from testbed.base.errors import CapabilityError
from testbed.base.files import CHECKOUT
from testbed.base.installation.environment import requirements
from testbed.base.installation.packages import DebianImage, packages_of
from testbed.base.installation.wheels import WantedWheels
from testbed.lab.features.containers.images.debian_mirror import mirror, security_mirror

HOOK = "before-packages"
"""The hook that mmdebstrap runs before it installs packages."""
EXTRAS = ("docker", "figures", "remote")
"""The extras of pyproject.toml that `install-packages` asks for."""
FORMAT = 1
"""Counts up when the code that builds images makes something else of the same recipe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VmRecipe:
    """Everything an image depends on. `directory` is `images/vm`.

    `fingerprint` is the hash of it all, in hex; `base_fingerprint` that of Debian's packages alone.
    """

    directory: Path
    fingerprint: str
    base_fingerprint: str
    suite: str
    components: tuple[str, ...]
    packages: tuple[str, ...]
    kernel_package: str
    kernel_suite: str
    oldest_kernel: tuple[int, ...]
    wheels: WantedWheels
    qemu_packages: tuple[str, ...]
    oldest_qemu: tuple[int, ...]
    qemu_fingerprint: str
    size: str

    @property
    def sources(self) -> str:
        """Lines of sources.list for the image."""
        components = " ".join(self.components)
        lines = [f"deb {mirror()} {suite} {components}" for suite in (self.suite, f"{self.suite}-updates")]
        lines.append(f"deb {security_mirror()} {self.suite}-security {components}")
        lines.append(f"deb {mirror()} {self.kernel_suite} {components}")
        return "\n".join(lines) + "\n"


def load_recipe(checkout: Path = CHECKOUT) -> VmRecipe:
    """Read the recipe of this checkout. Raises `CapabilityError` where there is none: an installed wheel has none."""
    versions_file, directory = checkout / "images/versions.toml", checkout / "images/vm"
    if not versions_file.is_file() or not directory.is_dir():
        raise CapabilityError(
            f"no recipe of the lab VM in {checkout}/images",
            missing="images/versions.toml",
            hint="run testbed from a checkout of the project (./lab)",
        )
    versions = tomllib.loads(versions_file.read_text())
    project_text = (checkout / "pyproject.toml").read_text()
    packages, qemu = packages_of(DebianImage.VM), packages_of(DebianImage.QEMU)
    hook = (directory / HOOK).read_bytes()
    base = (FORMAT, versions["debian"], versions["linux"], packages, hook)
    digest = hashlib.sha256(repr((base, versions["python"], versions["vm"], requirements(project_text))).encode())
    for path, content in _files(directory):
        digest.update(repr((path, content)).encode())
    return VmRecipe(
        directory=directory,
        fingerprint=digest.hexdigest()[:16],
        base_fingerprint=hashlib.sha256(repr(base).encode()).hexdigest()[:16],
        suite=versions["debian"]["suite"],
        components=tuple(versions["debian"]["components"]),
        packages=packages,
        kernel_package=versions["linux"]["package"],
        kernel_suite=versions["linux"]["suite"],
        oldest_kernel=version_numbers(versions["linux"]["oldest"]),
        wheels=WantedWheels.of(checkout, EXTRAS),
        qemu_packages=qemu,
        oldest_qemu=version_numbers(versions["qemu"]["oldest"]),
        qemu_fingerprint=hashlib.sha256(repr((FORMAT, versions["debian"], qemu)).encode()).hexdigest()[:16],
        size=versions["vm"]["size"],
    )


def _files(directory: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(directory.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield f"{path.relative_to(directory)} {os.access(path, os.X_OK)}", path.read_bytes()


def version_numbers(text: str) -> tuple[int, ...]:
    """The leading numbers of a version: "7.3.4+deb13-amd64" is (7, 3, 4)."""
    found = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(number) for number in found[0].split(".")) if found else ()
