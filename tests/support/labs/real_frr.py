"""FRR's daemons in a namespace without a lab: started with a configuration, told of another, asked what they run."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from testbed.base.errors import DriverError
from testbed.base.linux import vty
from testbed.lab.core.drivers.nodes.netns import NetnsKernel
from testbed.lab.core.drivers.probing.machine import find_frr
from testbed.lab.core.drivers.routing.frr import (
    DaemonLauncher,
    DaemonSet,
    prepare_run_directory,
    remove_crash_directories,
)
from testbed.lab.core.plan.operations import CreateNode
from testbed.lab.core.render.config_text import in_force, parse_configuration

ROOT = Path("/run")
PATIENCE_S = 30.0
_numbers = itertools.count(1)
_SHOWN = ("Building configuration", "Current configuration", "frr ", "hostname ", "log ", "service ")


class RealFrr:
    """The daemons of one switch, which has no links."""

    def __init__(self, directory: Path, daemons: frozenset[str]) -> None:
        self.directory = directory
        self.daemons = daemons

    def tell(self, commands: Mapping[str, Sequence[str]]) -> None:
        """Have daemons carry out commands. Raises `DriverError` for one that is refused."""
        for daemon, lines in commands.items():
            vty.configure(self.directory, daemon, lines)

    def shown(self, daemon: str) -> object:
        """What a daemon says that it runs, without order, and without interfaces of which it says nothing."""
        text = vty.ask(self.directory, daemon, "write terminal")
        lines = [line for line in text.splitlines() if not line.startswith(_SHOWN)]
        tree = in_force(parse_configuration("\n".join(lines)))
        return {line: inner for line, inner in tree.items() if inner or not line.startswith("interface ")}


@contextlib.contextmanager
def running_frr(
    configurations: Mapping[str, str], modules: Mapping[str, tuple[str, ...]] | None = None
) -> Iterator[RealFrr]:
    """Daemons that were started with these files, by their names; `modules` are those that they load."""
    lab = f"frr{os.getpid()}x{next(_numbers)}"
    directory = ROOT / f"testbed-{lab}"
    kernel = NetnsKernel(lab)
    identities = kernel.create_nodes([CreateNode(node="s", cpu_slot=0)])
    launcher = DaemonLauncher(find_frr())
    try:
        kernel.publish()
        item = DaemonSet(
            node="s",
            namespace=f"{lab}-s",
            directory=directory,
            configurations=configurations,
            integrated="".join(configurations.values()),
            modules=modules or {},
        )
        prepare_run_directory(item)
        launcher.start([item])
        for daemon in configurations:
            await_daemon(directory, daemon)
        yield RealFrr(directory, frozenset(configurations))
    finally:
        launcher.release()
        removal = NetnsKernel(lab).remove(identities)
        remove_crash_directories([directory], removal.processes)
        kernel.close()
        shutil.rmtree(directory, ignore_errors=True)


def await_daemon(directory: Path, daemon: str) -> None:
    """Return when a daemon answers. Raises `DriverError` where it has not within half a minute."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            vty.ask(directory, daemon, "show version")
            return
        except DriverError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
