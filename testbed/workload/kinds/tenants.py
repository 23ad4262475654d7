"""Kinds that are made of others: several tenants on one fabric, and workloads from the files of other tools."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from testbed.base.errors import Position, SpecError, WorkloadError
from testbed.base.units import Duration
from testbed.workload.draws import draw_below
from testbed.workload.formats import FileFormat, ImportOptions, load_workload, on_ranks, parse_comm_groups
from testbed.workload.formats.source import Faults, decode_text, read_bytes
from testbed.workload.kinds.kind import FabricView, WorkloadKind, ranks_per_domain
from testbed.workload.parameters import (
    Parameter,
    ParameterType,
    Values,
    choice,
    duration,
    number,
    size,
    some_ranks,
    whole,
)
from testbed.workload.steps import Transfer, Workload, sends_nothing
from testbed.workload.tenants import Tenant, TenantPlacement, mix_tenants, place_tenants

T = TypeVar("T")

TENANT_FIELDS = (
    Parameter(
        name="name",
        type=ParameterType.TEXT,
        description="Names the tenant; the default is tenant1, tenant2 and so on.",
        default=None,
    ),
    some_ranks("ranks", None, "Says how many ranks the tenant has, or which; by default an equal share of those left."),
    duration("start", "0ns", "Says when the tenant begins, in real time."),
    Parameter(
        name="workload",
        type=ParameterType.WORKLOAD,
        description="Says what the tenant sends: a kind and its parameters.",
        default=None,
        required=True,
    ),
    Parameter(
        name="transport",
        type=ParameterType.TRANSPORT,
        description="Says what moves the tenant's bytes, or names one of the scenario's transports; by default the"
        " scenario's transport does.",
        default=None,
    ),
)

_NOT_FOUND = ("unreadable", "no-traces")
"""Codes of readers of files for one that is not there."""

WorkloadBuilder = Callable[[str, Mapping[str, Any], FabricView], Workload]
"""Makes a workload of any kind: its name, the parameters that were written, and where it runs."""

DEFAULT_TENANTS = (
    {"name": "training", "workload": {"kind": "all-reduce"}},
    {"name": "inference", "workload": {"kind": "kv-cache-incast"}},
)
"""The tenants of a scenario that writes none."""


def tenant_names(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what the tenants of a workload are called, as they are written."""
    return [entry.get("name") or f"tenant{number_}" for number_, entry in enumerate(entries, start=1)]


def tenants_kind(build: WorkloadBuilder) -> WorkloadKind:
    """Return the kind whose tenants `build` makes the workloads of."""
    return WorkloadKind(
        name="tenants",
        description="Several workloads run side by side, each on ranks of its own.",
        parameters=(
            Parameter(
                name="tenants",
                type=ParameterType.LIST,
                description="Lists the tenants, each with its name, ranks, start and workload.",
                default=DEFAULT_TENANTS,
                low=1,
                high=64,
                item=Parameter(
                    name="tenant", type=ParameterType.SECTION, description="Describes one tenant.", fields=TENANT_FIELDS
                ),
            ),
            choice(
                "placement",
                TenantPlacement.PACKED.value,
                tuple(TenantPlacement),
                "Says how tenants without ranks of their own share those left.",
            ),
        ),
        build=partial(_tenants, build),
        knows_hosts=True,
    )


def _tenants(build: WorkloadBuilder, values: Values, fabric: FabricView) -> Workload:
    entries: Sequence[Mapping[str, Any]] = values.value("tenants")
    places = _places(entries, fabric, values.text("placement"))
    domain_of: Callable[[int], Hashable] = fabric.domain_of or partial(_domain_by_number, fabric.ranks_per_domain)
    tenants = []
    for name, entry, ranks in zip(tenant_names(entries), entries, places, strict=True):
        written = dict(entry["workload"])
        kind = written.pop("kind", None)
        if not isinstance(kind, str):
            raise WorkloadError("a tenant's workload has a kind", field="tenants")
        inner = replace(
            fabric,
            ranks=len(ranks),
            rate_bps=fabric.rate_bps if fabric.rate_of is None else fabric.rate_of(ranks[0]),
            ranks_per_domain=ranks_per_domain([domain_of(rank) for rank in ranks]),
            leaf_of=_of_tenant(fabric.leaf_of, ranks),
            domain_of=_of_tenant(fabric.domain_of, ranks),
            rate_of=_of_tenant(fabric.rate_of, ranks),
            rng=random.Random(draw_below(fabric.rng, 1 << 53)),
        )
        workload = build(kind, written, inner)
        start = entry.get("start") or Duration(0)
        tenants.append(Tenant(name=name, workload=workload, ranks=ranks[: workload.ranks], start_ns=start.ns))
    mixed = mix_tenants(tenants, ranks=fabric.ranks)
    steps = tuple(
        replace(step, scale_up=domain_of(step.source) == domain_of(step.destination))
        if isinstance(step, Transfer)
        else step
        for step in mixed.steps
    )
    return replace(
        mixed,
        steps=steps,
        tenant_ranks=tuple(tenant.ranks for tenant in tenants),
        tenant_names=tuple(tenant.name for tenant in tenants),
        tenant_starts_ns=tuple(tenant.start_ns for tenant in tenants),
    )


def _places(entries: Sequence[Mapping[str, Any]], fabric: FabricView, placement: str) -> list[tuple[int, ...]]:
    """The fabric's ranks of each tenant: those that it names, and the placement's of the others."""
    named = {rank for entry in entries if isinstance(entry.get("ranks"), tuple) for rank in entry["ranks"]}
    sizes = [entry["ranks"] for entry in entries if isinstance(entry.get("ranks"), int)]
    sharing = sum(entry.get("ranks") is None for entry in entries)
    free = [rank for rank in range(fabric.ranks) if rank not in named]
    share = (len(free) - sum(sizes)) // sharing if sharing else 0
    if share < 0 or (sharing and not share):
        raise WorkloadError(f"{fabric.ranks} ranks are too few for these tenants", field="tenants")
    wanted = [
        share if entry.get("ranks") is None else entry["ranks"]
        for entry in entries
        if not isinstance(entry.get("ranks"), tuple)
    ]
    drawn = iter(place_tenants(wanted, ranks=len(free), placement=placement, rng=fabric.rng))
    return [
        entry["ranks"] if isinstance(entry.get("ranks"), tuple) else tuple(free[place] for place in next(drawn))
        for entry in entries
    ]


def _of_tenant(of_rank: Callable[[int], T] | None, ranks: Sequence[int]) -> Callable[[int], T] | None:
    """Return a message about the fabric's ranks, said of a tenant's."""
    return None if of_rank is None else lambda rank: of_rank(ranks[rank])


def _domain_by_number(ranks_per_domain: int, rank: int) -> int:
    return rank // max(1, ranks_per_domain)


def _trace(values: Values, fabric: FabricView) -> Workload:
    unbounded = values.given("unbounded_bytes")
    operations = values.optional_whole("peak_ops_per_s")
    groups = values.optional_text("groups")
    options = ImportOptions(
        ranks_per_domain=fabric.ranks_per_domain,
        ranks=fabric.ranks,
        groups=None
        if groups is None
        else parse_comm_groups(decode_text(_found("groups", lambda: read_bytes(Path(groups))), groups), file=groups),
        unbounded_bytes=values.bytes("unbounded_bytes") if unbounded else None,
        peak_ops_per_s=operations,
        scale=Fraction(values.number("scale")).limit_denominator(10**6),
        passes=values.whole("passes"),
    )
    file, file_format = values.text("file"), values.optional_text("format")
    workload = _found("file", lambda: load_workload(file, file_format, options=options))
    if sends_nothing(workload):
        message = "nothing in the file is sent: a run would pass whatever the network does"
        Faults(file).stop("no-flows", message, at=Position(1, 1), hint="a file with a flow of more than 0 bytes")
    return on_ranks(workload, fabric.ranks)


def _found(field: str, read: Callable[[], T]) -> T:
    """Read a file. One that is not there is what the parameter `field` is wrong about, and raises `WorkloadError`."""
    try:
        return read()
    except SpecError as error:
        first = error.problems[0]
        if first.code not in _NOT_FOUND:
            raise
        raise WorkloadError(f"{first.file}: {first.message}", field=field, hint=first.hint) from error


KINDS = (
    WorkloadKind(
        name="trace",
        description="A file of htsim, HPCC, Chakra, SimAI or nccl-tests is replayed.",
        parameters=(
            Parameter(
                name="file",
                type=ParameterType.FILE,
                description="Names the file; of Chakra's, any rank's, or what their names have in common.",
                default=None,
                required=True,
            ),
            choice(
                "format", None, tuple(FileFormat), "Says what wrote the file; by default its name and beginning tell."
            ),
            size("unbounded_bytes", None, "Gives a size to htsim's flows that never end; by default they are refused."),
            Parameter(
                name="groups",
                type=ParameterType.FILE,
                description="Names a JSON file with the ranks of Chakra's process groups; by default one has all.",
            ),
            whole(
                "peak_ops_per_s",
                None,
                "Gives the operations per second of a rank, for Chakra's computing.",
                high=10**18,
            ),
            number("scale", 1, "Multiplies every value of nccl-tests' matrix.", low=1e-6, high=1e9),
            whole("passes", 1, "Says how many passes over SimAI's layers are made.", high=10_000),
        ),
        build=_trace,
        knows_hosts=True,
    ),
)
