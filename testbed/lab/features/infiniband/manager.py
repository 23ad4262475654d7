"""The subnet managers of a plane: OpenSM, started at HCAs, and what their logs say.

A manager has swept the subnet when its log says SUBNET UP: then all tables are in force. It says, too, which routing
engine's tables these are, and what speaks against the others: ftree gives up a fabric that is no whole fat tree.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Collection, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from testbed.base.errors import ConvergenceError, DriverError
from testbed.base.files import write_atomically
from testbed.base.linux.inotify import IN_CREATE, IN_MODIFY, DirectoryWatch
from testbed.base.linux.processes import last_line, stat_fields
from testbed.lab.features.infiniband.configuration import (
    HIGHEST_PRIORITY,
    PlannedNode,
    PlannedSubnet,
    manager_settings,
    manager_text,
    partitions_text,
)
from testbed.lab.features.infiniband.plane import Plane

LOG_FLAGS = "0x03"
"""Errors and information: SUBNET UP is one."""
LOST_TRAP_S = 2.0
"""ibsim tells a manager once that a link has changed. One that is at work just then may miss it, and is told to sweep
by a signal where it has not begun after this time."""
STUCK_S = 4.0
"""A manager that was told to sweep and does nothing for so long waits for an answer that ibsim has lost: the answer of
another manager goes to whoever sent a datagram of its number last, which a trap changes that arrives meanwhile."""
IDLE_TICKS = 1
"""Managers that stand by poll the master, which takes next to no time."""
_SAID = re.compile(r"^.*? -> (.*)$")
_ENGINE = re.compile(r"(\S+) tables configured on all switches")
_UP = "SUBNET UP"
_BEGUN = "OpenSM "
"""The first line of a manager; one that is started again goes on with the log of the one before it."""
_STATES = {"Entering MASTER state": "master", "Entering STANDBY state": "standby"}
_FTREE = "ERR AB"
"""The beginning of ftree's errors."""
_ERROR = re.compile(r"ERR (\w{4}): (.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerLog:
    """The content of a manager's log. `complaints` are errors of the last sweep, such as those of ftree giving up."""

    sweeps: int = 0
    state: str = ""
    engine: str = ""
    complaints: tuple[str, ...] = ()


def parse_log(text: str) -> ManagerLog:
    """Read OpenSM's log: the sweeps that ended with all tables in force, its state, and the engine of its tables."""
    sweeps, state, engine = 0, "", ""
    complaints: list[str] = []
    last: list[str] = []
    for line in text.splitlines():
        found = _SAID.match(line)
        if found is None:
            continue
        said = found[1]
        if said.startswith(_BEGUN):
            state = ""
        if said.startswith(_UP):
            sweeps += 1
            last, complaints = complaints, []
        elif (error := _ERROR.search(said)) is not None:
            complaints.append(f"ERR {error[1]}: {error[2].strip()}")
        elif (tables := _ENGINE.search(said)) is not None:
            engine = tables[1]
        else:
            state = next((word for words, word in _STATES.items() if words in said), state)
    return ManagerLog(sweeps=sweeps, state=state, engine=engine, complaints=tuple(complaints or last))


@dataclass(frozen=True, slots=True, kw_only=True)
class Manager:
    """OpenSM at an HCA of a plane, running or not."""

    plane: Plane
    node: PlannedNode
    priority: int

    @property
    def directory(self) -> Path:
        """The directory of its files: log and dumps."""
        return self.plane.directory / f"sm-{self.node.identifier.lower()}"

    @property
    def settings(self) -> Path:
        """The file of its settings."""
        return self.plane.directory / f"opensm-{self.node.identifier.lower()}.conf"

    @property
    def log(self) -> Path:
        """OpenSM's log."""
        return self.directory / "opensm.log"

    def read_log(self) -> ManagerLog:
        """Return what its log says; nothing where there is none yet."""
        try:
            return parse_log(self.log.read_text(errors="replace"))
        except FileNotFoundError:
            return ManagerLog()

    def write(self, subnet: PlannedSubnet, *, lanes: bool = False) -> None:
        """Write the files that it reads (`manager_settings`). Raises `OSError`."""
        self.plane.own(self.directory)
        partitions = self.plane.directory / "partitions.conf"
        write_atomically(partitions, partitions_text(subnet), durable=False)
        values = manager_settings(subnet, self.directory, partitions, self.priority, lanes=lanes)
        write_atomically(self.settings, manager_text(values), durable=False)

    def start(self, subnet: PlannedSubnet) -> subprocess.Popen[bytes]:
        """Start it. Raises `DriverError`."""
        try:
            self.write(subnet)
            command = ["opensm", "-F", str(self.settings), "-f", str(self.log), "-D", LOG_FLAGS]
            before = None
            if len(subnet.managers) > 1:
                before = self.plane.write_library("manager_mads", "what keeps managers' answers in ibsim")
            with (self.plane.directory / f"opensm-{self.node.identifier.lower()}.out").open("ab") as output:
                return self.plane.start(
                    command,
                    self.node.identifier,
                    before=before,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                    env={"OSM_TMP_DIR": str(self.directory), "OSM_CACHE_DIR": str(self.directory)},
                )
        except OSError as error:
            raise DriverError(f"cannot start OpenSM: {error}", operation="opensm") from error

    def last_words(self) -> str:
        """Return the last thing that it printed, for an error."""
        said = self.read_log().complaints
        return said[-1] if said else last_line(self.plane.directory / f"opensm-{self.node.identifier.lower()}.out")


def managers_of(plane: Plane, subnet: PlannedSubnet) -> list[Manager]:
    """Return the managers of a subnet, the one that is to be the master first."""
    return [
        Manager(plane=plane, node=node, priority=max(0, HIGHEST_PRIORITY - number))
        for number, node in enumerate(subnet.managers)
    ]


def count_sweeps(managers: Sequence[Manager]) -> int:
    """Return how often the managers have swept the subnet, all together."""
    return sum(manager.read_log().sweeps for manager in managers)


class ManagersStuck(DriverError):
    """No manager does anything, though the subnet has changed: one waits for an answer that was lost."""


def await_sweep(
    managers: Sequence[Manager],
    before: int,
    timeout_s: float,
    processes: Sequence[subprocess.Popen[bytes]] = (),
    told: Collection[int] = (),
) -> None:
    """Wait until the managers have swept more often than `before`.

    `processes` are those that must not end meanwhile. The managers with the process ids `told` are told to sweep by
    SIGHUP where nothing has happened for a while. Raises `ConvergenceError` after `timeout_s`, `DriverError` for a
    manager that ended, and `ManagersStuck` where those that were told do nothing.
    """
    begun = looked = time.monotonic()
    hung_up, used = False, -1
    with closing(DirectoryWatch()) as watch:
        for manager in managers:
            if manager.directory.exists():
                watch.add(manager.directory, IN_MODIFY | IN_CREATE)
        while count_sweeps(managers) <= before:
            for manager, process in zip(managers, processes, strict=False):
                _require_running(manager, process)
            now = time.monotonic()
            if told and not hung_up and now - begun > LOST_TRAP_S:
                hung_up, looked = True, now
                for pid in told:
                    with suppress(ProcessLookupError):  # it has ended meanwhile
                        os.kill(pid, signal.SIGHUP)
            if (spent := _cpu_ticks(told)) - used > IDLE_TICKS:
                used, looked = spent, now
            if hung_up and now - looked > STUCK_S:
                raise ManagersStuck("the subnet managers do not look at what has changed", operation="opensm")
            if now - begun > timeout_s:
                raise _not_up(managers, timeout_s)
            watch.wait(0.1)
            list(watch.read())


def _cpu_ticks(pids: Collection[int]) -> int:
    """The CPU time of processes, in ticks of the kernel's clock (proc_pid_stat(5), utime and stime)."""
    ticks = 0
    for pid in pids:
        with suppress(OSError):
            fields = stat_fields(pid)
            ticks += int(fields[11]) + int(fields[12])
    return ticks


def await_begun(manager: Manager, process: subprocess.Popen[bytes], timeout_s: float) -> None:
    """Wait until a manager that was started stands by, or is the master.

    Raises `ConvergenceError`, `DriverError`, and `ManagersStuck` for one that does nothing any more.
    """
    deadline = time.monotonic() + timeout_s
    looked, used = time.monotonic(), -1
    with closing(DirectoryWatch()) as watch:
        watch.add(manager.directory, IN_MODIFY | IN_CREATE)
        while manager.read_log().state not in ("standby", "master"):
            _require_running(manager, process)
            if (spent := _cpu_ticks([process.pid])) > used:
                used, looked = spent, time.monotonic()
            if time.monotonic() - looked > STUCK_S:
                raise ManagersStuck(f"OpenSM at {manager.node.name} does nothing", operation="opensm")
            if time.monotonic() > deadline:
                raise _not_up([manager], timeout_s)
            watch.wait(0.1)
            list(watch.read())


def _require_running(manager: Manager, process: subprocess.Popen[bytes]) -> None:
    """Raise `DriverError` where a manager has ended."""
    if process.poll() is not None:
        raise DriverError(
            f"OpenSM at {manager.node.name} ended (status {process.returncode}): {manager.last_words()}",
            operation="opensm",
        )


def _not_up(managers: Sequence[Manager], timeout_s: float) -> ConvergenceError:
    return ConvergenceError(
        f"OpenSM has not brought the subnet up within {timeout_s:g} s: {managers[0].last_words()}",
        missing=[f"{manager.node.name}: its log is {manager.log}" for manager in managers],
    )


def engine_sentence(routing: Sequence[str], log: ManagerLog) -> str:
    """Say whose tables are in force where that is not the first of the engines that were asked for; "" where it is."""
    if not log.engine or log.engine == routing[0]:
        return ""
    sentence = f"{routing[0]} gave this fabric up, and its tables are {log.engine}'s"
    if routing[0] != "ftree":
        return sentence
    sentence += ": it routes whole fat trees alone, of which one missing uplink makes none"
    why = next((text for text in log.complaints if text.startswith(_FTREE)), "")
    return f"{sentence} ({why})" if why else sentence
