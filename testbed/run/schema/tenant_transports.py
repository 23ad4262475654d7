"""The transports of a workload's tenants: a section of their own, the name of one of the scenario's, or its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from types import MappingProxyType
from typing import Any

from testbed.base.errors import Problem
from testbed.base.names import known_names_hint
from testbed.base.yaml.document import Document
from testbed.base.yaml.paths import Path, quote
from testbed.run.schema.matrix import NAMED_TRANSPORTS
from testbed.run.schema.model import Scenario, Transport, Workload
from testbed.run.schema.transport import TRANSPORT_KEY, TRANSPORT_NAME, resolve_transport
from testbed.run.schema.transports import TRANSPORTS

_TENANTS: Path = ("workload", "tenants")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedTransports:
    """The scenario's transport; `of_tenants` where tenants have different ones; and the workload, whose tenants' names
    of transports are replaced by what they stand for."""

    transport: Transport
    of_tenants: tuple[Transport, ...]
    workload: Workload


def resolve_tenant_transports(
    document: Document, directory: FilePath, workload: Workload, transport: Transport, problems: list[Problem]
) -> ResolvedTransports:
    """Resolve them; `transport` is that of tenants that say nothing. What is wrong is added to `problems`.

    Where all tenants have the same, it is the scenario's.
    """
    problems.extend(_of_inner_tenants(document))
    places = list(_places(document, problems))
    if all(place == TRANSPORT_KEY for place in places):
        return ResolvedTransports(transport=transport, of_tenants=(), workload=workload)
    found = [
        transport if place == TRANSPORT_KEY else resolve_transport(document, directory, problems, place)
        for place in places
    ]
    if all(one == found[0] for one in found):
        return ResolvedTransports(transport=found[0], of_tenants=(), workload=_written_out(workload, found))
    problems.extend(_not_beside_others(document, places, found))
    return ResolvedTransports(transport=transport, of_tenants=tuple(found), workload=_written_out(workload, found))


def transport_places(document: Document, scenario: Scenario) -> list[tuple[Path, Transport]]:
    """Return the different transports of a scenario without a matrix, each with the first place where it is written."""
    places = list(_places(document, []))
    of_tenants = scenario.tenant_transports or (scenario.transport,) * len(places)
    if not places:
        return [(TRANSPORT_KEY, scenario.transport)]
    return list(dict(reversed(list(zip(places, of_tenants, strict=True)))).items())[::-1]


def named_by_tenants(document: Document) -> bool:
    """Tell whether a tenant, or a matrix for one, names one of the scenario's transports."""
    matrix = document.get("matrix")
    keys = matrix if isinstance(matrix, dict) else {}
    swept = any(str(key).startswith("workload.tenants[") and str(key).endswith(".transport") for key in keys)
    return swept or any(isinstance(tenant.get("transport"), str) for _, tenant in _tenants(document))


def _tenants(document: Document, path: Path = _TENANTS) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """The tenants that are written, with their places; those that are no sections are somebody else's to report."""
    entries = document.get(path)
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        yield (*path, index), entry if isinstance(entry, dict) else {}


def _places(document: Document, problems: list[Problem]) -> Iterator[Path]:
    named = document.get(NAMED_TRANSPORTS)
    known = [str(name) for name in named] if isinstance(named, dict) else []
    for path, tenant in _tenants(document):
        own = (*path, "transport")
        match tenant.get("transport"):
            case str(name) if name in known:
                yield (*NAMED_TRANSPORTS, name)
            case str(name):
                if TRANSPORT_NAME.fullmatch(name):  # else that is reported with the whole file
                    hint = known_names_hint(name, known) or "transports: {NAME: {kind: roce}}"
                    message = f"transports has none called {quote(name)}"
                    problems.append(document.problem("unknown-value", own, message, hint=hint))
                yield TRANSPORT_KEY
            case None:
                yield TRANSPORT_KEY
            case _:
                yield own


def _of_inner_tenants(document: Document) -> Iterator[Problem]:
    """Tenants of a tenant, which are one part of the workload to whoever runs it."""
    for path, _ in _tenants(document):
        for inner, tenant in _tenants(document, (*path, "workload", "tenants")):
            if tenant.get("transport") is not None:
                message = "a tenant of a tenant has the transport of that tenant"
                hint = "the key of the tenant that it is in, or a tenant beside that"
                yield document.problem("contradiction", (*inner, "transport"), message, hint=hint, key=True)


def _not_beside_others(document: Document, places: list[Path], transports: list[Transport]) -> Iterator[Problem]:
    for place, transport in zip(places, transports, strict=True):
        kind = transport.kind.value
        if not TRANSPORTS[kind].beside_others:
            where = (*place, "kind") if document.get((*place, "kind")) is not None else place
            message = f"{kind} moves the bytes of a whole workload, and tenants have other transports"
            hint = "one transport for all tenants, or {kind: roce}, which is RoCEv2 in user space"
            yield document.problem("contradiction", where, message, hint=hint)


def _written_out(workload: Workload, transports: list[Transport]) -> Workload:
    """The workload with each tenant's transport as a section, so that a record says what it was."""
    tenants = workload.parameters.get("tenants")
    if not isinstance(tenants, tuple) or len(tenants) != len(transports):
        return workload
    entries = tuple(
        {**tenant, "transport": transport.written()} if isinstance(tenant, Mapping) else tenant
        for tenant, transport in zip(tenants, transports, strict=True)
    )
    return replace(workload, parameters=MappingProxyType({**workload.parameters, "tenants": entries}))
