"""The routing daemons of switches: what they are started from, and one switch's ended and started in a live lab."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path

from testbed.deploy.live import RunningLab
from testbed.drivers.frr import DaemonLauncher, DaemonSet, prepare_run_directory, remove_crash_directories
from testbed.drivers.machine import FrrInstallation, find_frr
from testbed.drivers.processes import Process, processes_in, terminate
from testbed.model import Lab
from testbed.names import namespace_name
from testbed.plan.operations import LabPlan
from testbed.render import FrrVersion, render_switch


def daemon_sets(
    lab: Lab, plan: LabPlan, run: Path, frr: FrrInstallation, only: Container[str] | None = None
) -> list[DaemonSet]:
    """The daemons of all switches, or of `only` those, with their run directories under `run` written."""
    version = FrrVersion(*frr.version[:2])
    sets = []
    for switch in plan.switches:
        if only is not None and switch.node not in only:
            continue
        directory = run / switch.node
        config = render_switch(switch, lab=lab.name, version=version, log_directory=str(directory))
        sets.append(
            DaemonSet(
                node=switch.node,
                namespace=namespace_name(lab.name, switch.node),
                directory=directory,
                configurations=config.daemons,
                integrated=config.integrated,
            )
        )
    for item in sets:
        prepare_run_directory(item)
    return sets


def running_daemons(lab: RunningLab, node: str) -> list[Process]:
    """Those of a switch's routing daemons that run. Raises `NoSuchNode`."""
    lab.node(node)
    wanted = lab.daemons.get(node, ())
    return [process for process in processes_in({lab.identities[node]}) if process.command in wanted]


def start_routing(lab: RunningLab, node: str) -> bool:
    """Start a switch's routing daemons as the plan configures them; False where all of them run already.

    Returns when they answer, not when routing has converged. Raises `NoSuchNode`, `DriverError`, `CapabilityError`.
    """
    running = running_daemons(lab, node)
    if len(running) >= len(lab.daemons.get(node, ())):
        return False
    stop_routing(lab, node)  # those that are left of them: they depend on each other
    frr = find_frr()
    launcher = DaemonLauncher(frr)
    try:
        launcher.start(daemon_sets(lab.model, lab.plan, lab.run_directory(node).parent, frr, only={node}))
    finally:
        launcher.release()
    return True


def stop_routing(lab: RunningLab, node: str) -> None:
    """End a switch's routing daemons in order: neighbours see their sessions closed. Raises `NoSuchNode`."""
    ended = running_daemons(lab, node)
    terminate(ended)
    remove_crash_directories(lab.run_directory(node), ended)
