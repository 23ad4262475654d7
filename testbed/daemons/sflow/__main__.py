"""`python -m testbed.daemons.sflow CONFIGURATION DIRECTORY`: the sFlow agents of a lab's switches, until it is ended.

The service `sflow` of a management network starts it on the server. Its control socket is in the directory.
"""

from __future__ import annotations

import sys
from pathlib import Path

from testbed.daemons.kit import configuration
from testbed.daemons.sflow.configuration import PROCESS_NAME, SflowConfiguration
from testbed.daemons.sflow.process import SflowProcess


def main(arguments: list[str]) -> None:
    """Serve until SIGTERM or SIGINT."""
    Path("/proc/self/comm").write_text(PROCESS_NAME)
    path, directory = map(Path, arguments)
    SflowProcess(configuration.read(path, SflowConfiguration), directory, path).run()


if __name__ == "__main__":
    main(sys.argv[1:])
