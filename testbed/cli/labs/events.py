"""The verb `events`."""

import dataclasses
import json
import sys
from contextlib import closing

from testbed.cli import options
from testbed.cli.command import command, option


@command("events")
@options.lab_name
@option("-c", "--count", type=int, help="Stop after so many events.")
def events(name: str | None, count: int | None) -> None:
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
