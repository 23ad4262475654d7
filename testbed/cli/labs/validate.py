"""The verb `validate`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.base.errors import TestbedError
from testbed.cli.options import FormatOption, Settings, Topology, parse_format
from testbed.cli.panels import LABS

if TYPE_CHECKING:
    from testbed.cli.output import Format
    from testbed.lab.core.model import Lab

app = typer.Typer()


@app.command(rich_help_panel=LABS)
def validate(
    files: Annotated[list[Path] | None, typer.Argument(metavar="[FILE...]", help="Topologies and scenarios.")] = None,
    topology: Topology = None,
    set: Settings = None,
    format: FormatOption = "table",
) -> None:
    """Check topology files and report their sizing, or scenario files. Touches nothing, needs no root."""
    from testbed.cli.labs.sizing import emit_sizings, sizing_documents
    from testbed.cli.output import Format
    from testbed.cli.scenarios.named_files import is_scenario

    form, settings, named = parse_format(format), set or [], files or []
    scenarios = [path for path in named if is_scenario(path)]
    topologies: list[str | None] = [str(path) for path in named if path not in scenarios]
    if topology is not None or not named:
        topologies.append(topology)
    if scenarios and topologies and form is Format.CSV:
        raise TestbedError(
            "--format csv: topologies and scenarios have rows of different kinds",
            hint="validate the topologies by themselves, and the scenarios by themselves, or take --format json",
        )
    if form is Format.TABLE:
        for one in topologies:
            _print_topology(one, settings)
    labs = [] if form is Format.TABLE else [_read_valid(one, settings) for one in topologies]
    if scenarios:
        _validate_scenarios(scenarios, settings, form, sizing_documents(labs))
    elif labs:
        emit_sizings(labs, form)


def _print_topology(topology: str | None, settings: list[str]) -> None:
    """Print what the file describes, and its sizing."""
    from testbed.cli.labs.sizing import emit_sizing
    from testbed.cli.output import Format

    lab = _read_valid(topology, settings)
    print(
        f"{lab.source or lab.name}: valid: {lab.design or 'hand-written'},"
        f" {len(lab.hosts)} hosts, {len(lab.switches)} switches, {len(lab.links)} links"
    )
    emit_sizing(lab, Format.TABLE)


def _read_valid(topology: str | None, settings: list[str]) -> "Lab":
    """Read a topology file. Raises `SpecError` or `PlanError` for what is wrong with it."""
    from testbed.cli.lab_choice import placed_plan_errors, read_topology
    from testbed.lab.core.plan import check_addresses, check_as_numbers

    lab = read_topology(topology, None, settings, warn=True)
    with placed_plan_errors(topology, None, settings):
        check_as_numbers(lab)
        if lab.overlay is not None:  # what a tenant's prefix may overlap is known of planned addresses alone
            check_addresses(lab)
    return lab


def _validate_scenarios(
    files: list[Path], settings: list[str], form: "Format", topologies: list[dict[str, Any]]
) -> None:
    """Print a line for each scenario, or in another format than the table what `run --dry-run` prints; JSON has the
    documents of `topologies` first."""
    from testbed.cli.output import Format
    from testbed.cli.scenarios.dry_run import describe_sweep, foresee, print_dry_run, scales_to_foresee, warnings_of
    from testbed.cli.scenarios.named_files import read_sweeps

    sweeps = read_sweeps(files, settings, warn=True)
    if form is not Format.TABLE:
        print_dry_run(sweeps, form, topologies)
        return
    for sweep, scales in zip(sweeps, scales_to_foresee(sweeps), strict=True):
        points = foresee(sweep, scales)
        print(describe_sweep(sweep))
        for said in warnings_of(points):
            print(f"{sweep.scenario.source}: warning: {said}", file=sys.stderr)
