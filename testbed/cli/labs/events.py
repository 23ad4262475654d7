"""The verb `events`."""

import dataclasses
import json
import sys
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

from testbed.cli import options
from testbed.cli.command import command, option

if TYPE_CHECKING:
    import datetime

    from testbed.lab.core.deploy.live import RunningLab
    from testbed.lab.core.deploy.watch.events import LabEvent

_COLUMNS = ("time", "node", "kind", "subject", "detail", "by")
_KIND_WIDTH, _SUBJECT_WIDTH, _DETAIL_WIDTH = 20, 16, 24


@command("events")
@options.lab_name
@option("-c", "--count", type=int, help="Stop after so many events.")
@option("--since", help="Print what is kept since then and end: a span (10m), a time (2026-11-28T21:40), or deploy.")
@option("-F", "--follow", is_flag=True, help="After --since, go on with what happens.")
@option(
    "-f", "--format", default="json", callback=options.parse_format, help="json (a line for each event), table or csv."
)
def events(name: str | None, count: int | None, since: str | None, follow: bool, format: options.Format) -> None:
    """Print what happens in a lab: daemons that end, links, BGP sessions, pause storms. As JSON lines, or in columns.

    What is kept of the past are sessions, pauses, VTEPs and the changes of links, of power and of the lab by testbed.
    """
    from testbed.cli.lab_choice import open_lab
    from testbed.lab.core.deploy.watch.event_history import past_events
    from testbed.lab.core.deploy.watch.events import EventStream

    begin = None if since is None else _begin(since)
    lab = open_lab(name)
    write = _writer(lab, format)
    printed = 0
    if begin is not None:
        for event in past_events(lab, begin)[:count]:
            write(event)
            printed += 1
        if not follow:
            return
    if count is not None and printed >= count:
        return
    with closing(EventStream(lab)) as stream:
        for event in stream:
            if begin is not None and event.kind == "snapshot":
                continue
            write(event)
            sys.stdout.flush()
            printed += 1
            if count is not None and printed >= count:
                return


def _begin(text: str) -> "datetime.datetime":
    """Read the beginning that `--since` names. Raises `TestbedError`, with the exit code of wrong use."""
    import datetime

    from testbed.base.units import Duration, QuantityError
    from testbed.cli.nodes.link_changes import wrong

    if text == "deploy":
        return datetime.datetime.min.replace(tzinfo=datetime.UTC)
    try:
        return datetime.datetime.fromisoformat(text).astimezone(datetime.UTC)
    except ValueError:
        pass
    try:
        return datetime.datetime.now(datetime.UTC) - datetime.timedelta(microseconds=Duration.parse(text).ns / 1000)
    except (QuantityError, OverflowError) as error:
        hint = "for example 10m, 2026-11-28T21:40 (this machine's clock), or deploy"
        raise wrong(f"--since {text}: neither a span of time nor a time", hint) from error


def _writer(lab: "RunningLab", form: options.Format) -> "Callable[[LabEvent], None]":
    """Print the heading of a format, where it has one, and return what prints an event."""
    if form is options.Format.JSON:
        return lambda event: print(json.dumps(dataclasses.asdict(event)))
    if form is options.Format.CSV:
        import csv

        from testbed.lab.core.deploy.watch.events import LabEvent

        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow([field.name for field in dataclasses.fields(LabEvent)])
        return lambda event: writer.writerow(dataclasses.astuple(event))
    width = max((len(node.name) for node in lab.model.nodes), default=4)

    def line(*texts: str) -> None:
        time, node, kind, subject, detail, by = texts
        place = f"{time:23}  {node:{width}}  {kind:{_KIND_WIDTH}}  {subject:{_SUBJECT_WIDTH}}"
        print(f"{place}  {detail:{_DETAIL_WIDTH}}  {by}".rstrip())

    def print_event(event: "LabEvent") -> None:
        time = event.time.partition("+")[0][:23].replace("T", " ")
        line(time, event.node, event.kind, event.subject, event.detail, event.by)

    line(*_COLUMNS)
    return print_event
