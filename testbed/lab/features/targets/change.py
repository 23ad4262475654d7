"""Storage targets in a change of a lab that is up: what they hold, speak and lie on.

A target's node and links change as those of any node do. Its program is started by a run, which looks into the lab's
record for what the target is; so nothing is to be done here, and it is said.
"""

from __future__ import annotations

from collections.abc import Iterator

from testbed.lab.core.model import Lab
from testbed.lab.core.model.storage import Medium, StorageTarget
from testbed.lab.core.plan.changes import ChangeRow, Effect

_FIELDS = ("protocols", "served_by", "capacity", "medium")


def target_rows(old: Lab, new: Lab) -> Iterator[ChangeRow]:
    """Yield a row for each target that both labs have, and that is another one."""
    before = {node.name: node.target for node in old.targets}
    for node in new.targets:
        was = before.get(node.name)
        if was is not None and node.target is not None and was != node.target:
            yield ChangeRow(
                effect=Effect.CHANGED, node=node.name, what="storage target", detail=_difference(was, node.target)
            )


def _difference(old: StorageTarget, new: StorageTarget) -> str:
    return ", ".join(
        f"{name} {_shown(getattr(old, name))} -> {_shown(getattr(new, name))}"
        for name in _FIELDS
        if getattr(old, name) != getattr(new, name)
    )


def _shown(value: object) -> str:
    match value:
        case tuple():
            return "+".join(map(str, value))
        case Medium():
            parts = (value.rate, value.latency, f"depth {value.depth}")
            return " ".join(str(part) for part in parts if part is not None)
    return str(value)
