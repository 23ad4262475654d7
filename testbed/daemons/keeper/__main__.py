"""The keeper of a lab's overlay: `python -m testbed.daemons.keeper CONFIGURATION` starts it, and ends once it listens.

Where one serves the lab already, nothing is started. It lives in the network namespace of the first VRF, and whoever
ends the processes of that one ends it, too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from testbed.base.linux.namespaces import enter_namespace
from testbed.daemons.keeper.configuration import LOCK_NAME, PROCESS_NAME, KeeperConfiguration
from testbed.daemons.keeper.routers import Keeper
from testbed.daemons.kit import configuration, lock
from testbed.daemons.kit.process import all_begun, fork_server


def main(arguments: list[str]) -> int:
    """Fork the process, and wait until it has begun; 1 if it could not."""
    path = Path(arguments[0])
    kept = configuration.read(path, KeeperConfiguration)
    return 0 if all_begun([fork_server(PROCESS_NAME, partial(_prepare, kept, path.parent))]) else 1


def _prepare(kept: KeeperConfiguration, directory: Path) -> Callable[[], object] | None:
    home = kept.vrfs[0].namespace
    enter_namespace(home)  # first of all: from here on it is found with the lab's other processes
    if lock.hold(directory / LOCK_NAME, create=True) is None:
        return None
    keeper = Keeper(kept)
    enter_namespace(home)
    return keeper.run


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
