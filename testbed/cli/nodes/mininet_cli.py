"""The verb `mininet-cli`: Mininet's prompt on a deployed lab, which stays as it is."""

import signal
from pathlib import Path

from testbed.base.errors import TestbedError
from testbed.cli import options
from testbed.cli.command import PATH, command, option


@command("mininet-cli")
@options.lab_name
@option("--script", type=PATH, help="Commands to run; default: a prompt.")
def mininet_cli(name: str | None, script: Path | None) -> None:
    """Open Mininet's prompt on a deployed lab, of whatever runtime: nodes, net, pingall, NODE COMMAND."""
    from testbed.cli.lab_choice import lab_name
    from testbed.mininet import CLI, attach

    if script is not None and not script.is_file():
        raise TestbedError(f"{script}: no such file")
    net = attach(lab_name(name, None))
    # Ctrl-C is for the command that runs in a node: Mininet hands it on.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        CLI(net, script=str(script) if script is not None else None)
    finally:
        signal.signal(signal.SIGINT, before)
        net.stop()
