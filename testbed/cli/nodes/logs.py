"""The verb `logs`."""

import contextlib
import sys
from collections.abc import Mapping
from pathlib import Path

from testbed.cli import options
from testbed.cli.command import command, option


@command("logs")
@options.node
@option("-d", "--daemon", help="Only zebra, bgpd or bfdd, or a service: ssh, dns, ...")
@option("-F", "--follow", is_flag=True, help="Keep printing what is added.")
@options.lab_name
def logs(node: str, daemon: str | None, follow: bool, name: str | None) -> None:
    """Print the logs of a switch's daemons, or of a service that a node runs."""
    from testbed.base.names import choice_hint
    from testbed.cli.lab_choice import open_lab
    from testbed.lab.core.deploy.live import NoSuchNode
    from testbed.lab.features.management.services_apply import service_places

    lab = open_lab(name)
    directory = lab.run_directory(node)
    daemons = lab.daemons.get(node, ())
    services = {item.service: item for item in service_places(lab.model, lab.plan, lab.state) if item.node == node}
    runtime = lab.runtime(node)
    if not daemons and not services and runtime is not None:
        # A container without our daemons has one log: what its own program printed.
        for data in runtime.logs(node, follow=follow):
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        return
    known = (*daemons, *services)
    if not known:
        raise NoSuchNode(f"{node} runs no daemons", hint="switches do; `testbed inspect` lists them")
    if daemon is not None and daemon not in known:
        raise NoSuchNode(f"{node} runs no {daemon}", hint=choice_hint(daemon, known, f"it runs {', '.join(known)}"))
    wanted = (daemon,) if daemon else daemons or tuple(services)
    paths: dict[Path, str] = {}
    for item in wanted:
        if item in services:
            paths[services[item].log] = item
        else:
            paths |= {directory / f"{item}.{suffix}": item for suffix in ("out", "log")}
    _print_all(paths, follow=follow)


def _print_all(paths: Mapping[Path, str], *, follow: bool) -> None:
    """Print files line by line, each with its word before it; `follow`: and what is added to them, for ever."""
    from testbed.base.linux.inotify import IN_CREATE, IN_MODIFY, DirectoryWatch

    offsets = dict.fromkeys(paths, 0)
    with contextlib.closing(DirectoryWatch()) as watch:
        for directory in {path.parent for path in paths}:
            watch.add(directory, IN_MODIFY | IN_CREATE)
        while True:
            for path, word in paths.items():
                offsets[path] = _print_from(path, word, offsets[path])
            sys.stdout.flush()
            if not follow:
                return
            watch.wait(3600)
            list(watch.read())


def _print_from(path: Path, word: str, offset: int) -> int:
    """Print what a log file has after `offset` bytes; returns where it ends now."""
    if not path.exists():
        return offset
    with path.open("rb") as stream:
        stream.seek(offset)
        for line in stream:
            sys.stdout.write(f"{word}: {line.decode('utf-8', 'replace')}")
        return stream.tell()
