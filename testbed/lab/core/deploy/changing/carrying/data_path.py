"""The data path of a lab that is being changed: the numbers in its maps, and its programs on new ports."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.base.datapath import build, load, pins
from testbed.base.datapath.abi import PATHS_MAP
from testbed.base.errors import DriverError
from testbed.lab.core.deploy.links.wires import change_losses, lead_to_delays
from testbed.lab.core.deploy.records.gone_ports import forget_gone_ports, keep_gone_ports, settle_gone_ports
from testbed.lab.core.drivers.netlink.port_programs import PortInstaller, forget_ports, lacking_room, write_maps
from testbed.lab.core.drivers.nodes.changing import KernelChanges
from testbed.lab.core.drivers.nodes.netns import NetnsKernel
from testbed.lab.core.plan.operations import DelayPort, Operation

if TYPE_CHECKING:
    from testbed.base.datapath.maps import LabMaps
    from testbed.lab.core.deploy.changing.differences import LabChanges


def data_path_obstacles(kernel: KernelChanges, run: Path) -> Iterator[str]:
    """Say what the programs and maps of a lab that is up, loaded when it was deployed, cannot do of what it becomes.

    `run` is the lab's run directory, into which root alone can look.
    """
    before, after = kernel.tables
    directory = pins.lab_directory(run)
    if before is None or after is None:
        return  # it is loaded for this change, or goes with it
    if os.geteuid() != 0 or not directory.exists():
        return  # without its run directory a lab has lost more than that, which others say
    try:
        maps = _open_maps(directory, writable=False)
    except DriverError:
        yield "its data path is gone"
        return
    with contextlib.closing(maps):
        if after.asks_kernel and not (directory / PATHS_MAP).exists():
            yield "its data path was loaded by an older version, and no switch of it can adapt or pin"
        if full := lacking_room(maps, after, kernel.installs):
            yield f"its data path was loaded with room for {full}, and needs more now"


def _open_maps(directory: Path, *, writable: bool) -> LabMaps:
    """Open the maps of a lab. What they are read with takes long to import, and labs without QoS have none."""
    from testbed.base.datapath.maps import LabMaps

    return LabMaps.open(directory, writable=writable, with_room=True)


class ChangedDataPath:
    """The data path of a lab with or without QoS. `run` is the lab's run directory."""

    def __init__(self, changes: LabChanges, run: Path) -> None:
        self._changes = changes
        self._directory = pins.lab_directory(run)

    def keep_accounts(self, state_directory: Path) -> None:
        """Keep the packets of ports that are gone, for the accounts of their switches, until
        `settle_accounts`; done again after a break it counts nothing twice. Raises `StateError`."""
        old, new = self._changes.old, self._changes.new
        if new.tables is None:
            return  # all counters go together
        if gone := sorted(old.installed - new.installed):
            with self._maps(writable=False) as maps:
                keep_gone_ports(state_directory, maps, gone, {switch.node for switch in new.switches})

    def _maps(self, *, writable: bool = True) -> contextlib.closing[LabMaps]:
        return contextlib.closing(_open_maps(self._directory, writable=writable))

    @contextlib.contextmanager
    def prepared(self, kernel: NetnsKernel) -> Iterator[None]:
        """Write the numbers of the new plan into the maps, and have programs ready for the ports that are made.

        What is sent through a device that delays is led there once it is there.
        """
        new, changes = self._changes.new, self._changes
        if new.tables is None:
            yield
            return
        if changes.old.tables is None and not self._is_loaded():
            pins.unmount(self._directory)
            PortInstaller.load(self._directory, new.tables, new.installs).close()
        if new.tables.asks_kernel:
            load.attach_paths(build.program_object(), self._directory)
        with self._maps() as maps:
            write_maps(maps, new.tables, changes.kernel.installs)
            change_losses(maps, changes.old, new)
        kernel.use_data_path(PortInstaller.open(self._directory, new.tables))
        yield
        self._lead_to_delays(changes.kernel.made, there=True)

    def _is_loaded(self) -> bool:
        """Tell whether programs and maps are there: a change that brings them or takes them away may have been cut
        short."""
        try:
            load.open_filters(self._directory).close()
            with self._maps(writable=False) as maps:
                return bool(maps.lab["tag"][0])  # which is written once all is loaded
        except DriverError:
            return False

    def take_back(self, kernel: NetnsKernel, operations: Sequence[Operation]) -> None:
        """Take operations back; nothing is led to a device that delays before it goes. Raises `DriverError`."""
        self._lead_to_delays(operations, there=False)
        kernel.undo(operations)

    def _lead_to_delays(self, operations: Sequence[Operation], *, there: bool) -> None:
        if any(isinstance(item, DelayPort) and not item.clsact for item in operations) and self._is_loaded():
            with self._maps() as maps:
                lead_to_delays(maps, operations, there=there)

    def settle_accounts(self, state_directory: Path) -> None:
        """Add what was kept of ports to the accounts of their switches, once `forget` has cleared their counters;
        without QoS no switch has an account. Raises `StateError`."""
        if self._changes.new.tables is None:
            forget_gone_ports(state_directory)
            return
        settle_gone_ports(state_directory)

    def forget(self) -> None:
        """Forget the numbers of the ports that are gone, and what no switch needs any more: without QoS all of it."""
        old, new = self._changes.old, self._changes.new
        if new.tables is None:
            if old.tables is not None:
                pins.remove(self._directory)
            return
        if not new.tables.asks_kernel:
            load.detach_paths(self._directory)
        if lost := {number for _, number in old.installed} - {number for _, number in new.installed}:
            with self._maps() as maps:
                forget_ports(maps, sorted(lost))
