"""The verb `diff`: what `apply` would change."""

import sys
from typing import TYPE_CHECKING

import click

from testbed.cli import options
from testbed.cli.command import command

if TYPE_CHECKING:
    from testbed.api.changes import Changes
    from testbed.lab.core.deploy.records.state import StateDirectory
    from testbed.lab.core.model import Lab

DIFFERENT = 1
"""The exit code where there is something to change, as diff(1) has it."""


@command("diff", codes={0: "the lab is what its file says", 1: "something differs"})
@options.changed_topology
@options.lab_name
@options.settings
@options.format_option
def diff(topology: str | None, name: str | None, set: tuple[str, ...], format: options.Format) -> None:
    """Print what `apply` would change of a lab that is up, and why, and what was changed by hand; touches nothing.

    Without -t the file is the one that the lab came from, with the settings of its deploy.
    """
    from testbed.api.changes import changes_to
    from testbed.lab.core.deploy.records.state import StateDirectory

    state = StateDirectory()
    lab = read_changed(topology, name, set, state)
    if not state.exists(lab.name):
        raise state.not_found(lab.name)
    end_with_difference(changes_to(lab, state), format)


def read_changed(topology: str | None, name: str | None, settings: tuple[str, ...], state: "StateDirectory") -> "Lab":
    """Read what a lab is to become: the file of `-t`, standard input for `-`, or the file that the lab came from."""
    import gc

    from testbed.api.changes import read_target
    from testbed.cli.lab_choice import parse_settings

    gc.disable()  # the process ends soon, and planning a large lab would set it off many times

    text = sys.stdin.read() if topology == "-" else None
    file = "<stdin>" if topology == "-" else topology
    return read_target(file, name=name, overrides=parse_settings(settings), state=state, text=text)


def end_with_difference(changes: "Changes", form: options.Format) -> None:
    """Print changes that are not made, and end with 1 where there are any."""
    print_changes(changes, form)
    if changes:
        click.get_current_context().exit(DIFFERENT)


def print_changes(changes: "Changes", form: options.Format) -> None:
    """Print changes: for people what is alike in one line, for programs each by itself."""
    from testbed.cli.output import console, emit
    from testbed.lab.core.deploy.changing.telling.grouping import ChangeGroup
    from testbed.lab.core.plan.changes import ChangeRow

    if form is not options.Format.TABLE:
        emit(changes.rows, ChangeRow, form, document=changes.to_json())
        return
    if changes:
        emit(changes.groups, ChangeGroup, form)
    console().print(outlook(changes), highlight=False, markup=False, soft_wrap=True)


def outlook(changes: "Changes") -> str:
    """Say in a line how much would be done, and what it could cost."""
    from testbed.base.units import ByteCount
    from testbed.lab.core.deploy.changing.telling.grouping import counted

    if not changes:
        return f"{changes.lab}: nothing to change; it is what {changes.source or 'its file'} says"
    if not changes.deployed:
        return f"{changes.lab} is not deployed: {changes.summary}"
    stake = f"at stake: {'; '.join(changes.at_stake)}" if changes.at_stake else "no packet and no session is at stake"
    if changes.waiting_bytes:
        stake += f" ({ByteCount(changes.waiting_bytes)} wait there now)"
    allowed = f"; needs {' '.join(f'--allow {word}' for word in sorted(changes.needs))}" if changes.needs else ""
    why = [counted(len(changes.keys), "key") + " of the file"] if changes.keys or not changes.repairs else []
    if changes.repairs:
        why.append(f"{counted(changes.repairs, 'thing')} changed by hand or ended (`testbed apply --repair`)")
    return f"{changes.lab}: {changes.summary}, for {' and '.join(why)}; {stake}{allowed}"
