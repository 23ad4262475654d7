"""The verbs `node restart`, `node recreate` and `node kill`."""

import time
from typing import TYPE_CHECKING

from testbed.cli import options
from testbed.cli.command import Group, argument

if TYPE_CHECKING:
    from testbed.lab.core.deploy.changing.node import NodeWork

node = Group("node", help="Restart a node, make it anew, or kill a daemon of it; all others stay as they are.")


@node.command("restart")
@options.node
@options.lab_name
@options.timeout
@options.quiet
def restart(node: str, name: str | None, timeout: float, quiet: bool) -> None:
    """End all that runs in a node and start what the lab has there; its links stay up."""
    from testbed.lab.core.deploy.changing.node import restart_node

    _do(restart_node, node, name, timeout, quiet)


@node.command("recreate")
@options.node
@options.lab_name
@options.timeout
@options.quiet
def recreate(node: str, name: str | None, timeout: float, quiet: bool) -> None:
    """Make a node anew; its neighbours keep their interfaces, addresses, counters and other sessions."""
    from testbed.lab.core.deploy.changing.node import recreate_node

    _do(recreate_node, node, name, timeout, quiet)


@node.command("kill")
@options.node
@argument("daemon", metavar="DAEMON", help="zebra, bgpd or bfdd.")
@options.lab_name
def kill(node: str, daemon: str, name: str | None) -> None:
    """Kill a routing daemon of a switch at once, as a crash would; `node restart` brings it back."""
    from testbed.cli.lab_choice import open_lab
    from testbed.lab.core.deploy.routing import kill_daemon

    kill_daemon(open_lab(name), node, daemon)
    print(f"{daemon} of {node} is dead; `testbed node restart {node}` starts it again")


def _do(work: "NodeWork", node: str, name: str | None, timeout: float, quiet: bool) -> None:
    from testbed.cli.lab_choice import open_lab
    from testbed.cli.progress import StepDisplay

    lab = open_lab(name)
    started = time.monotonic()
    with StepDisplay(quiet=quiet) as display:
        work(lab, node, timeout_s=timeout, notify=display)
    print(f"{node} is as the lab has it ({time.monotonic() - started:.1f} s)")
