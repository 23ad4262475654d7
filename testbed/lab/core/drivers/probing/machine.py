"""The needs of every lab, checked before anything is touched: root's capabilities and an FRR installation.

Both raise `CapabilityError`, whose hint says how to get what is missing. What the machine *could* offer is
the subject of `doctor`.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.base.errors import CapabilityError
from testbed.base.programs import captured
from testbed.lab.core.render import MANAGED_SINCE, FrrVersion

FRR_DIRECTORIES = (Path("/usr/lib/frr"), Path("/usr/libexec/frr"), Path("/usr/local/sbin"), Path("/usr/sbin"))
"""The directories of FRR's daemons: Debian and Ubuntu; Fedora, RHEL and openSUSE; built from source; Alpine, Arch."""

NEEDED_DAEMONS = ("zebra", "bgpd", "bfdd")
KNOWN_DAEMONS = (*NEEDED_DAEMONS, "staticd", "mgmtd", "ospfd", "ospf6d", "isisd", "pimd", "pathd", "vrrpd", "fabricd")

OLDEST_FRR = (8, 4)
"""Oldest FRR whose configuration is rendered and tested (Debian 12's)."""

_VERSION = re.compile(r"^\w+ version (\d+(?:\.\d+)+)", re.MULTILINE)
_MULTIPATH = re.compile(r"--enable-multipath=(\d+)")
_VERSION_TIMEOUT_S = 10.0

CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_NET_RAW": 13, "CAP_SYS_PTRACE": 19, "CAP_SYS_ADMIN": 21}
"""Bit numbers of linux/capability.h: links and routes; raw sockets; which namespace another user's process is in, such
as a daemon of FRR; namespaces and mounts."""
CONTAINER_HINT = (
    "start the container with --cap-add NET_ADMIN --cap-add SYS_ADMIN --cap-add SYS_PTRACE"
    " --security-opt apparmor=unconfined, or with --privileged"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrrInstallation:
    """An FRR as installed. `version` is (8, 4, 4), comparable; `daemons` are those present in `directory`.

    `multipath` is the most next hops that it was built for (configure's `--enable-multipath`); None: it does not say.
    """

    directory: Path
    version: tuple[int, ...]
    daemons: tuple[str, ...]
    multipath: int | None = None

    @property
    def version_text(self) -> str:
        return ".".join(str(part) for part in self.version)

    @property
    def managed(self) -> bool:
        """Tell whether daemons want mgmtd beside them."""
        return FrrVersion(*self.version[:3]) >= MANAGED_SINCE

    def daemon(self, name: str) -> Path:
        """The executable of a daemon, e.g. `bgpd`."""
        return self.directory / name


def require_root(*, without: Collection[str] = ()) -> None:
    """Raise `CapabilityError` unless this process may make namespaces, links and mounts.

    `without` are capabilities that what is begun does not need.
    """
    if os.geteuid() != 0:
        raise CapabilityError(
            "network namespaces and links need root", missing="root", hint="run the same command with sudo"
        )
    lacking = tuple(name for name in missing_capabilities() if name not in without)
    if lacking:
        raise CapabilityError(
            f"this root has been stripped of {', '.join(lacking)} (an unprivileged container?)",
            missing=lacking[0],
            hint=CONTAINER_HINT,
        )


def missing_capabilities(status: Path = Path("/proc/self/status")) -> tuple[str, ...]:
    """Return those of `CAPABILITIES` that are not effective for this process (capabilities(7))."""
    for line in status.read_text().splitlines():
        if line.startswith("CapEff:"):
            effective = int(line.split()[1], 16)
            return tuple(name for name, bit in CAPABILITIES.items() if not effective >> bit & 1)
    return tuple(CAPABILITIES)


def find_frr(directories: Sequence[Path] = FRR_DIRECTORIES, needed: Sequence[str] = NEEDED_DAEMONS) -> FrrInstallation:
    """The first FRR with all daemons in `needed`.

    Raises `CapabilityError` where there is none, a daemon is missing, or it is older than `OLDEST_FRR`.
    """
    partial: tuple[Path, tuple[str, ...]] | None = None
    for directory in directories:
        present = tuple(name for name in KNOWN_DAEMONS if os.access(directory / name, os.X_OK))
        lacking = tuple(name for name in needed if name not in present)
        if not lacking:
            return _checked(directory, present)
        if present and partial is None:
            partial = (directory, lacking)
    if partial is not None:
        raise CapabilityError(
            f"FRR in {partial[0]} lacks {', '.join(partial[1])}",
            missing=partial[1][0],
            hint="reinstall it: apt-get install --reinstall frr",
        )
    raise CapabilityError(
        f"FRR is not installed (looked in {', '.join(str(directory) for directory in directories)})",
        missing="frr",
        hint="apt-get install frr",
    )


def _checked(directory: Path, daemons: tuple[str, ...]) -> FrrInstallation:
    version, multipath = ask_frr(directory / "zebra")
    if version < OLDEST_FRR:
        raise CapabilityError(
            f"FRR {'.'.join(map(str, version))} in {directory} is older than {'.'.join(map(str, OLDEST_FRR))}",
            missing="frr",
            hint="install a newer one, see https://deb.frrouting.org",
        )
    found = FrrInstallation(directory=directory, version=version, daemons=daemons, multipath=multipath)
    if found.managed and "mgmtd" not in daemons:
        raise CapabilityError(
            f"FRR {found.version_text} in {directory} lacks mgmtd",
            missing="mgmtd",
            hint="reinstall it: apt-get install --reinstall frr",
        )
    return found


def ask_frr(daemon: Path) -> tuple[tuple[int, ...], int | None]:
    """Return what `DAEMON --version` says: its version as numbers, and the most next hops that it was built for.

    "zebra version 10.3.1-0~deb" is (10, 3, 1).

    The daemon is asked (about 10 ms): the version is a bare string among thousands in its libraries, and
    the packaging system does not know an FRR built from source.
    """
    try:
        answer = captured([str(daemon), "--version"], _VERSION_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CapabilityError(
            f"{daemon} does not run: {error}", missing="frr", hint="apt-get install --reinstall frr"
        ) from error
    version = parse_frr_version(answer.stdout)
    if version is None:
        said = (answer.stderr or answer.stdout).strip().splitlines()
        raise CapabilityError(
            f"{daemon} --version says no version: {said[0] if said else 'nothing'}",
            missing="frr",
            hint="apt-get install --reinstall frr",
        )
    return version, parse_multipath(answer.stdout)


def parse_multipath(text: str) -> int | None:
    """The most next hops that FRR was built for, as a daemon's `--version` prints it; None where it does not."""
    match = _MULTIPATH.search(text)
    return None if match is None else int(match[1])


def parse_frr_version(text: str) -> tuple[int, ...] | None:
    """The version in the output of an FRR daemon's `--version`, or None."""
    match = _VERSION.search(text)
    return None if match is None else tuple(int(part) for part in match[1].split("."))


def parse_available_memory(meminfo: str) -> int:
    """`MemAvailable` of /proc/meminfo in bytes; 0 where it does not say."""
    for line in meminfo.splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0
