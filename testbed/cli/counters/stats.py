"""The verb `stats`. Its counters are read in `sources`, drawn in `view` and refreshed in `watch`."""

from testbed.cli import options
from testbed.cli.command import argument, command, option


@command("stats")
@argument(
    "patterns",
    nargs=-1,
    metavar="[NODE|NODE:IF...] [SPAN]",
    help="Only these nodes, ports or scale-up links; measured for a span.",
)
@options.lab_name
@options.network
@option("traffic_class", "--class", help="Only this traffic class.")
@option("--all", "-a", is_flag=True, help="Queues that saw nothing, too.")
@option("--watch", "-w", is_flag=True, help="Refresh after each SPAN (default 1s).")
@option("--scale-up", is_flag=True, help="Links of scale-up domains instead, by GPU, plane and channel.")
@option("--reset-max", is_flag=True, help="Let the maxima start anew first.")
@options.format_option
def stats(
    patterns: tuple[str, ...],
    name: str | None,
    network: str | None,
    traffic_class: str | None,
    all: bool,
    watch: bool,
    scale_up: bool,
    reset_max: bool,
    format: options.Format,
) -> None:
    """Show what the queues saw since the deploy, or in a SPAN such as 2s: packets, drops, marks, pauses, depths."""
    from testbed.cli.counters.watch import print_stats
    from testbed.cli.lab_choice import check_network, open_lab

    lab = open_lab(name)
    check_network(lab.model, network)
    print_stats(
        lab if network is None else lab.of_network(network),
        patterns,
        format,
        class_name=traffic_class,
        every=all,
        scale_up=scale_up,
        watch=watch,
        reset=reset_max,
    )
