"""The link aggregation of a lab's nodes: a process for each, in its network namespace.

`python -m testbed.daemons.lag CONFIGURATION [NODE...]` starts those of all nodes, or of some, and ends once each of
them has written its status. A process belongs to its node: whoever ends the node's processes ends it, too. At SIGHUP it
reads its configuration again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from testbed.base.linux.namespaces import enter_namespace
from testbed.daemons.kit import configuration
from testbed.daemons.kit.process import all_begun, fork_server
from testbed.daemons.lag.configuration import PROCESS_NAME, HostGroups, LagConfiguration, NodeConfiguration
from testbed.daemons.lag.host import HostNode
from testbed.daemons.lag.leaf import LeafNode
from testbed.daemons.lag.node import GroupNode


def main(arguments: list[str]) -> int:
    """Fork a process for each node, and wait until all have begun; 1 if one could not."""
    path = Path(arguments[0])
    lag = configuration.read(path, LagConfiguration)
    only = set(arguments[1:])
    nodes = [node for node in lag.nodes if not only or node.node in only]
    started = [fork_server(PROCESS_NAME, partial(_prepare, node, lag.directory, path)) for node in nodes]
    return 0 if all_begun(started) else 1


def _prepare(node: NodeConfiguration, directory: Path, path: Path) -> Callable[[], object]:
    enter_namespace(node.namespace)
    served: GroupNode = HostNode(node, directory) if isinstance(node, HostGroups) else LeafNode(node, directory)
    served.start()
    return partial(served.run, partial(_reread, path, node.node))


def _reread(path: Path, node: str) -> NodeConfiguration | None:
    """The configuration of a node as it is now; None where it has none any more."""
    return next((each for each in configuration.read(path, LagConfiguration).nodes if each.node == node), None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
