"""The keeper of a live lab's overlay: what it is to keep, and its process started.

What it does, and why there must be one, stands in `testbed.daemons.keeper.routers`.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path

from testbed.base.errors import DriverError
from testbed.base.linux.processes import launch_servers, processes_in, terminate
from testbed.base.names import namespace_name
from testbed.daemons.keeper.configuration import LOCK_NAME, PROCESS_NAME, KeeperConfiguration, KeptEntry, KeptVrf
from testbed.daemons.keeper.entries import EntryKind
from testbed.daemons.kit import configuration
from testbed.daemons.kit.lock import is_held
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.plan.lab_plan import LabPlan

DIRECTORY_NAME = ".keeper"
"""In the lab's run directory; no node can have this name."""
EVENTS_FILE = "overlay-events.jsonl"
"""In the lab's state directory: what the keeper did, a `LabEvent` for each line."""
CONFIGURATION = "configuration.json"
LOG = "keeper.log"


def keeper_configuration(plan: LabPlan, run: Path, events: Path) -> KeeperConfiguration | None:
    """The VRFs that have entries of routers behind other VTEPs; None where there are none.

    `run` has the run directories of switches.
    """
    if plan.overlay is None:
        return None
    asns = {switch.node: switch.asn for switch in plan.switches}
    vrfs = []
    for vrf in plan.overlay.vrfs:
        entries = tuple(
            KeptEntry(
                kind=entry.kind,
                vni=entry.vni,
                ifindex=entry.ifindex,
                of=entry.of,
                switch=entry.switch,
                mac=entry.mac,
                address=str(entry.address or ""),
                vteps=entry.vteps,
            )
            for entry in plan.overlay.expected[vrf.node]
            if entry.kind in (EntryKind.MAC, EntryKind.NEIGHBOUR) and not entry.routes
        )
        if entries:
            vrfs.append(
                KeptVrf(
                    namespace=namespace_name(plan.lab, vrf.place),
                    switch=vrf.switch,
                    tenant=vrf.tenant,
                    table=vrf.table,
                    bridge=vrf.l3.bridge_ifindex,
                    vxlan=vrf.l3.vxlan_ifindex,
                    ipv6=vrf.ipv6,
                    asn=asns[vrf.switch],
                    directory=run / vrf.switch,
                    entries=entries,
                )
            )
    return KeeperConfiguration(lab=plan.lab, events=events, vrfs=tuple(vrfs)) if vrfs else None


def start_keeper(plan: LabPlan, state: StateDirectory) -> None:
    """Start the keeper of a lab that has routers to keep, unless it runs; returns when it listens.

    Raises `DriverError`. It lives in the network namespace of a VRF, and goes with the lab.
    """
    run = state.run_directory(plan.lab)
    kept = keeper_configuration(plan, run, state.lab_directory(plan.lab) / EVENTS_FILE)
    directory = run / DIRECTORY_NAME
    if kept is None or is_held(directory / LOCK_NAME):
        return
    path = directory / CONFIGURATION
    try:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        configuration.write(path, kept)
    except OSError as error:
        raise DriverError(f"the keeper of the overlay does not start: {error}", operation="keeper") from error
    what = "the keeper of the overlay does"
    launch_servers("testbed.daemons.keeper", [str(path)], directory / LOG, what=what)


def end_keeper(identities: Collection[int]) -> None:
    """End the keeper that lives in one of these namespaces of a lab; it has sockets in those of all VRFs."""
    terminate([process for process in processes_in(identities) if process.command == PROCESS_NAME])


def forget_keeper(run: Path) -> None:
    """Remove the files of a keeper that has ended, in the run directory of a lab that needs none any more."""
    shutil.rmtree(run / DIRECTORY_NAME, ignore_errors=True)


def keeper_runs(plan: LabPlan, state: StateDirectory) -> bool:
    """Tell whether a lab has its keeper, or needs none."""
    run = state.run_directory(plan.lab)
    return keeper_configuration(plan, run, run) is None or is_held(run / DIRECTORY_NAME / LOCK_NAME)
