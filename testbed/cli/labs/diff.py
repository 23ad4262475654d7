"""The verb `diff`: what `apply` would change."""

from dataclasses import dataclass

import click

from testbed.cli import options
from testbed.cli.command import command

DIFFERENT = 1
"""The exit code where there is something to change, as diff(1) has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceRow:
    """A thing that differs between a lab that is up and its file. `effect` is what `apply` would do about it."""

    effect: str
    node: str
    what: str
    cost: str


@command("diff")
@options.topology
@options.lab_name
@options.settings
@options.format_option
def diff(topology: str | None, name: str | None, set: tuple[str, ...], format: options.Format) -> None:
    """Print what differs between a lab that is up and its file; the exit code is 1 where anything does."""
    print_difference(topology, name, set, format)


def print_difference(topology: str | None, name: str | None, set: tuple[str, ...], form: options.Format) -> None:
    """Print the rows, and end with 1 where there are any."""
    from testbed.cli.lab_choice import placed_plan_errors, read_topology
    from testbed.cli.output import emit
    from testbed.lab.core.deploy.change import changes_of
    from testbed.lab.core.deploy.live import RunningLab
    from testbed.lab.core.deploy.records.state import StateDirectory
    from testbed.lab.core.drivers.nodes.changing import places_of

    lab = read_topology(topology, name, set)
    running = RunningLab.open(lab.name, StateDirectory())
    with placed_plan_errors(topology, name, set):
        changes = changes_of(running, lab, lab.scale.time)
    kernel = changes.kernel
    remade = {id(item) for item in kernel.remade}
    made = [("remade" if id(item) in remade else "made", item) for item in (*kernel.created, *kernel.made)]
    changed = [("changed", new) for _, new in kernel.changed]
    removed = [("removed", item) for item in kernel.removed]
    rows = [
        DifferenceRow(
            effect=effect,
            node=" ".join(places_of(item)),
            what=str(item),
            cost="what waits in its queue" if effect == "remade" else "",
        )
        for effect, item in (*made, *changed, *removed)
    ]
    rows += [DifferenceRow(effect="removed", node=node, what=f"node {node}", cost="") for node in kernel.gone]
    rows += [
        DifferenceRow(effect="told", node=node, what=f"{daemon}: {line}", cost="")
        for node, daemons in changes.routing.items()
        for daemon, lines in daemons.items()
        for line in lines
    ]
    emit(rows, DifferenceRow, form)
    if rows:
        click.get_current_context().exit(DIFFERENT)
