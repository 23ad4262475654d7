"""The Debian packages that testbed uses: which of them `./lab` installs, and which are in an image.

This is the one place where they are listed. A package that a new feature needs is a row of `PACKAGES`; a program that
the doctor should look for is a row of `PROGRAMS`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum, auto
from functools import partial
from pathlib import Path

SYSTEM_PATH = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""The directories of root's programs, which the PATH of somebody else need not name."""


class Level(IntEnum):
    """The extent to which the project is to work; each level has what those before it have."""

    LABS = auto()
    TESTS = auto()
    SLOW_TESTS = auto()
    """`./lab test --all`."""
    ALL_TESTS = auto()
    """`./lab test --everything`."""


class DebianImage(Enum):
    """The systems that are made of Debian packages (`images/versions.toml` says of which release)."""

    VM = auto()
    QEMU = auto()
    """No system: QEMU is run out of it."""
    HOST = auto()
    SWITCH = auto()
    RUNNER = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownProgram:
    """A program to look for. `question` None: its presence is enough. `package` is Debian's, or Python's (`pip`)."""

    name: str
    package: str
    needed_for: str
    question: tuple[str, ...] | None = ("--version",)
    pip: bool = False
    library: str = ""
    """The pattern of its path, of what is a library and no program."""

    def locate(self, *paths: str | None) -> str | None:
        """Return where it is, in the first of `paths` that has it (None: PATH)."""
        if self.library:
            return next((str(path) for path in sorted(Path("/").glob(self.library.lstrip("/")))), None)
        return next(filter(None, (shutil.which(self.name, path=path) for path in paths)), None)

    @property
    def installation(self) -> str:
        """Return the command that installs it."""
        return f"pip install {self.package}" if self.pip else f"apt-get install {self.package}"


PROGRAMS = (
    KnownProgram(
        name="clang", package="clang", needed_for="compiling the eBPF data path, and what switches scale-up domains"
    ),
    KnownProgram(
        name="bpftool", package="bpftool", needed_for="looking into the data path by hand", question=("version",)
    ),
    KnownProgram(name="ip", package="iproute2", needed_for="looking into nodes by hand", question=("-V",)),
    KnownProgram(name="tc", package="iproute2", needed_for="looking at queues by hand", question=("-V",)),
    KnownProgram(name="iperf3", package="iperf3", needed_for="TCP scenarios such as rail-permutation"),
    KnownProgram(name="ib_write_bw", package="perftest", needed_for="soft RDMA by perftest"),
    KnownProgram(name="rdma", package="iproute2", needed_for="soft RDMA devices", question=("-V",)),
    KnownProgram(name="fio", package="fio", needed_for="transports to storage targets other than nvme-tcp"),
    KnownProgram(name="nbdkit", package="nbdkit", needed_for="the transport nbd"),
    KnownProgram(name="ganesha.nfsd", package="nfs-ganesha-vfs", needed_for="the transport nfs", question=("-v",)),
    KnownProgram(name="setpriv", package="util-linux", needed_for="programs that end with whoever started them"),
    KnownProgram(name="tcpdump", package="tcpdump", needed_for="`testbed capture`"),
    KnownProgram(name="traceroute", package="traceroute", needed_for="looking at paths from inside of nodes"),
    KnownProgram(name="mtr", package="mtr-tiny", needed_for="watching paths from inside of nodes"),
    # tshark takes half a second to say its version.
    KnownProgram(name="tshark", package="tshark", needed_for="captures with protocol detail", question=None),
    KnownProgram(name="ethtool", package="ethtool", needed_for="looking at offloads by hand", question=None),
    KnownProgram(name="mmdebstrap", package="mmdebstrap", needed_for="building the lab VM (QEMU is in what it builds)"),
    KnownProgram(name="docker", package="docker.io", needed_for="nodes of runtime docker", question=("--version",)),
    KnownProgram(name="sshd", package="openssh-server", needed_for="the service ssh", question=("-V",)),
    KnownProgram(
        name="ssh", package="openssh-client", needed_for="logging in to nodes, and the lab VM", question=("-V",)
    ),
    KnownProgram(name="dnsmasq", package="dnsmasq-base", needed_for="the services dns and dhcp"),
    KnownProgram(name="chronyd", package="chrony", needed_for="the service time"),
    KnownProgram(name="rsyslogd", package="rsyslog", needed_for="the service syslog", question=("-v",)),
    KnownProgram(name="prometheus", package="prometheus", needed_for="the service telemetry"),
    KnownProgram(name="lldpd", package="lldpd", needed_for="the service lldp", question=("-v",)),
    KnownProgram(name="munged", package="munge", needed_for="the service slurm", question=("-V",)),
    KnownProgram(name="slurmctld", package="slurmctld", needed_for="the service slurm", question=("-V",)),
    KnownProgram(name="slurmd", package="slurmd", needed_for="the service slurm", question=("-V",)),
    KnownProgram(name="sbatch", package="slurm-client", needed_for="the service slurm", question=("-V",)),
    KnownProgram(name="freeradius", package="freeradius", needed_for="the service aaa", question=("-v",)),
    KnownProgram(
        name="pam_radius_auth",
        package="libpam-radius-auth",
        needed_for="the service aaa",
        question=None,
        library="/lib/*/security/pam_radius_auth.so",
    ),
    KnownProgram(name="pmbmpd", package="pmacct", needed_for="the service bmp", question=("-V",)),
    KnownProgram(
        name="sushy-emulator",
        package="sushy-tools==2.2.0",
        needed_for="the service redfish",
        question=None,
        pip=True,
    ),
    KnownProgram(name="pygnmicli", package="pygnmi==0.8.15", needed_for="the service gnmi", question=None, pip=True),
    KnownProgram(
        name="uvicorn",
        package="starlette uvicorn websockets",
        needed_for="`testbed console`, and the service console",
        question=None,
        pip=True,
    ),
    KnownProgram(name="ibsim", package="ibsim-utils", needed_for="link_layer: infiniband", question=None),
    KnownProgram(
        name="umad2sim",
        package="libumad2sim0",
        needed_for="link_layer: infiniband",
        question=None,
        library="/usr/lib/*/umad2sim/libumad2sim.so*",
    ),
    KnownProgram(name="opensm", package="opensm", needed_for="link_layer: infiniband"),
    KnownProgram(name="ibnetdiscover", package="infiniband-diags", needed_for="link_layer: infiniband"),
    KnownProgram(name="mn", package="mininet", needed_for="Mininet without testbed", question=("--version",)),
)


def installation_of(programs: Collection[KnownProgram]) -> str:
    """Return the commands that install all of several programs: one of apt, one of pip."""
    lines = []
    for command, pip in (("apt-get install", False), ("pip install", True)):
        packages = dict.fromkeys(program.package for program in programs if program.pip is pip)
        if packages:
            lines.append(" ".join((command, *packages)))
    return "; ".join(lines)


def missing_programs(names: Sequence[str], *paths: str | None) -> tuple[KnownProgram, ...]:
    """Return those of these known programs that none of `paths` (None: PATH) has."""
    known = {program.name: program for program in PROGRAMS}
    return tuple(known[name] for name in names if known[name].locate(*paths) is None)


# --- packages ----------------------------------------------------------------------------------------


def _python_has_headers() -> bool:
    return Path(sysconfig.get_paths()["include"], "Python.h").exists()


def _system_python_has_mininet() -> bool:
    try:
        done = subprocess.run(["/usr/bin/python3", "-c", "import mininet"], stderr=subprocess.DEVNULL, check=False)
    except OSError:
        return False
    return done.returncode == 0


def _has_certificates() -> bool:
    return Path("/etc/ssl/certs/ca-certificates.crt").exists() or not Path("/etc/debian_version").exists()


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A Debian package.

    `./lab` installs it from `level` on (None: it never does), where nothing of what it brings is there: a file of
    `brings` (a program in PATH, or the pattern of a path), or else what `is_there` tells.
    """

    name: str
    level: Level | None = None
    brings: tuple[str, ...] = ()
    is_there: Callable[[], bool] | None = None
    units: tuple[str, ...] = ()
    """The units of systemd that it starts by itself."""
    images: frozenset[DebianImage] = frozenset()
    release: str = ""
    """A word of the only releases that `./lab` installs it on."""

    def is_installed(self) -> bool:
        """Tell whether this machine has what the package brings."""
        if self.is_there is not None:
            return self.is_there()
        path = os.pathsep.join((os.environ.get("PATH", ""), *SYSTEM_PATH))
        return any(
            any(Path("/").glob(name[1:])) if name.startswith("/") else shutil.which(name, path=path)
            for name in self.brings
        )


def _package(
    level: Level | None,
    name: str,
    *brings: str,
    is_there: Callable[[], bool] | None = None,
    units: str = "",
    images: Collection[DebianImage] = (),
    release: str = "",
) -> Package:
    return Package(
        name=name,
        level=level,
        brings=brings,
        is_there=is_there,
        units=tuple(units.split()),
        images=frozenset(images),
        release=release,
    )


_labs = partial(_package, Level.LABS)
_tests = partial(_package, Level.TESTS)
_slow_tests = partial(_package, Level.SLOW_TESTS)
# Not every release has Vagrant; the test of `vagrant up` skips where it is missing.
_vagrant = partial(_package, Level.ALL_TESTS, release="bookworm")
_images = partial(_package, None)
_VM, _QEMU, _HOST, _SWITCH, _RUNNER = DebianImage

PACKAGES = (
    # The two that `lab` itself installs: without them nobody reads this.
    _images("python3", images=(_VM, _HOST, _RUNNER)),
    _images("python3-venv", images=(_VM, _RUNNER)),
    _labs(
        "frr",
        *("/usr/lib/frr/bgpd", "/usr/libexec/frr/bgpd", "/usr/local/sbin/bgpd"),
        units="frr.service",
        images=(_VM, _SWITCH, _RUNNER),
    ),
    _labs("iperf3", "iperf3", images=(_VM, _HOST, _RUNNER)),
    _labs("iproute2", "ip", images=(_VM, _HOST, _SWITCH, _RUNNER)),
    _labs("tcpdump", "tcpdump", images=(_VM, _RUNNER)),
    _labs("procps", "ps", images=(_VM, _HOST, _SWITCH, _RUNNER)),
    _labs("iputils-ping", "ping", images=(_VM, _HOST, _SWITCH, _RUNNER)),
    _labs("traceroute", "traceroute", images=(_VM, _HOST, _SWITCH, _RUNNER)),
    _labs("mtr-tiny", "mtr", images=(_VM, _HOST, _SWITCH, _RUNNER)),
    _labs("libcairo2", "/usr/lib*/*/libcairo.so.2", "/usr/lib*/libcairo.so.2", images=(_VM, _RUNNER)),
    _labs("clang", "clang", images=(_VM, _RUNNER)),
    _labs("libbpf-dev", "/usr/include/bpf/bpf_helpers.h", images=(_VM, _RUNNER)),
    _labs("linux-libc-dev", "/usr/include/linux/bpf.h", images=(_VM, _RUNNER)),
    # A system that is complete has nothing left to compile; the runner is built with its own Python.
    _labs("python3-dev", is_there=_python_has_headers, images=(_RUNNER,)),
    _labs("ca-certificates", is_there=_has_certificates, images=(_VM, _RUNNER)),
    # The services of a management network.
    _tests("openssh-server", "/usr/sbin/sshd", units="ssh.service", images=(_VM,)),
    _tests("openssh-client", "/usr/bin/ssh"),
    _tests("dnsmasq-base", "/usr/sbin/dnsmasq"),
    _tests("chrony", "/usr/sbin/chronyd", units="chrony.service"),
    _tests("rsyslog", "/usr/sbin/rsyslogd", units="rsyslog.service"),
    _tests("lldpd", "/usr/sbin/lldpd", units="lldpd.service"),
    _tests("prometheus", "/usr/bin/prometheus", units="prometheus.service"),
    _tests("munge", "/usr/sbin/munged", units="munge.service"),
    _tests("slurmctld", "/usr/sbin/slurmctld", units="slurmctld.service"),
    _tests("slurmd", "/usr/sbin/slurmd", units="slurmd.service"),
    _tests("slurm-client", "/usr/bin/sbatch"),
    _tests("pmacct", "/usr/sbin/pmbmpd", units="nfacctd.service pmacctd.service sfacctd.service uacctd.service"),
    _tests("freeradius", "/usr/sbin/freeradius", units="freeradius.service"),
    # Programs over libfabric: what the provider is compiled with, and what lists it.
    _tests("libfabric-dev", "/usr/include/rdma/fi_tagged.h"),
    _tests("libfabric-bin", "fi_info", images=(_HOST,)),
    _tests("libpam-radius-auth", "/usr/lib/*/security/pam_radius_auth.so"),
    # InfiniBand: the subnet manager, what it manages, and its tools.
    _tests("opensm", "/usr/sbin/opensm", units="opensm.service"),
    _tests("ibsim-utils", "/usr/bin/ibsim"),
    _tests("libumad2sim0", "/usr/lib/*/umad2sim/libumad2sim.so*"),
    _tests("infiniband-diags", "/usr/sbin/ibnetdiscover", "/usr/bin/ibnetdiscover"),
    # Containers, Mininet, the lab VM, captures, pages, storage.
    _slow_tests("docker.io", "dockerd", units="docker.service docker.socket containerd.service"),
    _slow_tests("mininet", is_there=_system_python_has_mininet),
    _slow_tests("mmdebstrap", "mmdebstrap"),
    _slow_tests("e2fsprogs", "mke2fs", "debugfs"),
    _slow_tests("tshark", "tshark"),
    # Ubuntu has it as a snap alone; tests of pages skip there.
    _slow_tests("chromium-headless-shell", "chromium-headless-shell", release="Debian"),
    _slow_tests(
        "openvswitch-switch",
        "ovs-vswitchd",
        units="openvswitch-switch.service ovs-vswitchd.service ovsdb-server.service",
    ),
    _slow_tests("nbdkit", "nbdkit"),
    _slow_tests("fio", "fio"),
    _slow_tests(
        "nfs-ganesha-vfs",
        "ganesha.nfsd",
        units="nfs-ganesha.service nfs-ganesha-lock.service nfs-ganesha-config.service",
    ),
    _slow_tests("debian-archive-keyring", "/usr/share/keyrings/debian-archive-keyring.gpg"),
    _package(Level.ALL_TESTS, "ubuntu-keyring", "/usr/share/keyrings/ubuntu-archive-keyring.gpg"),
    _vagrant("vagrant", "vagrant"),
    _vagrant("vagrant-libvirt", "vagrant"),
    _vagrant(
        "libvirt-daemon-system",
        "vagrant",
        units="libvirtd.service libvirt-guests.service libvirtd.socket libvirtd-ro.socket libvirtd-admin.socket"
        " virtlogd.service virtlogd.socket virtlockd.service virtlockd.socket",
    ),
    _vagrant("libvirt-clients", "vagrant"),
    _vagrant("qemu-system-x86", "vagrant", images=(_QEMU,)),
    _vagrant("qemu-utils", "vagrant", images=(_QEMU,)),
    _vagrant("iptables", "vagrant"),
    _vagrant("rsync", "vagrant", images=(_VM,)),
    _images("git", images=(_RUNNER,)),  # actions/checkout makes no repository without it
    # Images alone: the system of the lab VM, soft RDMA and storage in it, and what of the testbed runs in a container.
    _images("seabios", images=(_QEMU,)),
    *(_images(name, images=(_VM,)) for name in ("busybox-static", "dbus", "kmod", "sudo")),
    *(_images(name, images=(_VM,)) for name in ("systemd-resolved", "systemd-sysv")),
    *(_images(name, images=(_VM,)) for name in ("ethtool", "ibverbs-utils", "nvme-cli", "python3-pyverbs")),
    *(_images(name, images=(_VM,)) for name in ("rdma-core", "rdmacm-utils")),
    *(_images(name, images=(_VM, _HOST)) for name in ("ibverbs-providers", "perftest")),
    *(
        _images(name, images=(_HOST,))
        for name in ("python3-cryptography", "python3-httptools", "python3-msgspec", "python3-numpy")
    ),
)


def packages_of(image: DebianImage) -> tuple[str, ...]:
    """Return the names of the packages that an image is made of, in the order of the alphabet."""
    return tuple(sorted(package.name for package in PACKAGES if image in package.images))


def package_with(program: str) -> str:
    """Return the name of the package that brings a program of the table."""
    return next(package.name for package in PACKAGES if program in package.brings)


def missing_packages(level: Level, release: str) -> list[Package]:
    """Return what this machine, whose release is called so, lacks for a level."""
    return [
        package
        for package in PACKAGES
        if package.level is not None
        and package.level <= level
        and package.release in release
        and not package.is_installed()
    ]
