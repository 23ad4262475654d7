"""The `workload:` section: the parameters of its kind as the registry declares them, and which NICs are its ranks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path as FilePath
from typing import Annotated

from pydantic import Field
from pydantic.json_schema import JsonSchemaValue

from testbed.base.errors import Problem, SpecError, WorkloadError
from testbed.base.lazy import LazyMapping
from testbed.base.names import PLANE_LETTERS
from testbed.base.units import BYTES, Duration
from testbed.base.validation.by_kind import ByKind
from testbed.base.validation.engine import validate_partly
from testbed.base.validation.fields import Checked, Flag, Length, NotNull, OneOf, Text, Whole, Written
from testbed.base.validation.model import SpecModel, refusal
from testbed.base.validation.quantities import Span, WholeSeconds
from testbed.base.yaml.document import Document
from testbed.base.yaml.paths import Path, quote
from testbed.run.schema.declared import MAX_LIST, declared_model, models_by_kind, written_values
from testbed.run.schema.model import RankOrder, Ranks, Transport, Workload
from testbed.run.schema.transport import TENANT_TRANSPORT
from testbed.run.schema.transports import TRANSPORTS
from testbed.workload.parameters import ParameterType
from testbed.workload.registry import KINDS

MAX_RUN = Duration.parse("1h")
MAX_RANK = 1_000_000
_PlaneLetter = Annotated[str, OneOf(tuple(PLANE_LETTERS)), NotNull()]
_HOST_PATTERN = re.compile(r"[a-z0-9*?\[\]!-]{1,64}")
_LONGEST_PATTERN = 200
_LONGEST_NETWORK = 32
_LONGEST_TENANT = 32
MOST_NETWORKS = 16
MOST_TENANTS = 64
_BY_BYTES = ("bytes", "rounds")
"""The keys that say how much, of kinds that may send for a duration instead."""


@dataclass(frozen=True, slots=True)
class _HostPattern(Checked):
    """The name of a host, or a pattern that names of hosts match."""

    def check(self, value: object) -> str:
        text = Text(_LONGEST_PATTERN).check(value)
        if not _HOST_PATTERN.fullmatch(text):
            raise refusal("bad-name", f"{quote(text)} is no name of a host and no pattern such as p1-s1-*")
        return text

    def json_schema(self) -> JsonSchemaValue:
        return {"type": "string", "pattern": f"^{_HOST_PATTERN.pattern}$"}


@dataclass(frozen=True, slots=True)
class _Names(Checked):
    """A name, or a list of up to `most` different ones. `what` they are the names of, such as "network"."""

    what: str
    longest: int
    most: int

    def check(self, value: object) -> tuple[str, ...]:
        if not isinstance(value, list):
            return (Text(self.longest).check(value),)
        names = tuple(Text(self.longest).check(item) for item in value)
        if not 1 <= len(names) <= self.most:
            raise refusal("out-of-range", f"must have 1 to {self.most} {self.what}s, not {len(names)}")
        if len(set(names)) != len(names):
            raise refusal("contradiction", f"a {self.what} stands twice in the list")
        return names

    def json_schema(self) -> JsonSchemaValue:
        name = Text(self.longest).json_schema()
        return {"anyOf": [name, {"type": "array", "items": name, "minItems": 1, "maxItems": self.most}]}


class RanksSpec(SpecModel):
    """`workload.ranks`: which NICs take part."""

    network: Written[Annotated[tuple[str, ...], _Names("network", _LONGEST_NETWORK, MOST_NETWORKS)]] = Field(
        default=None,
        description="Names the network whose NICs take part, or several; the default is that of the tenants, else"
        " backend, the fabric.",
    )
    tenant: Written[Annotated[tuple[str, ...], _Names("tenant", _LONGEST_TENANT, MOST_TENANTS)]] = Field(
        default=None,
        description="Names the tenant of the topology whose NICs take part, or several; none stands for NICs in no"
        " tenant.",
    )
    external: Written[Annotated[tuple[str, ...], _Names("tenant", _LONGEST_TENANT, MOST_TENANTS)]] = Field(
        default=None,
        description="Names the tenant whose router outside of the fabric is the first rank, or several; without"
        " `tenant` the other ranks are the NICs of these tenants.",
    )
    targets: Written[Annotated[list[Annotated[str, _HostPattern(), NotNull()]], Length(1, MAX_LIST)]] = Field(
        default=None,
        description='Lists storage targets of the networks that are the last ranks, by name or pattern such as "*";'
        " by default none is a rank.",
    )
    pool: Written[Flag] = Field(
        default=None,
        description="Says whether the regions of pooled memory in the scale-up domains of these ranks are the last"
        " ranks; by default none is a rank.",
    )
    hosts: Written[Annotated[list[Annotated[str, _HostPattern(), NotNull()]], Length(1, MAX_LIST)]] = Field(
        default=None, description="Lists names of hosts, or patterns such as p1-s1-*; by default all hosts take part."
    )
    rails: Written[Annotated[list[Annotated[int, Whole(1, 1024), NotNull()]], Length(1, MAX_LIST)]] = Field(
        default=None, description="Lists numbers of rails, from 1; by default all rails take part."
    )
    planes: Written[Annotated[list[_PlaneLetter], Length(1, MAX_LIST)]] = Field(
        default=None, description="Lists planes of the fabric, from a; by default all planes take part."
    )
    count: Written[Annotated[int, Whole(1, MAX_RANK)]] = Field(
        default=None, description="Limits the ranks to the first so many of those NICs."
    )
    order: Written[Annotated[str, OneOf(tuple(str(order) for order in RankOrder))]] = Field(
        default=None,
        description="Says who is rank 0, 1, 2: NICs host by host (default), rail by rail, spread over the leaves, or"
        " shuffled by the seed.",
    )
    per_rail: Written[Flag] = Field(
        default=None,
        description="Says whether every rail runs the workload by itself; by default where rails cannot reach each"
        " other.",
    )

    joined: Written[Flag] = Field(
        default=None,
        description="Says whether the ports of a NIC in several planes are one rank; by default each is one.",
    )

    def ranks(self) -> Ranks:
        return Ranks(
            networks=self.network or (),
            tenants=self.tenant or self.external or (),
            externals=self.external or (),
            targets=tuple(self.targets or ()),
            pool=bool(self.pool),
            hosts=tuple(self.hosts or ()),
            rails=tuple(self.rails or ()),
            planes=tuple(PLANE_LETTERS.index(letter) + 1 for letter in self.planes or ()),
            count=self.count,
            order=RankOrder(self.order or RankOrder.HOST),
            per_rail=self.per_rail,
            joined=bool(self.joined),
        )


class WorkloadSpec(SpecModel):
    """The keys that the `workload:` section may have whatever its kind."""

    ELSEWHERE = {  # noqa: RUF012  # a ClassVar of the base
        **dict.fromkeys(("size", "message_size", "msg_size", "size_bytes"), "write bytes: 16MB, or bytes: 64bdp"),
        "timeout": "write time_limit: 60s",
        "seed": "write repeat: {seed: 7} beside workload",
        "hosts": "write ranks: {hosts: [p1-s1-*]}, by name or pattern",
    }

    ranks: Written[RanksSpec] = Field(default=None, description="Chooses which NICs take part, and who is which rank.")
    duration: Written[Annotated[Duration, WholeSeconds(MAX_RUN)]] = Field(
        default=None,
        description="Lets every pair send for so long, in whole seconds of lab time, over iperf3 or perftest, instead"
        " of a number of bytes.",
    )
    admission: Written[Annotated[int, Whole(1, 1 << 40, measure=BYTES)]] = Field(
        default=None,
        description="Lets at most so many bytes come to a rank at a time, such as 256kB: senders wait until their"
        " receiver clears them.",
    )
    time_limit: Written[Annotated[Duration, Span(1, MAX_RUN)]] = Field(
        default=None, description="Ends a run after so much wall-clock time; the default is 60s."
    )


@cache
def _models() -> Mapping[str, type[SpecModel]]:
    return models_by_kind("workload", _PARAMETERS, base=WorkloadSpec, nested=_nested, descriptions=_DESCRIPTIONS)


@cache
def _nested_models() -> Mapping[str, type[SpecModel]]:
    return models_by_kind(
        "workload", _PARAMETERS, nested=_nested, prefix="workload-of-tenant", descriptions=_DESCRIPTIONS
    )


def _nested(what: ParameterType) -> ByKind:
    return TENANT_TRANSPORT if what is ParameterType.TRANSPORT else _NESTED


_PARAMETERS = LazyMapping(KINDS, lambda kind: KINDS[kind].parameters)
_DESCRIPTIONS = LazyMapping(KINDS, lambda kind: KINDS[kind].description)
_EXAMPLE = "workload: {kind: permutation, bytes: 64bdp}"
_NESTED = ByKind("workload", _nested_models, _EXAMPLE)
"""The workload of a tenant: kind and parameters alone."""
WORKLOAD = ByKind("workload", _models, _EXAMPLE)

WorkloadField = Annotated[WorkloadSpec, WORKLOAD]


def resolve_workload(document: Document, directory: FilePath, problems: list[Problem]) -> Workload | None:
    """The workload that a document describes, as far as its values are right, which is checked with the whole file.

    Keys that contradict each other are added to `problems`. None where the kind, or a required key, is not right.
    """
    data = document.get("workload")
    try:
        model = WORKLOAD.choose(data)
    except ValueError:
        return None
    spec = validate_partly(model, document, ("workload",))
    if spec is None:
        return None
    assert isinstance(spec, WorkloadSpec)
    kind = str(getattr(spec, "kind"))  # noqa: B009  # of the models made for the kinds
    problems.extend(_duration_problems(document, kind, spec))
    return Workload(
        kind=kind,
        parameters=written_values(spec, directory, without=("kind", *WorkloadSpec.model_fields)),
        ranks=Ranks() if spec.ranks is None else spec.ranks.ranks(),
        duration=spec.duration,
        admission_bytes=spec.admission or 0,
        **({} if spec.time_limit is None else {"time_limit": spec.time_limit}),
    )


def _duration_problems(document: Document, kind: str, spec: WorkloadSpec) -> Iterator[Problem]:
    if spec.duration is not None and not KINDS[kind].timed:
        hint = f"only pairs can send for a duration: {_timed()}"
        message = f"the workload {kind} has no duration"
        yield document.problem("contradiction", ("workload", "duration"), message, hint=hint, key=True)
    elif document.has("workload.duration"):
        for key in (*_BY_BYTES, "admission"):
            if document.has(("workload", key)):
                message = f"both duration and {key} are given"
                yield document.problem("contradiction", ("workload", key), message, hint="keep one", key=True)


def latency_problems(document: Document, workload: Workload) -> Iterator[Problem]:
    """Return what of a workload does not go with pairs that measure the latency of its messages."""
    if workload.duration is not None:
        message = "latency is measured message by message: over a duration perftest tells the mean alone"
        hint = "bytes: 64 here, and transport: {iterations: 1000}"
        yield document.problem("contradiction", ("workload", "duration"), message, hint=hint, key=True)
    elif not KINDS[workload.kind].timed:
        message = f"the transfers of {workload.kind} wait for each other: no pair measures latency"
        hint = f"only pairs can: {_timed()}"
        yield document.problem("contradiction", ("workload", "kind"), message, hint=hint)


def http_problems(
    document: Document, workload: Workload, transport: Transport, of_tenants: Sequence[Transport]
) -> Iterator[Problem]:
    """Return what is wrong with requests, a tenant's too: a transport without HTTP, or what is in their trace.

    `of_tenants` are the transports of the tenants, where they have others than `transport`.
    """
    if TRANSPORTS[transport.kind.value].carries_http:
        yield from _trace_problems(document, workload)
    for where, kind, own in _kinds(workload, transport, of_tenants):
        if KINDS[kind].over_http and not TRANSPORTS[own.kind.value].carries_http:
            able = next(name for name, one in TRANSPORTS.items() if one.carries_http)
            message = f"the requests of {kind} go over HTTP, which {own.kind} does not carry"
            yield document.problem("contradiction", where, message, hint=f"transport: {{kind: {able}}}")


def fio_problems(
    document: Document, workload: Workload, transport: Transport, of_tenants: Sequence[Transport]
) -> Iterator[Problem]:
    """Return what is wrong with jobs of fio, a tenant's too: a transport that does not go by fio, or parameters that do
    not go together. `of_tenants` is as of `http_problems`."""
    for where, kind, own in _kinds(workload, transport, of_tenants):
        if not KINDS[kind].by_fio:
            continue
        if not TRANSPORTS[own.kind.value].by_fio:
            able = " or ".join(name for name, one in TRANSPORTS.items() if one.by_fio)
            message = f"the jobs of {kind} are fio's, and {own.kind} does not go by fio"
            yield document.problem("contradiction", where, message, hint=f"transport: {{kind: {able}}}")
        yield from _job_problems(document, (*where[:-1], "jobs"))


def _job_problems(document: Document, path: Path) -> Iterator[Problem]:
    """Return the parameters of jobs that do not go together, of those that are right by themselves."""
    from testbed.workload.storage import check_fio_job

    jobs = document.get(path)
    for index, data in enumerate(jobs if isinstance(jobs, list) else ()):
        spec = validate_partly(_job_model(), document, (*path, index)) if isinstance(data, dict) else None
        if spec is None:
            continue
        try:
            check_fio_job(written_values(spec, FilePath()))
        except WorkloadError as error:
            where = (*path, index, error.field)
            yield document.problem("contradiction", where, error.message, hint=error.hint, key=True)


@cache
def _job_model() -> type[SpecModel]:
    from testbed.workload.storage import FIO_JOB_PARAMETERS

    return declared_model("fio-job", FIO_JOB_PARAMETERS)


def _kinds(
    workload: Workload, transport: Transport, of_tenants: Sequence[Transport]
) -> Iterator[tuple[Path, str, Transport]]:
    """Yield the kind of a workload, and those of its tenants, with their places and transports."""
    yield ("workload", "kind"), workload.kind, transport
    tenants = workload.parameters.get("tenants")
    if isinstance(tenants, list | tuple):
        for index, tenant in enumerate(tenants):
            inner = tenant.get("workload") if isinstance(tenant, Mapping) else None
            if isinstance(inner, Mapping) and str(inner.get("kind")) in KINDS:
                own = of_tenants[index] if of_tenants else transport
                yield ("workload", "tenants", index, "workload", "kind"), str(inner["kind"]), own


def _trace_problems(document: Document, workload: Workload) -> Iterator[Problem]:
    """Return the faults of a trace of requests, each at its own line; a file that cannot be read is at its key."""
    trace = workload.parameters.get("trace")
    if not KINDS[workload.kind].over_http or not isinstance(trace, str):
        return
    from testbed.workload.requests.traces import load_request_trace

    try:
        load_request_trace(trace)
    except SpecError as error:
        for problem in error.problems:
            if problem.code == "unreadable":
                path: Path = ("workload", "trace")
                problem = document.problem(problem.code, path, f"{trace}: {problem.message}")  # noqa: PLW2901
            yield problem


def _timed() -> str:
    return ", ".join(name for name, kind in KINDS.items() if kind.timed)
