"""`python -m testbed.daemons.portd --run-directory DIR`: the pause agent."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from testbed.daemons.kit.process import say_ready
from testbed.daemons.portd.agent import Agent, AlreadyRunning
from testbed.daemons.portd.attachment import ALREADY_SERVED
from testbed.daemons.portd.companion import Companion
from testbed.daemons.portd.remains import remove_unwanted


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m testbed.daemons.portd", description=__doc__)
    parser.add_argument("--run-directory", type=Path, required=True)
    parser.add_argument("--ready-fd", type=int, default=-1, help="where to say that the control socket is there")
    parser.add_argument("--guard-fd", type=int, default=-1, help="pidfd of the guard that started us")
    options = parser.parse_args()
    guard = Companion.parent(options.guard_fd) if options.guard_fd >= 0 else None
    try:
        agent = Agent(options.run_directory, guard)
    except AlreadyRunning as error:
        print(error.message, file=sys.stderr)
        sys.exit(ALREADY_SERVED)
    if options.ready_fd >= 0:
        try:
            say_ready(options.ready_fd)
        except BrokenPipeError:  # the command that started us was killed meanwhile, and is perhaps undone already
            if agent.leave_unless_needed():
                remove_unwanted(options.run_directory)
                return
    agent.run()


if __name__ == "__main__":
    main()
