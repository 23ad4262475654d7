"""The verb `inspect`. Its views are in `inspect_views` and `qos_view`."""

from typing import Annotated

import typer

from testbed.cli.options import FormatOption, LabName, NetworkName, Topology, parse_format
from testbed.cli.panels import LABS

app = typer.Typer()


@app.command(rich_help_panel=LABS)
def inspect(
    what: Annotated[
        str,
        typer.Argument(
            metavar="[nodes|links|routes|bgp|guards|scale|services|sizing|qos|tenants|vteps]", help="What to show."
        ),
    ] = "nodes",
    name: LabName = None,
    topology: Topology = None,
    node_filter: Annotated[
        str | None, typer.Option("--node-filter", help="Only nodes matching these comma-separated patterns.")
    ] = None,
    network: NetworkName = None,
    format: FormatOption = "table",
) -> None:
    """Show a deployed lab: nodes, links, routes, BGP sessions, guards, scale, services, tenants; QoS of a file (-t)."""
    from testbed.cli.labs.inspect_views import show_view
    from testbed.cli.labs.node_filter import NodeFilter

    form = parse_format(format)
    nodes = NodeFilter.parse(node_filter)
    if what == "qos":
        from testbed.cli.labs.qos_view import inspect_qos

        inspect_qos(name, topology, network, nodes.accepts, form)
        return
    show_view(what, name, topology, network, nodes, form)
