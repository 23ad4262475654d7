"""The difference of two plans of a lab: what is made, changed in place, and removed, so that the one becomes the other.

Names, addresses, MACs, AS numbers and interface indexes follow from what a thing is called and where it stands
(`addressing`, `interfaces`), and a lab that is up keeps the numbers of its data path (`qos.numbers`). So operations of
both plans that say the same are about the same thing, and it stays as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.management_plan import StartService
from testbed.lab.core.plan.operations import (
    AddAddress,
    AddRoute,
    AddRule,
    CreateVeth,
    DelayPort,
    GuardSwitch,
    InstallPort,
    Operation,
    SetNeighbour,
    SetSysctl,
    SetUp,
    ShapePort,
)
from testbed.lab.core.plan.overlay_operations import SetBorder, SetPolicy


class Effect(StrEnum):
    """The effect of a change on what is there."""

    MADE = "made"
    CHANGED = "changed"
    REMADE = "remade"
    """Taken away and made again."""
    RESTARTED = "restarted"
    """A process ends and begins again."""
    REMOVED = "removed"


class Allow(StrEnum):
    """The things that a change may do to a lab beside changing it where they are, if whoever applies it allows it."""

    RESTART = "restart"
    """Processes end and begin again: sessions, connections and what they hold are lost."""
    RECREATE = "recreate"
    """Nodes, or the whole lab, go and are made again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRow:
    """One thing that `apply` does to a lab, for people and programs.

    `node` is where ("" for the lab, two names for both ends of a link), `what` the thing and `kind` the noun of things
    like it ("" where each is called the same), `detail` what of it differs, `reason` what the file says now, `at_stake`
    which packets or sessions it can cost ("" for none), `allow` what it needs to be allowed ("" for nothing).
    `part_of` is the thing that it comes or goes with, "" for what stands by itself.
    """

    effect: Effect
    node: str
    what: str
    kind: str = ""
    detail: str = ""
    reason: str = ""
    at_stake: str = ""
    allow: Allow | Literal[""] = ""
    part_of: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationChange:
    """One operation that only one of the plans has, or that both have with other numbers.

    `old` is None for what is made, `new` for what is removed.
    """

    old: Operation | None
    new: Operation | None

    @property
    def effect(self) -> Effect:
        """Tell what becomes of the thing."""
        if self.old is None:
            return Effect.MADE
        return Effect.REMOVED if self.new is None else Effect.CHANGED

    @property
    def nodes(self) -> tuple[str, ...]:
        """Return the nodes that it is about: both ends of a link."""
        item = self.old if self.new is None else self.new
        return (item.a.node, item.b.node) if isinstance(item, CreateVeth) else (_node(item),)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChanges:
    """All that makes one plan of another: removals in the reverse order of making, then what is changed and made."""

    removed: tuple[OperationChange, ...]
    changed: tuple[OperationChange, ...]
    made: tuple[OperationChange, ...]

    def __bool__(self) -> bool:
        return bool(self.removed or self.changed or self.made)

    def __iter__(self) -> Iterator[OperationChange]:
        yield from self.removed
        yield from self.changed
        yield from self.made


def changes_between(old: LabPlan, new: LabPlan) -> PlanChanges:
    """Return what makes `new` of `old`. Both are plans of one lab on one machine, with the same numbers of ports.

    Raises `ValueError` where an operation stands twice in a plan: one of them would be lost.
    """
    if old is new:
        return PlanChanges(removed=(), changed=(), made=())
    before, after = map(_by_identity, _apart(old.operations, new.operations))
    gone = [OperationChange(old=item, new=None) for key, item in before.items() if key not in after]
    both = [(before[key], item) for key, item in after.items() if key in before]
    return PlanChanges(
        removed=tuple(reversed(gone)),
        changed=tuple(OperationChange(old=was, new=item) for was, item in both if was != item),
        made=tuple(OperationChange(old=None, new=item) for key, item in after.items() if key not in before),
    )


_NEAR = 256
"""Operations in a row that have come or gone, and among which the next one is looked for that both plans have."""
_MOST_LOOKS = 16
"""The looks in vain, after which all that follows is taken to differ."""


def _apart(old: Sequence[Operation], new: Sequence[Operation]) -> tuple[list[Operation], list[Operation]]:
    """Return the operations of two plans without those that both have, in the same order: of a large lab these are
    nearly all, and to compare two of them takes less than to find out what each is called."""
    here = there = looks = 0
    left: set[int] = set()
    right: set[int] = set()
    while here < len(old) and there < len(new):
        if old[here] == new[there]:
            here, there = here + 1, there + 1
            continue
        was, item = identity(old[here]), identity(new[there])
        gone = come = 1
        if was != item:
            if steps := _steps_to(was, new, there):
                gone, come = 0, steps
            elif steps := _steps_to(item, old, here):
                gone, come = steps, 0
            elif (looks := looks + 1) > _MOST_LOOKS:
                break
        left.update(range(here, here + gone))
        right.update(range(there, there + come))
        here, there = here + gone, there + come
    left.update(range(here, len(old)))
    right.update(range(there, len(new)))
    differing = [*(old[place] for place in left), *(new[place] for place in right)]
    settings = {(item.node, item.key) for item in differing if isinstance(item, SetSysctl)}
    return _at(left, old, settings), _at(right, new, settings)


def _steps_to(wanted: Hashable, operations: Sequence[Operation], start: int) -> int:
    """Return how far behind `start` an operation is by this name, 0 where it is not near."""
    near = range(start + 1, min(start + 1 + _NEAR, len(operations)))
    return next((place - start for place in near if identity(operations[place]) == wanted), 0)


def _at(
    places: Collection[int], operations: Sequence[Operation], settings: Collection[tuple[str, str]]
) -> list[Operation]:
    """Return the operations at some places, and all that write one of some `settings`, of which each time counts."""
    if not settings:
        return [operations[place] for place in sorted(places)]
    return [
        item
        for place, item in enumerate(operations)
        if place in places or (isinstance(item, SetSysctl) and (item.node, item.key) in settings)
    ]


def identity(operation: Operation) -> Hashable:
    """Return the name of the thing that an operation makes or sets, which others of its kind do not have."""
    kind: tuple[Any, ...] = (type(operation).__name__,)
    match operation:
        case CreateVeth():
            return *kind, *sorted((str(operation.a), str(operation.b)))
        case SetSysctl():
            return *kind, operation.node, operation.key
        case AddAddress() | SetNeighbour():
            return *kind, operation.node, operation.name, operation.address
        case AddRoute():
            return *kind, operation.node, operation.table, operation.destination, operation.metric, operation.ifindex
        case AddRule():
            return *kind, operation.node, operation.priority, operation.source, operation.destination
        case ShapePort() | InstallPort() | DelayPort() | SetUp():
            return *kind, operation.node, operation.vrf, operation.name
        case GuardSwitch():
            return *kind, operation.node, operation.vrf, operation.tenant
        case SetPolicy():
            return *kind, operation.node, operation.tenant
        case SetBorder():
            return *kind, operation.node, operation.tenant, operation.name
        case StartService():
            return *kind, operation.node, operation.service
    return *kind, operation.node, getattr(operation, "name", "")


def _by_identity(operations: Sequence[Operation]) -> dict[Hashable, Operation]:
    found: dict[Hashable, Operation] = {}
    written: Counter[Hashable] = Counter()
    for operation in operations:
        key = identity(operation)
        if isinstance(operation, SetSysctl):  # a node is made with one value and has another once its links are there
            written[key] += 1
            key = (key, written[key])
        if found.setdefault(key, operation) is not operation:
            raise ValueError(f"two operations are {key}: {found[key]}, {operation}")
    return found


def _node(operation: Any) -> str:
    return str(operation.node)
