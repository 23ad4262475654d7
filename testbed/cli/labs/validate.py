"""The verb `validate`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.base.errors import TestbedError
from testbed.cli import options
from testbed.cli.command import PATH, argument, command

if TYPE_CHECKING:
    from testbed.lab.core.model import Lab


@command("validate")
@argument("files", nargs=-1, metavar="[FILE...]", type=PATH, help="Topologies and scenarios.")
@options.topology
@options.settings
@options.format_option
def validate(files: tuple[Path, ...], topology: str | None, set: tuple[str, ...], format: options.Format) -> None:
    """Check topology files and report their sizing, or scenario files. Touches nothing, needs no root."""
    from testbed.cli.labs.sizing import emit_sizings, sizing_documents
    from testbed.cli.scenarios.named_files import is_scenario_file

    scenarios = [path for path in files if is_scenario_file(path)]
    topologies: list[str | None] = [str(path) for path in files if path not in scenarios]
    if topology is not None or not files:
        topologies.append(topology)
    if scenarios and topologies and format is options.Format.CSV:
        raise TestbedError(
            "--format csv: topologies and scenarios have rows of different kinds",
            hint="validate the topologies by themselves, and the scenarios by themselves, or take --format json",
        )
    if format is options.Format.TABLE:
        for one in topologies:
            _print_topology(one, set)
    labs = [] if format is options.Format.TABLE else [_read_valid(one, set) for one in topologies]
    if scenarios:
        _validate_scenarios(scenarios, set, format, sizing_documents(labs))
    elif labs:
        emit_sizings(labs, format)


def _print_topology(topology: str | None, settings: Sequence[str]) -> None:
    """Print what the file describes, and its sizing."""
    from testbed.cli.labs.sizing import emit_sizing

    lab = _read_valid(topology, settings)
    print(
        f"{lab.source or lab.name}: valid: {lab.design or 'hand-written'},"
        f" {len(lab.hosts)} hosts, {len(lab.switches)} switches, {len(lab.links)} links"
    )
    emit_sizing(lab, options.Format.TABLE)


def _read_valid(topology: str | None, settings: Sequence[str]) -> "Lab":
    """Read a topology file. Raises `SpecError` or `PlanError` for what is wrong with it."""
    from testbed.cli.lab_choice import placed_plan_errors, read_topology
    from testbed.lab.core.plan.asn import check_as_numbers
    from testbed.lab.core.plan.lab import check_addresses

    lab = read_topology(topology, None, settings, warn=True)
    with placed_plan_errors(topology, None, settings):
        check_as_numbers(lab)
        if lab.overlay is not None:  # what a tenant's prefix may overlap is known of planned addresses alone
            check_addresses(lab)
    return lab


def _validate_scenarios(
    files: list[Path], settings: Sequence[str], form: options.Format, topologies: list[dict[str, Any]]
) -> None:
    """Print a line for each scenario, or in another format than the table what `run --dry-run` prints; JSON has the
    documents of `topologies` first."""
    from testbed.cli.scenarios.dry_run import describe_sweep, foresee, print_dry_run, scales_to_foresee, warnings_of
    from testbed.cli.scenarios.named_files import read_sweeps

    sweeps = read_sweeps(files, settings, warn=True)
    if form is not options.Format.TABLE:
        print_dry_run(sweeps, form, topologies)
        return
    for sweep, scales in zip(sweeps, scales_to_foresee(sweeps), strict=True):
        points = foresee(sweep, scales)
        print(describe_sweep(sweep))
        for said in warnings_of(points):
            print(f"{sweep.scenario.source}: warning: {said}", file=sys.stderr)
