"""Processes inside nodes: starting them in a namespace, finding and ending all of them.

A process belongs to a node if its network namespace is the node's; nothing is ever found by its name.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from testbed.base.cleanup import closed_at_end, end_at_once, on_failure
from testbed.base.errors import DriverError
from testbed.base.files import CHECKOUT
from testbed.base.linux import syscalls
from testbed.base.linux.namespaces import enter_namespace, identities_of, in_namespace
from testbed.base.linux.views import NodeView, own_mounts

KILL_TIMEOUT_S = 60.0
REAPING_TIMEOUT_S = 10.0
"""Without any of them being reaped, until ended processes are said to stay in the process table: the init of the lab VM
(busybox) reaps one and sleeps a second, and a container's first process may never reap."""
REAPING_LOOK_MS = 20
"""Between two looks whether ended processes have been reaped, on kernels that do not tell (before Linux 6.9)."""
SERVERS_TIMEOUT_S = 240.0
"""For servers to start. One that fails is noticed at once; in an emulated machine beside other work Python alone
takes a minute to start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process found in a namespace. `command` is the kernel's short name of it."""

    pid: int
    identity: int
    command: str


def spawn(
    namespace: str, argv: Sequence[str], *, own_sysfs: bool = False, view: NodeView | None = None, **options: Any
) -> subprocess.Popen[bytes]:
    """Start `argv` in the published namespace; `options` are those of `subprocess.Popen`.

    `own_sysfs` gives the process a mount namespace whose /sys shows the node's interfaces, as
    `ip netns exec` does, and `view` the name, the files and the shared memory of the node.
    """

    def start() -> subprocess.Popen[bytes]:
        if view is not None:
            view.join()
        if own_sysfs or view is not None:
            own_mounts()
        if view is not None:
            view.enter()
        if own_sysfs:
            _mount_own_sysfs(namespace)
        return subprocess.Popen(list(argv), **options)

    return in_namespace(namespace, start)


def become(namespace: str, argv: Sequence[str], *, view: NodeView, env: Mapping[str, str]) -> NoReturn:
    """Become `argv`, in the published namespace, with the view of a node and a /sys of its network.

    The process must have one thread. Raises `OSError`.
    """
    enter_namespace(namespace)
    view.join()
    own_mounts()
    view.enter()
    _mount_own_sysfs(namespace)
    os.execvpe(argv[0], list(argv), dict(env))


def launch(
    module: str, arguments: Sequence[str], log: Path, *, namespace: str = "", **options: Any
) -> subprocess.Popen[bytes]:
    """Start a Python module of ours that has work of its own: without input, with what it prints at the end of `log`.

    `namespace` is a published one that it starts in; by default it is ours. `options` are those of `subprocess.Popen`.
    Raises `OSError`.
    """
    argv = [sys.executable, "-m", module, *arguments]
    with log.open("ab") as stream:
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": stream, "stderr": stream}
        options = {**streams, "cwd": "/", "env": package_environment(), **options}
        return spawn(namespace, argv, **options) if namespace else subprocess.Popen(argv, **options)


def launch_servers(
    module: str, arguments: Sequence[str], log: Path, *, what: str, timeout_s: float = SERVERS_TIMEOUT_S
) -> None:
    """Start a module of ours that leaves processes at work and ends once they are.

    Raises `DriverError` with the last line of `log` where it ends otherwise; `what` is said to not start.
    """
    try:
        process = launch(module, arguments, log)
        with on_failure(end_at_once, process):
            status = process.wait(timeout_s)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DriverError(f"{what} not start: {error}", operation=module) from error
    if status:
        raise DriverError(f"{what} not start: {last_line(log) or 'no reason'}", operation=module)


def last_line(log: Path) -> str:
    """The last line of a log; "" where there is none."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else ""


def _mount_own_sysfs(namespace: str) -> None:
    """Give the calling thread, whose mounts are its own, a /sys of its network namespace."""
    with contextlib.suppress(OSError):  # a container may hide /sys: the old one stays visible then
        syscalls.mount(namespace, "/sys", "sysfs", 0)


def processes_in(identities: Collection[int]) -> list[Process]:
    """Every process whose network namespace is one of `identities`."""
    by_namespace: dict[str, list[str]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it ended while we looked
                link = os.readlink(f"/proc/{entry.name}/ns/net")  # noqa: PTH115 - there may be thousands
                by_namespace.setdefault(link, []).append(entry.name)
    wanted = set(identities)
    found: list[Process] = []
    groups = list(by_namespace.values())
    while groups:
        known = identities_of(f"/proc/{pids[0]}/ns/net" for pids in groups)
        later: list[list[str]] = []
        for pids in groups:
            identity = known.get(f"/proc/{pids[0]}/ns/net")
            if identity is None and pids[1:]:
                later.append(pids[1:])  # the first one ended while we looked: another knows
            elif identity in wanted:
                found += _described(pids, identity)
        groups = later
    return found


def _described(pids: Sequence[str], identity: int) -> list[Process]:
    """Return those that are still there."""
    found = []
    for pid in pids:
        with contextlib.suppress(OSError):
            if _state_and_parent(int(pid))[0] not in "ZX":
                command = Path(f"/proc/{pid}/comm").read_text().rstrip("\n")
                found.append(Process(pid=int(pid), identity=identity, command=command))
    return found


def kill_all(identities: Collection[int], *, timeout_s: float = KILL_TIMEOUT_S) -> list[Process]:
    """SIGKILL every process in the namespaces and wait until each is gone; returns those that there were.

    Repeats until a look finds none, because a process may fork between the look and the kill. Raises
    `DriverError` for those that do not end within `timeout_s` (the kernel holds them: state D).
    """
    killed: list[Process] = []
    deadline = time.monotonic() + timeout_s
    own = os.getpid()
    found: list[Process] = []
    while time.monotonic() < deadline:
        found = [process for process in processes_in(identities) if process.pid != own]
        if not found:
            return killed
        killed += found
        _kill(found, deadline)
    names = ", ".join(f"{process.command} ({process.pid})" for process in found[:5])
    raise DriverError(
        f"processes of the lab do not end: {names}", operation="kill", hint="destroy again when the kernel lets them go"
    )


def terminate(found: Sequence[Process], *, timeout_s: float = KILL_TIMEOUT_S) -> None:
    """SIGTERM these processes and wait for their end; what takes longer than `timeout_s` is killed."""
    _kill(found, time.monotonic() + timeout_s, signal.SIGTERM)
    _kill(found, time.monotonic() + timeout_s)


def kill_processes(found: Sequence[Process], *, timeout_s: float = KILL_TIMEOUT_S) -> None:
    """SIGKILL these processes and wait for their end."""
    _kill(found, time.monotonic() + timeout_s)


def await_reaping(ended: Sequence[Process], *, timeout_s: float = REAPING_TIMEOUT_S) -> list[Process]:
    """Wait until the parents of processes that have ended have reaped them; those come back that are not.

    What has ended holds nothing any more, but is seen in the process table as a zombie until then. Returns when none
    has been reaped for `timeout_s`. Children of ours are left to whoever in this process started them.
    """
    with contextlib.ExitStack() as opened:
        waiting: dict[int, Process] = {}
        poller = select.poll()
        for process in ended:
            with contextlib.suppress(OSError):  # it is gone
                descriptor = os.pidfd_open(process.pid)
                opened.callback(os.close, descriptor)
                state, parent = _state_and_parent(process.pid)
                if state == "Z" and parent != os.getpid():  # else the number is another one's by now
                    waiting[descriptor] = process
                    poller.register(descriptor, 0)  # POLLHUP once it is reaped, on kernels that tell
        deadline = time.monotonic() + timeout_s
        while waiting and time.monotonic() < deadline:
            poller.poll(REAPING_LOOK_MS)
            for descriptor in [descriptor for descriptor in waiting if _is_reaped(descriptor)]:
                poller.unregister(descriptor)
                del waiting[descriptor]
                deadline = time.monotonic() + timeout_s
        return list(waiting.values())


def parents_text(unreaped: Sequence[Process]) -> str:
    """Who does not reap these processes, for a message."""
    parents: dict[str, int] = {}
    for process in unreaped:
        with contextlib.suppress(OSError):
            _, parent = _state_and_parent(process.pid)
            name = f"process {parent} ({Path(f'/proc/{parent}/comm').read_text().rstrip()})"
            parents[name] = parents.get(name, 0) + 1
    return ", ".join(parents)


def _is_reaped(descriptor: int) -> bool:
    try:
        signal.pidfd_send_signal(descriptor, 0)
    except ProcessLookupError:
        return True
    return False


def _state_and_parent(pid: int) -> tuple[str, int]:
    """The letter of a process's state and its parent (proc(5)). Raises `OSError` for one that is gone."""
    fields = stat_fields(pid)
    return fields[0], int(fields[1])


def stat_fields(pid: int) -> list[str]:
    """Return what proc_pid_stat(5) says of a process from its state (field 3) on. Raises `OSError` for one that is
    gone."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def has_ended(pid: int) -> bool:
    """Tell whether a process is gone, or waits to be reaped."""
    try:
        return stat_fields(pid)[0] in "ZX"
    except OSError:
        return True


def freeze(found: Sequence[Process]) -> None:
    """SIGSTOP these processes: they do nothing more, and nobody hears that their sockets are closed."""
    _signal(found, signal.SIGSTOP)


def thaw(found: Sequence[Process]) -> None:
    """SIGCONT these processes: those that were frozen go on."""
    _signal(found, signal.SIGCONT)


def _signal(found: Sequence[Process], number: signal.Signals) -> None:
    """Send a signal to processes; those that have ended are passed over."""
    for process in found:
        with contextlib.suppress(ProcessLookupError), closed_at_end(os.pidfd_open(process.pid)) as descriptor:
            signal.pidfd_send_signal(descriptor, number)


def _kill(found: Sequence[Process], deadline: float, number: signal.Signals = signal.SIGKILL) -> None:
    descriptors: dict[int, int] = {}
    poller = select.poll()
    for process in found:
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(process.pid)
            descriptors[descriptor] = process.pid
            poller.register(descriptor, select.POLLIN)
            signal.pidfd_send_signal(descriptor, number)
    waiting = set(descriptors)
    while waiting and (left := deadline - time.monotonic()) > 0:
        for descriptor, _ in poller.poll(left * 1000):
            poller.unregister(descriptor)
            waiting.discard(descriptor)
            if descriptors[descriptor] in _disowned:
                _disowned.discard(descriptors[descriptor])
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(descriptors[descriptor], os.WNOHANG)
    for descriptor in descriptors:
        os.close(descriptor)


_disowned: set[int] = set()


def disown(process: subprocess.Popen[bytes]) -> None:
    """Let a child live on without us; if it ends while we are there, `kill_all` reaps it."""
    if process.returncode is None:
        process.returncode = 0  # no ResourceWarning: it is meant to outlive us
        _disowned.add(process.pid)


_HANDED_ON = ("HOME", "TERM", "LANG", "LC_ALL", "USER", "SHELL", "TESTBED_STATE_DIR", "TESTBED_RUN_DIR")


def clean_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """The environment of a node's process: PATH, terminal and locale of ours, where labs are recorded, then the node's
    own."""
    kept = {key: os.environ[key] for key in _HANDED_ON if key in os.environ}
    return kept | {"PATH": search_path()} | dict(extra)


def package_environment() -> dict[str, str]:
    """Our environment, in which another Python of ours finds the same package."""
    source = str(CHECKOUT)
    paths = [source, *(path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != source)]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


def search_path() -> str:
    """Return where a node's commands are looked for: where ours are, and last beside our interpreter, for our own
    tools."""
    scripts = str(Path(sys.executable).parent)
    directories = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(directories if scripts in directories else [*directories, scripts])
