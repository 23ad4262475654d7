"""mmdebstrap: how all systems of Debian packages are made here: the lab VM, its QEMU, the base of containers."""

from __future__ import annotations

import os
from pathlib import Path

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
LEFT_OUT = ("doc", "man", "locale", "info")
"""Directories of /usr/share that nobody reads there."""
_CONTAINED = (
    *("setpriv", "--pdeathsig", "KILL", "--"),
    *("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc", "--"),
)


def mmdebstrap_command() -> list[str]:
    """The beginning of its command line.

    For root it mounts our /dev and /sys in what it builds. In namespaces of its own, that ends when it is killed, or
    we are. Whoever is not root has it make namespaces itself.
    """
    if os.geteuid() != 0:
        return ["mmdebstrap", "--quiet"]
    return [*_CONTAINED, "mmdebstrap", "--quiet", "--mode=root"]


def mmdebstrap_options() -> list[str]:
    """Options that all our systems share."""
    options = [f"--keyring={KEYRING}", "--aptopt=Acquire::Languages none", "--aptopt=Acquire::Retries 3"]
    options.append("--aptopt=APT::Install-Recommends false")
    return options + [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in LEFT_OUT]
