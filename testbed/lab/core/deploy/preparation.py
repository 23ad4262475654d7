"""Checks everything that a deploy may be refused for, before anything is changed.

A lab of the same name that is to be replaced is up meanwhile and stays as it is if the new one is refused.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from testbed.base.datapath import build, load
from testbed.base.errors import NameInUse
from testbed.base.linux import namespaces
from testbed.base.names import namespace_name
from testbed.daemons.portd import native
from testbed.lab.core.deploy.configurations import require_configurations
from testbed.lab.core.deploy.mechanisms import Mechanisms, choose_mechanisms
from testbed.lab.core.deploy.pausing.attachment import needs_pause_agent
from testbed.lab.core.deploy.pausing.reaction import planned_reaction_ns
from testbed.lab.core.deploy.records.journal import Journal, JournalContent, state_error
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.drivers.netlink.port_programs import check_ports
from testbed.lab.core.feature import Part, features
from testbed.lab.core.model import DelayBy, Lab, LagBy, VrfBy
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import InstallPort
from testbed.lab.core.plan.stable import slot_for


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreed:
    """All that machines have agreed on which have a part each of one lab. `part` is this machine's.

    `claimed` is called once name and slot are the lab's here, and before anything is made; it raises to end the deploy.
    """

    part: Part
    slot: int
    by: Mechanisms
    reaction_ns: int
    claimed: Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedLab:
    """A lab that nothing speaks against. `directory` is its lab directory."""

    plan: LabPlan
    by: Mechanisms
    reaction_ns: int
    directory: Path


def prepare_lab(
    lab: Lab, state: StateDirectory, *, k: float, parent: Path | None, agreed: Agreed | None = None
) -> PreparedLab:
    """Plan a lab and check that this machine can give it; changes nothing of any lab, neither of one of that name.

    `parent` is that of its lab directory, the working directory by default. `agreed` is what other machines have agreed
    to that have a part of it. Its runtimes are prepared apart. Raises
    `NameInUse`, `PlanError`, `CapabilityError`, `DriverError`, `StateError`. Whether a slot is left, and whether the
    names are still free, is looked at once more when they are claimed.
    """
    directory = (parent or Path.cwd()) / f"testbed-{lab.name}"
    require_directory(directory)
    here = lab if agreed is None else agreed.part.model(lab)
    require_names(here, Journal(state.lab_directory(lab.name)).read())
    by = choose_mechanisms(lab, state) if agreed is None else agreed.by
    reaction_ns = planned_reaction_ns(lab, state) if agreed is None else agreed.reaction_ns
    slot = state.take_slot(slot_for(lab.name), instead_of=lab.name) if agreed is None else agreed.slot
    plan = plan_at(lab, slot, k=k, by=by, reaction_ns=reaction_ns)
    if agreed is not None:
        plan = agreed.part.plan(plan)
    require_configurations(here)
    for feature in features():
        feature.prepare(here, plan)
    require_data_path(plan)
    return PreparedLab(plan=plan, by=by, reaction_ns=reaction_ns, directory=directory)


def plan_at(lab: Lab, slot: int, *, k: float, by: Mechanisms, reaction_ns: int) -> LabPlan:
    """The plan of a lab in a slot of this machine. Raises `PlanError`."""
    return plan_lab(
        lab,
        slot=slot,
        k=k,
        auto_delay=by.delay_by or DelayBy.ENDPOINT,
        auto_vrf=by.vrf_by or VrfBy.NAMESPACE,
        auto_lag=by.lag_by or LagBy.EBPF,
        reaction_ns=reaction_ns,
    )


def require_names(lab: Lab, replaced: JournalContent) -> None:
    """Raise `NameInUse` where a node's namespace has the name of one that is not `replaced`'s."""
    ours = {namespace_name(lab.name, node): identity for node, identity in replaced.identities.items()}
    beside = (node for feature in features() for node in feature.namespaces(lab))
    nodes = (*(node.name for node in lab.nodes), *beside)
    wanted = [namespace_name(lab.name, node) for node in nodes]
    if foreign := namespaces.foreign(wanted, ours):
        raise NameInUse(
            f"the network namespace {foreign[0]} exists and is not ours",
            hint="choose another lab name (-n), or remove it with `ip netns del`",
        )


def require_data_path(plan: LabPlan) -> None:
    """Compile what the lab's ports run, where that was not done before.

    Raises `CapabilityError` where clang, its headers or libbpf are missing, `DriverError` for too many ports.
    """
    if plan.tables is None:
        return
    check_ports([item for item in plan.operations if isinstance(item, InstallPort)])
    build.program_object()
    load.require_libbpf()
    if needs_pause_agent(plan):
        native.build()


def require_directory(directory: Path) -> None:
    """Raise `StateError` where the lab directory cannot be made, because something else than a directory is there."""
    nearest = next(place for place in (directory, *directory.parents) if place.exists())
    if not nearest.is_dir():
        raise state_error(directory, NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(nearest)))
