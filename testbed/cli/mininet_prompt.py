"""The verb `mininet-cli`: Mininet's prompt on a deployed lab."""

from __future__ import annotations

import signal
from pathlib import Path

from testbed.cli.labs import lab_name
from testbed.errors import TestbedError


def prompt(name: str | None, script: Path | None) -> None:
    """Run the commands of `script`, or read them from the terminal. The lab stays as it is."""
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
