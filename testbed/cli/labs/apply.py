"""The verb `apply`: a lab that is up becomes what its file says now."""

import time
from typing import TYPE_CHECKING

from testbed.cli import options
from testbed.cli.command import command, option

if TYPE_CHECKING:
    from testbed.lab.core.deploy.changing.differences import LabChanges


@command("apply")
@options.topology
@options.lab_name
@options.settings
@option("--dry-run", is_flag=True, help="Print what would change and touch nothing; 1 if anything would.")
@options.timeout
@options.format_option
@options.quiet
def apply(
    topology: str | None,
    name: str | None,
    set: tuple[str, ...],
    dry_run: bool,
    timeout: float,
    format: options.Format,
    quiet: bool,
) -> None:
    """Change a lab that is up into what its file says now; everything else stays as it is."""
    from testbed.cli.lab_choice import placed_plan_errors, read_topology
    from testbed.cli.labs.diff import print_difference
    from testbed.cli.progress import StepDisplay
    from testbed.lab.core.deploy.changing.apply import ApplyOptions, apply_lab
    from testbed.lab.core.deploy.records.state import StateDirectory

    if dry_run:
        print_difference(topology, name, set, format)
        return
    started = time.monotonic()
    lab = read_topology(topology, name, set)
    options_ = ApplyOptions(k=lab.scale.time, timeout_s=timeout)
    with placed_plan_errors(topology, name, set), StepDisplay(quiet=quiet) as display:
        changes = apply_lab(lab, StateDirectory(), options_, display)
    _print_outcome(changes, time.monotonic() - started)


def _print_outcome(changes: "LabChanges", elapsed_s: float) -> None:
    from testbed.cli.output import console

    if not changes:
        console().print(f"{changes.lab.name}: nothing to change ({elapsed_s:.1f} s)", highlight=False)
        return
    kernel = changes.kernel
    console().print(
        f"{changes.lab.name}: {len(kernel.made)} things made, {len(kernel.changed)} changed,"
        f" {len(kernel.removed)} removed, routing of {len(changes.routing)} nodes told; converged in {elapsed_s:.1f} s",
        highlight=False,
    )
