"""The verbs that need no root and touch nothing: `validate`, `generate`, `schema`, `graph`."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from testbed.cli.labs import open_lab, read_topology
from testbed.cli.output import Format, emit_json, emit_rows
from testbed.errors import TestbedError
from testbed.fabric import DESIGNS, Sizing, measure_sizing
from testbed.model import Lab
from testbed.names import nearest
from testbed.units import Rate


def validate(topology: str | None, settings: list[str], form: Format, *, files: Sequence[Path] = ()) -> None:
    """Read topology files, generate and size them, and scenario files; problems raise `SpecError`."""
    if files:
        from testbed.cli.scenario_files import is_scenario

        scenarios = [path for path in files if is_scenario(path)]
        for path in files:
            if path not in scenarios:
                _validate_topology(str(path), settings, form)
        if scenarios:
            _validate_scenarios(scenarios, settings, form)
    if topology is not None or not files:
        _validate_topology(topology, settings, form)


def _validate_topology(topology: str | None, settings: list[str], form: Format) -> None:
    lab = read_topology(topology, None, settings)
    if form is Format.TABLE:
        print(
            f"{lab.source or lab.name}: valid: {lab.design or 'hand-written'},"
            f" {len(lab.hosts)} hosts, {len(lab.switches)} switches, {len(lab.links)} links"
        )
    emit_sizing(lab, form)


def _validate_scenarios(files: list[Path], settings: list[str], form: Format) -> None:
    from testbed.cli.dry_run import describe_sweep, foresee, print_dry_run
    from testbed.cli.scenario_files import read_sweeps

    sweeps = read_sweeps(files, settings)
    if form is not Format.TABLE:
        print_dry_run(sweeps, form)
        return
    for sweep in sweeps:
        foresee(sweep)
        print(describe_sweep(sweep))


def emit_sizing(lab: Lab, form: Format) -> None:
    """Ports, oversubscription, bisection and path counts of a lab."""
    sizing = measure_sizing(lab)
    rows = sizing_rows(sizing)
    emit_rows(
        rows,
        ["what", "value", "note"],
        form,
        json_document={"lab": lab.name, "design": lab.design, "sizing": dataclasses.asdict(sizing)},
    )


def sizing_rows(sizing: Sizing) -> list[dict[str, Any]]:
    """The sizing as lines for a person."""
    rows: list[dict[str, Any]] = [
        {"what": "hosts, GPUs, NICs", "value": f"{sizing.hosts}, {sizing.gpus}, {sizing.nics}", "note": ""},
        {
            "what": "links",
            "value": sizing.links,
            "note": f"{sizing.host_links} to hosts, {sizing.fabric_links} in the fabric",
        },
    ]
    for role in sizing.roles:
        ports = f"{role.ports} of {role.radix}" if role.radix else str(role.ports)
        over = f", oversubscription {role.oversubscription:.2f}:1" if role.oversubscription is not None else ""
        rows.append({"what": f"{role.role} switches", "value": role.switches, "note": f"{ports} ports used{over}"})
    if sizing.bisection is not None:
        bisection = sizing.bisection
        rows.append(
            {
                "what": f"bisection between {bisection.between}",
                "value": str(Rate(bisection.bandwidth_bps)),
                "note": f"{bisection.share:.0%} of what the NICs of one half can send",
            }
        )
    for path in sizing.paths:
        count = str(path.fewest) if path.fewest == path.most else f"{path.fewest} to {path.most}"
        note = "" if path.most else "not joined by the fabric"
        rows.append({"what": f"equal-cost paths, {path.relation}", "value": count, "note": note})
    return rows


def generate(design: str | None, settings: list[str], name: str, output: Path | None, form: Format) -> None:
    """Write a topology file for a design, or list the designs."""
    if design is None:
        rows = [{"design": item.name, "figure": item.figure, "summary": item.summary} for item in DESIGNS.values()]
        emit_rows(rows, ["design", "figure", "summary"], form)
        return
    if design not in DESIGNS:
        guess = nearest(design, DESIGNS)
        raise TestbedError(
            f"there is no design {design!r}", hint=f"did you mean {guess}?" if guess else f"one of {', '.join(DESIGNS)}"
        )
    from testbed.spec import render_topology

    text = render_topology(name, design, settings)
    if output is None:
        sys.stdout.write(text)
    else:
        with output.open("x") as stream:
            stream.write(text)
        print(f"wrote {output}")


def schema(kind: str) -> None:
    """Print the JSON Schema of topology or scenario files."""
    if kind == "topology":
        from testbed.spec import topology_schema

        emit_json(topology_schema())
    elif kind == "scenario":
        from testbed.spec.schema import scenario_schema

        emit_json(scenario_schema())
    else:
        raise TestbedError(f"there is no schema for {kind!r}", hint="topology or scenario")


def graph(topology: str | None, name: str | None, settings: list[str], kind: str, output: Path | None) -> None:
    """Draw a topology file, or a deployed lab when there is no -t."""
    from testbed.report.graph import render_dot, render_html, render_mermaid

    renderers = {"html": render_html, "dot": render_dot, "mermaid": render_mermaid}
    if kind not in renderers:
        raise TestbedError(f"cannot draw {kind!r}", hint=f"one of {', '.join(renderers)}")
    lab = open_lab(name).model if topology is None and name is not None else read_topology(topology, name, settings)
    text = renderers[kind](lab)
    if output is None and kind == "html":
        output = Path(f"{lab.name}.html")
    if output is None or str(output) == "-":
        sys.stdout.write(text)
        return
    output.write_text(text)
    print(f"wrote {output}")
