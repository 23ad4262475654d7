"""Several workloads on one fabric: where each one's ranks are, and when it begins."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from testbed.base.errors import WorkloadError
from testbed.workload.choices import choose
from testbed.workload.draws import draw_order
from testbed.workload.steps import Collective, Compute, FirstToken, FoldedRing, Request, Step, Transfer, Workload


class TenantPlacement(StrEnum):
    """The shares that tenants have of the ranks of a fabric.

    Source: the placements of ATLAHS's GOAL merger (spcl/atlahs).
    """

    PACKED = "packed"
    """Each tenant's ranks are consecutive."""
    ROUND_ROBIN = "round-robin"
    """Tenants take the next rank in turn."""
    RANDOM = "random"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A workload whose rank i is rank `ranks[i]` of the fabric; it begins at `start_ns`."""

    name: str
    workload: Workload
    ranks: tuple[int, ...]
    start_ns: int = 0


def place_tenants(
    sizes: Sequence[int], *, ranks: int, placement: TenantPlacement | str, rng: random.Random | None = None
) -> list[tuple[int, ...]]:
    """The fabric's ranks of each tenant, given how many it has. No rank is shared."""
    if sum(sizes) > ranks or min(sizes, default=1) < 1:
        raise WorkloadError(f"tenants of {sum(sizes)} ranks do not fit on {ranks}", field="tenants")
    match choose(TenantPlacement, placement, "placement"):
        case TenantPlacement.PACKED:
            free = list(range(ranks))
        case TenantPlacement.RANDOM:
            if rng is None:
                raise WorkloadError("a random placement needs a seed", field="placement")
            free = draw_order(rng, range(ranks))
        case TenantPlacement.ROUND_ROBIN:
            placed: list[list[int]] = [[] for _ in sizes]
            following = 0
            while any(len(mine) < size for mine, size in zip(placed, sizes, strict=True)):
                for mine, size in zip(placed, sizes, strict=True):
                    if len(mine) < size:
                        mine.append(following)
                        following += 1
            return [tuple(mine) for mine in placed]
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    return [tuple(free[start : start + size]) for start, size in zip(starts, sizes, strict=True)]


def mix_tenants(tenants: Sequence[Tenant], *, ranks: int, name: str = "tenants") -> Workload:
    """Return all tenants' workloads as one, of `ranks` ranks. Labels begin with the tenant's name and a slash. Where
    they have tenants themselves, those of the same place are one tenant of the whole.

    A tenant that begins later has its start times moved; a rank of it that begins by computing waits, as computing of
    its own, until then.
    """
    if len({tenant.name for tenant in tenants}) != len(tenants):
        raise WorkloadError("two tenants have the same name", field="tenants")
    steps: list[Step] = []
    collectives: list[Collective] = []
    notes: dict[str, None] = {}
    first_tokens: list[FirstToken] = []
    inner: defaultdict[int, list[int]] = defaultdict(list)
    for tenant in tenants:
        _check(tenant, ranks)
        delays = _delays(tenant, first=len(steps))
        steps.extend(delays.values())
        offset = len(steps)
        steps.extend(_moved(step, tenant, offset, delays) for step in tenant.workload.steps)
        collectives.extend(
            replace(
                collective,
                ranks=tuple(tenant.ranks[rank] for rank in collective.ranks),
                steps=range(collective.steps.start + offset, collective.steps.stop + offset),
                root=None if collective.root is None else tenant.ranks[collective.root],
            )
            for collective in tenant.workload.collectives
        )
        first_tokens.extend(
            replace(one, step=one.step + offset, due_ns=one.due_ns + tenant.start_ns)
            for one in tenant.workload.first_tokens
        )
        notes.update(dict.fromkeys(tenant.workload.notes))
        for place, members in enumerate(tenant.workload.tenant_ranks):
            inner[place] += [tenant.ranks[rank] for rank in members]
    return Workload(
        name=name,
        ranks=ranks,
        steps=tuple(steps),
        collectives=tuple(collectives),
        notes=tuple(notes),
        requests=_mixed_requests(tenants),
        first_tokens=tuple(first_tokens),
        tenant_ranks=tuple(map(tuple, inner.values())) or tuple(tenant.ranks for tenant in tenants),
        tenant_names=tenants[0].workload.tenant_names if inner else (),
        tenant_starts_ns=tenants[0].workload.tenant_starts_ns if inner else (),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadPart:
    """The part of a workload that some of its tenants do, as a workload of its own. Ranks keep their numbers.

    `steps` has the number that each of its steps has in the whole.
    """

    workload: Workload
    steps: Sequence[int]


def part_of_ranks(whole: Workload, ranks: Collection[int]) -> WorkloadPart:
    """Return what these ranks do among themselves.

    Raises `WorkloadError` where one of them and one of the others wait for each other, or send to each other.
    """
    mine = frozenset(ranks)
    number_of: dict[int, int] = {}
    steps: list[Step] = []
    for step in whole.steps:
        ends = _ranks_of(step)
        if not ends & mine:
            continue
        if not ends <= mine or not all(before in number_of for before in step.after):
            raise WorkloadError(f"step {step.number} ({step.label}) is of two tenants", field="tenants")
        number_of[step.number] = len(steps)
        after = tuple(number_of[before] for before in step.after)
        if isinstance(step, Transfer) and step.restores is not None:
            steps.append(replace(step, number=len(steps), after=after, restores=number_of[step.restores]))
        else:
            steps.append(replace(step, number=len(steps), after=after))
    collectives = [
        replace(one, steps=range(number_of[one.steps.start], number_of[one.steps.start] + len(one.steps)))
        for one in whole.collectives
        if one.steps.start in number_of
    ]
    requests = [one for one in whole.requests if one.client in mine]
    part = replace(
        whole,
        steps=tuple(steps),
        collectives=tuple(collectives),
        requests=tuple(replace(one, number=number) for number, one in enumerate(requests)),
        first_tokens=tuple(
            replace(one, step=number_of[one.step]) for one in whole.first_tokens if one.step in number_of
        ),
    )
    return WorkloadPart(workload=part, steps=tuple(number_of))


def _ranks_of(step: Step) -> set[int]:
    match step:
        case Compute():
            return {step.rank}
        case FoldedRing():
            return set(step.ranks)
        case Transfer():
            return {step.source, step.destination}


def _mixed_requests(tenants: Sequence[Tenant]) -> tuple[Request, ...]:
    """All tenants' requests in the order of their begins."""
    moved = [
        replace(
            request,
            client=tenant.ranks[request.client],
            server=tenant.ranks[request.server],
            start_ns=request.start_ns + tenant.start_ns,
        )
        for tenant in tenants
        for request in tenant.workload.requests
    ]
    moved.sort(key=lambda request: request.start_ns)
    return tuple(replace(request, number=number) for number, request in enumerate(moved))


def from_its_start(workload: Workload, start_ns: int) -> Workload:
    """Return the workload of a tenant that begins so late as if it were to begin at once."""
    if not start_ns:
        return workload
    steps: list[Step] = []
    for step in workload.steps:
        if isinstance(step, Compute) and step.waits:
            steps.append(replace(step, duration_ns=0))  # a rank that begins by computing has waited
        else:
            steps.append(replace(step, start_ns=max(0, step.start_ns - start_ns)))
    return replace(workload, steps=tuple(steps))


def _delays(tenant: Tenant, *, first: int) -> dict[int, Compute]:
    """A wait until the tenant's start for each rank that begins by computing."""
    if tenant.start_ns == 0:
        return {}
    waiting = sorted({step.rank for step in tenant.workload.steps if isinstance(step, Compute) and not step.after})
    return {
        rank: Compute(
            number=first + place,
            rank=tenant.ranks[rank],
            duration_ns=tenant.start_ns,
            label=f"{tenant.name}/start",
            waits=True,
        )
        for place, rank in enumerate(waiting)
    }


def _moved(step: Step, tenant: Tenant, offset: int, delays: dict[int, Compute]) -> Step:
    after = tuple(before + offset for before in step.after)
    label = f"{tenant.name}/{step.label}"
    if isinstance(step, Compute):
        if not after and step.rank in delays:
            after = (delays[step.rank].number,)
        return replace(
            step,
            number=step.number + offset,
            rank=tenant.ranks[step.rank],
            after=after,
            start_ns=step.start_ns + tenant.start_ns if step.start_ns else 0,
            label=label,
        )
    if isinstance(step, FoldedRing):
        return replace(
            step,
            number=step.number + offset,
            ranks=tuple(tenant.ranks[rank] for rank in step.ranks),
            inside=frozenset(tenant.ranks[rank] for rank in step.inside),
            after=after,
            start_ns=step.start_ns + tenant.start_ns,
            label=label,
        )
    return replace(
        step,
        number=step.number + offset,
        source=tenant.ranks[step.source],
        destination=tenant.ranks[step.destination],
        after=after,
        start_ns=step.start_ns + tenant.start_ns,
        restores=None if step.restores is None else step.restores + offset,
        label=label,
    )


def _check(tenant: Tenant, ranks: int) -> None:
    if len(tenant.ranks) != tenant.workload.ranks or len(set(tenant.ranks)) != len(tenant.ranks):
        raise WorkloadError(
            f"tenant {tenant.name} has {tenant.workload.ranks} ranks and {len(set(tenant.ranks))} places for them",
            field="tenants",
        )
    if any(not 0 <= rank < ranks for rank in tenant.ranks):
        raise WorkloadError(f"tenant {tenant.name} has a rank beyond the fabric's {ranks}", field="tenants")
    if tenant.start_ns < 0:
        raise WorkloadError(f"tenant {tenant.name} begins before the workload does", field="tenants")
