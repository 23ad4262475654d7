"""The `workload:` section: which kind, its parameters as the registry declares them, and which NICs are its ranks."""

from __future__ import annotations

import re
from collections.abc import Iterator

from testbed.errors import Problem
from testbed.model.scenario import RankOrder, Ranks, Workload
from testbed.spec.validation.by_kind import WORKLOAD_SECTION, KindSection, ParameterReader, section_schema
from testbed.spec.validation.quantities import Span, WholeSeconds
from testbed.spec.yaml.document import Document
from testbed.spec.yaml.paths import quote
from testbed.units import Duration
from testbed.workload.parameters import Parameter, ParameterType, choice, flag, whole
from testbed.workload.registry import KINDS

MAX_RUN = Duration.parse("1h")
_HOST_PATTERN = re.compile(r"[a-z0-9*?\[\]!-]{1,64}")
_BY_BYTES = ("bytes", "rounds")
"""Of kinds that may send for a duration instead: what says how much."""

RANK_FIELDS = (
    Parameter(
        name="hosts",
        type=ParameterType.LIST,
        description="names of hosts or patterns such as p1-s1-*; default: all",
        low=1,
        item=Parameter(name="host", type=ParameterType.TEXT, description="a name or a pattern"),
    ),
    Parameter(
        name="rails",
        type=ParameterType.LIST,
        description="numbers of rails, from 1; default: all",
        low=1,
        item=whole("rail", None, "a rail", high=1024),
    ),
    whole("count", None, "only the first so many NICs of those"),
    choice(
        "order",
        RankOrder.HOST.value,
        tuple(RankOrder),
        "who is rank 0, 1, 2: host by host, rail by rail, spread over the leaves, or shuffled by the seed",
    ),
    flag(
        "per_rail", "every rail runs the workload by itself; default: where rails cannot reach each other", default=None
    ),
)
_RANKS = Parameter(name="ranks", type=ParameterType.SECTION, description="which NICs take part", fields=RANK_FIELDS)

SECTION = KindSection(
    noun="workload",
    kinds=WORKLOAD_SECTION.kinds,
    besides=("ranks", "duration", "time_limit"),
    example=WORKLOAD_SECTION.example,
)
BESIDES = {
    "ranks": {**section_schema(RANK_FIELDS), "description": _RANKS.description},
    "duration": WholeSeconds(MAX_RUN).json_schema()
    | {"description": "every pair sends so long, in whole seconds of lab time, over iperf3 or perftest, not `bytes`"},
    "time_limit": Span(1).json_schema() | {"description": "wall-clock time after which a run is ended, default 60s"},
}


def read_workload(reader: ParameterReader) -> Workload | None:
    """What the document says of it; problems are kept in `reader`, None where there is no kind."""
    path = ("workload",)
    document = reader.document
    kind, values = reader.read_kind(path, SECTION)
    data = document.get(path)
    if not isinstance(data, dict):
        return None
    more = {}
    for key, check in (("duration", WholeSeconds(MAX_RUN)), ("time_limit", Span(1, MAX_RUN))):
        if data.get(key) is not None:
            more[key] = reader.check((*path, key), check)
        elif key in data:
            reader.problems.append(
                document.problem("no-value", (*path, key), "the key has no value", hint="give it one or remove the key")
            )
    ranks = _read_ranks(reader)
    if not kind:
        return None
    duration = more.get("duration")
    if duration is not None and not KINDS[kind].timed:
        timed = ", ".join(name for name, one in KINDS.items() if one.timed)
        hint = f"only pairs can send for a duration: {timed}"
        message = f"the workload {kind} has no duration"
        reader.problems.append(document.problem("contradiction", (*path, "duration"), message, hint=hint, key=True))
    elif "duration" in data:
        for key in _BY_BYTES:
            if key in data:
                message = f"both duration and {key} are given"
                reader.problems.append(
                    document.problem("contradiction", (*path, key), message, hint="keep one", key=True)
                )
    limit = {"time_limit": more["time_limit"]} if more.get("time_limit") is not None else {}
    return Workload(kind=kind, parameters=values, ranks=ranks, duration=duration, **limit)


def latency_problems(document: Document, workload: Workload) -> Iterator[Problem]:
    """What of a workload does not go with pairs that measure the latency of its messages."""
    if workload.duration is not None:
        message = "latency is measured message by message: over a duration perftest tells the mean alone"
        hint = "bytes: 64 here, and transport: {iterations: 1000}"
        yield document.problem("contradiction", ("workload", "duration"), message, hint=hint, key=True)
    elif not KINDS[workload.kind].timed:
        message = f"the transfers of {workload.kind} wait for each other: no pair measures latency"
        pairs = ", ".join(name for name, one in KINDS.items() if one.timed)
        hint = f"only pairs can: {pairs}"
        yield document.problem("contradiction", ("workload", "kind"), message, hint=hint)


def _read_ranks(reader: ParameterReader) -> Ranks:
    path = ("workload", "ranks")
    if not reader.document.has(path):
        return Ranks()
    values = reader.read_value(path, _RANKS) or {}
    for index, pattern in enumerate(values.get("hosts", ())):
        if not _HOST_PATTERN.fullmatch(pattern):
            message = f"{quote(pattern)} is no name of a host and no pattern such as p1-s1-*"
            reader.problems.append(reader.document.problem("bad-name", (*path, "hosts", index), message))
    return Ranks(
        hosts=values.get("hosts", ()),
        rails=values.get("rails", ()),
        count=values.get("count"),
        order=RankOrder(values.get("order", RankOrder.HOST)),
        per_rail=values.get("per_rail"),
    )
