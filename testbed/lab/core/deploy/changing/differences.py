"""All that makes a lab that is up what its file says now, as a value: nothing is touched here."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from testbed.lab.core.deploy.changing.refusal import ChangeRefused
from testbed.lab.core.deploy.changing.routing import routing_changes
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.drivers.nodes.changing import KernelChanges, kernel_changes, places_of
from testbed.lab.core.feature import FeatureChange, features, kept
from testbed.lab.core.model import Lab
from testbed.lab.core.plan.changes import Allow, ChangeRow, Effect
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.qos.numbers import keep_numbers, numbers_of

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

    def __bool__(self) -> bool:
        return bool(self.kernel) or bool(self.routing) or bool(self.features)

    @cached_property
    def rows(self) -> tuple[ChangeRow, ...]:
        """All that is done, one row for each thing."""
        return (
            *_kernel_rows(self.kernel),
            *_routing_rows(self.routing),
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
    old, lab = running.plan, kept(running.model, lab)
    new = running.plan_of(lab, k=running.record.k if k is None else k)
    if old.tables is not None and new.tables is not None:
        new = keep_numbers(new, numbers_of(old))
    _refuse(old, new)
    return LabChanges(
        old=old,
        new=new,
        lab=lab,
        kernel=kernel_changes(old, new),
        routing=routing_changes(running, old, new),
        features=[found for feature in features() if (found := feature.change(running, lab, new)) is not None],
    )


def _refuse(old: LabPlan, new: LabPlan) -> None:
    """Raise `ChangeRefused` for what only a new deploy can bring about."""
    found = [what for name, what in NOT_YET.items() if getattr(old, name) != getattr(new, name)]
    if (old.tables is None) != (new.tables is None):
        found.append("QoS where there was none, or none where there was")
    if found:
        raise ChangeRefused(
            f"{old.lab} cannot be changed where it is: {', '.join(found)}", hint="deploy --reconfigure replaces it"
        )
