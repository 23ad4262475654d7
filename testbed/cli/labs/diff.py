"""The verb `diff`: what `apply` would change."""

import click

from testbed.cli import options
from testbed.cli.command import command

DIFFERENT = 1
"""The exit code where there is something to change, as diff(1) has it."""


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
    from testbed.lab.core.deploy.changing.differences import changes_of
    from testbed.lab.core.deploy.live import RunningLab
    from testbed.lab.core.deploy.records.state import StateDirectory
    from testbed.lab.core.plan.changes import ChangeRow

    lab = read_topology(topology, name, set)
    running = RunningLab.open(lab.name, StateDirectory())
    with placed_plan_errors(topology, name, set):
        changes = changes_of(running, lab, lab.scale.time)
    rows = list(changes.rows)
    emit(rows, ChangeRow, form)
    if rows:
        click.get_current_context().exit(DIFFERENT)
