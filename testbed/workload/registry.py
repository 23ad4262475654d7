"""Every kind of workload by the name that a scenario gives it, and `build_workload`, which makes its steps.

The module of a kind is imported when the kind is asked for: a scenario has one, and the modules of all are large.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from testbed.base.errors import WorkloadError
from testbed.base.lazy import LazyMapping
from testbed.base.names import choice_hint
from testbed.workload.kinds.kind import FabricView, WorkloadKind
from testbed.workload.parameters import Parameter, ParameterType, Values
from testbed.workload.steps import Workload, sends_nothing

_PARAMETERS_OF_FIELDS = {
    "size_bytes": "bytes",
    "duration_ns": "span",
    "duration": "span",
    "bursts": "burst_on",
    "stages": "stages",
    "layout": "tensor",
    "leaf_of": "scope",
    "in_flight": "in_flight",
}
"""Users' names of the fields that generators find fault with, where they differ."""


def workload_kind(name: str) -> WorkloadKind:
    """The kind of that name. Raises `WorkloadError` with the nearest."""
    kind = KINDS.get(name)
    if kind is None:
        hint = choice_hint(name, KINDS, f"known are {', '.join(KINDS)}")
        raise WorkloadError(f"there is no workload {name!r}", field="kind", hint=hint)
    return kind


def build_workload(kind: str, parameters: Mapping[str, Any], fabric: FabricView) -> Workload:
    """The steps of a workload on the ranks of `fabric`. `parameters` are those that were written; the rest have
    defaults.

    Sizes are `ByteCount` or text in `bdp`, durations `Duration` in real time. Raises `WorkloadError` whose `field` is
    the parameter at fault, and `SpecError` for a trace.
    """
    workload, known = _built(kind, parameters, fabric), workload_kind(kind)
    if sends_nothing(workload) and not known.is_program:
        field, hint = "kind", "more ranks, or a workload whose ranks send to each other"
        if known.parameter("span") is not None:
            field, hint = "span", "a longer span, a higher load or more sources"
        raise WorkloadError("nothing is sent: a run would pass whatever the network does", field=field, hint=hint)
    return workload


def _built(kind: str, parameters: Mapping[str, Any], fabric: FabricView) -> Workload:
    """Build a workload that may send nothing: a tenant may compute alone beside others."""
    known = workload_kind(kind)
    by_name: Mapping[str, Parameter] = {one.name: one for one in known.parameters}
    values = Values(parameters=by_name, written=parameters, bdp_bytes=fabric.bdp_bytes)
    for parameter in known.parameters:
        _check_ranks(parameter, parameters.get(parameter.name), fabric.ranks)
    try:
        return known.build(values, fabric)
    except WorkloadError as error:
        field = _PARAMETERS_OF_FIELDS.get(error.field, error.field)
        if field == error.field or field not in by_name:
            raise
        raise WorkloadError(error.message, field=field, hint=error.hint) from error


def _check_ranks(parameter: Parameter, written: Any, ranks: int) -> None:
    """Raise `WorkloadError` where a parameter names a rank that the workload does not have."""
    if parameter.type is ParameterType.RANK:
        named: tuple[Any, ...] = () if written is None else (written,)
    elif parameter.type is ParameterType.RANKS and isinstance(written, tuple | list):
        named = tuple(written)
    else:
        return
    for rank in named:
        if rank >= ranks:
            hint = f"ranks count from 0 to {ranks - 1}"
            raise WorkloadError(f"rank {rank} is not one of the {ranks} ranks", field=parameter.name, hint=hint)


_FAMILIES = {
    "patterns": "point-to-point incast overlapped-incast incast-victim outcast outcast-incast permutation tornado mice"
    " background",
    "collectives": "all-reduce reduce-scatter all-gather broadcast reduce gather scatter send-recv all-to-all",
    "training": "training-step pipeline moe",
    "services": "inference inference-requests kv-cache-incast",
    "storage": "checkpoint dataset-streaming model-staging kv-offload prefix-cache fio",
    "tenants": "tenants trace",
    "programs": "program",
}
"""The kinds of each module of `testbed.workload.kinds`."""
WITH_COLLECTIVES = frozenset((*_FAMILIES["collectives"].split(), "training-step", "trace"))
"""The kinds whose transfers may be parts of collectives."""
WITH_REQUESTS = frozenset(("inference-requests", "kv-offload", "prefix-cache"))
"""The kinds that answer requests for inference."""
WITH_BATCHES = frozenset(("dataset-streaming",))
"""The kinds whose hosts compute on batches that they have read."""
_FAMILY_OF = {name: family for family, names in _FAMILIES.items() for name in names.split()}


def _kind_called(name: str) -> WorkloadKind:
    family = import_module(f"testbed.workload.kinds.{_FAMILY_OF[name]}")
    if name == "tenants":  # it is made of others
        made: WorkloadKind = family.tenants_kind(_built)
        return made
    found: WorkloadKind = next(kind for kind in family.KINDS if kind.name == name)
    return found


KINDS: Mapping[str, WorkloadKind] = LazyMapping(_FAMILY_OF, _kind_called)
"""In the order in which they are listed."""
