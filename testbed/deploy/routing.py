"""The routing daemons of switches: what they are started from, and one switch's ended and started in a live lab."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping
from pathlib import Path

from testbed.deploy.live import RunningLab
from testbed.deploy.watch.overlay import announce_again
from testbed.drivers.nodes.processes import Process, processes_in, terminate
from testbed.drivers.probing.machine import FrrInstallation, find_frr
from testbed.drivers.routing.frr import (
    DaemonLauncher,
    DaemonSet,
    Elsewhere,
    prepare_run_directory,
    remove_crash_directories,
)
from testbed.errors import CapabilityError, TestbedError
from testbed.model import Lab
from testbed.model.container import NETNS
from testbed.names import namespace_name
from testbed.plan.operations import LabPlan
from testbed.render import FrrVersion, render_switch


def daemon_sets(
    lab: Lab,
    plan: LabPlan,
    run: Path,
    frr: FrrInstallation | None,
    only: Container[str] | None = None,
    elsewhere: Mapping[str, Elsewhere] | None = None,
) -> list[DaemonSet]:
    """The daemons of all switches, or of `only` those, with their run directories under `run` written.

    `frr` is this machine's, which those not in `elsewhere` are started with.
    """
    sets = []
    for switch in plan.switches:
        if only is not None and switch.node not in only:
            continue
        directory = run / switch.node
        other = (elsewhere or {}).get(switch.node)
        theirs = frr if other is None else other.frr
        if theirs is None:
            raise CapabilityError(f"{switch.node} needs FRR", missing="frr", hint="apt-get install frr")
        version = FrrVersion(*theirs.version[:2])
        config = render_switch(switch, lab=lab.name, version=version, log_directory=str(directory))
        sets.append(
            DaemonSet(
                node=switch.node,
                namespace=namespace_name(lab.name, switch.node),
                directory=directory,
                configurations=config.daemons,
                integrated=config.integrated,
                elsewhere=other,
                vrfs={vrf.tenant: namespace_name(lab.name, vrf.node) for vrf in switch.evpn.vrfs}
                if switch.evpn
                else {},
            )
        )
    if any(switch.bfd is not None for switch in plan.switches):
        _check_bfd({item.elsewhere.frr if item.elsewhere else frr for item in sets})
    for item in sets:
        prepare_run_directory(item)
    return sets


def _check_bfd(installations: Collection[FrrInstallation | None]) -> None:
    """Raise `CapabilityError` where releases meet whose BGP and BFD wait for each other (`testbed.fabric.bfd`)."""
    versions = {item.version[:3] for item in installations if item is not None}
    waits = {version for version in versions if (10, 2) <= version < (10, 3, 1)}
    if waits and any(version < (10, 2) for version in versions):
        listed = " and ".join(".".join(map(str, version)) for version in sorted(versions))
        raise CapabilityError(
            f"FRR {listed} side by side can lock up with BFD (FRR pull request 18562)",
            missing="one FRR for all switches",
            hint="fabric: {routing: {bfd: off}}, or the same image for all switches",
        )


def running_daemons(lab: RunningLab, node: str) -> list[Process]:
    """Return those of a switch's routing daemons that run. Raises `NoSuchNode`."""
    lab.node(node)
    wanted = lab.daemons.get(node, ())
    return [process for process in processes_in({lab.identities[node]}) if process.command in wanted]


def start_routing(lab: RunningLab, node: str) -> bool:
    """Start a switch's routing daemons as the plan configures them; False where all of them run already.

    Returns when they answer, not when routing has converged. Raises `NoSuchNode`, `DriverError`, `CapabilityError`.
    """
    if lab.node(node).runtime != NETNS:
        raise TestbedError(f"{node} is a container: its daemons are started with the lab alone")
    running = running_daemons(lab, node)
    if len(running) >= len(lab.daemons.get(node, ())):
        return False
    stop_routing(lab, node)  # those that are left of them: they depend on each other
    frr = find_frr()
    launcher = DaemonLauncher(frr)
    try:
        launcher.start(daemon_sets(lab.model, lab.plan, lab.run_directory(node).parent, frr, only={node}))
        announce_again(lab.plan, lab.switch_plan(node), lab.run_directory(node))
    finally:
        launcher.release()
    return True


def stop_routing(lab: RunningLab, node: str) -> None:
    """End a switch's routing daemons in order: neighbours see their sessions closed. Raises `NoSuchNode`.

    What those left that were killed before goes, too.
    """
    ended = running_daemons(lab, node)
    terminate(ended)
    remove_crash_directories([lab.run_directory(node)], ended)
