"""All that makes a lab that is up what its file says now, as a value: nothing is touched here."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from testbed.base.names import first_few
from testbed.lab.core.deploy.changing.carrying.data_path import data_path_obstacles
from testbed.lab.core.deploy.changing.carrying.routing import RoutingChanges, routing_changes
from testbed.lab.core.deploy.changing.drift.lab_drift import Drift
from testbed.lab.core.deploy.changing.refusal import ChangeRefused
from testbed.lab.core.deploy.changing.telling.rows import ThingNames, kernel_rows, routing_rows
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.mechanisms import choose_mechanisms, has_link_groups
from testbed.lab.core.deploy.pausing.reaction import has_lossless, planned_reaction_ns
from testbed.lab.core.deploy.records.lab_record import LabRecord, encode_lab, encode_written, say_the_same
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.drivers.nodes.changing import KernelChanges, kernel_changes
from testbed.lab.core.drivers.probing.machine import find_frr
from testbed.lab.core.feature import FeatureChange, features, keep
from testbed.lab.core.model import Lab
from testbed.lab.core.plan.changes import Allow, ChangeRow, Effect
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.link_delays import has_delays
from testbed.lab.core.plan.operations import CreateNode
from testbed.lab.core.plan.qos.numbers import keep_numbers, numbers_of
from testbed.lab.core.plan.stable import DEFAULT_REACTION_NS

REFUSED_SHOWN = 5
"""Things that a refusal names."""


@dataclass(frozen=True, kw_only=True)
class LabChanges:
    """All that makes a lab what a file says: what is done to the kernel, and commands for routing daemons by node and
    daemon. `obstacles` say why it cannot be changed where it is: then it is removed and deployed anew, if that is
    allowed, and there is nothing else to do."""

    old: LabPlan
    new: LabPlan
    lab: Lab
    kernel: KernelChanges
    routing: RoutingChanges
    features: Sequence[FeatureChange] = ()
    names: ThingNames = field(default_factory=ThingNames)
    obstacles: Sequence[str] = ()
    losses: Mapping[str, float] = field(default_factory=dict)
    """The shares of packets that wires lose now, by the port that sends ("node:interface"), where they differ."""
    described: Sequence[ChangeRow] = ()
    """The differences in the lab's record alone, which hold for what is started from now on."""
    was: LabRecord | None = None
    """The record of the lab as it was; None where none is deployed, and all is made."""
    record: LabRecord | None = None
    """The record of the lab as it is to be, with what is left to the machine decided."""
    drift: Drift = field(default_factory=Drift)
    """The changes by hand in the lab as it is, and processes that ended, where that was looked at."""

    def __bool__(self) -> bool:
        parts = (self.drift, self.obstacles, self.kernel, self.routing, self.features, self.losses, self.described)
        return self.was is None or any(map(bool, parts))

    @property
    def is_recorded(self) -> bool:
        """Tell whether the lab's record says already all that the lab is to be, though it may come from another
        file."""
        before, after = self.was, self.record
        if before is None or after is None:
            return False
        return before.k == after.k and say_the_same(before.model, after.model)

    @cached_property
    def rows(self) -> tuple[ChangeRow, ...]:
        """All that is done, one row for each thing."""
        if self.obstacles:
            return tuple(self._recreation())
        return (
            *self.drift.rows,
            *self._scale_rows(),
            *kernel_rows(self.kernel, self.names),
            *_loss_rows(self.losses),
            *routing_rows(self.routing, self.old, self.new),
            *self.routing.rows(),
            *self.described,
            *(row for each in self.features for row in each.rows),
        )

    def _recreation(self) -> Iterator[ChangeRow]:
        """The whole lab goes and is made again: a row for each thing that asks for it."""
        nodes = sum(isinstance(item, CreateNode) for item in self.old.operations)
        for obstacle in self.obstacles:
            yield ChangeRow(
                effect=Effect.REMADE,
                node="",
                what=f"lab {self.old.lab}",
                detail=obstacle,
                at_stake=f"all {nodes:,} nodes with their sessions and packets",
                allow=Allow.RECREATE,
            )

    def _scale_rows(self) -> Iterator[ChangeRow]:
        if self.old.k != self.new.k:
            yield ChangeRow(
                effect=Effect.CHANGED, node="", what="time scale", detail=f"k {self.old.k:g} -> {self.new.k:g}"
            )


def _loss_rows(losses: Mapping[str, float]) -> Iterator[ChangeRow]:
    for port, loss in losses.items():
        node, _, interface = port.partition(":")
        what = f"loss of what {interface} sends"
        yield ChangeRow(effect=Effect.CHANGED, node=node, kind="loss", what=what, detail=f"-> {100 * loss:g}%")


def require_allowed(changes: LabChanges, allow: Collection[Allow]) -> None:
    """Raise `ChangeRefused` where a change does what nobody has allowed: with all of it, and what it costs."""
    lacking = [row for row in changes.rows if row.allow and row.allow not in allow]
    if not lacking:
        return
    words = sorted({str(row.allow) for row in lacking})
    told = [f"{row.what}: {row.detail}" if row.detail else row.what for row in lacking]
    what = first_few(told, REFUSED_SHOWN, "; ")
    stakes = list(dict.fromkeys(row.at_stake for row in lacking if row.at_stake))
    cost = f"; at stake: {'; '.join(stakes[:REFUSED_SHOWN])}" if stakes else ""
    raise ChangeRefused(
        f"{changes.new.lab} cannot be changed where it is: {what}{cost}",
        hint=f"`testbed apply {' '.join(f'--allow {word}' for word in words)}` does it all the same,"
        " and `testbed diff` shows what else it does",
    )


def require_possible(changes: LabChanges) -> None:
    """Raise `ChangeRefused` for changes of a lab that cannot be made where it is."""
    if changes.obstacles:
        raise ChangeRefused(
            f"{changes.new.lab} cannot be changed where it is: {'; '.join(changes.obstacles)}",
            hint="deploy --reconfigure replaces the lab",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedLab:
    """A lab that one which is up is to become, with what it keeps of that one. `model` is what a record says of it, and
    the record of the lab that is up says the same where it `is_recorded`."""

    lab: Lab
    model: Mapping[str, Any]
    is_recorded: bool


def asked_of(running: RunningLab, lab: Lab) -> AskedLab:
    """Return the lab that is asked for by `lab`. The model that is recorded is read only where it says another one."""
    model, recorded = encode_lab(lab), running.record.model
    if say_the_same(recorded, model):  # who has kept everything keeps it
        return AskedLab(lab=lab, model=model, is_recorded=True)
    kept = keep(running.model, lab)
    if kept is lab:
        return AskedLab(lab=lab, model=model, is_recorded=False)
    model = encode_lab(kept)
    return AskedLab(lab=kept, model=model, is_recorded=say_the_same(recorded, model))


def changes_of(running: RunningLab, lab: Lab, k: float | None = None) -> LabChanges:
    """Return what makes a lab that is up what `lab` says. Touches nothing. Raises `PlanError`.

    What only a new deploy can bring about is among the `obstacles` of what comes back.
    """
    return asked_changes(running, asked_of(running, lab), k)


def asked_changes(running: RunningLab, asked: AskedLab, k: float | None = None) -> LabChanges:
    """Do as `changes_of`, for a lab of which it is known what it keeps."""
    lab = asked.lab
    record = decided(running.record, lab, running.state)
    old, k = running.plan, record.k if k is None else k
    new = old if _is_as_recorded(running, record, asked, k) else RunningLab(record, running.state).plan_of(lab, k=k)
    if new is not old and old.tables is not None and new.tables is not None:
        new = keep_numbers(new, numbers_of(old))
    record = replace(
        record,
        k=k,
        source=lab.source,
        model=asked.model,
        numbers=numbers_of(new).to_json() if new.tables is not None else None,
        written=encode_written(lab),
        revision=record.revision + 1,
        changed=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )
    return changes_between(running, RunningLab.planned(record, running.state, lab, new))


def nothing_to_change(running: RunningLab, asked: AskedLab, k: float | None = None) -> LabChanges | None:
    """Return the changes that make a lab that is up what is asked for where that is what it was made of; None where it
    is something else. It takes no plan, which large labs take long to make. Raises as `changes_of`."""
    lab = asked.lab
    record = decided(running.record, lab, running.state)
    if not _is_as_recorded(running, record, asked, record.k if k is None else k):
        return None
    plan = _no_plan(running.name, record.slot, record.k)
    return LabChanges(
        old=plan,
        new=plan,
        lab=lab,
        kernel=kernel_changes(plan, plan),
        routing=RoutingChanges(),
        was=running.record,
        record=replace(record, source=lab.source, written=encode_written(lab)),
    )


def _is_as_recorded(running: RunningLab, record: LabRecord, asked: AskedLab, k: float) -> bool:
    return asked.is_recorded and record == running.record and record.k == k


def _no_plan(lab: str, slot: int, k: float) -> LabPlan:
    return LabPlan(lab=lab, slot=slot, k=k, operations=(), ports=(), switches=(), hosts=(), expected_routes={})


def changes_between(running: RunningLab, wanted: RunningLab) -> LabChanges:
    """Return what makes of a lab another one of its name, both with their plans. Touches nothing."""
    old, new, lab = running.plan, wanted.plan, wanted.model
    before = {f"{port.node}:{port.name}": port.loss for port in old.ports}
    after = {f"{port.node}:{port.name}": port.loss for port in new.ports}
    kernel = kernel_changes(old, new)
    obstacles = list(data_path_obstacles(kernel, running.processes_directory))
    routing = RoutingChanges()
    changed: list[FeatureChange] = []
    try:
        routing = routing_changes(running, old, new, lab)
    except ChangeRefused as error:
        obstacles.append(error.message)
    for feature in features():
        try:
            found = feature.change(running, lab, new)
        except ChangeRefused as error:
            obstacles.append(error.message)
        else:
            changed += [] if found is None else [found]
    return LabChanges(
        old=old,
        new=new,
        lab=lab,
        kernel=kernel,
        routing=routing,
        features=changed,
        names=ThingNames.of(running.model, lab, plans=(old, new)),
        obstacles=obstacles,
        losses={port: loss for port, loss in after.items() if loss != before.get(port, 0.0)},
        described=list(_described(running.model, lab)),
        was=running.record,
        record=wanted.record,
    )


def changes_from_nothing(lab: Lab, plan: LabPlan) -> LabChanges:
    """Return what makes a lab of whose name none is deployed: all of it."""
    nothing = _no_plan(plan.lab, plan.slot, plan.k)
    return LabChanges(
        old=nothing,
        new=plan,
        lab=lab,
        kernel=kernel_changes(nothing, plan),
        routing=RoutingChanges(),
        names=ThingNames.of(lab, plans=(plan,)),
    )


def decided(record: LabRecord, lab: Lab, state: StateDirectory) -> LabRecord:
    """Return a lab's record with what is left to the machine decided for what `lab` has and it had not, and no longer
    for what it has no more.

    Raises `CapabilityError`, `PlanError`.
    """
    has = {"delay_by": has_delays(lab), "vrf_by": bool(lab.overlay), "lag_by": has_link_groups(lab)}
    found: dict[str, Any] = {key: "" for key, there in has.items() if getattr(record, key) and not there}
    lacks_delay = not record.delay_by and has_delays(lab)
    if lacks_delay or (not record.vrf_by and lab.overlay) or (not record.lag_by and has_link_groups(lab)):
        by = choose_mechanisms(lab, state)
        chosen = {"delay_by": by.delay_by, "vrf_by": by.vrf_by, "lag_by": by.lag_by}
        found |= {key: word.value for key, word in chosen.items() if word is not None and not getattr(record, key)}
    if record.reaction_ns == DEFAULT_REACTION_NS or not has_lossless(lab):
        found["reaction_ns"] = planned_reaction_ns(lab, state, measure=False)
    routes = any(node.container is None for node in lab.speakers)
    if routes != bool(record.frr):
        found["frr"] = find_frr().version_text if routes else ""
    return replace(record, **found) if found else record


_SETTINGS = {"env": "environment", "exec": "commands of a start", "labels": "labels"}
"""The keys that a node has in its lab's record alone, by the field of `Node`."""


def _described(before: Lab, after: Lab) -> Iterator[ChangeRow]:
    """A row for each thing of nodes that stay which the record alone says."""
    known = {node.name: node for node in before.nodes}
    for node in after.nodes:
        was = known.get(node.name)
        for name, words in _SETTINGS.items() if was is not None else ():
            if getattr(was, name) != getattr(node, name):
                yield ChangeRow(effect=Effect.CHANGED, node=node.name, kind=words, what=f"{words} of {node.name}")
