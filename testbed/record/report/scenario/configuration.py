"""The scenario, the machine and both sides of the scale: the parts of a record that are no measurement."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from testbed.base.names import first_few
from testbed.base.units import Duration
from testbed.record.record import Environment, PointResult, Record
from testbed.record.report.scenario.figures import MISSING, every_run, format_bytes, format_rate, format_time
from testbed.record.report.scenario.labs import lab_facts, time_scale

Fact = tuple[str, str]
MAX_NAMED = 4
"""Points that are named of an earlier session."""


def facts(record: Record, point: PointResult) -> list[Fact]:
    """(name, text) of the scenario and of its labs; of a point the probes."""
    scenario = record.scenario
    runs = every_run(record)
    found = [
        *lab_facts(record),
        ("Topology", _with_settings(str(scenario.topology.get("file", "inline")), scenario.topology.get("set"))),
        ("Transport", written(scenario.transport)),
        ("Workload", written(scenario.workload)),
    ]
    found += [("Matrix", f"{key}: {written(values)}") for key, values in scenario.matrix.items()]
    found += [("Fault", written(fault)) for fault in scenario.faults]
    found += _probes(scenario.probes, point)
    found += [("Repeat", written(scenario.repeat)), ("Time scale", time_scale(record))]
    if runs:
        count = f"{len(runs)} runs" if len(runs) > 1 else "one run"
        found.append(("Traffic", f"{sum(run.elapsed_s for _, run in runs):.1f} s in {count}"))
    if record.wall_s is not None:
        found.append(("Took", f"{format_time(record.wall_s)} of wall-clock time, set-up included"))
    if scenario.overrides:
        found.append(("Overrides", ", ".join(scenario.overrides)))
    return found


def _probes(asked: Mapping[str, Any], point: PointResult) -> list[Fact]:
    """Return what ran beside the traffic, of the first run that had any; or that none was wanted."""
    counted = next((run.counters for run in point.runs if run.counters.get("probe_streams")), None)
    if counted is None:
        return [("Probes", "off")] if asked.get("enabled") is False else []
    streams, rate, sent = (counted.get(key, 0.0) for key in ("probe_streams", "probe_rate_pps", "probes_sent"))
    size = format_bytes(counted.get("probe_bytes"))
    return [("Probes", f"{streams:,.0f} streams of {rate:g} packets a second: {sent:,.0f} packets, {size}")]


def machine(record: Record) -> list[Fact]:
    environment = record.environment
    memory = MISSING if environment.memory_bytes is None else f"{environment.memory_bytes / 2**30:.1f} GiB"
    return [
        ("Machine", f"{environment.cpu_model or 'unknown CPU'}, {environment.cores} cores, {memory}"),
        ("System", f"{environment.distribution or 'unknown'}, kernel {environment.kernel}"),
        ("Backend", environment.backend.value),
        *_twins(record),
        ("Clock", environment.clock),
        ("Transports", _transports(environment)),
        ("testbed", environment.testbed + (f" ({environment.git_commit})" if environment.git_commit else "")),
        ("FRR", environment.frr or MISSING),
        ("iperf3", environment.iperf3 or MISSING),
        ("Python", environment.python),
        *(("Earlier session", said) for said in earlier_sessions(record)),
        *(("Measured on", said) for said in parts_of_machines(record)),
    ]


def _twins(record: Record) -> list[Fact]:
    """Say by which packets the bands of flows are told."""
    found = []
    for point in record.points:
        if point.twin is not None:
            at = f"{point.name}: " if point.name else ""
            seeds = f"{point.twin.nics} NICs by packets, {len(point.twin.seeds)} seeds"
            found.append(("Twin", f"{at}{point.twin.words}; {point.twin.failure or seeds}"))
    return found[:MAX_NAMED]


def _transports(environment: Environment) -> str:
    """Say how the transports ran, and which of their modules did otherwise because they had just changed."""
    changed = ", ".join(environment.interpreted)
    return f"{environment.transports}; interpreted, since changed: {changed}" if changed else environment.transports


def earlier_sessions(record: Record) -> list[str]:
    """Say of a resumed run which points each session before the last one measured, and what it ran on instead."""
    return [
        f"{session.started}: {_named(session.points)}, measured on {_differing(session.environment, record)}"
        for session in record.earlier
    ]


def parts_of_machines(record: Record) -> list[str]:
    """Say of a run on several machines which points each measured, and in what it differs from the one above."""
    return [
        f"{machine.name} ({_differing(machine.environment, record)}): {_named(machine.points)}"
        for machine in record.machines
    ]


def _named(points: Sequence[str]) -> str:
    return first_few([name or "the only point" for name in points], MAX_NAMED, "; ")


def _differing(environment: Environment, record: Record) -> str:
    """Say in what an environment is not that of a record."""
    last, other = asdict(record.environment), asdict(environment)
    differing = [f"{key} {other[key]}" for key in last if key != "approximations" and other[key] != last[key]]
    return ", ".join(differing) or "the same machine and versions"


def scale_rows(record: Record, point: PointResult) -> list[tuple[str, str, str]]:
    """(what, in the real fabric, in the lab): both sides of every scaled value."""
    lab = point.lab
    rows = [("NIC rate", format_rate(lab.nic_real_bps), format_rate(lab.nic_bps))]
    if lab.uplink_bps is not None:
        rows.append(("Uplink rate", format_rate(lab.uplink_real_bps), format_rate(lab.uplink_bps)))
    median = {metric.name: metric.median for metric in point.metrics}
    if (goodput := median.get("aggregate_goodput")) is not None:
        rows.append(("Aggregate goodput", format_rate(goodput * lab.k), format_rate(goodput)))
    for name, title in (("jct", "Job completion time"), ("tail_fct", "Tail completion time")):
        if (seconds := median.get(name)) is not None and lab.k >= 1:
            rows.append((title, format_time(seconds / lab.k), format_time(seconds)))
    for name, title in (("program_step_p50", "Step of the program"),):
        program = point.runs[0].program if point.runs else None
        if (seconds := median.get(name)) is not None and lab.k >= 1 and program is not None:
            real_s = seconds * (program.represented or 1.0) / lab.k
            rows.append((title, format_time(real_s), format_time(seconds)))
    if (duration := _duration(record)) is not None and lab.k >= 1:
        rows.append(("Measured time of a flow", str(duration.scaled(1 / lab.k)), str(duration)))
    rows.append(("MTU", f"{lab.mtu_bytes:,} bytes", f"{lab.mtu_bytes:,} bytes, not scaled"))
    return rows


def command_line(record: Record) -> str:
    """Return what repeats this run."""
    return shlex.join(record.command) if record.command else shlex.join(["testbed", "run", record.scenario.source])


def written(value: Any) -> str:
    """Data of a file in one line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {written(item)}" for key, item in value.items()) or MISSING
    if isinstance(value, list | tuple):
        return ", ".join(written(item) for item in value) or MISSING
    return str(value).lower() if isinstance(value, bool) else str(value)  # as YAML writes it


def _duration(record: Record) -> Duration | None:
    try:
        return Duration.parse(str(record.scenario.workload.get("duration")))
    except ValueError:
        return None


def _with_settings(file: str, settings: object) -> str:
    if not isinstance(settings, Mapping) or not settings:
        return file
    return f"{file} with {written(settings)}"
