"""The scenario and the lab as a record keeps them: plain data in the words of the files."""

from __future__ import annotations

from collections import Counter
from pathlib import PurePath
from typing import Any

from testbed.model import Bfd, LinkKind
from testbed.model.scenario import Expectation, Scenario
from testbed.results import LabSummary, ScenarioAsRun
from testbed.scenario.lab import LiveLab


def scenario_as_run(scenario: Scenario) -> ScenarioAsRun:
    """In the keys of the scenario file, overrides applied."""
    workload: dict[str, Any] = {"kind": scenario.workload.kind.value, "scope": scenario.workload.scope.value}
    if scenario.workload.duration is not None:
        workload["duration"] = str(scenario.workload.duration)
    if scenario.workload.size is not None:
        workload["bytes"] = scenario.workload.size.bytes
    transport: dict[str, Any] = {"kind": scenario.transport.kind.value}
    if scenario.transport.cc is not None:
        transport["cc"] = scenario.transport.cc
    return ScenarioAsRun(
        name=scenario.name,
        # the name alone: where a file lies on somebody's machine is nobody else's business
        topology={"file": PurePath(scenario.topology.file).name, "set": dict(scenario.topology.set)},
        transport=transport,
        workload=workload,
        repeat={"runs": scenario.repeat.runs, "seed": scenario.repeat.seed},
        expect=[_expectation(item) for item in scenario.expect],
        overrides=list(scenario.overrides),
        source=PurePath(scenario.source).name,
    )


def lab_summary(lab: LiveLab) -> LabSummary:
    model, plan = lab.model, lab.plan
    ports = {(port.node, port.name): port for port in plan.ports}
    nics = [nic for host in plan.hosts for nic in host.nics]
    fabric = [link for link in model.links if link.kind is LinkKind.FABRIC]
    uplink = ports[fabric[0].a.node, fabric[0].a.interface] if fabric else None
    return LabSummary(
        name=lab.name,
        design=model.design,
        k=plan.k,
        k_auto=model.scale.time is None,
        hosts=len(model.hosts),
        nics=len(nics),
        switches=dict(Counter(node.role.value if node.role is not None else "other" for node in model.switches)),
        links=len(model.links),
        nic_bps=nics[0].rate_bps if nics else 0,
        nic_real_bps=nics[0].line_rate_bps if nics else 0,
        uplink_bps=uplink.rate_bps if uplink else None,
        uplink_real_bps=uplink.line_rate_bps if uplink else None,
        mtu_bytes=nics[0].mtu_bytes if nics else 0,
        routing=_routing(lab),
    )


def _routing(lab: LiveLab) -> str:
    routing = lab.model.routing
    bfd = f"BFD {_bfd(routing.bfd)}" if routing.bfd is not None else "no BFD"
    numbered = "unnumbered" if routing.unnumbered else "numbered"
    return f"{routing.protocol.value} {numbered}, ECMP up to {routing.ecmp}, {bfd}"


def _bfd(bfd: Bfd) -> str:
    return f"{bfd.interval} x {bfd.multiplier}"


def _expectation(item: Expectation) -> dict[str, Any]:
    data: dict[str, Any] = {"metric": item.metric}
    if item.minimum is not None:
        data["min"] = item.minimum
    if item.maximum is not None:
        data["max"] = item.maximum
    return data | {"source": item.source}
