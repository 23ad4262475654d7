"""Which packages are installed for what, and that images have what a machine would get."""

import re
from collections import Counter

import pytest

from testbed.base.files import CHECKOUT
from testbed.base.installation.packages import (
    PACKAGES,
    PROGRAMS,
    DebianImage,
    Level,
    Package,
    missing_packages,
    packages_of,
)

BOOKWORM, UBUNTU = "Debian GNU/Linux 12 (bookworm)", "Ubuntu 24.04.1 LTS"
SLOW_TIERS = {"mmdebstrap", "e2fsprogs", "tshark", "openvswitch-switch", "nbdkit", "fio", "docker.io"}
VAGRANT = {"vagrant", "vagrant-libvirt", "libvirt-daemon-system", "qemu-system-x86"}


@pytest.mark.parametrize(
    ("level", "release", "needed", "not_needed"),
    [
        (Level.LABS, BOOKWORM, {"clang", "frr", "iputils-ping"}, {"chrony", "docker.io", "vagrant"}),
        (Level.TESTS, BOOKWORM, {"clang", "chrony"}, {"docker.io", "mmdebstrap", "vagrant"}),
        (Level.SLOW_TESTS, BOOKWORM, {*SLOW_TIERS, "chromium-headless-shell"}, {"vagrant"}),
        (Level.SLOW_TESTS, UBUNTU, SLOW_TIERS, {"chromium-headless-shell"}),
        (Level.ALL_TESTS, BOOKWORM, SLOW_TIERS | VAGRANT, set()),
        (Level.ALL_TESTS, UBUNTU, SLOW_TIERS, {"vagrant"}),
    ],
)
def test_each_level_asks_for_what_it_runs(
    level: Level, release: str, needed: set[str], not_needed: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Package, "is_installed", lambda _: False)
    asked = {package.name for package in missing_packages(level, release)}
    assert needed <= asked
    assert not not_needed & asked


def test_what_is_there_is_not_asked_for(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Package(name="x", brings=("/etc/pass*",)).is_installed()
    assert not Package(name="x", brings=("/etc/nothing-of-this-name", "no-such-program")).is_installed()
    assert not Package(name="x", brings=("/etc/passwd",), is_there=lambda: False).is_installed()


def test_a_package_stands_once() -> None:
    assert [name for name, count in Counter(package.name for package in PACKAGES).items() if count > 1] == []


def test_an_image_has_all_that_lab_would_install() -> None:
    """In the lab VM nothing can be downloaded: a package that `lab demo` misses there ends it."""
    by_script = re.findall(r"^PACKAGES=\((.+)\)$", (CHECKOUT / "lab").read_text(), re.MULTILINE)[0].split()
    wanted = {package.name for package in PACKAGES if package.level is Level.LABS} | set(by_script)
    assert {"frr", "clang", "python3-venv"} <= wanted
    assert wanted - set(packages_of(DebianImage.VM)) == {"python3-dev"}, "and that only where nothing is set up"


def test_no_service_that_comes_with_a_package_runs() -> None:
    """Every package of which we start programs of our own says what it would start."""
    units = {package.name: package.units for package in PACKAGES}
    starts = {"frr", "chrony", "rsyslog", "lldpd", "prometheus", "munge", "slurmctld", "slurmd", "freeradius"}
    starts |= {"openssh-server", "docker.io", "openvswitch-switch", "libvirt-daemon-system", "nfs-ganesha-vfs"}
    starts |= {"pmacct", "opensm"}
    assert {name for name, found in units.items() if found} == starts
    assert all(re.fullmatch(r"[\w-]+\.(service|socket)", unit) for found in units.values() for unit in found)


def test_programs_are_known_by_one_name() -> None:
    assert max(Counter(program.name for program in PROGRAMS).values()) == 1
