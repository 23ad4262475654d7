"""The keeper of a lab's overlay: `python -m testbed.daemons.keeper CONFIGURATION` starts it, and ends once it listens.

Where one serves the lab already, nothing is started. It lives in the network namespace of the first VRF, and whoever
ends the processes of that one ends it, too.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from pathlib import Path

from testbed.base.errors import TestbedError
from testbed.base.linux.namespaces import enter_namespace
from testbed.daemons.keeper.configuration import PROCESS_NAME, KeeperConfiguration
from testbed.daemons.keeper.lock import hold
from testbed.daemons.keeper.routers import Keeper


def main(arguments: list[str]) -> int:
    """Fork the process, and wait until it has begun; 1 if it could not."""
    path = Path(arguments[0])
    configuration = KeeperConfiguration.read(path)
    ready, begun = os.pipe()
    if os.fork() == 0:
        os.close(ready)
        _serve(configuration, path.parent, begun)
    os.close(begun)
    return 0 if os.read(ready, 1) else 1


def _serve(configuration: KeeperConfiguration, directory: Path, begun: int) -> None:
    """Be the keeper. Does not return."""
    status = 1
    try:
        os.setsid()
        Path("/proc/self/comm").write_text(PROCESS_NAME)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        home = configuration.vrfs[0].namespace
        enter_namespace(home)  # first of all: from here on it is found with the lab's other processes
        if not hold(directory):
            os.write(begun, b".")
            os._exit(0)
        keeper = Keeper(configuration)
        enter_namespace(home)
        os.write(begun, b".")
        os.close(begun)
        keeper.run()
    except (TestbedError, OSError):
        traceback.print_exc()
    except BaseException:
        traceback.print_exc()
        status = 70
    finally:
        os._exit(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
