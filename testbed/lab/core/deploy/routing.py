"""The routing daemons of switches: what they are started from, and one switch's ended and started in a live lab."""

from __future__ import annotations

import os
import secrets
from collections.abc import Collection, Container, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from testbed.base.errors import CapabilityError, DriverError, TestbedError
from testbed.base.linux import vty
from testbed.base.linux.processes import Process, kill_processes, processes_in, terminate
from testbed.base.names import choice_hint, namespace_name
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.journal import writing_state
from testbed.lab.core.deploy.records.kept_events import keep_event
from testbed.lab.core.drivers.probing.machine import KNOWN_DAEMONS, FrrInstallation, find_frr
from testbed.lab.core.drivers.routing.frr import (
    DaemonLauncher,
    DaemonSet,
    Elsewhere,
    prepare_run_directory,
    remove_crash_directories,
)
from testbed.lab.core.feature import features
from testbed.lab.core.model import NETNS, Lab, Role
from testbed.lab.core.plan.lab_plan import LabPlan, SwitchPlan
from testbed.lab.core.render import ANYBODY, FrrVersion, render_switch

PASSWORD_FILE = "bgp-password"
_PASSWORD_BYTES = 32


def bgp_password(plan: LabPlan, directory: Path) -> str:
    """Return the password kept in the state directory of a lab, made now where there is none; "" where none is wanted.

    It is that of the lab's BGP sessions (RFC 2385), and in no model, plan or record: those say that there is one. FRR's
    configurations have it, and are FRR's alone. Raises `StateError`.
    """
    if not any(switch.password for switch in plan.switches):
        return ""
    path = directory / PASSWORD_FILE
    with writing_state(path):
        try:
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:  # noqa: PTH123
                file.write(secrets.token_hex(_PASSWORD_BYTES))
        except FileExistsError:
            pass
        return path.read_text()


def daemon_sets(
    lab: Lab,
    plan: LabPlan,
    run: Path,
    frr: FrrInstallation | None,
    only: Container[str] | None = None,
    elsewhere: Mapping[str, Elsewhere] | None = None,
    password: str = "",
) -> list[DaemonSet]:
    """Return what `planned_sets` does, with the run directories of the nodes written."""
    sets = planned_sets(lab, plan, run, frr, only=only, elsewhere=elsewhere, password=password)
    for item in sets:
        prepare_run_directory(item)
    return sets


def planned_sets(
    lab: Lab,
    plan: LabPlan,
    run: Path,
    frr: FrrInstallation | None,
    only: Container[str] | None = None,
    elsewhere: Mapping[str, Elsewhere] | None = None,
    password: str = "",
) -> list[DaemonSet]:
    """The daemons of all switches, or of `only` those, whose run directories are under `run`.

    `frr` is this machine's, which those not in `elsewhere` are started with. `password` is the lab's
    (`bgp_password`).
    """
    sets = []
    for switch in plan.speakers:
        if only is not None and switch.node not in only:
            continue
        directory = run / switch.node
        other = (elsewhere or {}).get(switch.node)
        theirs = frr if other is None else other.frr
        if theirs is None:
            raise CapabilityError(f"{switch.node} needs FRR", missing="frr", hint="apt-get install frr")
        _check_ecmp(switch, theirs)
        version = FrrVersion(*theirs.version[:2])
        config = render_switch(switch, lab=lab.name, version=version, log_directory=str(directory), password=password)
        sets.append(
            DaemonSet(
                node=switch.node,
                namespace=namespace_name(lab.name, switch.node),
                directory=directory,
                configurations=config.daemons,
                integrated=config.integrated,
                modules=config.modules,
                elsewhere=other,
                vrfs=_vrf_namespaces(lab.name, switch),
            )
        )
    if any(switch.bfd is not None for switch in plan.speakers):
        _check_bfd({item.elsewhere.frr if item.elsewhere else frr for item in sets})
    return sets


def takes_namespaces(switch: SwitchPlan) -> bool:
    """Tell whether the daemons of a switch take namespaces for VRFs, of which it has some or may be given some."""
    evpn = switch.evpn
    return evpn is not None and evpn.by_namespace and (bool(evpn.vrfs) or switch.role in (Role.RAIL, Role.LEAF))


def _vrf_namespaces(lab: str, switch: SwitchPlan) -> dict[str, str] | None:
    """The namespaces of a switch's VRFs by their names; None where it is never to have any."""
    if switch.evpn is None or not takes_namespaces(switch):
        return None
    return {vrf.tenant: namespace_name(lab, vrf.node) for vrf in switch.evpn.vrfs}


def _check_ecmp(switch: SwitchPlan, frr: FrrInstallation) -> None:
    """Raise `CapabilityError` where bgpd would refuse the planned number of next hops."""
    if frr.multipath is not None and switch.ecmp > frr.multipath:
        raise CapabilityError(
            f"FRR in {frr.directory} of {switch.node} was built for {frr.multipath} next hops of a route, and"
            f" routing.ecmp is {switch.ecmp}",
            missing=f"an FRR built with --enable-multipath={switch.ecmp} or more",
            hint=f"fabric: {{routing: {{ecmp: {frr.multipath}}}}}",
        )


def _check_bfd(installations: Collection[FrrInstallation | None]) -> None:
    """Raise `CapabilityError` where releases meet whose BGP and BFD wait for each other
    (`testbed.lab.core.fabric.bfd`)."""
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


def kill_daemon(lab: RunningLab, node: str, daemon: str) -> None:
    """Send SIGKILL to one of a switch's routing daemons, and wait until it has ended; `start_routing` brings it back.

    Raises `NoSuchNode`, and `DriverError` where it does not run, or does not end.
    """
    known = lab.daemons.get(lab.node(node).name, ())
    if daemon not in known:
        known_hint = f"it has {', '.join(known)}" if known else "switches have daemons"
        raise TestbedError(f"{node} has no daemon {daemon}", hint=choice_hint(daemon, known, known_hint))
    running = [one for one in running_daemons(lab, node) if one.command == daemon]
    if not running:
        raise DriverError(f"{node} runs no {daemon} that could be killed", hint=f"testbed node restart {node}")
    kill_processes(running)
    if any(one.command == daemon for one in running_daemons(lab, node)):
        raise DriverError(f"{daemon} of {node} has not ended after SIGKILL")
    keep_event(lab.state_directory, lab.name, node, "daemon-killed", daemon)


def start_routing(lab: RunningLab, node: str, elsewhere: Elsewhere | None = None) -> bool:
    """Start a switch's routing daemons as the plan configures them; False where all of them run already.

    `elsewhere` is how those of a container are started. Returns when they answer, not when routing has converged.
    Raises `NoSuchNode`, `DriverError`, `CapabilityError`.
    """
    if lab.node(node).runtime != NETNS and elsewhere is None:
        raise TestbedError(
            f"{node} is a container: its daemons are started with it", hint=f"testbed node restart {node}"
        )
    running, daemons = running_daemons(lab, node), lab.daemons.get(node, ())
    if len(running) >= len(daemons):
        await_daemons(lab.run_directory(node), daemons)
        return False
    if elsewhere is None:
        stop_routing(lab, node)  # those that are left of them: they depend on each other
    frr = find_frr() if elsewhere is None else None
    launcher = DaemonLauncher(frr)
    try:
        run = lab.run_directory(node).parent
        password = bgp_password(lab.plan, lab.state.lab_directory(lab.name))
        for feature in features():  # first: BGP brings packets, which must find their way
            feature.before_routing(lab.plan, run, node)
        others = {} if elsewhere is None else {node: elsewhere}
        sets = daemon_sets(lab.model, lab.plan, run, frr, only={node}, elsewhere=others, password=password)
        start_daemons(launcher, sets, lab.plan, run)
        await_daemons(run / node, daemons)
        for feature in features():
            feature.after_routing(lab.plan, lab.state, node)
    finally:
        launcher.release()
    return True


def await_daemons(directory: Path, daemons: Iterable[str]) -> None:
    """Wait until daemons whose sockets are in a directory answer. Raises `DriverError` for one that does not."""
    for daemon in daemons:
        if daemon in KNOWN_DAEMONS:
            vty.await_answer(directory, daemon)


def start_daemons(
    launcher: DaemonLauncher, sets: list[DaemonSet], plan: LabPlan, run: Path, *, timeout_s: float = 10.0
) -> None:
    """Start the daemons of switches, and have the password of BGP asked in their VRFs, where there is one.

    Raises `DriverError`, also where a VRF does not come up within `timeout_s`.
    """
    launcher.start(sets)
    started = {item.node for item in sets}
    for switch in plan.switches:
        if switch.evpn is not None and switch.node in started:
            ask_strangers(switch, run, {vrf.tenant for vrf in switch.evpn.vrfs}, timeout_s=timeout_s)


def ask_strangers(switch: SwitchPlan, run: Path, tenants: Collection[str], *, timeout_s: float = 10.0) -> None:
    """Have the password of BGP asked of strangers in VRFs of a switch, where its sessions have one.

    bgpd asks it at the sockets that there are when it is told so, and a VRF has none before zebra has found its
    namespace: it is told again. Raises `DriverError`, also where a VRF does not come up within `timeout_s`.
    """
    if not switch.password or not tenants:
        return
    directory, has_them = run / switch.node, partial(_has_vrfs, set(tenants))
    again = [line for command in ANYBODY for line in (f"no {command}", command)]
    vty.await_json(directory, "bgpd", "show bgp vrfs json", has_them, "its VRFs", timeout_s=timeout_s)
    for tenant in sorted(tenants):
        vty.configure(directory, "bgpd", [f"router bgp {switch.asn} vrf {tenant}", *again])


def _has_vrfs(wanted: set[str], answer: Any) -> bool:
    """Tell whether bgpd, which answered so, knows the namespaces of these VRFs."""
    return wanted <= {name for name, vrf in answer["vrfs"].items() if vrf["vrfId"] >= 0}


def stop_routing(lab: RunningLab, node: str) -> None:
    """End a switch's routing daemons in order: neighbours see their sessions closed. Raises `NoSuchNode`.

    What those left that were killed before goes, too.
    """
    ended = running_daemons(lab, node)
    terminate(ended)
    remove_crash_directories([lab.run_directory(node)], ended)
