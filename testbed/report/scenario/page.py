"""A record as one HTML file that needs nothing else: no script, no network, plots inline.

A record may come from a stranger: everything in it is escaped, nothing in it is a link or a path.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from testbed.report.scenario.figures import (
    MISSING,
    format_band,
    format_bytes,
    format_rate,
    format_ratio,
    format_spread,
    format_value,
    title_of,
    typical_run,
    unit_of,
)
from testbed.report.scenario.plots import plot_ranks, plot_time, plot_uplinks
from testbed.results import LabSummary, PointResult, Record, RunResult
from testbed.units import Duration

MAX_FLOWS = 512
"""Rows of a flow table, slowest first; the record has them all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A picture with its heading and the sentence below it."""

    title: str
    caption: str
    svg: str
    wide: bool


def render_report(record: Record, plots: Mapping[str, str | None] | None = None) -> str:
    """The whole page. `plots` replaces the drawings ("rank", "uplinks", "time"), for tests without matplotlib."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    point = record.points[0] if record.points else None
    all_runs = [run for item in record.points for run in item.runs]
    run = None if point is None else typical_run(point)
    drawn = _draw(record, run) if plots is None else plots
    here = files(__package__)
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string((here / "page.html.j2").read_text(encoding="utf-8"))
    return template.render(
        record=record,
        when=record.started[:16].replace("T", " ") + " UTC",
        css=Markup((here / "page.css").read_text(encoding="utf-8")),
        run=run,
        tiles=_tiles(point) if point else [],
        lab_name=point.lab.name if point else "",
        k=point.lab.k if point else 0,
        all_runs=all_runs,
        all_metrics=point.metrics if point else [],
        headline=[metric for metric in point.metrics if metric.headline] if point else [],
        plots=[
            Plot(title=title, caption=caption, svg=Markup(svg), wide=name == "uplinks")
            for name, title, caption in _captions(record, run)
            if (svg := drawn.get(name))
        ],
        runs=[(item, _flows(item), max(0, len(item.flows) - MAX_FLOWS)) for item in all_runs],
        scale=_scale_rows(record, point) if point else [],
        facts=_facts(record, point) if point else [],
        machine=_machine(record),
        command=shlex.join(record.command) if record.command else f"testbed run {record.scenario.source}",
        value=format_value,
        band=format_band,
        ratio=format_ratio,
        spread=format_spread,
        rate=format_rate,
        size=format_bytes,
        unit=lambda metric: unit_of(record, metric),
        title=lambda metric: title_of(record, metric),
        missing=MISSING,
    )


def _draw(record: Record, run: RunResult | None) -> dict[str, str | None]:
    return {
        "rank": plot_ranks(record),
        "uplinks": None if run is None else plot_uplinks(run),
        "time": None if run is None else plot_time(run),
    }


def _captions(record: Record, run: RunResult | None) -> list[tuple[str, str, str]]:
    several = sum(len(point.runs) for point in record.points) > 1 and run is not None
    which = f" Run {run.index}, the one with the median aggregate." if several and run is not None else ""
    lines = "Each line is a run: all" if several else "All"
    return [
        (
            "rank",
            "Throughput by flow rank",
            f"{lines} flows from slowest to fastest. A fabric that spreads load perfectly is a flat line at the ideal.",
        ),
        (
            "time",
            "Sending rate over time",
            f"What each sender handed to its transport (thin), and the mean of all (thick).{which}",
        ),
        (
            "uplinks",
            "Uplink utilisation",
            "What each rail switch sent to each spine, as a share of the uplink's rate over the whole time, warm-up"
            f" included. Full cells beside empty ones are hash collisions.{which}",
        ),
    ]


def _tiles(point: PointResult) -> list[tuple[str, str, str]]:
    """(value, title, remark) of the numbers one wants first."""
    tiles = []
    for name in ("aggregate_share", "slowest_share", "jain_flows", "mmr_uplinks"):
        metric = next((item for item in point.metrics if item.name == name), None)
        if metric is not None:
            remark = "" if metric.ideal is None else f"ideal {format_value(metric.ideal, metric.unit)}"
            tiles.append((format_value(metric.median, metric.unit), metric.title, remark))
    return tiles


def _flows(run: RunResult) -> list[tuple[str, str, int, str, str, float, int]]:
    """(from, to, rail, lab rate, received, share, retransmits), slowest first."""
    return [
        (
            f"{flow.source.node}:{flow.source.interface}",
            f"{flow.destination.node}:{flow.destination.interface}",
            flow.rail,
            format_rate(flow.goodput_bps),
            format_bytes(flow.received_bytes),
            flow.share,
            flow.retransmits,
        )
        for flow in sorted(run.flows, key=lambda flow: flow.share)[:MAX_FLOWS]
    ]


def _scale_rows(record: Record, point: PointResult) -> list[tuple[str, str, str]]:
    """(what, in the real fabric, in the lab): both sides of every scaled value."""
    lab = point.lab
    rows = [("NIC rate", format_rate(lab.nic_real_bps), format_rate(lab.nic_bps))]
    if lab.uplink_bps is not None:
        rows.append(("Uplink rate", format_rate(lab.uplink_real_bps), format_rate(lab.uplink_bps)))
    goodput = next((metric for metric in point.metrics if metric.name == "aggregate_goodput"), None)
    if goodput is not None and goodput.median is not None:
        rows.append(("Aggregate goodput", format_rate(goodput.median * lab.k), format_rate(goodput.median)))
    if (duration := _duration(record)) is not None and lab.k >= 1:
        rows.append(("Measured time of a flow", str(duration.scaled(1 / lab.k)), str(duration)))
    rows.append(("MTU", f"{lab.mtu_bytes:,} bytes", f"{lab.mtu_bytes:,} bytes, not scaled"))
    return rows


def _duration(record: Record) -> Duration | None:
    try:
        return Duration.parse(str(record.scenario.workload.get("duration")))
    except ValueError:
        return None


def _facts(record: Record, point: PointResult) -> list[tuple[str, str]]:
    lab, scenario = point.lab, record.scenario
    facts = [
        ("Fabric", f"{lab.design or 'hand-written'}: {lab.nics:,} NICs in {lab.hosts:,} hosts, {_switches(lab)}"),
        ("Links", f"{lab.links:,}"),
        ("Routing", lab.routing),
        ("Topology", _with_settings(str(scenario.topology.get("file", "")), scenario.topology.get("set"))),
        ("Transport", _pairs(scenario.transport)),
        ("Workload", _pairs(scenario.workload)),
        ("Repeat", _pairs(scenario.repeat)),
        ("Time scale", f"k = {lab.k:g}" + (", chosen for this machine" if lab.k_auto else ", as the file says")),
    ]
    if point.runs:
        facts.append(("Traffic", f"{sum(run.elapsed_s for run in point.runs):.1f} s in {len(point.runs)} runs"))
    if scenario.overrides:
        facts.append(("Overrides", ", ".join(scenario.overrides)))
    return facts


def _machine(record: Record) -> list[tuple[str, str]]:
    environment = record.environment
    memory = MISSING if environment.memory_bytes is None else f"{environment.memory_bytes / 2**30:.1f} GiB"
    return [
        ("Machine", f"{environment.cpu_model or 'unknown CPU'}, {environment.cores} cores, {memory}"),
        ("System", f"{environment.distribution or 'unknown'}, kernel {environment.kernel}"),
        ("Clock", environment.clock),
        ("testbed", environment.testbed + (f" ({environment.git_commit})" if environment.git_commit else "")),
        ("FRR", environment.frr or MISSING),
        ("iperf3", environment.iperf3 or MISSING),
        ("Python", environment.python),
    ]


def _switches(lab: LabSummary) -> str:
    return " and ".join(f"{count:,} {role} switches" for role, count in lab.switches.items()) or "no switches"


def _pairs(section: Mapping[str, object]) -> str:
    return ", ".join(f"{key} {value}" for key, value in section.items()) or MISSING


def _with_settings(file: str, settings: object) -> str:
    if not isinstance(settings, Mapping) or not settings:
        return file
    return f"{file} with {_pairs(settings)}"
