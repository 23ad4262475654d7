"""The verb `inspect`. Its views are in `inspect_views`, `networks_view`, `qos_view` and `scale_up_view`."""

from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli.options import FormatOption, LabName, NetworkName, Topology, parse_format
from testbed.cli.panels import LABS

if TYPE_CHECKING:
    from testbed.cli.output import Format

app = typer.Typer()


@app.command(rich_help_panel=LABS)
def inspect(
    what: Annotated[
        str,
        typer.Argument(
            metavar="[nodes|links|routes|bgp|guards|link-groups|scale|scale-up|services|sizing|qos|tenants|vteps]",
            help="What to show.",
        ),
    ] = "nodes",
    name: LabName = None,
    topology: Topology = None,
    node_filter: Annotated[
        str | None, typer.Option("--node-filter", help="Only nodes matching these comma-separated patterns.")
    ] = None,
    network: NetworkName = None,
    all_networks: Annotated[
        bool, typer.Option("--all-networks", help="A line for each network: parts, sessions, services, counters.")
    ] = False,
    format: FormatOption = "table",
) -> None:
    """Show a deployed lab: nodes, links, routes, BGP sessions, guards, services; of a lab or a file (-t): scale,
    sizing, tenants, QoS, scale-up domains."""
    from testbed.cli.labs.inspect_views import show_view
    from testbed.cli.labs.node_filter import NodeFilter

    form = parse_format(format)
    nodes = NodeFilter.parse(node_filter)
    if all_networks:
        _inspect_networks(name, topology, form, alone=what == "nodes" and network is None and node_filter is None)
        return
    if what == "scale-up":
        from testbed.cli.labs.scale_up_view import inspect_scale_up

        inspect_scale_up(name, topology, form)
        return
    if what == "qos":
        from testbed.cli.labs.qos_view import inspect_qos

        inspect_qos(name, topology, network, nodes.accepts, form)
        return
    show_view(what, name, topology, network, nodes, form)


def _inspect_networks(name: str | None, topology: str | None, form: "Format", *, alone: bool) -> None:
    """Show all networks. Raises `TestbedError` where something else is asked for, too."""
    from testbed.base.errors import TestbedError
    from testbed.cli.lab_choice import open_lab
    from testbed.cli.labs.networks_view import show_networks

    if not alone:
        raise TestbedError(
            "--all-networks is a view of its own", hint="leave out the view, --network and --node-filter"
        )
    show_networks(open_lab(name, topology), form)
