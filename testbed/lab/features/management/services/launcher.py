"""Starting the programs of services in the namespaces of nodes, all at once, and waiting until every one answers.

A program runs in the foreground, in a session of its own: it outlives us, and goes with its node, whose network
namespace it is in. It is started by setpriv(1), as its user, with its capabilities and no way to more. Its pid and what
it prints are in files of the service's directory.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import select
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from testbed.base.cleanup import closed_at_end
from testbed.base.errors import CapabilityError, DriverError
from testbed.base.files import write_atomically
from testbed.base.installation import packages
from testbed.base.installation.packages import KnownProgram
from testbed.base.linux import syscalls
from testbed.base.linux.namespaces import in_namespace
from testbed.base.linux.processes import disown, processes_in
from testbed.base.linux.views import own_hostname, own_mounts
from testbed.lab.core.deploy.node_files import memory_of
from testbed.lab.features.management.services.registry import REGISTRY
from testbed.lab.features.management.services.service import PID, File, Place, Port, ServiceProgram, Surroundings

START_TIMEOUT_S = 20.0
PID_SUFFIX = ".pid"
"""The ending of the names of the files that have the pids of a service's programs."""
ASKED_AGAIN_MS = 50
"""The time for which a service that does not answer yet is left alone, unless a program ends."""
_ASKED_AT_ONCE = 8
_LINES = 5
_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
_SEARCH = f"{_ENVIRONMENT['PATH']}:{Path(sys.executable).parent}"


def missing_programs(service: str) -> tuple[KnownProgram, ...]:
    """The programs that a service needs and this machine lacks."""
    return packages.missing_programs(REGISTRY[service].needs, _SEARCH)


def _located(program: str) -> str | None:
    return shutil.which(program, path=_SEARCH)


class ServiceLauncher:
    """Starts services on nodes, and waits for them."""

    def __init__(self) -> None:
        self._places: list[Place] = []
        self._started: dict[tuple[str, str, str], subprocess.Popen[bytes]] = {}

    def start(self, places: Sequence[Place]) -> None:
        """Write the files of services and start their programs. Raises `DriverError`, `CapabilityError`."""
        self._places += places
        for name, lab in {place.service: place.lab for place in places}.items():
            prepare(name, lab)
        for place in places:
            with _disk_errors(str(place)):
                _write_files(place)
        for place in places:
            for program in REGISTRY[place.service].programs(place):
                self._started[place.service, place.node, program.name] = _start(place, program)

    def wait(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until every service answers. Raises `DriverError` for one that ended, or that never did."""
        waiting = self._places
        deadline = time.monotonic() + timeout_s
        ends = select.poll()
        descriptors = [os.pidfd_open(process.pid) for process in self._started.values() if process.poll() is None]
        try:
            for descriptor in descriptors:
                ends.register(descriptor, select.POLLIN)
            while True:
                said = answers(waiting)
                self.check_alive()
                waiting = [place for place in waiting if said[place.service, place.node] is None]
                if not waiting:
                    return
                if time.monotonic() > deadline:
                    raise _failure(waiting[0], f"does not answer after {timeout_s:g} s")
                ends.poll(ASKED_AGAIN_MS)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def check_alive(self) -> None:
        """Raise `DriverError` if a program has ended, with what it said."""
        for place in self._places:
            for program in REGISTRY[place.service].programs(place):
                process = self._started[place.service, place.node, program.name]
                if (status := process.poll()) is not None:
                    raise _failure(place, f"ended: {program.name} has status {status}")

    def release(self) -> None:
        """Let them live on without us."""
        for process in self._started.values():
            disown(process)


def prepare(service: str, lab: Surroundings) -> None:
    """Make what the places of a service share, where it is not there yet. Raises `DriverError`."""
    with _disk_errors(service):
        REGISTRY[service].prepare(lab)


def tell(place: Place, changed: Collection[str], pids: Mapping[str, int]) -> None:
    """Write those files of a service anew that it takes while it runs, and have its programs, which run as `pids` say,
    take them. Raises `DriverError`."""
    service = REGISTRY[place.service]
    with _disk_errors(str(place)):
        for name, file in service.files(place).items():
            if name in changed:
                _write_file(place, name, file)
    try:
        service.tell(place, changed, pids)
    except (OSError, EOFError, ValueError, KeyError) as error:
        raise DriverError(
            f"{place} does not take its new settings: {error}",
            operation="service",
            hint=f"testbed service restart {place.service} {place.node}",
        ) from error


def running_programs(places: Iterable[Place], identities: Collection[int]) -> dict[tuple[str, str], dict[str, int]]:
    """The programs of services that run, with their pids, by service and node. `identities` are the nodes' namespaces.

    A pid that is another process's by now is told by its namespace.
    """
    present = {process.pid for process in processes_in(identities)}
    found: dict[tuple[str, str], dict[str, int]] = {}
    for place in places:
        pids = found.setdefault((place.service, place.node), {})
        for program in REGISTRY[place.service].programs(place):
            with suppress(OSError, ValueError):
                pid = int(_pid_file(place, program).read_text())
                if pid in present:
                    pids[program.name] = pid
    return found


def processes_of(places: Iterable[Place], identities: Collection[int]) -> set[int]:
    """The pids of the processes of services, by their command line or by the log that they print to, whether or not
    they were noted.

    `identities` are the namespaces of their nodes. What a service starts for its users, such as a log-in or a job, may
    have its errors there, and is none of them.
    """
    programs = [program for place in places for program in REGISTRY[place.service].programs(place)]
    commands = {program.arguments[1:] for program in programs if len(program.arguments) > 1}
    logs = {(str(place.log), end) for place in places for end in ((1,) if REGISTRY[place.service].is_used else (1, 2))}
    return {
        process.pid
        for process in processes_in(identities)
        if _arguments(process.pid) in commands or any((_open_file(process.pid, end), end) in logs for end in (1, 2))
    }


def _arguments(pid: int) -> tuple[str, ...]:
    """The arguments of a process, without its program; () where it has ended."""
    with suppress(OSError):
        return tuple(Path(f"/proc/{pid}/cmdline").read_text(errors="replace").rstrip("\0").split("\0")[1:])
    return ()


def _open_file(pid: int, descriptor: int) -> str:
    """The file that a descriptor of a process is of; "" where it has ended."""
    with suppress(OSError):
        return os.readlink(f"/proc/{pid}/fd/{descriptor}")  # noqa: PTH115
    return ""


def answers(places: Sequence[Place]) -> dict[tuple[str, str], str | None]:
    """Ask services, and return their answers by service and node; None for one that does not answer."""
    with ThreadPoolExecutor(_ASKED_AT_ONCE, thread_name_prefix="services") as pool:
        return {
            (place.service, place.node): said for place, said in zip(places, pool.map(_answer, places), strict=True)
        }


def _answer(place: Place) -> str | None:
    return in_namespace(place.namespace, lambda: REGISTRY[place.service].answer(place))


def require_ports(places: Iterable[Place]) -> None:
    """Raise `DriverError` where somebody listens already at a port that a service is about to."""
    for place in places:
        for port in REGISTRY[place.service].ports(place):
            if not _is_free(place, port):
                raise DriverError(
                    f"{place} cannot start: {port} of {place.address} is taken",
                    operation="service",
                    hint=f"`testbed exec {place.node} -- ss -lntup` shows by whom",
                )


def _is_free(place: Place, port: Port) -> bool:
    kind = socket.SOCK_STREAM if port.kind == "tcp" else socket.SOCK_DGRAM

    def bind() -> bool:
        with socket.socket(socket.AF_INET, kind | socket.SOCK_CLOEXEC) as trying:
            if kind == socket.SOCK_STREAM:  # connections that were closed a moment ago are not in the way
                trying.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trying.bind((str(place.address), port.number))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    return False
                raise
        return True

    return in_namespace(place.namespace, bind)


def last_lines(place: Place, count: int = _LINES) -> str:
    """The last lines that the programs of a service printed."""
    with suppress(OSError):
        return "\n".join(place.log.read_text(errors="replace").splitlines()[-count:])
    return ""


def _failure(place: Place, why: str) -> DriverError:
    said = last_lines(place)
    return DriverError(
        f"{place} {why}" + (f":\n{said}" if said else ""),
        operation="service",
        hint=f"its log is {place.log} (deploy --keep-failed leaves it)",
    )


@contextmanager
def _disk_errors(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise DriverError(
            f"cannot write the files of {what}: {error.strerror}{where}",
            operation="write",
            errno=error.errno or 0,
            hint="make room on its file system" if error.errno in (errno.ENOSPC, errno.EDQUOT) else None,
        ) from error


def _user(name: str) -> tuple[int, int]:
    """The number of a user and of its group; root's for no name."""
    if not name:
        return 0, 0
    try:
        found = pwd.getpwnam(name)
    except KeyError as error:
        raise CapabilityError(f"there is no user {name}", missing=name, hint="its package makes it") from error
    return found.pw_uid, found.pw_gid


def _write_files(place: Place) -> None:
    """Make a service's directory, which is root's, and the one in it that is the service's own."""
    service = REGISTRY[place.service]
    user, group = _user(service.user(place))
    place.own.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.chown(place.own, user, group)
    (place.own / PID).unlink(missing_ok=True)  # of one that was killed, whose number another process may have
    for name, file in service.files(place).items():
        _write_file(place, name, file)
    place.log.touch(mode=0o644)


def _write_file(place: Place, name: str, file: File) -> None:
    """Write a file of a service in place of an older one."""
    path = place.directory / name
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w") as stream:  # noqa: PTH123
        if file.secret:
            os.fchown(descriptor, *_user(REGISTRY[place.service].user(place)))
        os.fchmod(descriptor, 0o600 if file.secret else 0o644)
        stream.write(file.text)


def _pid_file(place: Place, program: ServiceProgram) -> Path:
    return place.directory / f"{program.name}{PID_SUFFIX}"


def _start(place: Place, program: ServiceProgram) -> subprocess.Popen[bytes]:
    """Start a program, and note its pid."""
    handed_on: list[int] = []
    environment = _ENVIRONMENT | dict(program.environment)

    def start() -> subprocess.Popen[bytes]:
        with closed_at_end(os.open(place.log, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)) as output:
            _see_own(place, program)
            return subprocess.Popen(
                command_line(place, program),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                cwd="/",
                env=environment,
                pass_fds=handed_on,
            )

    try:
        if program.machine_network:
            handed_on.append(os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC))
            environment[program.machine_network] = str(handed_on[0])
        process = in_namespace(place.namespace, start)
        write_atomically(_pid_file(place, program), f"{process.pid}\n", durable=False)
    except OSError as error:
        raise DriverError(f"cannot start {program.name} of {place}: {error}", operation="service") from error
    finally:
        for descriptor in handed_on:
            os.close(descriptor)
    return process


def command_line(place: Place, program: ServiceProgram) -> list[str]:
    """Return the command that starts a program: by setpriv(1), which takes from it what it does not need."""
    name, *arguments = program.arguments
    kept = ",".join(["-all", *(f"+{capability}" for capability in program.capabilities)])
    found = ["setpriv", "--no-new-privs", f"--bounding-set={kept}"]
    if program.user:
        user, group = _user(program.user)
        found += [
            f"--reuid={user}",
            f"--regid={group}",
            _groups(program),
            f"--inh-caps={kept}",
            f"--ambient-caps={kept}",
        ]
    else:
        found += ["--inh-caps=-all"]
    path = str(_own_path(place, program)) if program.confined else _located(name) or name
    return [*found, "--", path, *arguments]


def _own_path(place: Place, program: ServiceProgram) -> Path:
    """Return by which path a program is started that has an AppArmor profile for its usual one (apparmor.d(5))."""
    return place.directory / program.name


def _groups(program: ServiceProgram) -> str:
    if not program.groups:
        return "--clear-groups"
    return f"--groups={','.join(str(grp.getgrnam(name).gr_gid) for name in program.groups)}"


def _see_own(place: Place, program: ServiceProgram) -> None:
    """Give the calling thread, and what it starts, the view of the machine that a program is to have."""
    if program.hostname:
        own_hostname(place.node)
    memory = memory_of(place.lab.run, place.node) if REGISTRY[place.service].is_used else None
    if memory is not None:  # what users start is a program of the node as any other
        memory.join()
    if not program.binds and not program.scratch and not program.confined and memory is None:
        return
    own_mounts()
    if memory is not None:
        memory.mount()
    for target, name in program.binds.items():
        if Path(target).exists():
            syscalls.mount(str(place.directory / name), target, None, syscalls.MS_BIND)
    if program.confined and (path := _located(program.arguments[0])) is not None:
        _own_path(place, program).touch()
        syscalls.mount(path, str(_own_path(place, program)), None, syscalls.MS_BIND)
    for target in program.scratch:
        syscalls.mount("scratch", target, "tmpfs", 0)
        Path(target).chmod(0o755)
