"""`python -m testbed.daemons.subnetd --run-directory DIR`: the wires of an InfiniBand subnet."""

from __future__ import annotations

import argparse
from pathlib import Path

from testbed.daemons.kit.process import say_ready
from testbed.daemons.subnetd.process import WiresProcess

PROCESS_NAME = "subnet-wires"
"""As `ps` shows it."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m testbed.daemons.subnetd", description=__doc__)
    parser.add_argument("--run-directory", type=Path, required=True)
    parser.add_argument("--ready-fd", type=int, default=-1, help="where to say that the sockets are there")
    options = parser.parse_args()
    Path("/proc/self/comm").write_text(PROCESS_NAME)
    process = WiresProcess(options.run_directory)
    if options.ready_fd >= 0:
        say_ready(options.ready_fd)
    process.run()


if __name__ == "__main__":
    main()
