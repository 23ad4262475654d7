"""Starting FRR daemons in the namespaces of switches, all at once, straight from this process.

Each node has a run directory with its configuration files, sockets, pid files and logs, owned by the
user FRR drops to. zebra comes first; the others of a node start the moment zebra's vty socket appears
(it is made after the socket that they connect to, and a client that finds nobody waits ten seconds).

Releases differ in one thing here: since FRR 10 there is mgmtd, which has no options for its sockets and
configuration. There, daemons run in mount namespaces in which FRR's own directories are the node's.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from testbed.base.cleanup import closed_at_end
from testbed.base.errors import CapabilityError, DriverError
from testbed.base.linux import syscalls
from testbed.base.linux.inotify import DirectoryWatch
from testbed.base.linux.namespaces import enter_namespace
from testbed.base.linux.processes import Process, disown
from testbed.base.linux.views import own_mounts
from testbed.base.linux.vty import OWN_CONFIGURATION, OWN_RUN_DIRECTORY, shell_directory
from testbed.lab.core.drivers.probing.machine import KNOWN_DAEMONS, FrrInstallation
from testbed.lab.core.drivers.routing.vrf_views import VRFS_ARE_NAMESPACES, see_own_vrfs

FRR_USER = "frr"
START_TIMEOUT_S = 240.0
"""One that ended is noticed at once; in an emulated machine all of a lab take minutes."""
CRASH_DIRECTORY = Path("/var/tmp/frr")
"""The directory in which each daemon makes a directory `<daemon>.<pid>` that it never removes (FRR lib/log.c)."""
CONFIGURATION_MODE = 0o600
"""A configuration may have passwords in it."""
READY_FILE = "zebra.vty"
SHELL_CONFIGURATION = "service integrated-vtysh-config\n"
"""The file vtysh.conf: what `write` in vtysh saves is one file, the node's own."""


class Daemon(Protocol):
    """A daemon that was started."""

    returncode: int | None

    def poll(self) -> int | None:
        """Return its status if it has ended."""

    def release(self) -> None:
        """Let it live on without us."""


class _Child(subprocess.Popen[bytes]):
    """A daemon that is a child of ours."""

    def release(self) -> None:
        disown(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """The way to start daemons that are not this machine's: `frr` is theirs, `owner` the user and group it drops to.

    `start` is given a command line and the file for what it prints.
    """

    frr: FrrInstallation
    owner: tuple[int, int]
    start: Callable[[Sequence[str], Path], Daemon]


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonSet:
    """The daemons of one switch: `configurations` maps a daemon to its configuration file's text.

    `integrated` is the whole configuration as vtysh shows it, kept beside them for people. `elsewhere` None: they are
    this machine's, and children of ours.
    """

    node: str
    namespace: str
    directory: Path
    configurations: Mapping[str, str]
    integrated: str
    elsewhere: Elsewhere | None = None
    vrfs: Mapping[str, str] | None = None
    """The network namespaces of its VRFs, by the VRF's name; None where VRFs are no namespaces."""
    modules: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The modules of FRR that daemons load, by the daemon's name."""


def daemon_arguments(
    frr: FrrInstallation, daemon: str, directory: Path, *, vrfs: bool = False, modules: Sequence[str] = ()
) -> list[str]:
    """The command line of a daemon whose files all lie in `directory`; no TCP vty. `vrfs`: they are namespaces.
    `modules` are those that it loads."""
    arguments = [str(frr.daemon(daemon)), "-i", str(directory / f"{daemon}.pid"), "--vty_socket", str(directory)]
    arguments += ["-P", "0"]
    if daemon != "mgmtd":
        arguments += ["-f", str(directory / f"{daemon}.conf"), "-z", str(directory / "zserv.api")]
    if daemon == "bfdd" and not frr.managed:
        # Gone with FRR 10.2 (pull request 16463), and not needed where /run/frr is the node's own.
        arguments += ["--bfdctl", str(directory / "bfdd.sock")]
    if vrfs and daemon in ("zebra", "mgmtd"):
        arguments.append(VRFS_ARE_NAMESPACES)
    for module in modules:
        arguments += ["-M", module]
    return arguments


def configuration_file(directory: Path, daemon: str) -> Path:
    """Return where a daemon reads its configuration; mgmtd's is alone, for mgmtd reads those of other daemons beside
    it."""
    return own_directory(directory) / "mgmtd.conf" if daemon == "mgmtd" else directory / f"{daemon}.conf"


def own_directory(directory: Path) -> Path:
    """Return what the daemons of a node see as `OWN_RUN_DIRECTORY` and `OWN_CONFIGURATION`."""
    return directory / "frr"


def _see_own_directory(directory: Path) -> None:
    """Give the calling thread, and what it starts, a view of the machine in which FRR's directories are the node's."""
    own_mounts()
    for target in (OWN_RUN_DIRECTORY, OWN_CONFIGURATION):
        syscalls.mount(str(own_directory(directory)), str(target), None, syscalls.MS_BIND)


def prepare_run_directory(item: DaemonSet) -> None:
    """Write a switch's files; raises `DriverError` when the disk does not take them."""
    user, group = _user() if item.elsewhere is None else item.elsewhere.owner
    try:
        files = {configuration_file(item.directory, d): content for d, content in item.configurations.items()}
        files[item.directory / "frr.conf"] = item.integrated
        directories = [item.directory]
        if "mgmtd" in item.configurations:
            directories.append(own_directory(item.directory))
        remove_daemon_files(item.directory, item.configurations)
        if item.elsewhere is None:
            directories.append(shell_directory(item.directory))
            files[directories[-1] / "frr.conf"] = item.integrated
            files[directories[-1] / "vtysh.conf"] = SHELL_CONFIGURATION
            _empty(item.directory)
            if not OWN_RUN_DIRECTORY.exists():
                OWN_RUN_DIRECTORY.mkdir(mode=0o755)  # until FRR has been started once; its daemons make it just so
                os.chown(OWN_RUN_DIRECTORY, user, group)
        for directory in directories:
            directory.mkdir(parents=True, mode=0o755, exist_ok=True)
        for path, content in files.items():
            path.touch(mode=CONFIGURATION_MODE)
            path.write_text(content)
        # Logs may be there of another user's daemons, where a switch has become a container.
        theirs = item.directory.rglob("*") if item.elsewhere is not None else ()
        for path in {*files, *directories, *theirs}:
            os.chown(path, user, group, follow_symlinks=False)
    except OSError as error:
        raise DriverError(
            f"cannot write the files of {item.node}: {error.strerror}", operation="write", errno=error.errno or 0
        ) from error


def write_configurations(directory: Path, configurations: Mapping[str, str], integrated: str) -> None:
    """Write the files anew that the daemons of a node would be started with; those that run are not told.

    A file that is there keeps its owner, another one has that of the directory. Raises `DriverError`.
    """
    files = {configuration_file(directory, daemon): content for daemon, content in configurations.items()}
    files[directory / "frr.conf"] = integrated
    if shell_directory(directory).is_dir():
        files[shell_directory(directory) / "frr.conf"] = integrated
    try:
        for path, content in files.items():
            if path.exists() and path.read_text() == content:
                continue
            owner = path.stat() if path.exists() else directory.stat()
            new = path.with_name(f".{path.name}.new")
            new.touch(mode=CONFIGURATION_MODE)
            new.write_text(content)
            os.chown(new, owner.st_uid, owner.st_gid)
            new.replace(path)
    except OSError as error:
        raise DriverError(
            f"cannot write the files of {directory.name}: {error.strerror}", operation="write", errno=error.errno or 0
        ) from error


def remove_daemon_files(directory: Path, daemons: Iterable[str]) -> None:
    """Remove what daemons that have ended leave in the directory of their node, but for their logs."""
    for daemon in daemons:
        for name in (f"{daemon}.conf", f"{daemon}.pid", f"{daemon}.vty", f"{daemon}.out"):
            (directory / name).unlink(missing_ok=True)


def _empty(directory: Path) -> None:
    """Remove the files below a directory. The directories stay: shells of the node may see them at another place."""
    for path in list(directory.rglob("*")):
        if path.is_symlink() or not path.is_dir():
            path.unlink(missing_ok=True)


def _user() -> tuple[int, int]:
    """The user of this machine that FRR drops to, and its group."""
    try:
        user = pwd.getpwnam(FRR_USER)
    except KeyError as error:
        raise CapabilityError("there is no user frr", missing="FRR", hint="apt-get install frr") from error
    return user.pw_uid, user.pw_gid


class DaemonLauncher:
    """Starts the daemons of many switches and waits until each answers.

    Daemons run in the foreground in sessions of their own: they outlive this process, and Ctrl-C in the
    terminal does not reach them.
    """

    def __init__(self, frr: FrrInstallation | None) -> None:
        """`frr` is this machine's, None where all daemons are started elsewhere."""
        self.frr = frr
        self._started: dict[tuple[str, str], Daemon] = {}
        self._directories: dict[str, Path] = {}

    def start(self, sets: list[DaemonSet], *, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start all daemons of `sets`. Raises `DriverError` naming the daemon that ended or never answered."""
        by_directory = {item.directory: item for item in sets}
        with contextlib.closing(DirectoryWatch()) as watch:
            for item in sets:
                watch.add(item.directory)
            first = ("mgmtd", "zebra")
            self._launch([(item, daemon) for daemon in first for item in sets if daemon in item.configurations])
            waiting = set(by_directory)
            deadline = time.monotonic() + timeout_s
            while waiting:
                if not watch.wait(min(1.0, deadline - time.monotonic())):
                    self.check_alive()
                    if time.monotonic() > deadline:
                        names = ", ".join(sorted(by_directory[path].node for path in waiting))
                        raise DriverError(
                            f"zebra did not come up within {timeout_s:g} s in: {names}", operation="start"
                        )
                    continue
                ready = {path for path, name in watch.read() if name == READY_FILE and path in waiting}
                waiting -= ready
                self._launch(
                    [
                        (by_directory[path], daemon)
                        for path in ready
                        for daemon in by_directory[path].configurations
                        if daemon not in first
                    ]
                )

    def start_beside(
        self, sets: Sequence[DaemonSet], more: Mapping[str, Sequence[str]], *, timeout_s: float = START_TIMEOUT_S
    ) -> None:
        """Start `more` daemons of nodes, by node, whose zebra runs, and wait until each answers.

        Raises `DriverError` naming the one that ended or never answered.
        """
        items = [(item, daemon) for item in sets for daemon in more.get(item.node, ())]
        waiting = {(item.directory, f"{daemon}.vty") for item, daemon in items}
        with contextlib.closing(DirectoryWatch()) as watch:
            for directory, name in waiting:
                (directory / name).unlink(missing_ok=True)  # of one that was killed
                watch.add(directory)
            self._launch(items)
            deadline = time.monotonic() + timeout_s
            while waiting:
                if not watch.wait(min(1.0, deadline - time.monotonic())):
                    self.check_alive()
                    if time.monotonic() > deadline:
                        names = ", ".join(sorted(f"{name} of {path.name}" for path, name in waiting))
                        raise DriverError(f"not up within {timeout_s:g} s: {names}", operation="start")
                    continue
                waiting -= set(watch.read())

    def _launch(self, items: list[tuple[DaemonSet, str]]) -> None:
        here: list[tuple[DaemonSet, str]] = []
        for item, daemon in items:
            self._directories[item.node] = item.directory
            if (elsewhere := item.elsewhere) is not None:
                arguments = daemon_arguments(
                    elsewhere.frr, daemon, item.directory, modules=item.modules.get(daemon, ())
                )
                self._started[item.node, daemon] = elsewhere.start(arguments, item.directory / f"{daemon}.out")
            else:
                here.append((item, daemon))
        frr = self.frr
        if frr is None or not here:
            return

        def launch() -> None:
            for item, daemon in here:
                self._start(frr, item, daemon)

        if frr.managed or any(item.vrfs is not None for item, _ in here):
            for item, daemon in here:  # a view of the machine is for one node: a thread for each
                syscalls.in_thread(partial(self._start, frr, item, daemon))
        else:
            syscalls.in_thread(launch)

    def _start(self, frr: FrrInstallation, item: DaemonSet, daemon: str) -> None:
        """Start a daemon from the calling thread, which is not to be used for anything else."""
        enter_namespace(item.namespace)
        with closed_at_end(
            os.open(item.directory / f"{daemon}.out", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        ) as output:
            if frr.managed:
                _see_own_directory(item.directory)
            if item.vrfs is not None:
                see_own_vrfs(item.vrfs)
            self._started[item.node, daemon] = _Child(
                daemon_arguments(
                    frr, daemon, item.directory, vrfs=item.vrfs is not None, modules=item.modules.get(daemon, ())
                ),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                cwd="/",
            )

    @property
    def started(self) -> dict[str, list[str]]:
        """The daemons that were started, by node."""
        found: dict[str, list[str]] = {}
        for node, daemon in self._started:
            found.setdefault(node, []).append(daemon)
        return found

    def check_alive(self) -> None:
        """Raise `DriverError` if a daemon has ended, with what it said."""
        for (node, daemon), process in self._started.items():
            status = process.poll()
            if status is not None:
                said = last_output(self._directories[node], daemon)
                raise DriverError(
                    f"{daemon} of {node} ended with status {status}" + (f": {said}" if said else ""),
                    operation="start",
                )

    def ended(self) -> list[tuple[str, str, int]]:
        """(node, daemon, status) of the daemons that are not running any more."""
        return [
            (node, daemon, status)
            for (node, daemon), process in self._started.items()
            if (status := process.poll()) is not None
        ]

    def release(self) -> None:
        """Let the daemons live on without us."""
        for process in self._started.values():
            process.release()


def remove_crash_directories(directories: Iterable[Path], killed: Iterable[Process]) -> None:
    """Remove what daemons left in FRR's crash directory: those whose pid files lie in `directories`, and `killed` ones.

    `directories` are run directories of nodes. The pid files of a container have numbers that only mean something in
    there, so its directory is none of them. A daemon that somebody killed leaves its pid file, until it is started
    anew. It makes its crash directory before that file, so one that was killed in between has only the former.
    """
    files = [pid_file for directory in directories for pid_file in directory.glob("*.pid")]
    left = [(pid_file.stem, pid_file.read_text().strip()) for pid_file in files]
    left += [(process.command, str(process.pid)) for process in killed]
    for daemon, pid in left:
        if daemon in KNOWN_DAEMONS and pid.isdigit():
            shutil.rmtree(CRASH_DIRECTORY / f"{daemon}.{pid}", ignore_errors=True)
    with contextlib.suppress(OSError):
        CRASH_DIRECTORY.rmdir()  # goes only when empty; the next daemon makes it anew


def last_output(directory: Path, daemon: str, lines: int = 5) -> str:
    """The last lines a daemon printed, for an error message."""
    with contextlib.suppress(FileNotFoundError):
        return "\n".join((directory / f"{daemon}.out").read_text(errors="replace").splitlines()[-lines:])
    return ""
