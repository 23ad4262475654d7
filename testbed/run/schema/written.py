"""A scenario as a record keeps it: plain data in the words of its file; and its expectations, read back from there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from testbed.base.errors import RecordError
from testbed.base.names import plane_letter
from testbed.lab.core.model import BACKEND
from testbed.record.record import ScenarioAsRun
from testbed.run.schema.model import Expectation, Fault, Probes, Repeat, Scenario, TopologyRef, Within
from testbed.run.schema.model import Parameter as Value
from testbed.workload.parameters import Parameter, ParameterType
from testbed.workload.registry import KINDS


def scenario_as_run(scenario: Scenario) -> ScenarioAsRun:
    """Return the scenario in the keys of its file, overrides applied."""
    return ScenarioAsRun(
        name=scenario.name,
        # the name alone: where a file lies on somebody's machine is nobody else's business
        topology=_topology(scenario.topology),
        transport=transport_as_run(scenario),
        workload=workload_as_run(scenario),
        repeat=_repeat(scenario.repeat),
        expect=[_expectation(item) for item in scenario.expect],
        overrides=list(scenario.overrides),
        source=PurePath(scenario.source).name,
        matrix={key: list(values) for key, values in scenario.matrix.items()},
        faults=[_fault(item) for item in scenario.faults],
        probes=_probes(scenario.probes),
        description=scenario.description,
    )


def _repeat(repeat: Repeat) -> dict[str, Any]:
    """Return what is written of it; retries only where there may be any."""
    written = {"runs": repeat.runs, "seed": repeat.seed}
    return written | ({"retries": repeat.retries} if repeat.retries else {})


def transport_as_run(scenario: Scenario) -> dict[str, Any]:
    """Return the transport of the scenario; where its tenants have several, the kinds of those, which the workload
    describes."""
    if scenario.tenant_transports:
        return {"kind": [one.kind.value for one in scenario.transports]}
    return dict(scenario.transport.written())


def workload_as_run(scenario: Scenario) -> dict[str, Any]:
    workload = scenario.workload
    written: dict[str, Any] = {"kind": workload.kind}
    kind = KINDS.get(workload.kind)
    for key, value in workload.parameters.items():
        if value is not None:
            written[key] = _plain(value, None if kind is None else kind.parameter(key))
    ranks = workload.ranks
    chosen = {
        "network": "" if ranks.networks == (BACKEND,) else _one_or_list(ranks.networks),
        "tenant": _one_or_list(ranks.tenants),
        "external": _one_or_list(ranks.externals),
        "targets": list(ranks.targets),
        "pool": ranks.pool or None,
        "hosts": list(ranks.hosts),
        "rails": list(ranks.rails),
        "planes": [plane_letter(plane) for plane in ranks.planes],
        "count": ranks.count,
        "order": ranks.order.value,
        "per_rail": ranks.per_rail,
        "joined": ranks.joined or None,
    }
    written["ranks"] = {key: value for key, value in chosen.items() if value not in ([], None, "")}
    if workload.duration is not None:
        written["duration"] = str(workload.duration)
    return written


def _one_or_list(names: tuple[str, ...]) -> str | list[str]:
    """As files have names: one by itself, several as a list."""
    return names[0] if len(names) == 1 else list(names)


def _topology(topology: TopologyRef) -> dict[str, Any]:
    written: dict[str, Any] = {"file": PurePath(topology.file).name, "set": dict(topology.set)}
    return written if topology.inline is None else {"inline": dict(topology.inline), "set": written["set"]}


def _plain(value: Value, declared: Parameter | None) -> Any:
    """As JSON has it; of a file its name."""
    if isinstance(value, tuple):
        return [_plain(item, None if declared is None else declared.item) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain(item, _inner(value, declared, key)) for key, item in value.items()}
    if declared is not None and declared.type is ParameterType.FILE:
        return PurePath(str(value)).name
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _inner(value: Mapping[str, Value], declared: Parameter | None, key: str) -> Parameter | None:
    """Return what a key of a section, or of a workload within one, is declared as."""
    if declared is None:
        return None
    if declared.type is ParameterType.WORKLOAD:
        kind = KINDS.get(str(value.get("kind")))
        return None if kind is None else kind.parameter(key)
    return next((one for one in declared.fields if one.name == key), None)


def _probes(probes: Probes) -> dict[str, Any]:
    """Return what is written of them; nothing where all is left to the runner."""
    written = {"rate": probes.rate_pps, "ports": probes.ports}
    return {"enabled": False} if not probes.enabled else {key: one for key, one in written.items() if one is not None}


def _fault(item: Fault) -> dict[str, Any]:
    written: dict[str, Any] = {"at": str(item.at), "kind": item.kind, "target": item.target}
    if item.until is not None:
        written["until"] = str(item.until)
    if item.period is not None:
        written["period"] = str(item.period)
    return written | ({"settings": dict(item.settings)} if item.settings else {})


def _expectation(item: Expectation) -> dict[str, Any]:
    data: dict[str, Any] = {"metric": item.metric}
    for key in ("network", "tenant", "where", "over"):
        if getattr(item, key):
            data[key] = getattr(item, key) if key in ("network", "tenant") else dict(getattr(item, key))
    if item.minimum is not None:
        data["min"] = item.minimum
    if item.maximum is not None:
        data["max"] = item.maximum
    if item.within is not None:
        data |= {"within": item.within.value, "tolerance": item.tolerance, "relative": item.relative}
    return data | {"source": item.source}


def expectation_read_back(data: Mapping[str, Any]) -> Expectation:
    """Return an expectation as a record has it. Raises `RecordError` for what is none."""
    try:
        within = data.get("within")
        return Expectation(
            metric=_text(data["metric"]),
            network=_text(data.get("network", "")),
            tenant=_text(data.get("tenant", "")),
            where=dict(data.get("where", {})),
            over=dict(data.get("over", {})),
            minimum=_number(data.get("min")),
            maximum=_number(data.get("max")),
            within=None if within is None else Within(within),
            tolerance=_number(data.get("tolerance")) or 0.0,
            relative=data.get("relative") is True,
            source=_text(data["source"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"an expectation of the record is none: {error}") from error


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _number(value: object) -> float | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise TypeError(f"{value!r} is no number")
    return value
