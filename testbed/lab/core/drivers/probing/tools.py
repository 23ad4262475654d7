"""Programs that labs use, as installed: where they are and which version, asked once for each file.

A version is kept with the file's identity, so that what is installed or upgraded meanwhile is asked anew.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

_TIMEOUT_S = 5.0
_SEARCH = os.pathsep.join(("/usr/local/sbin", "/usr/sbin", "/sbin", str(Path(sys.executable).parent)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
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


def installation_of(programs: Collection[Program]) -> str:
    """Return the commands that install all of several programs: one of apt, one of pip."""
    lines = []
    for command, pip in (("apt-get install", False), ("pip install", True)):
        packages = dict.fromkeys(program.package for program in programs if program.pip is pip)
        if packages:
            lines.append(" ".join((command, *packages)))
    return "; ".join(lines)


PROGRAMS = (
    Program(
        name="clang", package="clang", needed_for="compiling the eBPF data path, and what switches scale-up domains"
    ),
    Program(name="bpftool", package="bpftool", needed_for="looking into the data path by hand", question=("version",)),
    Program(name="ip", package="iproute2", needed_for="looking into nodes by hand", question=("-V",)),
    Program(name="tc", package="iproute2", needed_for="looking at queues by hand", question=("-V",)),
    Program(name="iperf3", package="iperf3", needed_for="TCP scenarios such as rail-permutation"),
    Program(name="ib_write_bw", package="perftest", needed_for="soft RDMA by perftest"),
    Program(name="rdma", package="iproute2", needed_for="soft RDMA devices", question=("-V",)),
    Program(name="fio", package="fio", needed_for="transports to storage targets other than nvme-tcp"),
    Program(name="nbdkit", package="nbdkit", needed_for="the transport nbd"),
    Program(name="ganesha.nfsd", package="nfs-ganesha-vfs", needed_for="the transport nfs", question=("-v",)),
    Program(name="setpriv", package="util-linux", needed_for="programs that end with whoever started them"),
    Program(name="tcpdump", package="tcpdump", needed_for="`testbed capture`"),
    # tshark takes half a second to say its version.
    Program(name="tshark", package="tshark", needed_for="captures with protocol detail", question=None),
    Program(name="ethtool", package="ethtool", needed_for="looking at offloads by hand", question=None),
    Program(name="mmdebstrap", package="mmdebstrap", needed_for="building the lab VM (QEMU is in what it builds)"),
    Program(name="docker", package="docker.io", needed_for="nodes of runtime docker", question=("--version",)),
    Program(name="sshd", package="openssh-server", needed_for="the service ssh", question=("-V",)),
    Program(name="ssh", package="openssh-client", needed_for="logging in to nodes, and the lab VM", question=("-V",)),
    Program(name="dnsmasq", package="dnsmasq-base", needed_for="the services dns and dhcp"),
    Program(name="chronyd", package="chrony", needed_for="the service time"),
    Program(name="rsyslogd", package="rsyslog", needed_for="the service syslog", question=("-v",)),
    Program(name="prometheus", package="prometheus", needed_for="the service telemetry"),
    Program(name="lldpd", package="lldpd", needed_for="the service lldp", question=("-v",)),
    Program(name="munged", package="munge", needed_for="the service slurm", question=("-V",)),
    Program(name="slurmctld", package="slurmctld", needed_for="the service slurm", question=("-V",)),
    Program(name="slurmd", package="slurmd", needed_for="the service slurm", question=("-V",)),
    Program(name="sbatch", package="slurm-client", needed_for="the service slurm", question=("-V",)),
    Program(name="freeradius", package="freeradius", needed_for="the service aaa", question=("-v",)),
    Program(
        name="pam_radius_auth",
        package="libpam-radius-auth",
        needed_for="the service aaa",
        question=None,
        library="/lib/*/security/pam_radius_auth.so",
    ),
    Program(name="pmbmpd", package="pmacct", needed_for="the service bmp", question=("-V",)),
    Program(
        name="sushy-emulator",
        package="sushy-tools==2.2.0",
        needed_for="the service redfish",
        question=None,
        pip=True,
    ),
    Program(
        name="mn",
        package="mininet",
        needed_for="Mininet without testbed",
        question=("--version",),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """A program found. `path` "" where it is not; `version` "" where it was not asked; `error` if it does not run."""

    name: str
    path: str = ""
    version: str = ""
    error: str = ""
    identity: str = ""


def find_programs(known: Mapping[str, Installed], programs: Sequence[Program] = PROGRAMS) -> dict[str, Installed]:
    """All programs by name. Those in `known` whose file is the same are not asked again; others all at once."""
    found: dict[str, Installed] = {}
    ask: list[tuple[Program, Installed]] = []
    for program in programs:
        path = program.locate(None, _SEARCH)
        if path is None:
            found[program.name] = Installed(name=program.name)
            continue
        item = Installed(name=program.name, path=path, identity=_identity(path))
        earlier = known.get(program.name)
        if earlier is not None and earlier.identity == item.identity and earlier.path == path:
            found[program.name] = earlier
        elif program.question is None:
            found[program.name] = item
        else:
            ask.append((program, item))
    if ask:
        with ThreadPoolExecutor(max_workers=len(ask)) as pool:
            for item in pool.map(_ask, *zip(*ask, strict=True)):
                found[item.name] = item
    return {program.name: found[program.name] for program in programs}


def _identity(path: str) -> str:
    status = Path(path).stat()
    return f"{status.st_dev}:{status.st_ino}:{status.st_mtime_ns}:{status.st_size}"


def _ask(program: Program, item: Installed) -> Installed:
    try:
        answer = subprocess.run(
            [item.path, *(program.question or ())],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
            encoding="utf-8",
            errors="replace",
        )
    except (OSError, subprocess.SubprocessError) as error:
        return Installed(name=item.name, path=item.path, identity=item.identity, error=f"does not run: {error}")
    return Installed(
        name=item.name, path=item.path, identity=item.identity, version=parse_version(answer.stdout + answer.stderr)
    )


def missing_programs(names: Sequence[str], *paths: str | None) -> tuple[Program, ...]:
    """Return those of these known programs that none of `paths` (None: PATH) has."""
    known = {program.name: program for program in PROGRAMS}
    return tuple(known[name] for name in names if known[name].locate(*paths) is None)


_VERSION = re.compile(r"\d+(?:\.\d+)+(?:[-+~.\w]*\d)?")


def parse_version(text: str) -> str:
    """The first thing in a program's answer that looks like a version (numbers with dots); "" for none."""
    match = _VERSION.search(text)
    return match[0] if match else ""
