"""The link aggregation of a lab's nodes: a process for each, in its network namespace.

`python -m testbed.daemons.lag CONFIGURATION [NODE...]` starts those of all nodes, or of some, and ends once each of
them has written its status. A process belongs to its node: whoever ends the node's processes ends it, too.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from pathlib import Path

from testbed.base.errors import TestbedError
from testbed.base.linux.namespaces import enter_namespace
from testbed.daemons.lag.configuration import PROCESS_NAME, HostAggregate, LagConfiguration, NodeConfiguration
from testbed.daemons.lag.host import HostNode
from testbed.daemons.lag.leaf import LeafNode
from testbed.daemons.lag.node import GroupNode


def main(arguments: list[str]) -> int:
    """Fork a process for each node, and wait until all have begun; 1 if one could not."""
    configuration = LagConfiguration.read(Path(arguments[0]))
    only = set(arguments[1:])
    started: list[int] = []
    for node in configuration.nodes:
        if only and node.node not in only:
            continue
        ready, begun = os.pipe()
        if os.fork() == 0:
            os.close(ready)
            _serve(node, configuration.directory, begun)
        os.close(begun)
        started.append(ready)
    whole = [os.read(ready, 1) for ready in started]
    return 0 if all(whole) else 1


def _serve(node: NodeConfiguration, directory: Path, begun: int) -> None:
    """Be the process of a node. Does not return."""
    status = 1
    try:
        os.setsid()
        Path("/proc/self/comm").write_text(PROCESS_NAME)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        enter_namespace(node.namespace)
        served: GroupNode = HostNode(node, directory) if isinstance(node, HostAggregate) else LeafNode(node, directory)
        served.start()
        os.write(begun, b".")
        os.close(begun)
        served.run()
    except (TestbedError, OSError):
        traceback.print_exc()
    except BaseException:
        traceback.print_exc()
        status = 70
    finally:
        os._exit(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
