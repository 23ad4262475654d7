"""The verb `stats`. What it prints is read in `stats_sources`, drawn in `stats_view` and refreshed in `stats_watch`."""

from typing import Annotated

import typer

from testbed.cli.options import FormatOption, LabName, NetworkName, parse_format
from testbed.cli.panels import NODES_AND_LINKS

app = typer.Typer()


@app.command(rich_help_panel=NODES_AND_LINKS)
def stats(
    patterns: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NODE|NODE:IF...] [SPAN]", help="Only these nodes, ports or scale-up links; measured for a span."
        ),
    ] = None,
    name: LabName = None,
    network: NetworkName = None,
    traffic_class: Annotated[str | None, typer.Option("--class", help="Only this traffic class.")] = None,
    all: Annotated[bool, typer.Option("--all", "-a", help="Queues that saw nothing, too.")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh after each SPAN (default 1s).")] = False,
    scale_up: Annotated[
        bool, typer.Option("--scale-up", help="Links of scale-up domains instead, by GPU, plane and channel.")
    ] = False,
    reset_max: Annotated[bool, typer.Option("--reset-max", help="Let the maxima start anew first.")] = False,
    format: FormatOption = "table",
) -> None:
    """Show what the queues saw since the deploy, or in a SPAN such as 2s: packets, drops, marks, pauses, depths."""
    from testbed.cli.counters.watch import StatsOptions, print_stats
    from testbed.cli.lab_choice import check_network, open_lab

    options = StatsOptions(
        arguments=patterns or [],
        class_name=traffic_class,
        every=all,
        scale_up=scale_up,
        watch=watch,
        reset=reset_max,
        form=parse_format(format),
    )
    lab = open_lab(name)
    check_network(lab.model, network)
    print_stats(lab if network is None else lab.of_network(network), options)
