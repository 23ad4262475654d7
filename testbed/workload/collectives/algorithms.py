"""Collectives by kind and algorithm: their steps, what they amount to, and nccl-tests' bus bandwidth factors.

S, the size of a collective, is what nccl-tests prints as its size: the bytes of a rank's array for AllReduce,
Broadcast, Reduce and send/receive, and the bytes of all ranks' blocks together for the others. Arrays are in place
(block r of rank r where a kind has blocks, longer by one element for the first ranks where it does not divide), but for
all-to-all and send/receive, whose receive buffer stands behind the send buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from testbed.base.errors import WorkloadError
from testbed.workload.builder import MAX_STEPS, NOTHING, Frontier, StepBuilder
from testbed.workload.choices import choose
from testbed.workload.collectives.datatype import DataType
from testbed.workload.collectives.direct import direct_all_to_all, direct_rooted, direct_send_recv
from testbed.workload.collectives.group import Group, make_group
from testbed.workload.collectives.halving_doubling import (
    doubling_all_gather,
    halving_doubling_all_reduce,
    halving_reduce_scatter,
)
from testbed.workload.collectives.hierarchical import hierarchical_all_reduce
from testbed.workload.collectives.in_switch import in_switch_all_reduce, in_switch_chunks
from testbed.workload.collectives.operation import (
    ALGORITHMS,
    OUT_OF_PLACE,
    ROOTED,
    Algorithm,
    CollectiveKind,
    CollectiveOperation,
)
from testbed.workload.collectives.relayed import relay_staging, relayed_all_to_all
from testbed.workload.collectives.ring import (
    folded_ring,
    ring_all_gather,
    ring_all_reduce,
    ring_broadcast,
    ring_reduce,
    ring_reduce_scatter,
)
from testbed.workload.collectives.tree import tree_all_reduce
from testbed.workload.steps import Collective, Slice, Workload

PIPELINE_CHUNKS = 8
"""Chunks of a chain or a tree unless told otherwise: without them only one link at a time is busy."""

_Run = Callable[[Group, Slice], None]
_PASSES = {CollectiveKind.ALL_REDUCE: 2, CollectiveKind.REDUCE_SCATTER: 1, CollectiveKind.ALL_GATHER: 1}
"""Rounds of a block along the ring, in a collective that can be one step."""


def generate_collective(  # noqa: PLR0913  # what collectives have
    operation: CollectiveOperation,
    *,
    ranks: int,
    ranks_per_domain: int = 0,
    root: int = 0,
    split: str = "",
    iterations: int = 1,
    name: str = "",
    folds: bool = False,
    folds_large: bool = False,
) -> Workload:
    """One collective of all ranks, `iterations` times: a rank begins the next once its part of the last has ended.

    With `split` as many side by side as `split_ranks` says; `root` is then counted within each. Scale-up
    domains have `ranks_per_domain` consecutive ranks (0: one rank each). The workload is called `name`, or else like
    the kind. With `folds` a ring is one step, with `folds_large` one of more than a million transfers.
    """
    builder = StepBuilder(ranks, ranks_per_domain=ranks_per_domain, folds=folds, folds_large=folds_large)
    groups = split_ranks(split, ranks) if split else [list(range(ranks))]
    if any(not 0 <= root < len(group) for group in groups):
        raise WorkloadError(f"the root {root} is not one of the collective's ranks", field="root")
    frontier: Frontier = {}
    for iteration in range(iterations):
        ended: Frontier = {}
        for number, group in enumerate(groups):
            ended |= add_collective(
                builder,
                operation,
                members=group,
                root=group[root],
                after=frontier,
                label=f"{operation.kind}[{iteration}]" + (f".group{number}" if len(groups) > 1 else ""),
            )
        frontier = ended
    return builder.build(name or str(operation.kind))


def split_ranks(split: str, ranks: int) -> list[list[int]]:
    """The ranks of collectives side by side, as `NCCL_TESTS_SPLIT` of nccl-tests.

    With 8 ranks per host, "MOD 8" makes one of each rail (ranks alike modulo 8), "DIV 8" one of each host.
    """
    word, _, number = split.strip().upper().partition(" ")
    if word not in ("MOD", "DIV") or not number.isascii() or not number.isdigit() or int(number) < 1:
        raise WorkloadError(f"{split!r} does not say how to split: MOD or DIV and a number", field="split")
    groups: dict[int, list[int]] = {}
    for rank in range(ranks):
        groups.setdefault(rank % int(number) if word == "MOD" else rank // int(number), []).append(rank)
    return list(groups.values())


def add_collective(
    builder: StepBuilder,
    operation: CollectiveOperation,
    *,
    members: Sequence[int],
    root: int | None = None,
    after: Mapping[int, tuple[int, ...]] = NOTHING,
    label: str = "",
) -> Frontier:
    """Add a collective of `members`; returns what each of them must wait for to know that its part has ended.

    `root` is a rank (the first member unless told). Raises `WorkloadError`.
    """
    kind = choose(CollectiveKind, operation.kind, "kind")
    algorithm = _algorithm(operation, kind)
    datatype = operation.datatype
    elements = _elements(kind, operation.size_bytes, datatype, len(members))
    first = builder.next_number
    with builder.watch(members, after) as frontier:
        group = make_group(
            builder,
            members,
            datatype=datatype,
            after=after,
            chunks=_chunks(operation, kind, algorithm),
            in_flight=operation.in_flight,
            label=label,
        )
        if kind in ROOTED:
            root = group.ranks[0] if root is None else root
            if root not in group.ranks:
                raise WorkloadError(f"the root {root} is not one of the collective's ranks", field="root")
        _add(group, kind, algorithm, elements, root=root, operation=operation)
    staging = 0
    if algorithm is Algorithm.PXN:
        staging = relay_staging(elements, ranks=group.size, domains=len(_domains(group)))
    builder.collective(
        Collective(
            kind=kind.value,
            algorithm=algorithm.value,
            ranks=group.ranks,
            size_bytes=elements * datatype.size_bytes,
            elements=2 * elements if kind in OUT_OF_PLACE else elements,
            steps=range(first, builder.next_number),
            root=root if kind in ROOTED else None,
            staging=staging,
        )
    )
    return frontier


def _algorithm(operation: CollectiveOperation, kind: CollectiveKind) -> Algorithm:
    if operation.algorithm is None:
        return ALGORITHMS[kind][0]
    algorithm = choose(Algorithm, operation.algorithm, "algorithm")
    if algorithm not in ALGORITHMS[kind]:
        known = ", ".join(ALGORITHMS[kind])
        raise WorkloadError(f"{kind} has no algorithm {algorithm} (one of {known})", field="algorithm")
    return algorithm


def _chunks(operation: CollectiveOperation, kind: CollectiveKind, algorithm: Algorithm) -> int:
    if operation.chunks is not None:
        return operation.chunks
    pipelined = algorithm is Algorithm.TREE or kind in (CollectiveKind.BROADCAST, CollectiveKind.REDUCE)
    rails_pipelined = algorithm is Algorithm.HIERARCHICAL and operation.rail_algorithm == Algorithm.TREE
    return PIPELINE_CHUNKS if pipelined or rails_pipelined else 1


def _add(
    group: Group,
    kind: CollectiveKind,
    algorithm: Algorithm,
    elements: int,
    *,
    root: int | None,
    operation: CollectiveOperation,
) -> None:
    array = Slice(offset=0, length=elements)
    blocks = array.split(group.size)
    at = 0 if root is None or root not in group.ranks else group.ranks.index(root)
    halving = algorithm is Algorithm.HALVING_DOUBLING
    if algorithm is Algorithm.RING and kind in _PASSES and group.size > 1 and _is_folded(group, kind):
        folded_ring(group, elements, passes=_PASSES[kind])
        return
    match kind:
        case CollectiveKind.ALL_REDUCE:
            _add_all_reduce(group, algorithm, array, operation)
        case CollectiveKind.REDUCE_SCATTER:
            (halving_reduce_scatter if halving else ring_reduce_scatter)(group, blocks)
        case CollectiveKind.ALL_GATHER:
            (doubling_all_gather if halving else ring_all_gather)(group, blocks)
        case CollectiveKind.BROADCAST:
            ring_broadcast(group, array, root=at)
        case CollectiveKind.REDUCE:
            ring_reduce(group, array, root=at)
        case CollectiveKind.GATHER | CollectiveKind.SCATTER:
            direct_rooted(group, blocks, root=at, gather=kind is CollectiveKind.GATHER)
        case CollectiveKind.ALL_TO_ALL if algorithm is Algorithm.PXN:
            relayed_all_to_all(group, elements, domains=_domains(group), window=operation.window)
        case CollectiveKind.ALL_TO_ALL:
            direct_all_to_all(group, elements, window=operation.window)
        case CollectiveKind.SEND_RECV:
            direct_send_recv(group, elements)


def _is_folded(group: Group, kind: CollectiveKind) -> bool:
    """Tell whether a ring is one step."""
    if group.builder.folds or not group.builder.folds_large:
        return group.builder.folds
    if _PASSES[kind] * (group.size - 1) * group.size * group.chunks <= MAX_STEPS:
        return False
    group.builder.note(
        "The transfers of a ring collective that has more than a million are carried without data to check, and are not"
        " recorded one by one."
    )
    return True


def _add_all_reduce(group: Group, algorithm: Algorithm, array: Slice, operation: CollectiveOperation) -> None:
    flat: dict[Algorithm, _Run] = {
        Algorithm.RING: ring_all_reduce,
        Algorithm.TREE: tree_all_reduce,
        Algorithm.HALVING_DOUBLING: halving_doubling_all_reduce,
    }
    rail_algorithm = operation.rail_algorithm
    domains = _domains(group)
    if algorithm is Algorithm.NVLS:
        group.builder.note("The switch holds a piece of an array until those of all GPUs are there, and then sends it.")
        if len(domains) == 1:
            in_switch_all_reduce(group, array, chunks=operation.chunks or in_switch_chunks(group.size))
            return
    if algorithm in flat:
        flat[algorithm](group, array)
        return
    along_rail = flat.get(choose(Algorithm, rail_algorithm, "rail_algorithm"))
    if along_rail is None:
        raise WorkloadError(f"an AllReduce along a rail cannot be {rail_algorithm}", field="rail_algorithm")
    in_switch = algorithm is Algorithm.NVLS
    if not in_switch:
        group.builder.note(
            "Inside a scale-up domain, the hierarchical AllReduce is one step over a switch that joins all its GPUs."
        )
    hierarchical_all_reduce(group, array, domains=domains, along_rail=along_rail, in_switch=in_switch)


def _domains(group: Group) -> list[list[int]]:
    size = max(1, group.builder.ranks_per_domain)
    domains: dict[int, list[int]] = {}
    for rank in group.ranks:
        domains.setdefault(rank // size, []).append(rank)
    return list(domains.values())


def _elements(kind: CollectiveKind, size_bytes: int, datatype: DataType, ranks: int) -> int:
    elements, odd = divmod(size_bytes, datatype.size_bytes)
    if odd or elements < 1:
        raise WorkloadError(
            f"{size_bytes} bytes are not a whole number of {datatype} elements of {datatype.size_bytes} bytes, or none",
            field="size_bytes",
        )
    if kind is CollectiveKind.ALL_TO_ALL and ranks:
        elements -= elements % ranks
        if elements == 0:
            least = ranks * datatype.size_bytes
            raise WorkloadError(f"an all-to-all of {ranks} ranks has at least {least} bytes", field="size_bytes")
    return elements
