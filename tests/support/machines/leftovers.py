"""Leftovers of tests on the machine, told apart from what others made there meanwhile.

A process is a test's if it, or one that it descends from, is in the UTS namespace that the test run made for itself.
Nothing that a test starts leaves it: not by forking twice, a session of its own, or an empty environment, and
processes of pytest-xdist inherit it too. A container has one of its own, and its ancestors do not.

Namespaces, files and mounts do not say who made them. Tests put the number of their process into names; one with a
number of this run is ours, and one with another is somebody else's. A network namespace without is whose processes
are in it, and so are the others of its lab. What is left then cannot be told.
"""

from __future__ import annotations

import os
import re
import select
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from testbed.base.linux import syscalls
from testbed.lab.core.deploy.machine_settings import PLACE as SETTINGS

CLONE_NEWUTS = 0x04000000
STATE = Path(os.environ.get("TESTBED_STATE_DIR", "/var/lib/testbed"))
RUN = Path(os.environ.get("TESTBED_RUN_DIR", "/run/testbed"))
NAMESPACES = Path("/run/netns")
ENDING_S = 5.0
"""How long daemons that end by themselves, as the pause agent does with its last lab, may take for it."""
_NUMBERED = re.compile(r"^(?:testbed-[a-z-]+-|tb|ct|pd|uio|upt|ubn|test-|bench-)(\d+)(?!\d)")
"""Names with the number of the process that made them, as tests give them: tb123x1a-node, testbed-portd-123."""


def mark_this_run() -> None:
    """Make a UTS namespace for this process and all that it starts; without the right to, nothing is ours for sure.

    Call from the main thread, before there are others.
    """
    try:
        syscalls.unshare(CLONE_NEWUTS)
    except PermissionError:
        return


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The traces of labs on the machine at some time: `things` in words, `processes` by number with their command."""

    things: frozenset[str]
    processes: Mapping[int, str]


@dataclass(slots=True, kw_only=True)
class Leftovers:
    """`ours` are this run's for sure; of `unknown` nobody knows whose they are."""

    ours: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


def look() -> Snapshot:
    """Return the traces that are there now."""
    return Snapshot(
        things=frozenset(
            {
                *_names(NAMESPACES),
                *_names(STATE / "labs"),
                *_names(RUN),
                *(name for name in _names(Path("/sys/fs/cgroup")) if Path(name).name.startswith("testbed")),
                *(f"interface {name.rsplit('/', 1)[1]}" for name in _names(Path("/sys/class/net"))),
                *_mounts(),
                *_machine_settings(),
            }
        ),
        processes=_commands(),
    )


def left_since(before: Snapshot, runners: Iterable[int]) -> Leftovers:
    """Return what came since `before` and is not plainly somebody else's. `runners` are processes that ran the tests.

    Daemons of ours that are about to end are waited for.
    """
    owners = Owners(runners)
    owners.wait_for_ends(before.processes)
    now = look()
    found = Leftovers()
    for pid, command in now.processes.items():
        if before.processes.get(pid) != command and owners.left_process(pid):
            found.ours.append(f"process {pid} ({command})")
    for thing in sorted(now.things - before.things):
        match owners.of_thing(thing):
            case True:
                found.ours.append(thing)
            case None:
                found.unknown.append(thing)
            case False:
                pass
    return found


class Owners:
    """Whose things are, as it is when this is made."""

    def __init__(self, runners: Iterable[int]) -> None:
        self._runners = {os.getpid(), *runners}
        self._mark = _inode(os.getpid(), "uts")
        self._marked = self._mark != _inode(1, "uts")
        """Tell whether this run has a mark of its own. Without, descending from it is all that there is to go by."""
        self._labs: dict[str, set[bool]] = {}
        """Whose processes are in the namespaces of a lab, by the begin of their names."""
        inside: dict[int, set[bool]] = {}
        for pid in _commands():
            if net := _inode(pid, "net"):
                inside.setdefault(net, set()).add(self.is_ours(pid))
        for path in _paths(NAMESPACES):
            try:
                owners = inside.get(path.stat().st_ino, set())
            except OSError:
                continue
            self._labs.setdefault(_lab_of(path.name), set()).update(owners)

    def is_ours(self, pid: int) -> bool:
        """Tell whether a test started a process, directly or not."""
        seen: set[int] = set()
        while pid > 1 and pid not in seen:
            if pid in self._runners or (self._marked and _inode(pid, "uts") == self._mark):
                return True
            seen.add(pid)
            pid = _parent(pid)
        return False

    def left_process(self, pid: int) -> bool:
        """Tell whether a process of ours should have ended: it is in a node, or nobody waits for it any more."""
        if pid in self._runners or not self.is_ours(pid):
            return False
        return _inode(pid, "net") != _inode(os.getpid(), "net") or not self._is_waited_for(pid)

    def _is_waited_for(self, pid: int) -> bool:
        """Tell whether one of the processes that run the tests is its ancestor, which may still end it."""
        while pid > 1:
            if pid in self._runners:
                return True
            pid = _parent(pid)
        return False

    def wait_for_ends(self, before: Mapping[int, str]) -> None:
        """Return when no process is left, or after a while."""
        deadline = time.monotonic() + ENDING_S
        for pid in [pid for pid in _commands() if pid not in before and self.left_process(pid)]:
            try:
                descriptor = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            try:
                select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
            finally:
                os.close(descriptor)

    def of_thing(self, thing: str) -> bool | None:
        """Tell whether a thing that is no process is ours; None where that cannot be told."""
        if thing.startswith("/proc/sys/"):
            return False if SETTINGS.exists() else None  # a lab is there that needs the room, and it is not ours
        words = thing.removeprefix("mount ").removeprefix("interface ")
        for root in (NAMESPACES, RUN, STATE / "labs"):
            if words.startswith(f"{root}/"):
                words = words.removeprefix(f"{root}/").split("/")[0]
        name = words.rsplit("/", 1)[-1]
        if number := _NUMBERED.match(name):
            maker = int(number[1])
            return True if self.is_ours(maker) else False if Path(f"/proc/{maker}").exists() else None
        owners = self._labs.get(_lab_of(name), set())
        return None if not owners else any(owners)


def _lab_of(name: str) -> str:
    """The first word of a node's namespace, which those of one lab have in common."""
    return name.split("-", maxsplit=1)[0]


def _paths(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError:
        return []


def _names(directory: Path) -> set[str]:
    return {f"{directory}/{path.name}" for path in _paths(directory)}


def _commands() -> dict[int, str]:
    """All processes that are no zombies, by number."""
    found = {}
    for directory in _paths(Path("/proc")):
        if directory.name.isdigit():
            try:
                (directory / "ns/net").stat()  # a zombie has none and is its parent's
                found[int(directory.name)] = (directory / "comm").read_text().strip()
            except OSError:
                continue
    return found


def _inode(pid: int, kind: str) -> int:
    """The namespace of a process; 0 for one that is gone or not for us to look at."""
    try:
        return Path(f"/proc/{pid}/ns/{kind}").stat().st_ino
    except OSError:
        return 0


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return 0


def _mounts() -> set[str]:
    """Mount points below our directories. /run/netns itself becomes one with the first namespace, as by `ip`."""
    points = {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    roots = (f"{NAMESPACES}/", f"{RUN}/", f"{STATE}/")
    return {f"mount {point}" for point in points if point.startswith(roots)}


def _machine_settings() -> set[str]:
    """Return the settings that deploying may change for the whole machine and the last `destroy` restores."""
    directories = (Path(f"/proc/sys/net/ipv{family}/neigh/default") for family in (4, 6))
    paths = [directory / f"gc_thresh{number}" for directory in directories for number in (1, 2, 3)]
    return {f"{path} = {path.read_text().strip()}" for path in paths if path.exists()}
