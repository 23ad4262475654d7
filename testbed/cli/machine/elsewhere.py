"""Running a verb in the lab VM or on another machine: what `--on` and `--clock` ask for."""

from __future__ import annotations

from testbed.base.errors import TestbedError
from testbed.vm.remote.target import parse_target, run_there


def run_elsewhere(on: str, clock: str, arguments: list[str]) -> int:
    """Run a verb where `on` says; returns its exit code. `clock` is wall or virtual."""
    target = parse_target(on)
    if clock == "wall":
        return run_there(target, arguments)
    if clock != "virtual":
        raise TestbedError(f"--clock {clock}: expected wall or virtual")
    if target.machine is None:
        raise TestbedError("--clock virtual: time is virtual in the lab VM only: --on vm")
    from testbed.cli.machine.virtual_time import run_in_virtual_time

    return run_in_virtual_time(arguments)
