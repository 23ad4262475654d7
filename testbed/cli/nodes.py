"""The verbs that work on one node: `exec`, `shell`, `capture`, `logs`."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from testbed.cli.labs import open_lab, split_port
from testbed.deploy.live import NoSuchNode, RunningLab
from testbed.drivers.nodes.processes import search_path
from testbed.drivers.routing.inotify import IN_CREATE, IN_MODIFY, DirectoryWatch
from testbed.errors import CapabilityError, TestbedError


def execute(name: str | None, node: str, command: list[str]) -> int:
    """Run `command` in the node with our terminal; returns its exit code (128 + n for signal n)."""
    lab = open_lab(name)
    try:
        process = lab.spawn(node, command, own_sysfs=True)
    except FileNotFoundError as error:
        raise TestbedError(f"{command[0]}: command not found") from error
    with _terminal_handed_over():
        status = process.wait()
    return status if status >= 0 else 128 - status


@contextmanager
def _terminal_handed_over() -> Iterator[None]:
    """Ctrl-C is for the command in the node, not for us."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def shell(name: str | None, node: str) -> int:
    """An interactive shell whose prompt names the node."""
    lab = open_lab(name)
    prompt = {"PS1": f"{lab.name}/{node}# ", "TESTBED_NODE": node}
    if lab.runtime(node) is not None:
        # Of a container it is only known that it has a shell, if it has any.
        with _terminal_handed_over():
            return lab.spawn(node, ["/bin/sh"], env=prompt).wait()
    program = os.environ.get("SHELL") or "/bin/sh"
    environment = {**os.environ, "PATH": search_path(), **lab.node(node).env, **prompt}
    argv = [program, "--norc"] if program.endswith("bash") else [program]
    process = lab.spawn(node, argv, own_sysfs=True, env=environment)
    with _terminal_handed_over():
        return process.wait()


def capture(name: str | None, port: str, write: str | None, count: int | None, expression: list[str]) -> int:
    """tcpdump on one interface of a node."""
    lab = open_lab(name)
    node, interface = split_port(port)
    lab.port(node, interface)
    program = shutil.which("tcpdump") or shutil.which("tcpdump", path="/usr/sbin:/sbin")
    if program is None:
        raise CapabilityError("tcpdump is not installed", missing="tcpdump", hint="apt-get install tcpdump")
    argv = [program, "-n", "-i", interface]
    if write is not None:
        argv += ["-U", "-w", write, "-Z", "root"]
    if count is not None:
        argv += ["-c", str(count)]
    process = lab.spawn_tool(node, [*argv, *expression])
    with _terminal_handed_over():
        return process.wait()


def logs(name: str | None, node: str, daemon: str | None, *, follow: bool) -> None:
    """Print the log files of a switch's daemons, or what a container without them printed, then what is added."""
    lab = open_lab(name)
    directory = lab.run_directory(node)
    daemons = lab.daemons.get(node, ())
    runtime = lab.runtime(node)
    if not daemons and runtime is not None:
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


def _print_from(lab: RunningLab, node: str, file_name: str, offset: int) -> int:
    path = lab.run_directory(node) / file_name
    if not path.exists():
        return offset
    with path.open("rb") as stream:
        stream.seek(offset)
        for line in stream:
            sys.stdout.write(f"{file_name.partition('.')[0]}: {line.decode('utf-8', 'replace')}")
        return stream.tell()
