"""Storage targets in a change of a lab that is up: what they hold, speak and lie on.

A target's node and links change as those of any node do. Its program is started by a run, which looks into the lab's
record for what the target is; so here is nothing to do but to load what the kernel's targets need, and to say it.
"""

from __future__ import annotations

from collections.abc import Iterator

from testbed.lab.core.feature import Changing, FeatureChange
from testbed.lab.core.model import Lab
from testbed.lab.core.model.storage import ServedBy, StorageTarget
from testbed.lab.core.plan.changes import ChangeRow, Effect

_FIELDS = ("protocols", "served_by", "capacity", "medium")


class TargetsChange(FeatureChange):
    """Loads the kernel's modules where the kernel is to serve targets."""

    def begin(self, changing: Changing) -> None:
        targets = [node.target for node in changing.lab.targets if node.target is not None]
        if any(target.served_by is ServedBy.KERNEL for target in targets):
            from testbed.lab.features.targets.kernel_targets import load_nvmet

            load_nvmet()


def target_rows(old: Lab, new: Lab) -> Iterator[ChangeRow]:
    """Yield a row for each target that both labs have, and that is another one."""
    before = {node.name: node.target for node in old.targets}
    for node in new.targets:
        was = before.get(node.name)
        if was is not None and node.target is not None and was != node.target:
            yield ChangeRow(
                effect=Effect.CHANGED, node=node.name, what="storage target", reason=_difference(was, node.target)
            )


def _difference(old: StorageTarget, new: StorageTarget) -> str:
    return ", ".join(
        f"{name} {_shown(getattr(old, name))} -> {_shown(getattr(new, name))}"
        for name in _FIELDS
        if getattr(old, name) != getattr(new, name)
    )


def _shown(value: object) -> str:
    return "+".join(map(str, value)) if isinstance(value, tuple) else str(value)


def targets_change(old: Lab, new: Lab) -> TargetsChange | None:
    """Return what makes the targets of one lab those of another; None where nothing differs."""
    rows = list(target_rows(old, new))
    kernel = {node.name for node in new.targets if node.target and node.target.served_by is ServedBy.KERNEL}
    return TargetsChange(rows) if rows or kernel - {node.name for node in old.targets} else None
