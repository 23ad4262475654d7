"""All that makes a lab that is up what its file says now, as a value: nothing is touched here."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

from testbed.lab.core.deploy.changing.refusal import ChangeRefused
from testbed.lab.core.deploy.changing.routing import routing_changes
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.mechanisms import choose_mechanisms, has_link_groups
from testbed.lab.core.deploy.pausing.reaction import planned_reaction_ns
from testbed.lab.core.deploy.records.lab_record import LabRecord, encode_lab, say_the_same
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.drivers.nodes.changing import KernelChanges, kernel_changes, places_of
from testbed.lab.core.drivers.probing.machine import find_frr
from testbed.lab.core.feature import FeatureChange, features
from testbed.lab.core.model import Lab
from testbed.lab.core.plan.changes import Allow, ChangeRow, Effect
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.link_delays import has_delays
from testbed.lab.core.plan.qos.numbers import keep_numbers, numbers_of
from testbed.lab.core.plan.stable import DEFAULT_REACTION_NS

REFUSED_SHOWN = 5
"""Things that a refusal names."""

NOT_YET = {
    "management": "the management network and its services",
    "scale_up_domains": "scale-up domains",
}
"""The parts of a plan that only a new deploy changes, as fields of `LabPlan`."""


@dataclass(frozen=True, kw_only=True)
class LabChanges:
    """All that makes a lab what a file says: what is done to the kernel, and commands for routing daemons by node and
    daemon."""

    old: LabPlan
    new: LabPlan
    lab: Lab
    kernel: KernelChanges
    routing: Mapping[str, Mapping[str, Sequence[str]]]
    features: Sequence[FeatureChange] = ()
    losses: Mapping[str, float] = field(default_factory=dict)
    """The shares of packets that wires lose now, by the port that sends ("node:interface"), where they differ."""
    described: Sequence[ChangeRow] = ()
    """What differs in the lab's record alone, and holds for what is started from now on."""
    was: LabRecord | None = None
    """The record of the lab as it was; None where none is deployed, and all is made."""
    record: LabRecord | None = None
    """The record of the lab as it is to be, with what is left to the machine decided."""

    def __bool__(self) -> bool:
        parts = (self.kernel, self.routing, self.features, self.losses, self.described)
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
        return (
            *_kernel_rows(self.kernel),
            *_loss_rows(self.losses),
            *_routing_rows(self.routing),
            *self.described,
            *(row for each in self.features for row in each.rows),
        )


def _kernel_rows(kernel: KernelChanges) -> Iterator[ChangeRow]:
    remade = {id(item) for item in kernel.remade}
    renewed = {id(item): last for item, last in kernel.renewed}
    for item in (*kernel.created, *kernel.made):
        if (last := renewed.get(id(item))) is not None:
            yield ChangeRow(effect=Effect.CHANGED, node=" ".join(places_of(last)), what=str(last))
            continue
        is_remade = id(item) in remade
        yield ChangeRow(
            effect=Effect.REMADE if is_remade else Effect.MADE,
            node=" ".join(places_of(item)),
            what=str(item),
            at_stake="what waits in its queue" if is_remade else "",
        )
    for _, new in kernel.changed:
        yield ChangeRow(effect=Effect.CHANGED, node=" ".join(places_of(new)), what=str(new))
    for item in kernel.removed:
        yield ChangeRow(effect=Effect.REMOVED, node=" ".join(places_of(item)), what=str(item))
    for node in kernel.gone:
        yield ChangeRow(effect=Effect.REMOVED, node=node, what=f"node {node}")


def _routing_rows(routing: Mapping[str, Mapping[str, Sequence[str]]]) -> Iterator[ChangeRow]:
    for node, daemons in routing.items():
        for daemon, lines in daemons.items():
            for line in lines:
                yield ChangeRow(effect=Effect.CHANGED, node=node, what=f"{daemon}: {line}")


def _loss_rows(losses: Mapping[str, float]) -> Iterator[ChangeRow]:
    for port, loss in losses.items():
        node, _, interface = port.partition(":")
        yield ChangeRow(effect=Effect.CHANGED, node=node, what=f"loss of what {interface} sends: {100 * loss:g}%")


def require_allowed(changes: LabChanges, allow: Collection[Allow]) -> None:
    """Raise `ChangeRefused` where a change does what nobody has allowed: with all of it."""
    lacking = [row for row in changes.rows if row.allow and row.allow not in allow]
    if not lacking:
        return
    words = sorted({str(row.allow) for row in lacking})
    what = "; ".join(f"{row.node}: {row.what}" if row.node else row.what for row in lacking[:REFUSED_SHOWN])
    more = f" and {len(lacking) - REFUSED_SHOWN} more" if len(lacking) > REFUSED_SHOWN else ""
    raise ChangeRefused(
        f"{changes.new.lab} cannot be changed where it is: {what}{more}",
        hint=" ".join(f"--allow {word}" for word in words) + "; `testbed diff` says what it costs",
    )


def changes_of(running: RunningLab, lab: Lab, k: float | None = None) -> LabChanges:
    """Return what makes a lab that is up what `lab` says. Touches nothing. Raises `ChangeRefused`, `PlanError`."""
    record = decided(running.record, lab, running.state)
    old, k = running.plan, record.k if k is None else k
    new = RunningLab(record, running.state).plan_of(lab, k=k)
    if old.tables is not None and new.tables is not None:
        new = keep_numbers(new, numbers_of(old))
    record = replace(
        record,
        k=k,
        source=lab.source,
        model=encode_lab(lab),
        numbers=asdict(numbers_of(new)) if new.tables is not None else None,
        revision=record.revision + 1,
        changed=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )
    return changes_between(running, RunningLab.planned(record, running.state, lab, new))


def changes_between(running: RunningLab, wanted: RunningLab) -> LabChanges:
    """Return what makes of a lab another one of its name, both with their plans. Touches nothing.

    Raises `ChangeRefused`.
    """
    old, new, lab = running.plan, wanted.plan, wanted.model
    _refuse(old, new)
    before = {f"{port.node}:{port.name}": port.loss for port in old.ports}
    after = {f"{port.node}:{port.name}": port.loss for port in new.ports}
    return LabChanges(
        old=old,
        new=new,
        lab=lab,
        kernel=kernel_changes(old, new),
        routing=routing_changes(running, old, new),
        features=[found for feature in features() if (found := feature.change(running, lab, new)) is not None],
        losses={port: loss for port, loss in after.items() if loss != before.get(port, 0.0)},
        described=list(_described(running.model, lab)),
        was=running.record,
        record=wanted.record,
    )


def changes_from_nothing(lab: Lab, plan: LabPlan) -> LabChanges:
    """Return what makes a lab of whose name none is deployed: all of it."""
    nothing = LabPlan(
        lab=plan.lab, slot=plan.slot, k=plan.k, operations=(), ports=(), switches=(), hosts=(), expected_routes={}
    )
    return LabChanges(old=nothing, new=plan, lab=lab, kernel=kernel_changes(nothing, plan), routing={})


def decided(record: LabRecord, lab: Lab, state: StateDirectory) -> LabRecord:
    """Return a lab's record with what is left to the machine decided for what `lab` has and it had not.

    Raises `CapabilityError`, `PlanError`.
    """
    found: dict[str, Any] = {}
    lacks_delay = not record.delay_by and has_delays(lab)
    if lacks_delay or (not record.vrf_by and lab.overlay) or (not record.lag_by and has_link_groups(lab)):
        by = choose_mechanisms(lab, state)
        chosen = {"delay_by": by.delay_by, "vrf_by": by.vrf_by, "lag_by": by.lag_by}
        found = {key: word.value for key, word in chosen.items() if word is not None and not getattr(record, key)}
    if record.reaction_ns == DEFAULT_REACTION_NS:
        found["reaction_ns"] = planned_reaction_ns(lab, state, measure=False)
    if not record.frr and any(node.container is None for node in lab.speakers):
        found["frr"] = find_frr().version_text
    return replace(record, **found) if found else record


_SETTINGS = {"env": "environment", "exec": "commands of a start", "labels": "labels"}
"""What a node has in its lab's record alone, by the field of `Node`."""


def _described(before: Lab, after: Lab) -> Iterator[ChangeRow]:
    """A row for each thing of nodes that stay which the record alone says."""
    known = {node.name: node for node in before.nodes}
    for node in after.nodes:
        was = known.get(node.name)
        for name, words in _SETTINGS.items() if was is not None else ():
            if getattr(was, name) != getattr(node, name):
                yield ChangeRow(effect=Effect.CHANGED, node=node.name, what=words)


def _refuse(old: LabPlan, new: LabPlan) -> None:
    """Raise `ChangeRefused` for what only a new deploy can bring about."""
    found = [what for name, what in NOT_YET.items() if getattr(old, name) != getattr(new, name)]
    if (old.tables is None) != (new.tables is None):
        found.append("QoS where there was none, or none where there was")
    if found:
        raise ChangeRefused(
            f"{old.lab} cannot be changed where it is: {', '.join(found)}", hint="deploy --reconfigure replaces it"
        )
