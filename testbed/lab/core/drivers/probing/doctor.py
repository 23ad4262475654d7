"""The report on this machine for labs: what it has and lacks, feature by feature, and how to get what is missing.

Data only: the command line renders it. Nothing stays behind and nothing of the machine is changed but a cache.
"""

from __future__ import annotations

import os
import platform
import resource
import shutil
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.base.compiled.build import missing
from testbed.base.compiled.finder import left_out
from testbed.base.errors import CapabilityError
from testbed.base.installation.packages import PROGRAMS
from testbed.lab.core.drivers.probing.capabilities import Capabilities, probe_capabilities
from testbed.lab.core.drivers.probing.machine import (
    CONTAINER_HINT,
    FrrInstallation,
    find_frr,
    missing_capabilities,
    parse_available_memory,
)
from testbed.lab.core.drivers.probing.machine_probe import kernel_version
from testbed.lab.core.drivers.probing.mechanisms import Mechanism, choose_mechanisms
from testbed.lab.core.drivers.probing.status import Status
from testbed.lab.core.drivers.probing.tools import Installed
from testbed.protocols import is_compiled

_DOCKER_TIMEOUT_S = 1.0
OLDEST_KERNEL = (6, 1)

FILES_PER_LAB = 8192
"""Open files that a lab of 1,024 NICs needs in one process: three descriptors for each of its nodes, and room."""

NEIGHBOURS_WANTED = 16384
"""Entries of the neighbour table that large labs need; it is one table for the whole machine."""

MEMORY_LARGE_LAB = 2560 << 20
"""Free memory for 1,024 NICs with 40 switches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One thing a lab may need. `required`: no lab can be deployed without it. `remedy` is "" where all is well."""

    name: str
    status: Status
    detail: str
    needed_for: str
    remedy: str = ""
    required: bool = False
    group: str = "machine"


def _judged(
    name: str, good: bool, detail: str, needed_for: str, remedy: str, *, required: bool = False, group: str = "machine"
) -> Feature:
    """A feature that is as it should be, or is missing where it is required, or weak where it is not."""
    bad = Status.MISSING if required else Status.DEGRADED
    return Feature(
        name=name,
        status=Status.OK if good else bad,
        detail=detail,
        needed_for=needed_for,
        remedy="" if good else remedy,
        required=required,
        group=group,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineReport:
    """Everything probed, in the order in which it matters, and what it means for each feature of the testbed.

    `capabilities` has the kernel's answers one by one.
    """

    features: tuple[Feature, ...]
    mechanisms: tuple[Mechanism, ...] = ()
    capabilities: Capabilities | None = None

    @property
    def can_deploy(self) -> bool:
        """Tell whether nothing required is missing."""
        return not any(feature.required and feature.status is Status.MISSING for feature in self.features)

    def feature(self, name: str) -> Feature:
        """Raises `KeyError` for a name that is not probed."""
        for feature in self.features:
            if feature.name == name:
                return feature
        raise KeyError(name)

    def mechanism(self, feature: str) -> Mechanism:
        """Raises `KeyError` for a feature that the testbed does not have."""
        for mechanism in self.mechanisms:
            if mechanism.feature == feature:
                return mechanism
        raise KeyError(feature)


def probe_machine(state_directory: Path | None = None, *, keep: bool = False, refresh: bool = False) -> MachineReport:
    """Probe everything: within three seconds the first time. Never raises for a thing that is missing.

    `state_directory` is where labs are recorded: default $TESTBED_STATE_DIR or /var/lib/testbed. `keep`: the kernel's
    answers are taken from there, unless `refresh`, and kept there.
    """
    state = state_directory or Path(os.environ.get("TESTBED_STATE_DIR", "/var/lib/testbed"))
    capabilities = probe_capabilities(state if keep else None, refresh=refresh)
    frr, installation = _frr()
    docker = docker_engine()
    return MachineReport(
        features=(
            _root(),
            frr,
            *kernel_features(capabilities.answers),
            _docker(docker),
            _neighbours(Path("/proc/sys/net/ipv4/neigh/default/gc_thresh3")),
            _open_files(),
            _state(state),
            _memory(Path("/proc/meminfo")),
            _transports(is_compiled(), missing(), left_out()),
            *(program_feature(capabilities.programs[program.name]) for program in PROGRAMS),
        ),
        mechanisms=choose_mechanisms(capabilities, frr=installation, docker=docker),
        capabilities=capabilities,
    )


def kernel_features(answers: Mapping[str, str]) -> tuple[Feature, ...]:
    """Return what labs need of the kernel, and what they are better with."""
    release = platform.release()
    modules = f"apt-get install linux-modules-extra-{release} (Ubuntu), or run a distribution kernel"
    old = kernel_version(release) < OLDEST_KERNEL

    def tried(name: str, answer: str, needed_for: str, remedy: str, *, required: bool = False) -> Feature:
        failure = answers[answer]
        detail = failure or "works"
        return _judged(name, not failure, detail, needed_for, remedy, required=required, group="kernel")

    return (
        _judged(
            "kernel",
            not old,
            release,
            "everything; tested from 6.1 on",
            "upgrade to Linux 6.1 or newer",
            group="kernel",
        ),
        tried("network namespaces", "namespace.net", "a node is a namespace", "run as root", required=True),
        tried("mount namespaces", "namespace.mount", "routing daemons, `exec`", "run as root", required=True),
        tried("veth", "link.veth", "every link", f"modprobe veth; {modules}", required=True),
        tried("bridge", "link.bridge", "rails of a switch", f"modprobe bridge; {modules}", required=True),
        tried("HTB", "qdisc.htb", "line rates", f"modprobe sch_htb; {modules}", required=True),
        tried("IPv6", "sysctl.ipv6", "unnumbered BGP", "boot without ipv6.disable=1", required=True),
        tried(
            "multipath hash policy 3",
            "sysctl.multipath policy",
            "ECMP that keeps a flow on its path",
            "a kernel with CONFIG_IP_ROUTE_MULTIPATH, Linux 5.12 or newer",
            required=True,
        ),
        tried(
            "multipath hash seed",
            "sysctl.multipath seed",
            "a different choice at every switch, the same in every run",
            "Linux 6.11 or newer",
        ),
        tried(
            "receive steering default",
            "sysctl.rps default mask",
            "ports that do not reorder, without a write for each",
            "Linux 6.3 or newer",
        ),
        tried(
            "bridged frames",
            "sysctl.bridged frames",
            "queues between NICs of one switch that their senders' socket buffers do not limit",
            "modprobe br_netfilter, which has the machine's own bridges filtered, too",
        ),
        tried(
            "eBPF data path",
            "ebpf.port programs",
            "`qos:`: classes, ECN, PFC, trimming, load balancing, wire loss",
            "apt-get install clang libbpf-dev libbpf1; Linux 6.1 or newer with CONFIG_DEBUG_INFO_BTF",
        ),
        tried("netem", "qdisc.netem", "link delay by the kernel", f"modprobe sch_netem; {modules}"),
        tried(
            "real time",
            "process.SCHED_FIFO",
            "pause frames in time",
            "start with CAP_SYS_NICE, or outside of the container",
        ),
    )


def program_feature(program: Installed) -> Feature:
    """A program as found."""
    wanted = next(item for item in PROGRAMS if item.name == program.name)
    if not program.path:
        status, detail = Status.MISSING, "not installed"
    elif program.error:
        status, detail = Status.DEGRADED, f"{program.path} {program.error}"
    else:
        status, detail = Status.OK, program.version or program.path
    return Feature(
        name=program.name,
        status=status,
        detail=detail,
        needed_for=wanted.needed_for,
        remedy="" if status is Status.OK else wanted.installation,
        group="programs",
    )


def _root() -> Feature:
    needed_for = "namespaces, links, mounts"
    if os.geteuid() != 0:
        detail = f"running as user {os.geteuid()}"
        return _judged("root", False, detail, needed_for, "run with sudo", required=True)
    lacking = missing_capabilities()
    detail = f"without {', '.join(lacking)}" if lacking else "yes"
    return _judged("root", not lacking, detail, needed_for, CONTAINER_HINT, required=True)


def _frr() -> tuple[Feature, FrrInstallation | None]:
    needed_for = "every switch"
    try:
        found = find_frr()
    except CapabilityError as error:
        return _judged("FRR", False, error.message, needed_for, error.hint or "", required=True), None
    detail = f"{found.version_text} in {found.directory}: {', '.join(found.daemons)}"
    return _judged("FRR", True, detail, needed_for, "", required=True), found


def docker_engine() -> str:
    """ "" where the engine answers on its socket (the client alone would say nothing about it), else why not."""
    path = docker_socket(os.environ.get("DOCKER_HOST", ""))
    if path is None:
        return "$DOCKER_HOST names an engine on another machine"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as engine:
            engine.settimeout(_DOCKER_TIMEOUT_S)
            engine.connect(str(path))
            engine.sendall(b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n")
            answer = engine.recv(256)
    except OSError as error:
        return f"{path}: {os.strerror(error.errno) if error.errno else error}"
    return "" if b" 200 " in answer.split(b"\r\n", 1)[0] else f"{path} does not answer as Docker does"


def _docker(why: str) -> Feature:
    return Feature(
        name="docker engine",
        status=Status.MISSING if why else Status.OK,
        detail=why or os.environ.get("DOCKER_HOST", "") or "answers",
        needed_for="nodes of runtime docker",
        remedy="apt-get install docker.io, and start it" if why else "",
    )


def docker_socket(docker_host: str) -> Path | None:
    """The socket that $DOCKER_HOST names; None for an engine on another machine."""
    if not docker_host:
        return Path("/var/run/docker.sock")
    return Path(docker_host.removeprefix("unix://")) if docker_host.startswith("unix://") else None


def _neighbours(limit: Path) -> Feature:
    needed_for = "labs of some thousand interfaces; `deploy` raises the limit while they run, where it can"
    try:
        entries = int(limit.read_text())
        adjustable = os.access(limit, os.W_OK)
    except (OSError, ValueError) as error:
        hidden = isinstance(error, FileNotFoundError)
        detail = "the limit is not seen from this network namespace" if hidden else f"{limit}: {error}"
        remedy = "for large labs, run in the machine's first network namespace, not in a container's"
        return _judged("neighbour table", False, detail, needed_for, remedy)
    enough = adjustable or entries >= NEIGHBOURS_WANTED
    detail = f"{entries} entries, {'adjustable' if adjustable else 'not adjustable'}"
    remedy = f"sysctl -w net.ipv4.neigh.default.gc_thresh3={NEIGHBOURS_WANTED}"
    return _judged("neighbour table", enough, detail, needed_for, remedy)


def _open_files() -> Feature:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = hard if os.geteuid() != 0 else max(hard, FILES_PER_LAB)  # root may raise the hard limit
    unlimited = resource.RLIM_INFINITY in (most, hard)
    enough = unlimited or most >= FILES_PER_LAB
    detail = f"limit {soft}, may be raised to {'any number' if unlimited else most}"
    return _judged("open files", enough, detail, f"large labs ({FILES_PER_LAB})", f"ulimit -n {FILES_PER_LAB}")


def _state(directory: Path) -> Feature:
    """Tell whether the directory can be written, or could be made; it is not made here."""
    existing = directory
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    writable = existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)
    free = shutil.disk_usage(existing).free if existing.exists() else 0
    return _judged(
        "state directory",
        writable and free >= 64 << 20,
        f"{directory}: {'writable' if writable else 'not writable'}, {free / (1 << 30):.1f} GiB free",
        "recording what a lab created, so that `destroy` removes exactly that",
        "set TESTBED_STATE_DIR to a directory that can be written and has 64 MiB free",
        required=True,
    )


def _transports(compiled: bool, lacking: str, changed: Sequence[str]) -> Feature:
    found = "compiled" if compiled else f"interpreted{': no ' + lacking if lacking else ''}"
    return _judged(
        "transports",
        compiled,
        f"{found}; interpreted, since changed: {', '.join(changed)}" if changed else found,
        "several times the packets a second from the same CPUs",
        f"install {lacking}" if lacking else "python -m testbed.base.compiled",
    )


def _memory(meminfo: Path) -> Feature:
    available = parse_available_memory(meminfo.read_text())
    return _judged(
        "memory",
        available >= MEMORY_LARGE_LAB,
        f"{available / (1 << 30):.1f} GiB available",
        "0.5 GiB for a small lab, 2.5 GiB for 1,024 NICs",
        "smaller labs fit: about 20 MiB for a switch and 1 MiB for a host",
    )
