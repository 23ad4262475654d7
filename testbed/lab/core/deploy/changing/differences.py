"""All that makes a lab that is up what its file says now, as a value: nothing is touched here."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from testbed.lab.core.deploy.changing.refusal import ChangeRefused
from testbed.lab.core.deploy.changing.routing import routing_changes
from testbed.lab.core.deploy.changing.rows import ThingNames, kernel_rows, routing_rows
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.drivers.nodes.changing import KernelChanges, kernel_changes
from testbed.lab.core.feature import FeatureChange, features
from testbed.lab.core.model import Lab
from testbed.lab.core.plan.changes import Allow, ChangeRow, Effect
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import CreateNode
from testbed.lab.core.plan.qos.numbers import keep_numbers, numbers_of

REFUSED_SHOWN = 5
"""Things that a refusal names."""

NOT_YET = {
    "overlay": "tenants and their networks",
    "link_groups": "link groups of hosts",
    "management": "the management network and its services",
    "scale_up_domains": "scale-up domains",
}
"""The parts of a plan that only a new deploy changes, as fields of `LabPlan`."""


@dataclass(frozen=True, kw_only=True)
class LabChanges:
    """All that makes a lab what a file says: what is done to the kernel, and commands for routing daemons by node and
    daemon. `obstacles` say why it cannot be changed where it is: then it is removed and deployed anew, if that is
    allowed, and there is nothing else to do."""

    old: LabPlan
    new: LabPlan
    lab: Lab
    kernel: KernelChanges
    routing: Mapping[str, Mapping[str, Sequence[str]]]
    features: Sequence[FeatureChange] = ()
    names: ThingNames = field(default_factory=ThingNames)
    obstacles: Sequence[str] = ()

    def __bool__(self) -> bool:
        return bool(self.obstacles) or bool(self.kernel) or bool(self.routing) or bool(self.features)

    @cached_property
    def rows(self) -> tuple[ChangeRow, ...]:
        """All that is done, one row for each thing."""
        if self.obstacles:
            return tuple(self._recreation())
        return (
            *self._scale_rows(),
            *kernel_rows(self.kernel, self.names),
            *routing_rows(self.routing, self.old, self.new),
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


def require_allowed(changes: LabChanges, allow: Collection[Allow]) -> None:
    """Raise `ChangeRefused` where a change does what nobody has allowed: with all of it, and what it costs."""
    lacking = [row for row in changes.rows if row.allow and row.allow not in allow]
    if not lacking:
        return
    words = sorted({str(row.allow) for row in lacking})
    what = "; ".join(f"{row.what}: {row.detail}" if row.detail else row.what for row in lacking[:REFUSED_SHOWN])
    more = f" and {len(lacking) - REFUSED_SHOWN} more" if len(lacking) > REFUSED_SHOWN else ""
    stakes = list(dict.fromkeys(row.at_stake for row in lacking if row.at_stake))
    cost = f"; at stake: {'; '.join(stakes[:REFUSED_SHOWN])}" if stakes else ""
    raise ChangeRefused(
        f"{changes.new.lab} cannot be changed where it is: {what}{more}{cost}",
        hint=f"`testbed apply {' '.join(f'--allow {word}' for word in words)}` does it all the same,"
        " and `testbed diff` shows what else it does",
    )


def changes_of(running: RunningLab, lab: Lab, k: float | None = None) -> LabChanges:
    """Return what makes a lab that is up what `lab` says. Touches nothing. Raises `PlanError`.

    What only a new deploy can bring about is among the `obstacles` of what comes back.
    """
    old = running.plan
    new = running.plan_of(lab, k=running.record.k if k is None else k)
    if old.tables is not None and new.tables is not None:
        new = keep_numbers(new, numbers_of(old))
    obstacles = _obstacles(old, new)
    routing: Mapping[str, Mapping[str, Sequence[str]]] = {}
    changed: list[FeatureChange] = []
    kernel = kernel_changes(old, new)
    try:
        routing = routing_changes(running, old, new)
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
        names=ThingNames.of(running.model, lab),
        obstacles=obstacles,
    )


def _obstacles(old: LabPlan, new: LabPlan) -> list[str]:
    """Say what only a new deploy can bring about."""
    found = [what for name, what in NOT_YET.items() if getattr(old, name) != getattr(new, name)]
    if (old.tables is None) != (new.tables is None):
        found.append("QoS where there was none, or none where there was")
    return found
