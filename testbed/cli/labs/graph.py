"""The verb `graph`."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.base.errors import TestbedError
from testbed.cli import options
from testbed.cli.command import PATH, command, option

if TYPE_CHECKING:
    from testbed.lab.core.deploy.live import RunningLab
    from testbed.lab.core.model.link_condition import LinkCondition
    from testbed.lab.graph.numbering import Captions


@command("graph")
@options.topology
@options.lab_name
@options.settings
@options.network
@option("--kind", "-k", default="html", help="html, dot or mermaid.")
@option("--addresses", is_flag=True, help="Show AS numbers and addresses, too, also those of a switch's VLANs.")
@option("-o", "--output", type=PATH, help="File; default NAME.html, or print.")
def graph(
    topology: str | None,
    name: str | None,
    set: tuple[str, ...],
    network: str | None,
    kind: str,
    addresses: bool,
    output: Path | None,
) -> None:
    """Draw a lab: a self-contained HTML page, dot or mermaid. Of a lab that runs (-n) nodes and links are shown as they
    are."""
    from testbed.base.names import choice_hint
    from testbed.cli.lab_choice import check_network, open_lab, read_topology
    from testbed.lab.core.model import UNSTATED_SCALE_UP
    from testbed.lab.core.plan.lab import plan_addresses
    from testbed.lab.graph import render_dot, render_html, render_mermaid
    from testbed.lab.graph.numbering import captions_of, with_captions

    kinds = ("html", "dot", "mermaid")
    if kind not in kinds:
        raise TestbedError(f"cannot draw {kind!r}", hint=choice_hint(kind, kinds))
    running = open_lab(name) if topology is None and name is not None else None
    lab = read_topology(topology, name, set) if running is None else running.model
    check_network(lab, network)
    captions: Captions = {}
    if addresses:
        plan = plan_addresses(lab) if running is None else running.plan
        captions = captions_of(plan)
        lab = with_captions(lab, captions) if kind == "html" else lab
    if network is not None:
        lab = replace(lab.of_network(network), scale_up=UNSTATED_SCALE_UP)
    conditions = {} if running is None else _conditions(running)
    if kind == "html" and running is not None:
        status = {node.name: node.state for node in running.status()}
        text = render_html(lab, status=status, k=running.record.k, conditions=conditions)
    elif kind == "html":
        text = render_html(lab)
    else:
        text = (render_dot if kind == "dot" else render_mermaid)(lab, conditions=conditions, captions=captions)
    if output is None and kind == "html":
        output = Path(f"{lab.name}.html")
    if output is None or str(output) == "-":
        sys.stdout.write(text)
        return
    output.write_text(text)
    print(f"wrote {output}")


def _conditions(lab: "RunningLab") -> "dict[str, LinkCondition]":
    """Return the condition of a lab's links now, those of scale-up domains among them."""
    from testbed.cli.nodes.link_changes import read_conditions, read_plane_conditions

    return read_conditions(lab) | read_plane_conditions(lab)
