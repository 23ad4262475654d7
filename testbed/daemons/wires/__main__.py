"""The process of a lab's cut links: `python -m testbed.daemons.wires CONFIGURATION` starts it, and ends once it is at
work.

Where one serves the lab already, nothing is started. It lives in the network namespace of the stubs, with its socket in
the machine's own, and whoever ends the processes of that one ends it, too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from testbed.base.linux.namespaces import enter_namespace
from testbed.daemons.kit import configuration, lock
from testbed.daemons.kit.process import all_begun, fork_server
from testbed.daemons.kit.realtime import GUARD_PRIORITY, become_realtime
from testbed.daemons.wires.configuration import LOCK_NAME, PROCESS_NAME, WiresConfiguration
from testbed.daemons.wires.process import Wires, open_beats


def main(arguments: list[str]) -> int:
    """Fork the process, and wait until it has begun; 1 if it could not."""
    path = Path(arguments[0])
    told = configuration.read(path, WiresConfiguration)
    return 0 if all_begun([fork_server(PROCESS_NAME, partial(_prepare, told, path.parent))]) else 1


def _prepare(told: WiresConfiguration, directory: Path) -> Callable[[], object] | None:
    if lock.hold(directory / LOCK_NAME, create=True) is None:
        return None
    beats = open_beats(told)  # in the machine's own namespace
    enter_namespace(told.namespace)  # from here on it is found with the lab's other processes
    become_realtime(GUARD_PRIORITY)  # or a busy machine would be taken for a dead one
    return Wires(told, beats).run


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
