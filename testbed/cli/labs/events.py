"""The verb `events`."""

import dataclasses
import json
import sys
from contextlib import closing
from typing import Annotated

import typer

from testbed.cli.options import LabName
from testbed.cli.panels import LABS

app = typer.Typer()


@app.command(rich_help_panel=LABS)
def events(
    name: LabName = None,
    count: Annotated[int | None, typer.Option("-c", "--count", help="Stop after so many events.")] = None,
) -> None:
    """Print what happens in a lab as JSON lines: daemons that die, links, BGP sessions, pause storms."""
    from testbed.cli.lab_choice import open_lab
    from testbed.lab.core.deploy.watch.events import EventStream

    lab = open_lab(name)
    with closing(EventStream(lab)) as stream:
        for number, event in enumerate(stream, start=1):
            sys.stdout.write(json.dumps(dataclasses.asdict(event)) + "\n")
            sys.stdout.flush()
            if count is not None and number >= count:
                return
