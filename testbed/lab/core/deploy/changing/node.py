"""One node of a lab that is up, restarted or made anew, while all others stay as they are.

A restart ends what runs in the node and starts what the plan has there; its links stay up. A node that is made anew,
and a container that is restarted, gets another network namespace, and the ends of its links move there: its neighbours
keep theirs, with index, addresses, queues and counters, and lose the carrier for a moment.

Both namespaces have names as long as there are two, `<lab>-<node>` and `<lab>-<node>.new`, and the journal knows both.
So whatever is killed in between leaves nothing that `destroy` would not find, and `apply` goes on: where the old one is
still there it gets its links back, and all begins anew.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Protocol

from testbed.base.datapath import pins
from testbed.base.errors import TestbedError
from testbed.base.linux import namespaces, rtnetlink
from testbed.base.linux.namespaces import Namespace
from testbed.base.linux.processes import kill_all, processes_in, terminate
from testbed.base.names import namespace_name
from testbed.lab.core.deploy.changing.drift.kernel_drift import PlacedInterface
from testbed.lab.core.deploy.changing.drift.kernel_repair import look_at_kernel, repair_kernel
from testbed.lab.core.deploy.changing.refusal import ChangeStuck
from testbed.lab.core.deploy.changing.telling.events import tell_changes
from testbed.lab.core.deploy.interruption import signals_later
from testbed.lab.core.deploy.lifecycle import await_convergence, run_node_commands
from testbed.lab.core.deploy.links.recorded import lock_links, read_link_state
from testbed.lab.core.deploy.links.restoring import LinkRestoration
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.node_files import release_memory
from testbed.lab.core.deploy.pausing.attachment import attach
from testbed.lab.core.deploy.power import WITH_POWER
from testbed.lab.core.deploy.records.journal import Journal, LabState
from testbed.lab.core.deploy.records.usage import unused
from testbed.lab.core.deploy.routing import running_daemons, start_routing, stop_routing
from testbed.lab.core.deploy.steps import StepCallback, ignore_steps, step
from testbed.lab.core.deploy.watch.running_config import note_configurations
from testbed.lab.core.drivers.netlink.port_programs import PortInstaller
from testbed.lab.core.drivers.netlink.rdma import remove_devices
from testbed.lab.core.drivers.nodes.netns import NetnsKernel
from testbed.lab.core.drivers.nodes.places import ends_of, is_on, places_of
from testbed.lab.core.drivers.nodes.seen import read_links
from testbed.lab.core.drivers.probing.machine import require_root
from testbed.lab.core.drivers.routing.frr import remove_crash_directories
from testbed.lab.core.feature import features, runtimes
from testbed.lab.core.model import NETNS
from testbed.lab.core.plan.changes import ChangeRow, Effect
from testbed.lab.core.plan.management_plan import StartService
from testbed.lab.core.plan.operations import (
    CreateNode,
    CreateVeth,
    InstallPort,
    Operation,
    StartContainer,
    StartRouting,
)
from testbed.lab.core.plan.overlay_operations import CreateVrf

if TYPE_CHECKING:
    from testbed.lab.core.deploy.runtime import RenewingNodes
    from testbed.lab.core.drivers.routing.frr import Elsewhere
    from testbed.lab.core.plan.lab_plan import LabPlan

NEW = ".new"
"""The end of the name of a namespace that is about to take the place of another: no node's name has a dot."""
RESTART, RECREATE = "restart", "recreate"
ENDING_TIMEOUT_S = 10.0
"""Processes that do not end by SIGTERM in this time are killed."""
HEALTHY_TIMEOUT_S = 60.0
"""The time that a container with a health check may take to be healthy."""
_ELSEWHERE = CreateNode | CreateVrf | StartContainer | StartRouting | StartService
"""The operations of a plan that are not the kernel's to carry out in a namespace that is there."""


class NodeRefused(TestbedError):
    """A node that cannot be restarted or made anew."""


class NodeWork(Protocol):
    """Something that is done to one node of a lab."""

    def __call__(self, lab: RunningLab, node: str, *, timeout_s: float, notify: StepCallback = ...) -> None: ...


def restart_node(lab: RunningLab, node: str, *, timeout_s: float, notify: StepCallback = ignore_steps) -> None:
    """End all that runs in a node and start what the plan has there, and wait until routing has converged.

    Its links stay up. What a user started in it is gone. Raises `NoSuchNode`, `NodeRefused`, `StateBusy`,
    `DriverError`, `ConvergenceError`.
    """
    _require(lab, node)
    if node in lab.nodes_without_power():
        raise NodeRefused(f"{node} is off", hint=f"testbed power on {node}")
    row = ChangeRow(effect=Effect.RESTARTED, node=node, what=f"node {node}")
    with _working_on(lab, node, row, timeout_s, notify):
        restart(lab, node, notify)


def recreate_node(lab: RunningLab, node: str, *, timeout_s: float, notify: StepCallback = ignore_steps) -> None:
    """Make a node anew, and wait until routing has converged: its neighbours keep their ends of its links.

    What was changed of its links stays so, and a node without power stays without. Commands that its file has for its
    start are run. Raises as `restart_node`.
    """
    _require(lab, node)
    row = ChangeRow(effect=Effect.REMADE, node=node, what=f"node {node}")
    with _working_on(lab, node, row, timeout_s, notify):
        rebuild(lab, node, notify)
    run_node_commands(lab.model, RunningLab(lab.record, lab.state), {node})


def _require(lab: RunningLab, node: str) -> None:
    require_root()
    found = lab.node(node)
    if found.kind not in WITH_POWER:
        raise NodeRefused(f"{node} is not managed", hint="hosts, storage targets and switches are")


@contextmanager
def working(lab: RunningLab, node: str, word: str) -> Iterator[None]:
    """Note that something is done to a node, or with "" to the lab, before it is begun, and that it is done.

    Call with the lab locked. What the lab becomes by it is what it is. Raises `LabInUse` where a run needs the lab, and
    `ChangeStuck` where a node is left in the middle of it: `apply` does it again.
    """
    with unused(lab.state_directory, lab.name):
        journal, before = Journal(lab.state_directory), lab.life_cycle
        with lock_links(lab.state_directory):
            lab.state.begin_change(lab.record)
        journal.state(LabState.CHANGING)
        journal.work(node, word)
        failed: TestbedError | None = None
        try:
            yield
        except TestbedError as error:
            failed = error
            if stuck := [name for name in journal.read().work if name]:
                raise ChangeStuck(
                    f"{stuck[0]} of {lab.name} is in the middle of its {word}: {error.message}",
                    hint=f"`testbed apply -n {lab.name}` begins it anew, `testbed destroy -n {lab.name}` ends all",
                ) from error
        journal.work(node, "")
        journal.state(before or LabState.RUNNING)
        lab.state.end_change(lab.name)
        if failed is not None:
            raise failed


@contextmanager
def _working_on(lab: RunningLab, node: str, row: ChangeRow, timeout_s: float, notify: StepCallback) -> Iterator[None]:
    """Hold the lab while something is done to a node, and wait for routing afterwards.

    Where links are changed, by `link set` or because a node is off, nobody knows what routing will come to.
    """
    word = RESTART if row.effect is Effect.RESTARTED else RECREATE
    with lab.state.lock_lab(lab.name):
        with working(lab, node, word):
            yield
        tell_changes(lab, [row])
        if not read_link_state(lab.state_directory).changes:
            await_convergence(lab.plan, lab.state, timeout_s, notify)
            if daemons := lab.daemons.get(node):
                note_configurations(lab.processes_directory, {node: daemons})


def restart(lab: RunningLab, node: str, notify: StepCallback = ignore_steps) -> None:
    """End what runs in a node, and start what the plan has there. Call with the lab locked, and this journalled.

    A container that its engine restarts has another network namespace: there it is a new node with its old files.
    Raises `DriverError`; what was done until then is taken up by doing it again.
    """
    if lab.node(node).runtime != NETNS:
        rebuild(lab, node, notify, keep=True)
        return
    with step("end", notify, node):
        _end_processes(lab, node, [node])
    with step("start", notify, node):
        _start(RunningLab(lab.record, lab.state), node)


def _end_processes(lab: RunningLab, node: str, places: Iterable[str]) -> None:
    """End what runs in the namespaces of a node: routing daemons in order, then all others.

    What else runs in a container is its engine's to end. The numbers of its processes mean something in there alone.
    """
    if lab.node(node).runtime != NETNS:
        terminate(running_daemons(lab, node), timeout_s=ENDING_TIMEOUT_S)
        kill_all({lab.identities[place] for place in places if place != node and place in lab.identities})
        return
    identities = {lab.identities[place] for place in places if place in lab.identities}
    if any(speaker.node == node for speaker in lab.plan.speakers):
        stop_routing(lab, node)
    found = processes_in(identities)
    terminate(found, timeout_s=ENDING_TIMEOUT_S)
    remove_crash_directories([lab.run_directory(node)], [*found, *kill_all(identities)])
    release_memory(lab.processes_directory, [node])


def _start(lab: RunningLab, node: str, elsewhere: Elsewhere | None = None) -> None:
    """Start what the plan has on a node, as it gets its power. It returns when all of it answers."""
    if any(speaker.node == node for speaker in lab.plan.speakers):
        start_routing(lab, node, elsewhere)
    else:
        for feature in features():
            feature.before_routing(lab.plan, lab.processes_directory, node)
        for feature in features():
            feature.after_routing(lab.plan, lab.state, node)
    for feature in features():
        feature.start_node(lab, node)


# ------------------------------------------------------------------ made anew


def rebuild(
    lab: RunningLab,
    node: str,
    notify: StepCallback = ignore_steps,
    *,
    keep: bool = False,
    was: RunningLab | None = None,
) -> None:
    """Make the namespaces of a node anew, and start what runs there. Call with the lab locked, and this journalled.

    `keep`: a container keeps its files. `was` is the lab as it was, or as it was to be, where something else realises
    the node. Raises `DriverError`; what was done until then is taken up by doing it again.
    """
    runtime = lab.node(node).runtime
    journal = Journal(lab.state_directory)
    containers = None
    if runtime != NETNS:
        containers = runtimes()[runtime].extend(lab.model, lab.processes_directory, journal, {node})
    try:
        rebuilding = _Rebuilding(RunningLab(lab.record, lab.state), node, containers, keep, was)
        _renew(lab, node, rebuilding.carry_out(notify), containers, notify)
    finally:
        if containers is not None:
            containers.close()


def _renew(
    lab: RunningLab,
    node: str,
    renewed: set[PlacedInterface],
    containers: RenewingNodes | None,
    notify: StepCallback,
) -> None:
    """Do what is to be done for a node that has new namespaces, whose neighbours have `renewed` ends of links."""
    off = node in lab.nodes_without_power()
    fresh = RunningLab(lab.record, lab.state)  # whose identities are the new ones
    if renewed:  # links whose ends were gone: neighbours have them without all that was on them
        drift, _ = look_at_kernel(fresh, renewed)
        repair_kernel(fresh, drift)
    if fresh.plan.tables is not None:
        attach(fresh.plan, lab.state.run, lab.processes_directory, lab.state_directory)
    with LinkRestoration(fresh) as links:
        links.restore(node)
    if off:
        for feature in features():
            feature.set_links(fresh, node, up=False)
        return
    for feature in features():
        feature.node_remade(fresh, node)
    with step("start", notify, node):
        _start(fresh, node, None if containers is None else containers.elsewhere.get(node))
    if containers is not None:
        containers.wait_healthy(HEALTHY_TIMEOUT_S, notify)


@dataclass(slots=True)
class _Rebuilding:
    """The namespaces of a node, those of its VRFs among them, while they are made anew."""

    lab: RunningLab
    node: str
    containers: RenewingNodes | None
    keep: bool
    was: RunningLab | None = None

    @property
    def places(self) -> list[str]:
        """The namespaces of the node."""
        vrfs = (item for item in self.lab.plan.operations if isinstance(item, CreateVrf))
        return [self.node, *(vrf.node for vrf in vrfs if vrf.switch == self.node)]

    def carry_out(self, notify: StepCallback) -> set[PlacedInterface]:
        """End what runs there, make new namespaces, and move the links into them.

        The interfaces come back that neighbours have anew, because their links were gone.
        """
        lab, places = self.lab, self.places
        journal = Journal(lab.state_directory)
        _settle(lab, places, journal, kill=self.containers is None)
        identities = {place: identity for place, identity in journal.read().identities.items() if place in places}
        with step("end", notify, self.node):
            for each in (lab,) if self.was is None else (self.was, lab):  # which of both it is may not be known
                _end_processes(each, self.node, places)
            names = {namespace_name(lab.name, place): identity for place, identity in identities.items()}
            there = namespaces.still_published(names)
            remove_devices(there)
        kernel = NetnsKernel(lab.name, nodes=self._neighbours())
        with step("links", notify, self.node), ExitStack() as opened:
            opened.callback(kernel.close)
            creations = [item for item in self._operations() if isinstance(item, CreateNode | CreateVrf)]
            made = dict(kernel.create_nodes(creations)) if creations else {}
            if self.containers is not None:
                made |= self.containers.renew(lab.plan, kernel, keep=self.keep)
            journal.nodes({f"{place}{NEW}": identity for place, identity in made.items()})
            kernel.publish(made, suffix=NEW)
            sources: dict[str, Namespace] = {}
            for place in places:
                if (name := namespace_name(lab.name, place)) in there:
                    sources[place] = namespaces.open_namespaces([name])[name]
                    opened.callback(sources[place].close)
            if lab.plan.tables is not None and any(isinstance(item, InstallPort) for item in self._operations()):
                directory = pins.lab_directory(lab.processes_directory)
                kernel.use_data_path(PortInstaller.open(directory, lab.plan.tables))
            renewed = self._fill(kernel, sources)
        for place, identity in made.items():
            _take_name(lab.name, place, identities.get(place, 0), identity, journal)
        return renewed

    def _operations(self) -> list[Operation]:
        """All that the plan has in the namespaces of the node."""
        places = set(self.places)
        return [item for item in self.lab.plan.operations if places.intersection(places_of(item))]

    def _neighbours(self) -> list[str]:
        """The namespaces at the other ends of its links, those of them that are there."""
        own = set(self.places)
        links = (item for item in self._operations() if isinstance(item, CreateVeth))
        places = sorted({place for link in links for place in places_of(link)} - own)
        there = set(namespaces.published(namespace_name(self.lab.name, place) for place in places))
        return [place for place in places if namespace_name(self.lab.name, place) in there]

    def _fill(self, kernel: NetnsKernel, sources: Mapping[str, Namespace]) -> set[PlacedInterface]:
        """Carry out the plan in the new namespaces, with the ends of links that are there still.

        A link to a neighbour that is gone, too, is made when that one is.
        """
        own = set(self.places)
        there = {place: dict(read_links(source.route)) for place, source in sources.items()}
        present = {*own, *self._neighbours()}

        def is_there(link: CreateVeth) -> bool:
            """Tell whether a link leads to a neighbour, and its end here is in an old namespace."""
            mine = [end for end in (link.a, link.b) if end.node in own]
            found = [there.get(end.node, {}).get(end.ifindex) for end in mine]
            return len(mine) == 1 and found[0] is not None and found[0].kind == "veth"

        operations = [item for item in self._operations() if not isinstance(item, _ELSEWHERE)]
        links = [item for item in operations if isinstance(item, CreateVeth)]
        pending = [link for link in links if not present.issuperset(places_of(link))]
        ends = ends_of(pending)
        wanted = [item for item in operations if item not in pending and not is_on(item, ends)]
        renewed: set[PlacedInterface] = set()
        for is_link, group in groupby(wanted, key=lambda item: isinstance(item, CreateVeth)):
            if not is_link:
                kernel.apply(list(group))
                continue
            these = [item for item in group if isinstance(item, CreateVeth)]
            kernel.take_links([item for item in these if is_there(item)], sources)
            lost = [item for item in these if not is_there(item)]
            _remove_ends(kernel, lost, own)
            kernel.apply(lost)
            renewed |= {(end.node, end.ifindex) for item in lost for end in (item.a, item.b) if end.node not in own}
        return renewed


def _remove_ends(kernel: NetnsKernel, links: Sequence[CreateVeth], own: set[str]) -> None:
    """Remove what neighbours may still have of links that are made anew."""
    for link in links:
        for end in (link.a, link.b):
            if end.node not in own:
                kernel.namespace(end.node).route.submit([rtnetlink.delete_link(end.ifindex)])


def _settle(lab: RunningLab, places: Sequence[str], journal: Journal, *, kill: bool) -> None:
    """Take up what an earlier attempt left: where both namespaces of a place are there, the old one gets its links."""
    known = journal.read().identities
    for place in places:
        if (fresh := known.get(f"{place}{NEW}")) is None:
            continue
        name, temporary = namespace_name(lab.name, place), namespace_name(lab.name, f"{place}{NEW}")
        is_old_there = bool(namespaces.still_published({name: known.get(place, 0)}))
        is_new_there = bool(namespaces.still_published({temporary: fresh}))
        if is_new_there and is_old_there and known.get(place) != fresh:
            _move_back(lab.plan, place, temporary, name)
        elif is_new_there and not is_old_there:
            _take_name(lab.name, place, known.get(place, 0), fresh, journal)
            continue
        if kill:
            kill_all({fresh})
        namespaces.unpublish({temporary: fresh})
        journal.gone([f"{place}{NEW}"])


def _move_back(plan: LabPlan, place: str, source: str, target: str) -> None:
    """Move all ends of links that lie in the namespace `source` to `target`."""
    opened = namespaces.open_namespaces([source, target])
    try:
        there = dict(read_links(opened[source].route))
        ends = [end for item in plan.operations if isinstance(item, CreateVeth) for end in (item.a, item.b)]
        for end in ends:
            if end.node == place and (found := there.get(end.ifindex)) is not None and found.kind == "veth":
                message = rtnetlink.set_namespace(end.ifindex, opened[target].fd)
                opened[source].route.expect([message], [f"move {end} back"])
    finally:
        for namespace in opened.values():
            namespace.close()


def _take_name(lab: str, place: str, old: int, new: int, journal: Journal) -> None:
    """Give a place's name to its new namespace, which has another one until then.

    The name is free for a moment. A file without a namespace is nobody's, so that the journal is right whenever this
    is cut short.
    """
    name, temporary = namespace_name(lab, place), namespace_name(lab, f"{place}{NEW}")
    with signals_later():
        namespaces.unpublish({name: old})
        journal.nodes({place: new})
        with contextlib.ExitStack() as opened:
            found = namespaces.open_namespaces([temporary])[temporary]
            opened.callback(found.close)
            if not namespaces.still_published({name: new}):
                namespaces.publish(replace(found, name=name))
        namespaces.unpublish({temporary: new})
        journal.gone([f"{place}{NEW}"])
