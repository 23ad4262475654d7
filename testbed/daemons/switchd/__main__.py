"""`python -m testbed.daemons.switchd --run-directory DIR`: the switch of a scale-up domain."""

from __future__ import annotations

import argparse
from pathlib import Path

from testbed.daemons.kit.process import say_ready
from testbed.daemons.switchd.process import SwitchProcess

PROCESS_NAME = "domain-switch"
"""As `ps` shows it."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m testbed.daemons.switchd", description=__doc__)
    parser.add_argument("--run-directory", type=Path, required=True)
    parser.add_argument("--ready-fd", type=int, default=-1, help="where to say that the control socket is there")
    options = parser.parse_args()
    Path("/proc/self/comm").write_text(PROCESS_NAME)
    process = SwitchProcess(options.run_directory)
    if options.ready_fd >= 0:
        say_ready(options.ready_fd)
    process.run()


if __name__ == "__main__":
    main()
