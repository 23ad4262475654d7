"""Installing Debian packages, without the services that they start by themselves.

Labs start their own daemons, and tests their own engine: services that a package brings stay off, on a machine that had
none of it. A mask in /run keeps dpkg from starting them and is gone after the installation, whatever comes of it.
"""

from __future__ import annotations

import os
import platform
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from testbed.base.installation.errors import InstallationError, say
from testbed.base.installation.log import Log
from testbed.base.installation.packages import Level, Package, missing_packages

SYSTEMD = Path("/run/systemd/system")
LISTS = "/var/lib/apt/lists"
INIT_SCRIPTS = Path("/etc/init.d")
_APT = ("apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=120")
_INSTALL = ("install", "--no-install-recommends")


def release() -> str:
    """Return the name of this machine's release, such as "Debian GNU/Linux 12 (bookworm)"."""
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return "an unknown system"


def install_packages(level: Level, log: Log, *, without: Sequence[str] = ()) -> None:
    """Install what this machine lacks for `level`, but for those named `without`. Raises `InstallationError`."""
    packages = _missing(level, without)
    if not packages:
        return
    names = " ".join(package.name for package in packages)
    if os.geteuid() != 0:
        raise InstallationError(
            f"missing packages, and only root can install them: {names}",
            f"run the same command with sudo, or: apt-get install {names}",
        )
    say(f"installing {names} ...")
    with _services_off([unit for package in packages for unit in package.units], log):
        installed = _apt_install(packages, log)
    if not installed:
        log.show_end()
        raise InstallationError(
            f"apt-get could not install {names} (above: the end of {log.path})", log.hint_at_the_network()
        )


def install_line(level: Level, *, without: Sequence[str] = ()) -> str:
    """Return the command that installs what this machine lacks for `level`; "" where it lacks nothing.

    Raises `InstallationError` with the packages' names where there is no apt.
    """
    names = [package.name for package in _missing(level, without)]
    return " ".join(("env", "DEBIAN_FRONTEND=noninteractive", *_APT, *_INSTALL, *names)) if names else ""


def _missing(level: Level, without: Sequence[str]) -> list[Package]:
    """Raises `InstallationError` where something is missing, and this is no system of Debian packages."""
    packages = [package for package in missing_packages(level, release()) if package.name not in without]
    if packages and shutil.which("apt-get") is None:
        raise InstallationError(
            f"this is {release()}: packages are installed only on Debian 12, 13 and Ubuntu 24.04",
            f"install these and try again (Debian's names): {' '.join(package.name for package in packages)}",
            "Python must be 3.11 or newer, FRR 8.4 or newer",
        )
    return packages


def _apt_install(packages: Sequence[Package], log: Log) -> bool:
    def apt(*words: str) -> bool:
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_SUSPEND": "1"}
        return log.run([*_APT, *words], environment=environment) == 0

    install = (*_INSTALL, *(package.name for package in packages))
    if not any(Path(LISTS).glob("*_Packages*")) and not apt("update"):
        return False
    # Lists may be out of date: names of packages that the mirror no longer has.
    return apt(*install) or (apt("update") and apt(*install))


@contextmanager
def _services_off(units: Sequence[str], log: Log) -> Iterator[None]:
    if not units:
        yield
        return
    systemd = SYSTEMD.is_dir()
    ending = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) == signal.SIG_DFL]
    for number in ending:
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        if systemd:
            log.run(["systemctl", "mask", "--runtime", *units])
        yield
    finally:
        if systemd:
            log.run(["systemctl", "unmask", "--runtime", *units])
            log.run(["systemctl", "disable", *units])
        else:
            _stop_what_started(units, log)
        for number in ending:
            signal.signal(number, signal.SIG_DFL)


def _stop_what_started(units: Sequence[str], log: Log) -> None:
    for unit in units:
        script = INIT_SCRIPTS / unit.removesuffix(".service")
        if not os.access(script, os.X_OK):
            continue
        if script.name != "frr" or log.run(["pgrep", "-x", "watchfrr"]) == 0:
            log.run([str(script), "stop"])
