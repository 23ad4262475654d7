"""The views of `inspect` that show how nodes route: their routes, and the configuration that FRR runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from testbed.cli.options import Format
from testbed.cli.output import emit

if TYPE_CHECKING:
    from testbed.lab.core.deploy.live import RunningLab
    from testbed.lab.core.deploy.watch.running_config import ConfigLine

Nodes = Callable[[str], bool]


def show_routes(lab: RunningLab, nodes: Nodes, form: Format) -> None:
    """Show the routes of all that speak BGP, or of the nodes that were named, hosts among them."""
    from testbed.lab.observe.routing_rows import RouteRow, route_rows

    emit(route_rows(lab, nodes), RouteRow, form, title=f"{lab.name}: routes")


def show_configurations(lab: RunningLab, nodes: Nodes, form: Format) -> None:
    """Show what routing daemons run, line by line; for people those lines are marked that differ from the plan."""
    from testbed.lab.core.deploy.watch.running_config import ConfigLine, compare_configuration, read_configuration

    lines: list[ConfigLine] = []
    for speaker in lab.plan.speakers:
        if not nodes(speaker.node):
            continue
        running = read_configuration(lab.run_directory(speaker.node), lab.daemons.get(speaker.node, ()))
        found, is_known = compare_configuration(lab.processes_directory, speaker.node, running)
        lines += found
        if form is Format.TABLE:
            _print_configuration(speaker.node, found, is_known=is_known)
    if form is not Format.TABLE:
        emit(lines, ConfigLine, form)
    elif not lines:
        print("no routing daemon runs there: switches have some, and hosts that speak BGP")


def _print_configuration(node: str, lines: Sequence[ConfigLine], *, is_known: bool) -> None:
    from testbed.lab.core.deploy.watch.running_config import Difference

    differing = sum(line.differs is not Difference.NONE for line in lines)
    if not is_known:
        said = "what was planned is not noted: the deploy did not wait for routing"
    elif differing:
        said = f"{differing} lines differ from the plan: + runs, - does not"
    else:
        said = "as planned"
    print(f"{node}: {said}")
    for daemon, items in groupby(lines, key=lambda line: line.daemon):
        print(f"! {daemon}")
        for item in items:
            print(f"{item.differs.value:2}{item.line}" if differing else item.line)
