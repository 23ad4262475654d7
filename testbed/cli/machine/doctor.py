"""The verb `doctor`."""

import os
from typing import Annotated

import typer

from testbed.cli.options import FormatOption, parse_format
from testbed.cli.panels import MACHINE

app = typer.Typer()


@app.command(rich_help_panel=MACHINE)
def doctor(
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Probe again what was probed since the last boot.")
    ] = False,
    format: FormatOption = "table",
) -> None:
    """Say what this machine has and lacks, which mechanism each feature will use, and how to get what is missing."""
    from testbed.cli.machine.doctor_report import print_machine
    from testbed.lab.core.deploy.packet_costs import PacketCosts
    from testbed.lab.core.deploy.records.state import StateDirectory
    from testbed.lab.core.drivers.probing.doctor import probe_machine

    form = parse_format(format)
    report = probe_machine(keep=os.geteuid() == 0, refresh=refresh)
    print_machine(report, form, PacketCosts(StateDirectory()).all())
    raise typer.Exit(0 if report.can_deploy else 1)
