"""The programs of a plane: started all together, found again by their process ids, started again, ended."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from testbed.base.cleanup import closed_at_end, end_at_once, on_failure
from testbed.base.descriptors import wait_readable
from testbed.base.errors import DriverError
from testbed.base.files import write_atomically
from testbed.base.linux.processes import disown, has_ended, kill_processes, processes_in
from testbed.lab.features.infiniband.configuration import PlannedSubnet
from testbed.lab.features.infiniband.manager import (
    Manager,
    ManagersStuck,
    await_begun,
    await_sweep,
    count_sweeps,
    managers_of,
)
from testbed.lab.features.infiniband.plane import Plane
from testbed.lab.features.infiniband.simulator import Simulator

SIMULATOR, MANAGER = "ibsim", "opensm"
START_TIMEOUT_S = 120.0
ATTEMPTS = 5
KILL_TIMEOUT_S = 10.0
_PIDS = "pids"


@dataclass(slots=True, kw_only=True)
class StartedPlane:
    """A plane whose programs this process has started: ibsim, and managers, the first one first."""

    plane: Plane
    subnet: PlannedSubnet
    managers: list[Manager]
    simulator: subprocess.Popen[bytes]
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start_managers(self, timeout_s: float = START_TIMEOUT_S, most: int | None = None) -> None:
        """Start the managers, or the first few of them, and wait until the subnet is up.

        The others start once the first one is the master: of several that begin together, one would have to hand the
        subnet over while it is set up. Raises `ConvergenceError`, `DriverError`.
        """
        first, *others = self.managers[:most]
        process = first.start(self.subnet)
        self.processes.append(process)
        _note(self.plane, {SIMULATOR: self.simulator.pid, first.node.name: process.pid})
        await_sweep([first], 0, timeout_s, self.processes)
        for manager in others:
            before = count_sweeps(self.managers)
            self.processes.append(start_beside(self.plane, self.subnet, manager, timeout_s))
            settle(self.plane, self.subnet, before, timeout_s)  # the master looks at who has come

    def release(self) -> None:
        """Let the programs live on without this process."""
        for process in (self.simulator, *self.processes):
            disown(process)

    def end(self) -> None:
        """End all programs."""
        for process in (*self.processes, self.simulator):
            process.kill()
        for process in (*self.processes, self.simulator):
            process.wait()


def start_plane(plane: Plane, subnet: PlannedSubnet, *, cut: Sequence[tuple[str, int]] = ()) -> StartedPlane:
    """Start ibsim with a subnet, yet without managers. The links at the ports `cut`, by node and port, are cut.

    Raises `DriverError`. What has been started is ended then.
    """
    plane.make()
    simulator = Simulator(plane=plane)
    process = simulator.start(subnet)
    started = StartedPlane(plane=plane, subnet=subnet, managers=managers_of(plane, subnet), simulator=process)
    with on_failure(started.end):
        for name, port in cut:
            simulator.unlink(subnet.nodes[name].identifier, port)
    return started


def _note(plane: Plane, pids: Mapping[str, int]) -> None:
    write_atomically(plane.directory / _PIDS, json.dumps(dict(pids)), durable=False)


def noted_pids(directory: Path) -> dict[str, int]:
    """Return the process ids of a plane's programs that run, by ibsim's name or the HCA of a manager."""
    try:
        noted = json.loads((directory / _PIDS).read_text())
    except (OSError, ValueError):
        return {}
    return {name: pid for name, pid in noted.items() if _is_program(pid)}


def _is_program(pid: int) -> bool:
    """Tell whether a process still is one of a plane's programs, and no zombie."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().rstrip("\n") in (SIMULATOR, MANAGER) and not has_ended(pid)
    return False


def start_beside(
    plane: Plane, subnet: PlannedSubnet, manager: Manager, timeout_s: float, attempts: int = ATTEMPTS
) -> subprocess.Popen[bytes]:
    """Start a manager of a plane that is up, and wait until it stands by, or is the master where none is.

    One that waits for an answer which was lost is started anew, `attempts` times at most. Raises `ConvergenceError`,
    `DriverError`.
    """
    simulator = Simulator(plane=plane)
    while True:
        simulator.forget_dead()
        process = manager.start(subnet)
        running = noted_pids(plane.directory)
        _note(plane, running | {manager.node.name: process.pid})
        try:
            await_begun(manager, process, timeout_s)
        except ManagersStuck:
            end_at_once(process)
            simulator.forget_dead()
            _note(plane, running)
            attempts -= 1
            if not attempts:
                raise
            if len(running) > 1:  # it may be the master that does not answer
                settle(plane, subnet, count_sweeps(managers_of(plane, subnet)), timeout_s, attempts)
        else:
            return process


def restart_manager(plane: Plane, subnet: PlannedSubnet, name: str) -> None:
    """Start the manager at an HCA again, where it does not run, and wait until the subnet is up with it.

    Raises `ConvergenceError`, `DriverError`.
    """
    if name in noted_pids(plane.directory):
        return
    managers = managers_of(plane, subnet)
    before = count_sweeps(managers)
    manager = next(each for each in managers if each.node.name == name)
    disown(start_beside(plane, subnet, manager, START_TIMEOUT_S))
    settle(plane, subnet, before, START_TIMEOUT_S)


def settle(plane: Plane, subnet: PlannedSubnet, before: int, timeout_s: float, attempts: int = ATTEMPTS) -> None:
    """Wait until the managers that run have swept the subnet more often than `before`.

    Where they are stuck, they are ended and started anew. Each start that settles the subnet in turn has fewer
    `attempts`, so that this ends. Raises `ConvergenceError`, `DriverError`.
    """
    managers = managers_of(plane, subnet)
    for left in reversed(range(attempts)):
        pids = {name: pid for name, pid in noted_pids(plane.directory).items() if name != SIMULATOR}
        try:
            await_sweep(managers, before, timeout_s, told=pids.values())
        except ManagersStuck:
            if not left:
                raise
            stuck = [each for each in managers if each.node.name in pids]
            before = _start_anew(plane, subnet, stuck, timeout_s, left)
        else:
            return


def _start_anew(
    plane: Plane, subnet: PlannedSubnet, managers: Sequence[Manager], timeout_s: float, attempts: int
) -> int:
    """End managers and start them as with the lab: the first alone, the others beside it. Returns the sweeps after
    which the master has looked at the last one, less one."""
    for manager in managers:
        kill_manager(plane, manager.node.name)
    first, *others = managers
    before = count_sweeps(managers)
    process = first.start(subnet)
    _note(plane, noted_pids(plane.directory) | {first.node.name: process.pid})
    await_sweep(managers, before, timeout_s, [process])
    disown(process)
    for manager in others:
        before = count_sweeps(managers)
        disown(start_beside(plane, subnet, manager, timeout_s, attempts))
    return before


def start_managers_anew(plane: Plane, subnet: PlannedSubnet, identity: int, timeout_s: float) -> None:
    """End whatever manager runs in the namespace of a plane, and start those of `subnet`; nodes keep their tables until
    there are new ones. Raises `ConvergenceError`, `DriverError`."""
    ended = [process for process in processes_in({identity}) if process.command == MANAGER]
    kill_processes(ended)
    managers = managers_of(plane, subnet)
    left = [plane.work / f"sys-{process.pid}" for process in ended]  # umad2sim removes it where a program ends itself
    left += {*plane.directory.glob("sm-*")} - {manager.directory for manager in managers}
    for process in ended:
        _reap(process.pid)
    for directory in left:
        shutil.rmtree(directory, ignore_errors=True)
    for path in {*plane.directory.glob("opensm-*.conf")} - {manager.settings for manager in managers}:
        path.unlink()
    Simulator(plane=plane).forget_dead()
    settle(plane, subnet, _start_anew(plane, subnet, managers, timeout_s, ATTEMPTS), timeout_s)


def tell_managers(plane: Plane, subnet: PlannedSubnet, timeout_s: float, *, lanes: bool = False) -> None:
    """Have the managers that run read their files anew, and wait until a sweep that has begun since has ended. `lanes`:
    they are to write tables of lanes even where one is for all. Raises `ConvergenceError`, `DriverError`."""
    managers = managers_of(plane, subnet)
    try:
        for manager in managers:
            manager.write(subnet, lanes=lanes)
    except OSError as error:
        raise DriverError(f"cannot tell OpenSM of a change: {error}", operation="opensm") from error
    for _ in range(2):  # the first one that ends may have begun before
        before = count_sweeps(managers)
        for name, pid in noted_pids(plane.directory).items():
            if name != SIMULATOR:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGHUP)
        settle(plane, subnet, before, timeout_s)


def kill_manager(plane: Plane, name: str) -> bool:
    """End the manager at an HCA as nobody would, by SIGKILL; whether one ran."""
    pid = noted_pids(plane.directory).get(name)
    if pid is None:
        return False
    with contextlib.suppress(ProcessLookupError), closed_at_end(os.pidfd_open(pid)) as descriptor:
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        wait_readable(descriptor, KILL_TIMEOUT_S)
    _reap(pid)
    Simulator(plane=plane).forget_dead()
    return True


def _reap(pid: int) -> None:
    """Take a child that has ended out of the table of processes; others are not ours to wait for."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
