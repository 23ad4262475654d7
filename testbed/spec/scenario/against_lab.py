"""A scenario against its lab: whether the hosts, ports, rails and classes that it names are there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase

from testbed.errors import Finding, Problem, WorkloadError
from testbed.model import BACKEND, Lab, Tenant
from testbed.model.scenario import Fault, Scenario
from testbed.model.transports import ROCE_HEADER_BYTES, ROCE_MTUS
from testbed.names import known_names_hint
from testbed.spec.scenario.file import ScenarioFile
from testbed.spec.yaml.document import Document
from testbed.spec.yaml.paths import Path, quote

FaultFindings = Callable[[Fault, Lab], Iterable[Finding]]
"""What a fault asks of a lab that it does not have: `testbed.scenario.faults.registry.fault_findings` knows."""


def check_against(file: ScenarioFile, point: Scenario, lab: Lab, fault_findings: FaultFindings) -> list[Problem]:
    """Return what a scenario, or one of its variants, asks of `lab` that it does not have; in the order of the file."""
    document = file.document_at(point)
    networks = point.workload.ranks.networks
    for index, network in enumerate(networks):
        if network != BACKEND and network not in lab.network_names:
            where: Path = ("workload", "ranks", "network")
            if len(networks) > 1:
                where = (*where, index)
            return [
                _unknown(document, "unknown-network", where, f"{lab.name} has no network", network, lab.network_names)
            ]
    seen = lab.of_network(*networks)
    problems = [
        *_ranks(document, point, seen),
        *_traffic_class(document, point, seen),
        *_path_mtu(document, point, seen),
    ]
    for index, fault in enumerate(point.faults):
        path: Path = ("faults", index)
        problems += [_problem(document, path, finding) for finding in fault_findings(fault, lab)]
    return problems


def workload_problem(file: ScenarioFile, point: Scenario, error: WorkloadError) -> Problem:
    """A fault that a generator found, at the parameter it is about."""
    document = file.document_at(point)
    path: Path = ("workload", error.field) if document.has(("workload", error.field)) else ("workload",)
    return document.problem("workload", path, error.message, hint=error.hint, key=True)


def _ranks(document: Document, point: Scenario, lab: Lab) -> Iterator[Problem]:
    ranks, path = point.workload.ranks, ("workload", "ranks")
    names = [node.name for node in lab.hosts]
    for index, pattern in enumerate(ranks.hosts):
        if not any(fnmatchcase(name, pattern) for name in names):
            where = (*path, "hosts", index)
            yield _unknown(document, "unknown-host", where, f"{lab.name} has no host", pattern, names)
    rails = sorted({link.rail for link in lab.links if link.rail})
    for index, rail in enumerate(ranks.rails):
        if rail not in rails:
            known = f"its rails are {rails[0]} to {rails[-1]}" if rails else "it has no rails"
            yield document.problem(
                "unknown-rail", (*path, "rails", index), f"{lab.name} has no rail {rail}", hint=known
            )
    chosen = [
        end
        for link in lab.links
        for end in (link.a, link.b)
        if end.node in names
        and (not ranks.hosts or any(fnmatchcase(end.node, pattern) for pattern in ranks.hosts))
        and (not ranks.rails or link.rail in ranks.rails)
    ]
    tenants = {end: tenant.name for tenant in _tenants(lab) for subnet in tenant.subnets for end in subnet.nics}
    if inside := [end for end in chosen if end in tenants]:
        message = f"{inside[0]} is in the tenant {tenants[inside[0]]}: traffic of tenants is not built yet"
        hint = "hosts and rails choose NICs that are in no tenant"
        yield document.problem("not-built", path if document.has(path) else ("workload",), message, hint=hint, key=True)
    if ranks.count is not None and 0 < len(chosen) < ranks.count:
        message = f"{ranks.count} ranks are asked for; there are {len(chosen)} NICs"
        yield document.problem("out-of-range", (*path, "count"), message, hint="fewer, or a larger topology")


def _tenants(lab: Lab) -> tuple[Tenant, ...]:
    return () if lab.overlay is None else lab.overlay.tenants


def _traffic_class(document: Document, point: Scenario, lab: Lab) -> Iterator[Problem]:
    wanted = point.transport.traffic_class
    if wanted is None:
        return
    path = ("transport", "traffic_class")
    if lab.qos is None:
        message = f"{lab.name} has no qos, so no traffic classes"
        yield document.problem("unknown-class", path, message, hint="remove the key, or add `qos: {preset: uec}`")
        return
    names = [item.name for item in lab.qos.profiles[0].classes]
    if wanted not in names:
        yield _unknown(document, "unknown-class", path, f"{lab.name} has no traffic class", wanted, names)


def _path_mtu(document: Document, point: Scenario, lab: Lab) -> Iterator[Problem]:
    wanted = point.transport.options.get("path_mtu")
    hosts = {node.name for node in lab.hosts}
    links = [link for link in lab.links if link.a.node in hosts or link.b.node in hosts]
    if wanted is None or not links:
        return
    least = min(links, key=lambda link: link.mtu_bytes)
    room = least.mtu_bytes - ROCE_HEADER_BYTES
    if int(wanted) > room:
        nic = least.a if least.a.node in hosts else least.b
        fitting = next((mtu for mtu in ROCE_MTUS if mtu <= room), None)
        yield document.problem(
            "out-of-range",
            ("transport", "path_mtu"),
            f"{wanted} bytes do not fit into the MTU of {nic}, {least.mtu_bytes} bytes, which leaves {room} beside the"
            " headers",
            hint=f"path_mtu: {fitting}, or a larger fabric.mtu" if fitting else "a larger fabric.mtu",
        )


def _problem(document: Document, path: Path, finding: Finding) -> Problem:
    where = (*path, *finding.keys)
    return document.problem(finding.code, where, finding.message, hint=finding.hint, key=finding.at_key)


def _unknown(document: Document, code: str, path: Path, message: str, name: str, known: Iterable[str]) -> Problem:
    return document.problem(code, path, f"{message} {quote(name)}", hint=known_names_hint(name, list(known)))
