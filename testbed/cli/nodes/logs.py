"""The verb `logs`."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli.options import LabName, NodeArgument
from testbed.cli.panels import NODES_AND_LINKS

if TYPE_CHECKING:
    from testbed.deploy.live import RunningLab

app = typer.Typer()


@app.command(rich_help_panel=NODES_AND_LINKS)
def logs(
    node: NodeArgument,
    daemon: Annotated[str | None, typer.Option("-d", "--daemon", help="Only zebra, bgpd or bfdd.")] = None,
    follow: Annotated[bool, typer.Option("-F", "--follow", help="Keep printing what is added.")] = False,
    name: LabName = None,
) -> None:
    """Print the logs of a switch's daemons."""
    from testbed.cli.lab_choice import open_lab
    from testbed.deploy.live import NoSuchNode
    from testbed.drivers.routing.inotify import IN_CREATE, IN_MODIFY, DirectoryWatch

    lab = open_lab(name)
    directory = lab.run_directory(node)
    daemons = lab.daemons.get(node, ())
    runtime = lab.runtime(node)
    if not daemons and runtime is not None:
        # A container without our daemons has one log: what its own program printed.
        for data in runtime.logs(node, follow=follow):
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        return
    if not daemons:
        raise NoSuchNode(f"{node} runs no daemons", hint="switches do; `testbed inspect` lists them")
    if daemon is not None and daemon not in daemons:
        raise NoSuchNode(f"{node} runs no {daemon}", hint=f"it runs {', '.join(daemons)}")
    wanted = (daemon,) if daemon else daemons
    offsets = dict.fromkeys((f"{item}.{suffix}" for item in wanted for suffix in ("out", "log")), 0)
    watch = DirectoryWatch()
    try:
        watch.add(directory, IN_MODIFY | IN_CREATE)
        while True:
            for file_name in offsets:
                offsets[file_name] = _print_from(lab, node, file_name, offsets[file_name])
            sys.stdout.flush()
            if not follow:
                return
            watch.wait(3600)
            list(watch.read())
    finally:
        watch.close()


def _print_from(lab: "RunningLab", node: str, file_name: str, offset: int) -> int:
    """Print what a log file has after `offset` bytes; returns where it ends now."""
    path = lab.run_directory(node) / file_name
    if not path.exists():
        return offset
    with path.open("rb") as stream:
        stream.seek(offset)
        for line in stream:
            sys.stdout.write(f"{file_name.partition('.')[0]}: {line.decode('utf-8', 'replace')}")
        return stream.tell()
