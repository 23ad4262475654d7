"""The verb `graph`."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from testbed.cli.options import LabName, NetworkName, Settings, Topology
from testbed.cli.panels import LABS
from testbed.errors import TestbedError

app = typer.Typer()


@app.command(rich_help_panel=LABS)
def graph(
    topology: Topology = None,
    name: LabName = None,
    set: Settings = None,
    network: NetworkName = None,
    kind: Annotated[str, typer.Option("--kind", "-k", help="html, dot or mermaid.")] = "html",
    output: Annotated[Path | None, typer.Option("-o", "--output", help="File; default NAME.html, or print.")] = None,
) -> None:
    """Draw a lab: a self-contained HTML page, dot or mermaid."""
    from testbed.cli.lab_choice import check_network, open_lab, read_topology
    from testbed.model import UNSTATED_SCALE_UP
    from testbed.report.graph import render_dot, render_html, render_mermaid

    kinds = ("html", "dot", "mermaid")
    if kind not in kinds:
        raise TestbedError(f"cannot draw {kind!r}", hint=f"one of {', '.join(kinds)}")
    running = open_lab(name) if topology is None and name is not None else None
    lab = read_topology(topology, name, set or []) if running is None else running.model
    check_network(lab, network)
    if network is not None:
        lab = replace(lab.of_network(network), scale_up=UNSTATED_SCALE_UP)
    if kind == "html":
        text = render_html(lab, k=None if running is None else running.record.k)
    else:
        text = render_dot(lab) if kind == "dot" else render_mermaid(lab)
    if output is None and kind == "html":
        output = Path(f"{lab.name}.html")
    if output is None or str(output) == "-":
        sys.stdout.write(text)
        return
    output.write_text(text)
    print(f"wrote {output}")
