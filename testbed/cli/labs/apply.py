"""The verb `apply`: a lab that is up becomes what its file says now."""

import time
from typing import TYPE_CHECKING

import click

from testbed.base.errors import TestbedError
from testbed.cli import options
from testbed.cli.command import command, option
from testbed.cli.signals import stand_by_the_outcome

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from testbed.api.changes import Changes

ALLOWED = {"restart": "processes end and begin again", "recreate": "nodes, or the whole lab, are made again"}
"""The words of `--allow`."""


def _complete_allow(_context: click.Context, _option: click.Parameter, begun: str) -> "list[CompletionItem]":
    from click.shell_completion import CompletionItem

    return [CompletionItem(word, help=meaning) for word, meaning in ALLOWED.items() if word.startswith(begun)]


def _check_allow(_context: click.Context, _option: click.Parameter, words: tuple[str, ...]) -> tuple[str, ...]:
    """Return what is allowed. Raises `TestbedError` for a word that names nothing."""
    from testbed.base.names import known_names_hint

    for word in words:
        if word not in ALLOWED:
            hint = known_names_hint(word, list(ALLOWED))
            raise TestbedError(f"--allow {word}: expected {' or '.join(ALLOWED)}", hint=hint)
    return words


@command(
    "apply",
    codes={
        0: "the lab is what the file says; with --dry-run, it is so already",
        1: "the lab is changed, and its routing has not converged in time; with --dry-run, something would change",
        2: "it broke off on the way: the message says what became of the lab",
    },
)
@options.changed_topology
@options.lab_name
@options.settings
@option("--dry-run", is_flag=True, help="Print what would change, as `diff` does, and touch nothing.")
@option(
    "--allow",
    multiple=True,
    callback=_check_allow,
    shell_complete=_complete_allow,
    help="What may be done besides: restart (of processes), recreate (nodes, or the whole lab).",
)
@option("--repair", is_flag=True, help="Bring back what was changed by hand, or what ended, too.")
@options.timeout
@options.format_option
@options.quiet
def apply(
    topology: str | None,
    name: str | None,
    set: tuple[str, ...],
    dry_run: bool,
    allow: tuple[str, ...],
    repair: bool,
    timeout: float,
    format: options.Format,
    quiet: bool,
) -> None:
    """Change a lab that is up into what its file says now, and nothing else; deploy it where it is not up.

    Without -t the file is the one that the lab came from, with the settings of its deploy.
    """
    from testbed.api.changes import apply_changes, changes_to
    from testbed.cli.labs.diff import end_with_difference, print_changes, read_changed
    from testbed.cli.output import warn
    from testbed.cli.progress import StepDisplay
    from testbed.lab.core.deploy.records.state import StateDirectory

    started = time.monotonic()
    state = StateDirectory()
    lab = read_changed(topology, name, set, state)
    if dry_run:
        end_with_difference(changes_to(lab, state), format)
        return
    if not state.exists(lab.name) and state.names():
        warn(f"no lab named {lab.name} is up: it is deployed (there are: {', '.join(state.names())})")

    def show(changes: "Changes") -> None:
        if changes and changes.deployed and format is options.Format.TABLE and not quiet:
            print_changes(changes, format)

    with StepDisplay(quiet=quiet) as display:
        changes = apply_changes(lab, state, allow=allow, repair=repair, timeout_s=timeout, notify=display, told=show)
        stand_by_the_outcome()
    _print_outcome(changes, time.monotonic() - started, format)


def _print_outcome(changes: "Changes", elapsed_s: float, form: options.Format) -> None:
    """Say what was done; programs are told of each thing."""
    if form is not options.Format.TABLE:
        from testbed.cli.output import emit
        from testbed.lab.core.plan.changes import ChangeRow

        emit(changes.rows, ChangeRow, form, document=changes.to_json() | {"seconds": round(elapsed_s, 3)})
        return
    said = f"{changes.summary}; converged" if changes else "nothing to change"
    if not changes.deployed:
        said = "deployed, and its routing has converged"
    click.echo(f"{changes.lab}: {said} ({elapsed_s:.1f} s)")
