"""An InfiniBand back end in a change of a lab that is up: what differs is told to its subnet managers, or begins again.

Each program of a subnet is compared by what it is started from, and does the least that brings it there. OpenSM reads
most of its settings, and partitions, anew when it is told to sweep. With what it takes at its start alone it is started
again: switches keep their tables until there are new ones, and HCAs their LIDs. The wires begin again with other links,
queues or a time scale, at the cost of what is under way on them. ibsim reads its network once; at its prompt links of
nodes that are there are joined and cut (`Link`, `Unlink`), and no node is made. So with another network the whole
subnet begins again, where that is allowed. All of it is in a namespace of its own: no other node is touched.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from testbed.base.files import write_atomically
from testbed.base.linux.processes import kill_all
from testbed.base.names import SUBNET_NODE
from testbed.lab.core.deploy.steps import step
from testbed.lab.core.feature import Changing, FeatureChange
from testbed.lab.core.model import InfinibandFabric, Lab
from testbed.lab.core.model.infiniband import InfinibandSettings
from testbed.lab.core.plan.changes import Allow, ChangeRow, Effect
from testbed.lab.core.plan.lab_plan import InfinibandPlan, LabPlan
from testbed.lab.features.infiniband.configuration import (
    AT_START,
    PlannedSubnet,
    manager_settings,
    network_text,
    partitions_text,
    plan_subnet,
)
from testbed.lab.features.infiniband.live import LiveSubnet, NoSubnet, lab_plane, start_subnet, start_wires
from testbed.lab.features.infiniband.manager import managers_of
from testbed.lab.features.infiniband.plane import Plane
from testbed.lab.features.infiniband.reading import SubnetReader
from testbed.lab.features.infiniband.running import (
    SIMULATOR,
    START_TIMEOUT_S,
    noted_pids,
    start_managers_anew,
    tell_managers,
)
from testbed.lab.features.infiniband.simulator import Simulator, changed_links
from testbed.lab.features.infiniband.tools import write_tools
from testbed.lab.features.infiniband.wires import has_wires, wires_of, wires_settings

if TYPE_CHECKING:
    from testbed.lab.core.deploy.live import RunningLab

STEP: Final = "subnet"
"""The step of a change in which a subnet becomes another one."""
CUT_NAME: Final = "cut.json"
"""The names of links that are down while the subnet begins again, in the plane's directory."""
_AT_STAKE_OF_SUBNET: Final = "all its frames, HCAs that programs have open, and its counters"
_ARBITRATION: Final = "VL arbitration"
_WORDS: Final = {
    "routing": "routing",
    "vls": "virtual lanes",
    "sl2vl": "lanes of service levels",
    "vl_high": _ARBITRATION,
    "vl_low": _ARBITRATION,
    "vl_high_limit": _ARBITRATION,
    "partitions": "partitions",
    "sm_hosts": "hosts with managers",
    "sweep": "sweep",
    "voq": "voq",
    "adaptive_routing": "adaptive routing",
    "congestion_control": "congestion control",
}
"""The names that people have for fields of `InfinibandSettings`."""
_SHOWN: Final = frozenset({"routing", "vls", "sm_hosts", "sweep", "voq", "adaptive_routing"})
"""The fields of which both values are told."""
_OF_WIRES: Final = frozenset({"voq", "adaptive_routing", "congestion_control"})
"""The fields that managers do not know."""


class Managing(IntEnum):
    """The things that are done to subnet managers, from the least on."""

    NOTHING = 0
    TOLD = 1
    STARTED_ANEW = 2
    WITH_SUBNET = 3
    """ibsim begins again, and all else of the subnet with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubnetDifference:
    """The difference of two subnets of a lab, of which one or the other may be none, and its time scales."""

    old: InfinibandFabric | None
    new: InfinibandFabric | None
    old_k: float
    new_k: float

    @property
    def managing(self) -> Managing:
        """Tell what becomes of the managers of a subnet that stays."""
        old, new = _planned(self.old), _planned(self.new)
        if old is None or new is None:
            return Managing.NOTHING
        if network_text(old) != network_text(new):
            return Managing.WITH_SUBNET
        before, after = _of_managers(old), _of_managers(new)
        if before.keys() != after.keys() or any(
            before[name].get(key) != after[name].get(key) for name in after for key in AT_START
        ):
            return Managing.STARTED_ANEW
        is_told = before != after or partitions_text(old) != partitions_text(new)
        return Managing.TOLD if is_told else Managing.NOTHING

    @property
    def loses_lanes(self) -> bool:
        """Tell whether all lanes become one: nodes get the tables back of their start, since OpenSM leaves them alone
        then."""
        old, new = self.old, self.new
        return old is not None and new is not None and old.settings.has_lanes and not new.settings.has_lanes

    @property
    def restarts_wires(self) -> bool:
        """Tell whether the wires of a subnet whose network stays begin again."""
        if self.old is None or self.new is None or not has_wires(self.new):
            return False
        return _of_wires(self.old, self.old_k) != _of_wires(self.new, self.new_k)

    def rows(self, open_hcas: int) -> Iterator[ChangeRow]:
        """Yield a row for all that something is done to, where programs have so many HCAs open."""
        old, new = _planned(self.old), _planned(self.new)
        if old is None or new is None:
            if (subnet := old or new) is not None:
                yield _row(Effect.REMOVED if new is None else Effect.MADE, "subnet", detail=_size(subnet))
            return
        managing, told = self.managing, ", ".join(_settings_told(old.settings, new.settings, without=_OF_WIRES))
        if managing is Managing.WITH_SUBNET:
            yield _row(
                Effect.RESTARTED,
                "subnet",
                detail=", ".join(filter(None, (_network_told(old, new), told))),
                at_stake=_AT_STAKE_OF_SUBNET,
                allow=Allow.RESTART,
            )
        elif managing is Managing.STARTED_ANEW:
            yield _row(Effect.RESTARTED, "subnet managers", detail=told)
        elif managing is Managing.TOLD:
            yield _row(Effect.CHANGED, "subnet managers", detail=told)
        if self.restarts_wires and managing is not Managing.WITH_SUBNET:
            yield _row(
                Effect.RESTARTED,
                "wires of the subnet",
                detail=", ".join(self._wires_told(old, new)),
                at_stake=f"frames under way, and {open_hcas} HCAs that programs have open" if open_hcas else "",
                allow=Allow.RESTART if open_hcas else "",
            )

    def _wires_told(self, old: PlannedSubnet, new: PlannedSubnet) -> Iterator[str]:
        yield from _settings_told(old.settings, new.settings, without=_WORDS.keys() - _OF_WIRES - {"vls"})
        if self.old is None or self.new is None:
            return
        before, after = wires_settings(self.old, old, self.old_k), wires_settings(self.new, new, self.new_k)
        if before.time_scale != after.time_scale:
            yield f"time scale {before.time_scale:,} -> {after.time_scale:,}"
        if before.links != after.links:
            yield "rates or delays of its links"


def _row(effect: Effect, what: str, **more: Any) -> ChangeRow:
    return ChangeRow(effect=effect, node="", what=what, **more)


def _planned(fabric: InfinibandFabric | None) -> PlannedSubnet | None:
    return None if fabric is None else plan_subnet(fabric)


def _of_managers(subnet: PlannedSubnet) -> dict[str, dict[str, str]]:
    """The settings of each manager by its HCA."""
    nowhere = Path()
    return {
        manager.node.name: manager_settings(subnet, nowhere, nowhere, manager.priority)
        for manager in managers_of(Plane(directory=nowhere), subnet)
    }


def _of_wires(fabric: InfinibandFabric, k: float) -> object:
    """All that wires take when they start, but for tables."""
    tiers = [(node.name, node.role) for node in fabric.switches]
    settings = fabric.settings
    return wires_settings(fabric, plan_subnet(fabric), k), settings.vls, settings.adaptive_routing, tiers


def _settings_told(old: InfinibandSettings, new: InfinibandSettings, without: frozenset[str] | set[str]) -> list[str]:
    """Say which settings differ, and how where that is short."""
    found: dict[str, str] = {}
    for field in fields(InfinibandSettings):
        before, after = getattr(old, field.name), getattr(new, field.name)
        if before != after and field.name not in without:
            word = _WORDS[field.name]
            found[word] = f"{word} {_shown(before)} -> {_shown(after)}" if field.name in _SHOWN else word
    return list(found.values())


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _size(subnet: PlannedSubnet) -> str:
    hcas = len(subnet.hcas)
    return f"{hcas} HCAs, {len(subnet.nodes) - hcas} switches, {len(subnet.links)} links"


def _network_told(old: PlannedSubnet, new: PlannedSubnet) -> str:
    before, after = _size(old), _size(new)
    return f"{before} -> {after}" if before != after else "other links or ports"


class SubnetChange(FeatureChange):
    """Has the subnet of a lab be that of the new plan."""

    def __init__(self, difference: SubnetDifference, rows: Sequence[ChangeRow]) -> None:
        super().__init__(rows)
        self._difference = difference

    def begin(self, changing: Changing) -> None:
        """Note which links are down, before ibsim forgets it."""
        if self._difference.managing is Managing.WITH_SUBNET and not self._is_as_it_was(changing):
            _note_cut(lab_plane(changing.lab.name, changing.run), (self._difference.old, self._difference.new))

    def _is_as_it_was(self, changing: Changing) -> bool:
        """Tell whether it is the way back of a change that had not come to the subnet."""
        if not changing.undoes or STEP in changing.journal.read().steps:
            return False
        return SIMULATOR in noted_pids(lab_plane(changing.lab.name, changing.run).directory)

    def linked(self, changing: Changing) -> None:
        """Bring the subnet there. Nodes that come have their namespaces, and those that go are still there."""
        fabric, plan = self._difference.new, changing.plan.infiniband
        plane = lab_plane(changing.lab.name, changing.run)
        if self._is_as_it_was(changing):
            (plane.directory / CUT_NAME).unlink(missing_ok=True)  # the next change has links of its own to note
            return
        if fabric is None or plan is None:
            return
        changing.journal.step(STEP)
        identity = changing.journal.read().identities[SUBNET_NODE]
        managing = self._difference.managing
        running, subnet = noted_pids(plane.directory), plan_subnet(fabric)
        if self._difference.old is None or SIMULATOR not in running:
            managing = Managing.WITH_SUBNET
        elif managing and any(node.name not in running for node in subnet.managers):
            managing = max(managing, Managing.STARTED_ANEW)
        with step(STEP, changing.notify, _size(subnet)):
            if managing is Managing.WITH_SUBNET:
                _begin_again(plane, plan, fabric, changing.plan.k, identity)
                return
            write_tools(plane, plan, fabric)
            if self._difference.loses_lanes:
                tell_managers(plane, subnet, START_TIMEOUT_S, lanes=True)
            if managing is Managing.STARTED_ANEW:
                start_managers_anew(plane, subnet, identity, START_TIMEOUT_S)
            elif managing is Managing.TOLD:
                tell_managers(plane, subnet, START_TIMEOUT_S)
            self._settle_wires(plane, fabric, subnet, changing.plan.k)

    def _settle_wires(self, plane: Plane, fabric: InfinibandFabric, subnet: PlannedSubnet, k: float) -> None:
        """Have the wires go by the tables that nodes have now."""
        if not has_wires(fabric):
            return
        wires = wires_of(plane)
        if self._difference.restarts_wires or not wires.is_running():
            wires.stop()
            start_wires(plane, fabric, k)
        else:
            wires.set_tables(SubnetReader(plane=plane, planned=subnet).read())

    def removed(self, changing: Changing) -> None:
        """Remove the files of a subnet that is no more; its programs have gone with their namespace."""
        if self._difference.new is None:
            shutil.rmtree(lab_plane(changing.lab.name, changing.run).directory, ignore_errors=True)


def _note_cut(plane: Plane, fabrics: Sequence[InfinibandFabric | None]) -> None:
    """Note the names of links that are down now, where they are not noted already. ibsim has the network of one of the
    fabrics: where a change goes on that was killed, it may be the new one."""
    path = plane.directory / CUT_NAME
    if path.exists() or SIMULATOR not in noted_pids(plane.directory):
        return
    simulator = Simulator(plane=plane)
    network = simulator.network.read_text()
    for fabric in filter(None, fabrics):
        if network_text(subnet := plan_subnet(fabric)) == network:
            cut = [str(fabric.links[index].a) for index in changed_links(simulator.dump(), subnet)]
            write_atomically(path, json.dumps(cut), durable=False)
            return


def _begin_again(plane: Plane, plan: InfinibandPlan, fabric: InfinibandFabric, k: float, identity: int) -> None:
    """End all that runs in the namespace of a subnet, and start it as a deploy does, but that links which are noted as
    cut, and are still there, stay so."""
    kill_all({identity})
    noted = plane.directory / CUT_NAME
    for path in plane.directory.glob("*") if plane.directory.exists() else ():
        if path.is_dir() and not path.is_symlink():  # among them LIDs, which OpenSM would give out again
            shutil.rmtree(path, ignore_errors=True)
        elif path != noted:
            path.unlink(missing_ok=True)
    names = set(json.loads(noted.read_text())) if noted.exists() else set()
    planned = plan_subnet(fabric).links
    links = [link for written, link in zip(fabric.links, planned, strict=True) if str(written.a) in names]
    start_subnet(plane, plan, fabric, k, [(link.b, link.b_port) for link in links]).release()
    noted.unlink(missing_ok=True)


def restart_subnet(lab: RunningLab) -> None:
    """Start the subnet of a lab anew, whose ibsim has ended: its links are all up then. Raises `DriverError`,
    `ConvergenceError`."""
    subnet = LiveSubnet(lab)
    plan = lab.plan.infiniband
    if plan is None:
        raise NoSubnet(f"{lab.name} has no subnet")
    _begin_again(subnet.plane, plan, subnet.fabric, lab.plan.k, lab.identities[SUBNET_NODE])


def subnet_change(running: RunningLab, lab: Lab, plan: LabPlan) -> SubnetChange | None:
    """Return what makes the subnet of a lab that is up that of `lab`, planned as `plan`; None where nothing differs."""
    old, new = running.model.infiniband, lab.infiniband
    difference = SubnetDifference(old=old, new=new, old_k=running.plan.k, new_k=plan.k)
    open_hcas = 0 if old is None or not difference.restarts_wires else LiveSubnet(running).open_hcas()
    rows = list(difference.rows(open_hcas))
    if not rows and old == new:
        return None
    if not rows:  # nothing that a program knows of: runs in virtual time, or words of the file
        rows.append(_row(Effect.CHANGED, "settings of the subnet"))
    return SubnetChange(difference, rows)
