"""The objections to a change of a lab that is up, beside the change itself: looked at before anything is touched.

A link that `link set` or a fault has changed stays as it is where the change does not concern it. Where it does, or
where routing is to be waited for and does not have the links that the plan has, the change is refused, by the names of
the links: what they were set to would be lost, or the wait be in vain.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from testbed.base.linux import namespaces, processes
from testbed.base.names import namespace_name
from testbed.lab.core.deploy.changing.differences import REFUSED_SHOWN, LabChanges
from testbed.lab.core.deploy.changing.refusal import ChangeRefused
from testbed.lab.core.deploy.links.recorded import WireChange, read_link_state
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.drivers.nodes.places import spaces_of
from testbed.lab.core.plan.operations import CreateVeth, Operation


def require_free(running: RunningLab, changes: LabChanges) -> None:
    """Raise `ChangeRefused` for what is in force in a lab and speaks against a change of it.

    Raises `NameInUse` where a node that is new has the name of a namespace that is not the lab's.
    """
    require_links(running, changes)
    _require_nodes(running, changes)
    _require_daemons(running, changes)


def needs_routing(changes: LabChanges) -> bool:
    """Tell whether a change has routing converge anew: one of numbers alone, such as thresholds, has not."""
    kernel = changes.kernel
    links = any(isinstance(item, CreateVeth) for item in (*kernel.made, *kernel.removed))
    return bool(
        kernel.created
        or kernel.first
        or kernel.gone
        or links
        or changes.routing
        or changes.features
        or changes.old.expected_routes != changes.new.expected_routes
        or changes.old.speakers != changes.new.speakers
    )


def require_links(running: RunningLab, changes: LabChanges) -> None:
    """Raise `ChangeRefused` for links that were changed by hand, or by a fault, and that a change touches or needs."""
    changed = read_link_state(running.state_directory).changes
    if not changed:
        return
    touched = set(_touched(changes))
    if held := sorted(port for port in changed if port in touched):
        raise _held(running.name, held, changed, "is changed by `link set`, or by a fault, and would be changed now")
    if not needs_routing(changes):
        return
    without_power = running.nodes_without_links()
    if cut := sorted(port for port, change in changed.items() if change.up is False or change.silent):
        off = [node for node in dict.fromkeys(port.partition(":")[0] for port in cut) if node in without_power]
        if off:
            raise ChangeRefused(
                f"{off[0]} has no power, and routing that changes would be waited for in vain",
                hint=f"testbed power on {off[0]} -n {running.name}",
            )
        raise _held(running.name, cut, changed, "is cut, and routing that changes would be waited for in vain")


def _held(lab: str, ports: Sequence[str], changes: dict[str, WireChange], why: str) -> ChangeRefused:
    port, change = ports[0], changes[ports[0]]
    words = ", ".join(f"{name} {value}" for name, value in change.named())
    more = f"; so are {len(ports) - 1} more ports: {', '.join(ports[1:REFUSED_SHOWN])}" if len(ports) > 1 else ""
    return ChangeRefused(
        f"{port} {why} ({words}){more}",
        hint=f"testbed link reset {port} -n {lab}" if len(ports) == 1 else f"testbed link reset -n {lab}",
    )


def _touched(changes: LabChanges) -> Iterator[str]:
    """The ports that a change is about, and the other ends of their links, where part of them may be realised."""
    peers = {f"{port.node}:{port.name}": port.peer for plan in (changes.old, changes.new) for port in plan.ports}
    kernel = changes.kernel
    for item in (*kernel.first, *kernel.made, *(new for _, new in kernel.changed), *kernel.removed):
        for port in _ports_of(item):
            yield port
            if port in peers:
                yield peers[port]
    yield from changes.losses


def _ports_of(operation: Operation) -> tuple[str, ...]:
    if isinstance(operation, CreateVeth):
        return tuple(f"{end.node}:{end.name}" for end in (operation.a, operation.b))
    name = getattr(operation, "name", "")
    return (f"{operation.node}:{name}",) if name else ()


def _require_nodes(running: RunningLab, changes: LabChanges) -> None:
    """The nodes that stay are the lab's own still, and the names of those that are new are free."""
    before, after = (spaces_of(plan) for plan in (changes.old, changes.new))
    created = after - before
    kept = set(changes.kernel.places) | set(changes.routing)
    ours = {namespace_name(running.name, node): running.identities[node] for node in kept & running.identities.keys()}
    there = set(namespaces.still_published(ours))
    if gone := sorted(node for node in kept - created if namespace_name(running.name, node) not in there):
        raise ChangeRefused(
            f"{', '.join(gone[:REFUSED_SHOWN])} of {running.name} {'is' if len(gone) == 1 else 'are'} gone",
            hint="deploy --reconfigure brings the lab up anew",
        )
    names = [namespace_name(running.name, node) for node in sorted(created)]
    if foreign := namespaces.foreign(names, {}):
        raise ChangeRefused(
            f"the network namespace {foreign[0]} exists and is not ours",
            hint="remove it with `ip netns del`, or give the node another name",
        )


def _require_daemons(running: RunningLab, changes: LabChanges) -> None:
    """The daemons that are to be told of a change run, so that they can be."""
    told = {node: daemons for node, daemons in changes.routing.items() if node in running.identities}
    if not told:
        return
    node_of = {running.identities[node]: node for node in told}
    found = {(node_of[item.identity], item.command) for item in processes.processes_in(node_of)}
    wanted = ((node, daemon) for node, daemons in told.items() for daemon in daemons)
    if lacking := [pair for pair in wanted if pair not in found]:
        node, daemon = lacking[0]
        more = f", nor do {len(lacking) - 1} more daemons," if len(lacking) > 1 else ""
        raise ChangeRefused(
            f"{daemon} of {node} does not run{more} and is to be told of the change",
            hint=f"testbed power off {node} -n {running.name}, then power on, starts what the node runs",
        )
