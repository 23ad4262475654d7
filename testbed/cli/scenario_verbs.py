"""The verbs about scenarios and their options: `run`, `workloads`. Their work is in `cli.scenario` and others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from testbed.cli.format_option import Form, parse_format

scenario_app = typer.Typer()
"""Verbs of the top level."""


@scenario_app.command()
def run(
    files: Annotated[list[Path], typer.Argument(metavar="SCENARIO.yml...", help="Scenarios, run one after the other.")],
    set: Annotated[
        list[str] | None,
        typer.Option("--set", help="Set a key of the scenario or its topology: workload.bytes=1MB, fabric.hosts=4."),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="KEY=VALUE", help="Only points of the matrix with this value.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of the first repeat.")] = None,
    repeat: Annotated[int | None, typer.Option("--repeat", help="How many repeats.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the lab deployed.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, print points, bytes and times, touch nothing.")
    ] = False,
    resume: Annotated[
        Path | None, typer.Option("--resume", metavar="DIR", help="Go on with an interrupted sweep's results.")
    ] = None,
    prove_scale: Annotated[
        bool, typer.Option("--prove-scale", help="Repeat at twice the time scale: shares and ratios must agree.")
    ] = False,
    results: Annotated[
        Path | None, typer.Option("-o", "--results", help="Directory of results; default results/.")
    ] = None,
    report: Annotated[bool, typer.Option("--report/--no-report", help="Write the HTML page and its files.")] = True,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds to wait for routing to converge.")] = 120.0,
    format: Form = "table",
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No progress.")] = False,
) -> None:
    """Run scenarios: deploy, drive traffic, measure, judge, report. Exit 0 pass, 1 fail, 2 invalid."""
    from testbed.cli import scenario
    from testbed.cli.scenario_files import read_sweeps

    form = parse_format(format)
    sweeps = read_sweeps(files, set or [], seed=seed, repeat=repeat, only=only or [])
    if dry_run:
        from testbed.cli.dry_run import print_dry_run

        print_dry_run(sweeps, form)
        return
    options = scenario.RunOptions(
        keep=keep,
        resume=resume,
        prove_scale=prove_scale,
        results=results,
        report=report,
        timeout_s=timeout,
        form=form,
        quiet=quiet,
    )
    raise typer.Exit(scenario.run(sweeps, options))


@scenario_app.command()
def workloads(
    kind: Annotated[str | None, typer.Argument(metavar="[KIND]", help="One kind; default: all.")] = None,
    format: Form = "table",
) -> None:
    """List the kinds of workload, or the parameters of one: name, type, default, range."""
    from testbed.cli import workloads as verb

    verb.workloads(kind, parse_format(format))
