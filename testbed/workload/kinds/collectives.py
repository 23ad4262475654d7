"""Kinds of collectives: their transfers carry data that is checked."""

from __future__ import annotations

from testbed.workload.collectives.algorithms import generate_collective
from testbed.workload.collectives.datatype import DataType
from testbed.workload.collectives.operation import (
    ALGORITHMS,
    CHUNKS,
    IN_FLIGHT,
    ROOTED,
    WINDOW,
    Algorithm,
    CollectiveKind,
    CollectiveOperation,
    hyphenated,
)
from testbed.workload.kinds.kind import Builder, FabricView, WorkloadKind
from testbed.workload.parameters import Parameter, ParameterType, Values, choice, rank, size, whole
from testbed.workload.steps import Workload

_DESCRIPTIONS = {
    CollectiveKind.ALL_REDUCE: "Every rank ends with the sum of all arrays.",
    CollectiveKind.REDUCE_SCATTER: "Every rank ends with its block of the sum of all arrays.",
    CollectiveKind.ALL_GATHER: "Every rank ends with all blocks.",
    CollectiveKind.BROADCAST: "The root's array goes to all ranks.",
    CollectiveKind.REDUCE: "The root ends with the sum of all arrays.",
    CollectiveKind.GATHER: "The root ends with all blocks.",
    CollectiveKind.SCATTER: "Every rank gets its block from the root.",
    CollectiveKind.SEND_RECV: "Every rank sends its array to the next one.",
}

_SIZES = {
    CollectiveKind.ALL_REDUCE: "each rank's array",
    CollectiveKind.BROADCAST: "the root's array",
    CollectiveKind.REDUCE: "each rank's array",
    CollectiveKind.SEND_RECV: "what each rank sends",
}
_TOTAL = "all ranks' blocks together"

DATATYPE = choice("datatype", DataType.FLOAT32.value, tuple(DataType), "Names the type of the arrays' elements.")
ITERATIONS = whole(
    "iterations",
    1,
    "Says how often it happens, each rank beginning the next one when its part of the last has ended.",
    high=100_000,
)
_SPLIT = Parameter(
    name="split",
    type=ParameterType.TEXT,
    description="Makes collectives side by side: 'MOD 8' of ranks alike modulo 8, 'DIV 8' of each 8 consecutive ones.",
    default="",
)


def algorithm_of(values: Values, name: str) -> str | None:
    text = values.optional_text(name)
    return None if text is None else text.replace("-", "_")


def _build(kind: CollectiveKind) -> Builder:
    to_all = kind is CollectiveKind.ALL_TO_ALL

    def build(values: Values, fabric: FabricView) -> Workload:
        datatype = DataType(values.text("datatype"))
        along_rail = algorithm_of(values, "rail_algorithm") if kind is CollectiveKind.ALL_REDUCE else None
        operation = values.make(
            CollectiveOperation,
            kind=kind,
            size_bytes=values.bytes("bytes", unit=datatype.size_bytes) * (fabric.ranks if to_all else 1),
            datatype=datatype,
            algorithm=algorithm_of(values, "algorithm"),
            rail_algorithm=along_rail or Algorithm.RING,
        )
        return generate_collective(
            operation,
            ranks=fabric.ranks,
            ranks_per_domain=fabric.ranks_per_domain,
            root=values.whole("root") if kind in ROOTED else 0,
            split="" if to_all else values.text("split"),
            iterations=values.whole("iterations"),
            name=kind.value.replace("_", "-"),
            folds=fabric.folds,
            folds_large=fabric.folds_large,
        )

    return build


def _collective(kind: CollectiveKind) -> WorkloadKind:
    algorithms = ALGORITHMS[kind]
    parameters = [
        size("bytes", "16MB", f"Gives S of nccl-tests: the bytes of {_SIZES.get(kind, _TOTAL)}."),
        DATATYPE,
        choice(
            "algorithm",
            hyphenated(algorithms)[0],
            hyphenated(algorithms),
            "Says how the collective is made of transfers.",
        ),
    ]
    if kind in ROOTED:
        parameters.append(rank("root", 0, "Gives the index of the root among the ranks of the collective."))
    if kind is CollectiveKind.ALL_REDUCE:
        along = hyphenated((Algorithm.RING, Algorithm.TREE, Algorithm.HALVING_DOUBLING))
        parameters.append(
            choice(
                "rail_algorithm",
                along[0],
                along,
                "Names the algorithm along a rail, of a hierarchical AllReduce and of NVLS over several domains.",
            )
        )
    parameters += [CHUNKS, IN_FLIGHT, _SPLIT, ITERATIONS]
    return WorkloadKind(
        name=kind.value.replace("_", "-"),
        description=_DESCRIPTIONS[kind],
        parameters=tuple(parameters),
        build=_build(kind),
        knows_hosts=True,
        collective=True,
    )


KINDS = (
    *(_collective(kind) for kind in _DESCRIPTIONS),
    WorkloadKind(
        name="all-to-all",
        description="Every rank sends a block to each other one: serial, windowed or at once.",
        parameters=(
            size("bytes", "16bdp", "Gives the payload from each rank to each other one."),
            DATATYPE,
            choice(
                "algorithm",
                hyphenated(ALGORITHMS[CollectiveKind.ALL_TO_ALL])[0],
                hyphenated(ALGORITHMS[CollectiveKind.ALL_TO_ALL]),
                "Says whether blocks go straight, or by the GPU of their scale-up domain that has their rail (PXN).",
            ),
            WINDOW,
            ITERATIONS,
        ),
        build=_build(CollectiveKind.ALL_TO_ALL),
        timed=True,
        knows_hosts=True,
        collective=True,
    ),
)
