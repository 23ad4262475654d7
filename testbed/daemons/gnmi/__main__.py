"""`python -m testbed.daemons.gnmi CONFIGURATION DIRECTORY`: the gNMI targets of a lab's switches, until it is ended.

The service `gnmi` of a management network starts it on the server.
"""

from __future__ import annotations

import sys
from pathlib import Path

from testbed.daemons.gnmi.configuration import PROCESS_NAME, GnmiConfiguration
from testbed.daemons.gnmi.process import GnmiProcess
from testbed.daemons.kit import configuration


def main(arguments: list[str]) -> None:
    """Serve until SIGTERM or SIGINT, or a `shutdown` over the control socket in the directory."""
    Path("/proc/self/comm").write_text(PROCESS_NAME)
    path, directory = map(Path, arguments)
    GnmiProcess(configuration.read(path, GnmiConfiguration), directory, path).run()


if __name__ == "__main__":
    main(sys.argv[1:])
