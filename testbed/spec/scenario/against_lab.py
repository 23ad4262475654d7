"""A scenario against its lab: whether the hosts, ports, rails and classes that it names are there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from testbed.errors import Problem, WorkloadError
from testbed.model import Lab, LinkKind, NodeKind
from testbed.model.scenario import Fault, FaultKind, Scenario
from testbed.names import nearest
from testbed.spec.scenario.faults import split_port
from testbed.spec.scenario.file import ScenarioFile
from testbed.spec.yaml.document import Document
from testbed.spec.yaml.paths import Path, quote

_LOSSES = ("loss", "loss_every", "corruption", "silent")
_NAMED = 8
"""Names that a hint lists at most."""


def check_against(file: ScenarioFile, point: Scenario, lab: Lab) -> list[Problem]:
    """What a scenario, or one of its variants, asks of `lab` that it does not have; in the order of the file."""
    document = file.document_at(point)
    problems = [*_ranks(document, point, lab), *_traffic_class(document, point, lab)]
    for index, fault in enumerate(point.faults):
        problems += _fault(document, ("faults", index), fault, lab)
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
    rails = sorted({link.rail for link in lab.links if link.kind is LinkKind.ACCESS})
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
    if ranks.count is not None and 0 < len(chosen) < ranks.count:
        message = f"{ranks.count} ranks are asked for; there are {len(chosen)} NICs"
        yield document.problem("out-of-range", (*path, "count"), message, hint="fewer, or a larger topology")


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


def _fault(document: Document, path: Path, fault: Fault, lab: Lab) -> Iterator[Problem]:
    match fault.kind:
        case FaultKind.AGENT_KILL:
            yield from _node(document, (*path, "agent"), fault.target, lab, NodeKind.HOST)
        case FaultKind.NODE_KILL:
            yield from _node(document, (*path, "node"), fault.target, lab, NodeKind.SWITCH)
        case FaultKind.DAEMON_KILL:
            yield from _node(document, (*path, "node"), fault.target, lab, NodeKind.SWITCH)
            if fault.settings.get("daemon") == "bfdd" and lab.routing.bfd is None:
                message = f"{lab.name} runs no BFD"
                hint = "fabric: {routing: {bfd: {interval: 300ms}}}"
                yield document.problem("unknown-daemon", (*path, "daemon"), message, hint=hint)
        case FaultKind.LINK_DOWN | FaultKind.LINK_FLAP:
            yield from _port(document, (*path, "link"), fault.target, lab)
        case FaultKind.LINK_SET:
            yield from _port(document, (*path, "link"), fault.target, lab)
            needs = [key for key in _LOSSES if key in fault.settings]
            if needs and lab.qos is None:
                message = f"{needs[0]} needs the eBPF data path, which qos: brings"
                where = (*path, "set", needs[0])
                yield document.problem("loss-without-qos", where, message, hint="add `qos: {preset: uec}`", key=True)
        case FaultKind.PFC_STORM:
            yield from _port(document, (*path, "link"), fault.target, lab)
            yield from _storm(document, (*path, "storm", "priority"), fault, lab)


def _storm(document: Document, path: Path, fault: Fault, lab: Lab) -> Iterator[Problem]:
    end = split_port(fault.target)
    classes = () if lab.qos is None else lab.qos.of(end.node, end.interface).classes
    lossless = {item.priority: item.name for item in classes if item.lossless}
    if fault.settings["priority"] in lossless:
        return
    message = f"{fault.target} has no lossless class of priority {fault.settings['priority']}"
    known = ", ".join(f"{priority} ({name})" for priority, name in sorted(lossless.items()))
    hint = f"lossless there: {known}" if known else "add `qos: {preset: dcqcn}`: storms pause lossless classes alone"
    yield document.problem("unknown-priority", path, message, hint=hint)


def _node(document: Document, path: Path, name: str, lab: Lab, kind: NodeKind) -> Iterator[Problem]:
    found = next((node for node in lab.nodes if node.name == name), None)
    if found is None:
        names = [node.name for node in lab.nodes if node.kind is kind]
        yield _unknown(document, f"unknown-{kind}", path, f"{lab.name} has no {kind}", name, names)
    elif found.kind is not kind:
        yield document.problem(f"unknown-{kind}", path, f"{name} is a {found.kind}, not a {kind}")


def _port(document: Document, path: Path, target: str, lab: Lab) -> Iterator[Problem]:
    end = split_port(target)
    ends = [one for link in lab.links for one in (link.a, link.b)]
    if end in ends:
        return
    names = [node.name for node in lab.nodes]
    if end.node not in names:
        yield _unknown(document, "unknown-node", path, f"{lab.name} has no node", end.node, names)
        return
    ports = [one.interface for one in ends if one.node == end.node]
    yield _unknown(document, "unknown-port", path, f"{end.node} has no port", end.interface, ports)


def _unknown(document: Document, code: str, path: Path, message: str, name: str, known: Iterable[str]) -> Problem:
    names = list(known)
    meant = nearest(name, names)
    listed = ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
    hint = f"did you mean {meant}?" if meant else f"there are {listed}" if names else None
    return document.problem(code, path, f"{message} {quote(name)}", hint=hint)
