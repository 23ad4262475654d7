"""The kind of a user's own program: a command that is started as ranks, and moves its bytes itself.

Nothing here is sent by anybody. The steps that the kind builds say what one step of the program is stated to send, as a
collective of `bytes`: for the ideal that its steps are compared with, and for probes, which go between ranks that talk.
"""

from __future__ import annotations

from testbed.base.errors import WorkloadError
from testbed.base.names import choice_hint
from testbed.workload.collectives.algorithms import generate_collective
from testbed.workload.collectives.datatype import DataType
from testbed.workload.collectives.operation import (
    ALGORITHMS,
    ROOTED,
    Algorithm,
    CollectiveKind,
    CollectiveOperation,
    hyphenated,
)
from testbed.workload.kinds.kind import FabricView, WorkloadKind
from testbed.workload.parameters import Parameter, ParameterType, Values, choice, duration, flag, size, whole
from testbed.workload.steps import Workload

PROGRAM = "program"
"""The name of the kind."""
MOST_ARGUMENTS = 256
"""The most words of a command, and the most variables of its environment."""
_COLLECTIVES = tuple(kind for kind in CollectiveKind if kind not in ROOTED)
"""Collectives that a step of a program may be stated to be: those in which all ranks take part alike."""
_ELEMENT = DataType.BFLOAT16
"""The smallest element there is, so that nearly any size is a whole number of them."""


def _words(kinds: tuple[CollectiveKind, ...]) -> tuple[str, ...]:
    return tuple(kind.value.replace("_", "-") for kind in kinds)


def check_algorithm(collective: str, algorithm: str | None) -> None:
    """Raise `WorkloadError` where a collective, in the words of files, has no such algorithm."""
    known = hyphenated(ALGORITHMS[CollectiveKind(collective.replace("-", "_"))])
    if algorithm is not None and algorithm not in known:
        raise WorkloadError(
            f"the collective {collective} has no algorithm {algorithm}",
            field="algorithm",
            hint=choice_hint(algorithm, known),
        )


def _build(values: Values, fabric: FabricView) -> Workload:
    """Build the transfers of one step; where no bytes are stated, those of the least that the collective can be of."""
    collective, algorithm = values.text("collective"), values.optional_text("algorithm")
    check_algorithm(collective, algorithm)
    kind = CollectiveKind(collective.replace("-", "_"))
    unit = _ELEMENT.size_bytes
    stated = values.bytes("bytes", unit=unit) // unit * unit if values.given("bytes") else unit * fabric.ranks
    operation = CollectiveOperation(
        kind=kind,
        size_bytes=max(unit, stated) * (fabric.ranks if kind is CollectiveKind.ALL_TO_ALL else 1),
        datatype=_ELEMENT,
        algorithm=None if algorithm is None else algorithm.replace("-", "_"),
    )
    return generate_collective(operation, ranks=fabric.ranks, ranks_per_domain=fabric.ranks_per_domain, name=PROGRAM)


def _text(name: str, description: str) -> Parameter:
    return Parameter(name=name, type=ParameterType.TEXT, description=description)


def _list(name: str, item: str, description: str, *, required: bool = False) -> Parameter:
    return Parameter(
        name=name,
        type=ParameterType.LIST,
        description=description,
        required=required,
        low=1,
        high=MOST_ARGUMENTS,
        item=_text(item, description),
    )


KINDS = (
    WorkloadKind(
        name=PROGRAM,
        description="A program of your own, started as a rank on each NIC: its bytes are the traffic.",
        parameters=(
            _list(
                "command",
                "word",
                "Lists the words of the command that every rank runs, in the directory of this file; {python} is the"
                " interpreter that testbed has itself.",
                required=True,
            ),
            _list("env", "variable", "Lists variables of the ranks' environment, such as WIDTH=256."),
            _list(
                "needs",
                "package",
                "Lists the Python packages that {python} must have, by their names at PyPI, or nothing is started.",
            ),
            flag(
                "polls",
                "Says that waiting ranks look for messages without a pause, as those of MPI do: they run at the lowest"
                " priority, and their time is not held against the machine.",
            ),
            flag("pmi", "Serves PMI-1 to the ranks, for MPICH, Intel MPI and MVAPICH."),
            flag(
                "libfabric",
                "Gives the ranks testbed's provider of libfabric, over UET, instead of carrying their sockets.",
            ),
            _text(
                "step",
                "Gives a regular expression of the line by which a rank says that a step is done; its groups step, and"
                " seconds or ms, are the number of the step and its time.",
            ),
            whole("warm_up", 1, "Says how many steps at the begin are left out of the figures.", low=0, high=100_000),
            size("bytes", None, "Gives what a step's collective is of, as nccl-tests counts it: S of the collective."),
            choice(
                "collective", "all-reduce", _words(_COLLECTIVES), "Names the collective that a step is stated to be."
            ),
            choice(
                "algorithm",
                None,
                hyphenated(tuple(Algorithm)),
                "Names the algorithm that the collective is stated to have; the default is its first.",
            ),
            size("represents", None, "Gives the bytes of the real step that `bytes` stand for, such as 14GB."),
            duration(
                "compute",
                None,
                "Gives the computing of a real step; what is to be waited for instead is in the variable LAB_PAD_S.",
            ),
        ),
        build=_build,
        knows_hosts=True,
        is_program=True,
    ),
)
