"""The verb `inspect`. Its views are listed in `views`, and shown by `inspect_views` and `qos`."""

from testbed.cli import options
from testbed.cli.command import argument, command, option
from testbed.cli.labs.views import VIEWS


@command("inspect")
@argument("what", metavar=f"[{'|'.join(VIEWS)}]", default="nodes", help="What to show.")
@argument("node", required=False, metavar="[NODE]", help="Only this node; `routes` of a host has all its tables.")
@options.lab_name
@options.topology
@option("--node-filter", help="Only nodes matching these comma-separated patterns.")
@options.network
@option("--all-networks", is_flag=True, help="A line for each network: parts, sessions, services, counters.")
@options.format_option
def inspect(
    what: str,
    node: str | None,
    name: str | None,
    topology: str | None,
    node_filter: str | None,
    network: str | None,
    all_networks: bool,
    format: options.Format,
) -> None:
    """Show a deployed lab: nodes, links, routes, BGP sessions, what FRR runs (config), guards, services; of a lab or a
    file (-t): scale, sizing, tenants, QoS, scale-up domains."""
    from testbed.cli.labs.inspect_views import chosen_nodes, inspect_machines, inspect_scale_up, show_view

    nodes = chosen_nodes(node or node_filter)
    if all_networks:
        alone = what == "nodes" and network is None and node_filter is None and node is None
        _inspect_networks(name, topology, format, alone=alone)
        return
    if what == "machines":
        from testbed.cli.lab_choice import lab_name

        inspect_machines(name if topology is None else lab_name(name, topology), format)
        return
    if what == "scale-up":
        inspect_scale_up(name, topology, format)
        return
    if what == "qos":
        from testbed.cli.labs.qos import inspect_qos

        inspect_qos(name, topology, network, nodes, format)
        return
    show_view(what, name, topology, network, nodes, format, node=node)


def _inspect_networks(name: str | None, topology: str | None, form: options.Format, *, alone: bool) -> None:
    """Show all networks. Raises `TestbedError` where something else is asked for, too."""
    from testbed.base.errors import TestbedError
    from testbed.cli.lab_choice import open_lab
    from testbed.cli.labs.inspect_views import show_networks

    if not alone:
        raise TestbedError(
            "--all-networks is a view of its own", hint="leave out the view, --network and --node-filter"
        )
    show_networks(open_lab(name, topology), form)
