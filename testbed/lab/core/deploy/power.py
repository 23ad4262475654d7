"""The power of a node: off, it is silent at once and has no process left; on, it runs what the plan has on it.

What a user started in a node is gone with its power, and does not come back.
"""

from __future__ import annotations

from testbed.base.errors import TestbedError
from testbed.base.linux.processes import freeze, kill_all, processes_in
from testbed.lab.core.deploy.links.changes import LinkChange, LinkControl
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.node_files import release_memory
from testbed.lab.core.deploy.records.kept_events import keep_event
from testbed.lab.core.deploy.routing import start_routing
from testbed.lab.core.drivers.routing.frr import remove_crash_directories
from testbed.lab.core.feature import features
from testbed.lab.core.model import NETNS, NodeKind

WITH_POWER = frozenset((NodeKind.HOST, NodeKind.SWITCH, NodeKind.STORAGE))
"""The kinds of nodes whose power can be switched."""


class NoPower(TestbedError):
    """A node whose power is not ours to switch."""


def is_on(lab: RunningLab, node: str) -> bool:
    """Tell whether a node has power: one without has taken all its links down. Raises `NoSuchNode`."""
    return lab.node(node).name not in lab.nodes_without_links()


def power_off(lab: RunningLab, node: str) -> bool:
    """Take the power of a node; False where it has none. Raises `NoSuchNode`, `NoPower`, `StateBusy`."""
    _require_switchable(lab, node)
    with lab.state.lock_lab(lab.name):
        if not is_on(lab, node):
            return False
        identities = {lab.identities[node]}
        freeze(processes_in(identities))  # ports go one after the other, and nothing is said meanwhile
        with LinkControl(lab) as links:
            for port in _ports(lab, node):
                links.set(port, LinkChange(up=False))
        for feature in features():
            feature.set_links(lab, node, up=False)
        remove_crash_directories([lab.run_directory(node)], kill_all(identities))
        release_memory(lab.processes_directory, [node])
        keep_event(lab.state_directory, lab.name, node, "power-off", node)
    return True


def power_on(lab: RunningLab, node: str) -> bool:
    """Give power to a node, and start its link groups, routing and services; False where it has power.

    Returns when they answer, not when routing has converged. Raises as `power_off`, and `DriverError`.
    """
    _require_switchable(lab, node)
    with lab.state.lock_lab(lab.name):
        if is_on(lab, node):
            return False
        with LinkControl(lab) as links:
            for port in _ports(lab, node):
                links.set(port, LinkChange(up=True))
        for feature in features():
            feature.set_links(lab, node, up=True)
        if any(speaker.node == node for speaker in lab.plan.speakers):
            start_routing(lab, node)
        else:
            for feature in features():
                feature.before_routing(lab.plan, lab.processes_directory, node)
        for feature in features():
            feature.start_node(lab, node)
        keep_event(lab.state_directory, lab.name, node, "power-on", node)
    return True


def _require_switchable(lab: RunningLab, node: str) -> None:
    found = lab.node(node)
    if found.kind not in WITH_POWER:
        raise NoPower(f"{node} is not managed", hint="hosts, storage targets and switches are")
    if found.runtime != NETNS:
        raise NoPower(f"{node} is a container", hint=f"its engine stops and starts it: {found.runtime}")
    if lab.plan.infiniband is not None and lab.plan.infiniband.has(node):
        raise NoPower(
            f"{node} is in an InfiniBand back end, whose HCAs and subnet managers do not end with a host",
            hint="testbed link down cuts an HCA off, by its name such as p1-s1-h1:rail1",
        )


def _ports(lab: RunningLab, node: str) -> list[str]:
    lab.node(node)
    return [f"{port.node}:{port.name}" for port in lab.plan.ports if port.node == node]
