"""A deployed lab, as every later command and every scenario sees it."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from testbed.base.cleanup import end_at_once, on_failure
from testbed.base.datapath.pins import lab_directory
from testbed.base.errors import TestbedError
from testbed.base.linux import namespaces, processes
from testbed.base.linux.counters import read_counters, read_queues
from testbed.base.linux.iproute import converse
from testbed.base.linux.namespaces import NETNS_DIRECTORY
from testbed.base.linux.port_counters import PlainQueue, PortCounters
from testbed.base.linux.processes import Process
from testbed.base.linux.routes import (
    KernelRoute,
    RouteKey,
    TableRoute,
    bgp_routes,
    bgp_weights,
    main_routes,
    table_routes,
)
from testbed.base.linux.rtnetlink import RouteSocket
from testbed.base.linux.views import NodeView
from testbed.base.names import all_names_hint, namespace_name, nearest
from testbed.daemons.lag.configuration import PROCESS_NAME
from testbed.lab.core.deploy.links.recorded import read_link_state
from testbed.lab.core.deploy.node_files import view_of
from testbed.lab.core.deploy.records.journal import Journal, LabState
from testbed.lab.core.deploy.records.lab_record import LabRecord, LabUnreadable, decode_lab
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.drivers.nodes.inside import ask_inside
from testbed.lab.core.feature import features, read_part, runtimes
from testbed.lab.core.model import NETNS, DelayBy, Lab, LagBy, Node, NodeKind, VrfBy

if TYPE_CHECKING:
    from testbed.base.datapath.maps import LabMaps
    from testbed.daemons.portd.client import PauseAgent
    from testbed.lab.core.deploy.runtime import LiveNodes
    from testbed.lab.core.deploy.watch.sessions import BgpSession
    from testbed.lab.core.feature import Part
    from testbed.lab.core.plan.lab_plan import LabPlan, PortPlan


_Read = TypeVar("_Read")


class NoSuchNode(TestbedError):
    """A node or interface that this lab does not have."""


class NoDataPath(TestbedError):
    """The lab was deployed without `qos:`, so its ports have no eBPF data path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """State of a node: "running", "degraded" (a daemon is missing), "off" (without power: it has taken down all its
    links, of which it has several) or "gone" (no namespace, or no container).

    That of a container is also the engine's word where it does not run ("exited", "paused", ...), "unhealthy" by its
    health check, or "unknown" where the engine does not answer. `image` is "" for a namespace.
    """

    name: str
    kind: str
    role: str
    state: str
    missing_daemons: tuple[str, ...]
    pids: Mapping[str, int]
    addresses: tuple[str, ...]
    runtime: str = "netns"
    image: str = ""


def planned_daemons(plan: LabPlan, version_of: Callable[[str], str]) -> dict[str, tuple[str, ...]]:
    """The daemons that each node should run: those of its FRR, "" without one, and the process of its link groups."""
    from testbed.lab.core.render import FrrVersion, daemons_of

    found = {
        switch.node: daemons_of(switch, FrrVersion.parse(version))
        for switch in plan.speakers
        if (version := version_of(switch.node))
    }
    for node in plan.link_groups.served if plan.link_groups is not None else ():
        found[node] = (*found.get(node, ()), PROCESS_NAME)
    return found


def environment_of(plan: LabPlan, run: Path, node: str) -> dict[str, str]:
    """Return what features add to the environment of the commands in a node of a lab with this run directory."""
    found: dict[str, str] = {}
    for feature in features():
        found |= feature.environment(plan, run, node)
    return found


class RunningLab:
    """A lab on this machine. Opening it reads the state directory alone."""

    def __init__(self, record: LabRecord, state: StateDirectory) -> None:
        self.record = record
        self.state = state
        """The record of all labs that this one is in."""
        self._whole: RunningLab | None = None
        self.name = record.name

    @classmethod
    def open(cls, name: str, state: StateDirectory) -> RunningLab:
        """Raises `LabNotFound`, `LabUnreadable` among them for a record of another version."""
        return cls(state.read(name), state)

    @classmethod
    def planned(cls, record: LabRecord, state: StateDirectory, model: Lab | None, plan: LabPlan) -> RunningLab:
        """A lab whose plan is at hand, and its model unless that is None, and are not planned and read anew."""
        found = cls(record, state)
        found.__dict__.update(plan=plan, **({} if model is None else {"model": model}))
        return found

    @cached_property
    def model(self) -> Lab:
        """The lab, or what is here of it where other machines have the rest."""
        lab = self._everywhere
        return lab if self.part is None else self.part.model(lab)

    @cached_property
    def part(self) -> Part | None:
        """The part of the lab that is here; None where all of it is."""
        said = self.record.part
        return None if said is None else self._read(lambda: read_part(said))

    @cached_property
    def _everywhere(self) -> Lab:
        return self._read(lambda: decode_lab(self.record.model))

    def _read(self, read: Callable[[], _Read]) -> _Read:
        try:
            return read()
        except ValueError as error:
            raise LabUnreadable(
                f"the record of the lab {self.name} was written by testbed {self.record.version} and cannot be read",
                hint=f"testbed destroy -n {self.name}",
            ) from error

    @property
    def plan_everywhere(self) -> LabPlan:
        """Plan the whole lab anew, where other machines have the rest of it."""
        return self.plan_of(self._everywhere, k=self.record.k)

    @cached_property
    def plan(self) -> LabPlan:
        plan = self.plan_everywhere
        if self.part is not None:
            plan = self.part.plan(plan)
        if self.record.numbers is None:
            return plan
        from testbed.lab.core.plan.qos.numbers import DataPathNumbers, keep_numbers

        return keep_numbers(plan, DataPathNumbers(**self.record.numbers))

    def plan_of(self, lab: Lab, *, k: float) -> LabPlan:
        """Plan another lab of this name in the place of this one, by the same mechanisms. Raises `PlanError`."""
        from testbed.lab.core.plan.lab import plan_lab

        return plan_lab(
            lab,
            slot=self.record.slot,
            k=k,
            auto_delay=DelayBy(self.record.delay_by or DelayBy.ENDPOINT),
            auto_vrf=VrfBy(self.record.vrf_by or VrfBy.NAMESPACE),
            auto_lag=LagBy(self.record.lag_by or LagBy.EBPF),
            reaction_ns=self.record.reaction_ns,
        )

    def of_network(self, *names: str) -> RunningLab:
        """The lab as it is seen in some networks: `model` and `plan` have nothing of the others. Raises `KeyError`."""
        model = self.model.of_network(*names)
        if model is self.model:
            return self
        seen = RunningLab(self.record, self.state)
        seen.__dict__.update(model=model, plan=self.plan.of_network(*names))
        seen._whole = self.whole
        return seen

    @property
    def whole(self) -> RunningLab:
        """The lab as it is seen in all its networks."""
        return self._whole or self

    @property
    def directory(self) -> Path:
        """The lab directory that people look into (`testbed-<lab>/`)."""
        return Path(self.record.directory)

    @property
    def state_directory(self) -> Path:
        """Return where the lab is recorded; it goes with the lab."""
        return self.state.lab_directory(self.name)

    @property
    def life_cycle(self) -> LabState | None:
        return Journal(self.state.lab_directory(self.name)).read().state

    @cached_property
    def identities(self) -> Mapping[str, int]:
        """Namespace identity of each node, as journalled."""
        return Journal(self.state.lab_directory(self.name)).read().identities

    @property
    def processes_directory(self) -> Path:
        """Return where the lab's own processes have their files."""
        return self.state.run_directory(self.name)

    def run_directory(self, node: str) -> Path:
        """Return where a switch's daemons have their files."""
        self.node(node)
        return self.state.run_directory(self.name) / node

    def node(self, name: str) -> Node:
        """Raises `NoSuchNode` with the names that may have been meant, and those that there are."""
        found = self._nodes.get(name)
        if found is None:
            raise NoSuchNode(f"{self.name} has no node {name!r}", hint=all_names_hint(name, self._nodes))
        return found

    @cached_property
    def _nodes(self) -> Mapping[str, Node]:
        return {node.name: node for node in self.model.nodes}

    def namespace(self, node: str) -> str:
        return namespace_name(self.name, self.node(node).name)

    def namespace_of(self, port: PortPlan) -> str:
        """Return the network namespace that a port lies in: its node's, or that of a VRF of it."""
        return namespace_name(self.name, port.place)

    def namespace_file(self, node: str) -> str | None:
        """Return the path of a node's network namespace, for a process of this machine to open sockets in.

        None where a node is more than its namespace: a container, or one with an environment of its own, whose
        programs are to be started by `spawn`. Raises `NoSuchNode`.
        """
        found = self.node(node)
        if found.runtime != NETNS or found.env:
            return None
        return str(NETNS_DIRECTORY / self.namespace(node))

    def port(self, node: str, interface: str) -> PortPlan:
        """Raises `NoSuchNode` with the interfaces that there are; "" is none of them."""
        ports = self._ports.get(self.node(node).name, {})
        if interface not in ports:
            says = f"{node} has no interface {interface!r}" if interface else f"{node} is a node: name an interface"
            places = {name: f"{node}:{name}" for name in ports}
            guess = nearest(interface, ports) or interface
            raise NoSuchNode(says, hint=all_names_hint(places.get(guess, guess), places.values()))
        return ports[interface]

    @cached_property
    def _ports(self) -> Mapping[str, Mapping[str, PortPlan]]:
        found: dict[str, dict[str, PortPlan]] = {}
        for port in self.plan.ports:
            found.setdefault(port.node, {})[port.name] = port
        return found

    @cached_property
    def _ports_by_place(self) -> Mapping[str, Mapping[str, PortPlan]]:
        """The ports that lie in each namespace: a switch's own, or that of one of its VRFs."""
        found: dict[str, dict[str, PortPlan]] = {}
        for port in self.plan.ports:
            found.setdefault(port.place, {})[port.name] = port
        return found

    @cached_property
    def _runtimes(self) -> Mapping[str, LiveNodes]:
        """The runtimes that nodes of this lab have besides their namespace, by name."""
        content = Journal(self.state.lab_directory(self.name)).read()
        live = ((name, runtime.live(content)) for name, runtime in runtimes().items())
        return {name: nodes for name, nodes in live if nodes is not None}

    def runtime(self, node: str) -> LiveNodes | None:
        """Return what serves a node that is more than a network namespace; None for one that is not.

        Raises `NoSuchNode`, and `DriverError` where the node was not started.
        """
        name = self.node(node).runtime
        if name == NETNS:
            return None
        if name not in self._runtimes:
            from testbed.lab.core.deploy.runtime import not_started

            raise not_started(node)
        return self._runtimes[name]

    def spawn(self, node: str, argv: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        """Start a command in a node; `options` are those of `subprocess.Popen`, and `own_sysfs`.

        It sees the node's name, the names of all nodes in /etc/hosts, and of a node that routes its FRR. In a container
        the command, its environment (to which `env` is added) and its privileges are the container's; this process's
        interpreter stands for the one in there.
        """
        runtime = self.runtime(node)
        if runtime is not None:
            options["env"] = {**self._of_features(node), **(options.get("env") or {})}
            return runtime.spawn(node, argv, options)
        return self.spawn_tool(node, argv, view=self.view(node), **options)

    def view(self, node: str) -> NodeView:
        """Return what programs of a node that is no container see of this machine. Raises `NoSuchNode`."""
        return view_of(self.processes_directory, self.node(node).name)

    def environment(self, node: str) -> dict[str, str]:
        """Return what the commands of a node that is no container have in their environment beside what all have."""
        return {**self._of_features(node), **self.node(node).env}

    def _of_features(self, node: str) -> dict[str, str]:
        recorded = self.record.environment
        if recorded is not None:
            return dict(recorded.get(node, {}))
        return environment_of(self.plan, self.processes_directory, node)

    def spawn_tool(self, node: str, argv: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        """Do as `spawn`, for a program of this machine that is to see a node's network, whatever the node is."""
        options.setdefault("env", processes.clean_environment(self.environment(node)))
        return processes.spawn(self.namespace(node), argv, **options)

    def spawn_at(self, port: PortPlan, argv: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        """Do as `spawn_tool`, in the namespace that a port lies in: its node's, or that of a VRF of it."""
        options.setdefault("env", processes.clean_environment(self.node(port.node).env))
        return processes.spawn(self.namespace_of(port), argv, **options)

    def run(
        self, node: str, argv: Sequence[str], *, timeout_s: float | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in a node to its end and capture what it prints."""
        process = self.spawn(node, argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        with on_failure(end_at_once, process):
            out, err = process.communicate(timeout=timeout_s)
        return subprocess.CompletedProcess(list(argv), process.returncode, out.decode(), err.decode())

    def maps(self, *, writable: bool = False) -> LabMaps:
        """The data path's shared maps. Raises `NoDataPath` without `qos:`, `DriverError` where they are gone."""
        if self.plan.tables is None:
            raise NoDataPath(
                f"{self.name} has no data path to read: its topology has no qos: section",
                hint="add `qos: {preset: uec}` to the file and deploy again",
            )
        from testbed.base.datapath.maps import LabMaps
        from testbed.lab.core.deploy.records.gone_ports import read_gone_ports

        maps = LabMaps.open(lab_directory(self.state.run_directory(self.name)), writable=writable)
        maps.gone = read_gone_ports(self.state_directory)
        return maps

    @property
    def pause_agent(self) -> PauseAgent:
        """The agent that serves this lab's lossless classes, where it has any."""
        from testbed.daemons.portd.client import PauseAgent

        return PauseAgent(self.state.run)

    def counters(self, only: str | None = None) -> Mapping[tuple[str, str], PortCounters]:
        """The kernel's counters of every planned port, or of those of the node `only`, by (node, interface)."""
        places = self._ports_by_place
        wanted = [
            place for place, ports in places.items() if only in (None, place, *(port.node for port in ports.values()))
        ]
        return {
            (places[place][name].node, name): counters
            for place, counted in ask_inside(
                self.name, wanted, RouteSocket, lambda _, item: read_counters(item)
            ).items()
            for name, counters in counted.items()
            if name in places[place]
        }

    def plain_queues(self) -> Mapping[tuple[str, str], PlainQueue]:
        """The queue of every planned port without QoS, by (node, interface). Those of the others are in `maps`."""
        queued = {(item.node, item.name) for item in self.plan.installs}
        plain = [port for port in self.plan.ports if (port.node, port.name) not in queued]
        places = dict.fromkeys(port.place for port in plain)
        queues = ask_inside(self.name, places, RouteSocket, lambda _, item: read_queues(item))
        return {
            (port.node, port.name): queues[port.place][port.ifindex]
            for port in plain
            if port.ifindex in queues[port.place]
        }

    def link_states(self, only: str | None = None) -> Mapping[tuple[str, str], bool]:
        """Tell whether each planned port, or each of the node `only`, is up and has carrier, by (node, interface)."""
        return {key: counters.up for key, counters in self.counters(only).items()}

    def set_link(self, node: str, interface: str, *, up: bool) -> None:
        """Bring one end of a link down or up; the other end loses its carrier with it."""
        port = self.port(node, interface)

        state = "up" if up else "down"
        converse(
            namespace_name(self.name, port.place),
            lambda route: route.link("set", index=port.ifindex, state=state),
            f"link {state} {node}:{interface}",
        )

    def routes(self, node: str) -> list[KernelRoute]:
        """The main IPv4 table of a node."""
        self.node(node)
        return ask_inside(self.name, [node], RouteSocket, lambda _, item: main_routes(item))[node]

    def table_routes(self, node: str) -> list[TableRoute]:
        """The IPv4 routes of all tables of a node, and whose packets use them."""
        self.node(node)
        return ask_inside(self.name, [node], RouteSocket, lambda _, item: table_routes(item))[node]

    def bgp_routes(self, node: str) -> dict[RouteKey, tuple[int, ...]]:
        """The routes that BGP installed in a node, as outgoing interface indexes."""
        self.node(node)
        return ask_inside(self.name, [node], RouteSocket, lambda _, item: bgp_routes(item))[node]

    def bgp_weights(self, node: str) -> dict[RouteKey, dict[int, int]]:
        """The weights of the next hops of routes that BGP installed in a node, by interface index."""
        self.node(node)
        return ask_inside(self.name, [node], RouteSocket, lambda _, item: bgp_weights(item))[node]

    def sessions(self) -> Iterator[BgpSession]:
        """Every planned BGP session, with its BFD peer's state."""
        from testbed.lab.core.deploy.watch.sessions import read_sessions

        for switch in self.plan.speakers:
            yield from read_sessions(switch, self.run_directory(switch.node))

    @cached_property
    def daemons(self) -> Mapping[str, tuple[str, ...]]:
        """The daemons that each node should run: those of routing, and the process of its link groups."""

        return planned_daemons(self.plan, self.frr_version)

    def frr_version(self, node: str) -> str:
        """Return the version of the FRR that a node has; "" where it has none. A node that it lacks has the lab's."""
        name = self._nodes[node].runtime if node in self._nodes else NETNS
        if name == NETNS:
            return self.record.frr
        return self._runtimes[name].frr_version(node) if name in self._runtimes else ""

    def configured_frr(self, node: str) -> str:
        """Return the version of FRR that a node's daemons are told by: of a container that a change which was cut short
        has not made, that of the node which is there still."""
        return self.frr_version(node) or self.state.read(self.name).frr

    def processes(self, places: Collection[str], commands: Collection[str]) -> dict[str, list[Process]]:
        """Return the processes with these commands in each of some nodes and VRFs, with one look at the machine's; none
        of a place that was never made."""
        found: dict[str, list[Process]] = {place: [] for place in places}
        known = {self.identities[place]: place for place in places if place in self.identities}
        for process in processes.processes_in(known) if known else ():
            if process.command in commands:
                found[known[process.identity]].append(process)
        return found

    def status(self) -> list[NodeStatus]:
        """State of every node, from the processes that are really there."""
        by_identity: dict[int, dict[str, int]] = {}
        for process in processes.processes_in(set(self.identities.values())):
            by_identity.setdefault(process.identity, {})[process.command] = process.pid
        addresses: dict[str, list[str]] = {}
        aggregates = [nic for host in self.plan.hosts for nic in host.nics if nic.nic_ports > 1]
        for port in dict.fromkeys((*self.plan.ports, *aggregates)):
            addresses.setdefault(port.node, []).extend(
                str(address) for address in (port.address, port.address6) if address is not None
            )
        loopbacks = {switch.node: str(switch.loopback) for switch in self.plan.switches}
        present = set(namespaces.published(namespace_name(self.name, node.name) for node in self.model.nodes))
        words = {node: word for runtime in self._runtimes.values() for node, word in runtime.states().items()}
        off = self.nodes_without_power()
        found = []
        for node in self.model.nodes:
            running = by_identity.get(self.identities.get(node.name, 0), {})
            expected = self.daemons.get(node.name, ())
            lacking = tuple(daemon for daemon in expected if daemon not in running)
            gone = namespace_name(self.name, node.name) not in present
            state = "gone" if gone else "off" if node.name in off else "degraded" if lacking else "running"
            if node.runtime != NETNS and not gone and words.get(node.name, "gone") != "running":
                state = words.get(node.name, "gone")
            own = [loopbacks[node.name]] if node.name in loopbacks else addresses.get(node.name, [])
            found.append(
                NodeStatus(
                    name=node.name,
                    kind=node.kind.value,
                    role=node.role.value if node.role else "",
                    state=state,
                    missing_daemons=() if gone or node.name in off else lacking,
                    pids={daemon: running[daemon] for daemon in expected if daemon in running},
                    addresses=tuple(own),
                    runtime=node.runtime,
                    image="" if node.container is None else node.container.image,
                )
            )
        return found

    def nodes_without_links(self) -> set[str]:
        """Return the nodes that have taken all their links down, at their end: those without power have."""
        down = {port for port, change in read_link_state(self.state_directory).changes.items() if change.up is False}
        linked = {port.node for port in self.plan.ports if f"{port.node}:{port.name}" not in down}
        return {node.name for node in self.model.nodes} - linked

    def nodes_without_power(self) -> set[str]:
        """Return the nodes without links, but for those that have one: they may have lost that link alone."""
        links = Counter(port.node for port in self.plan.ports)
        return {node for node in self.nodes_without_links() if links[node] > 1}

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.model.nodes if node.kind is NodeKind.HOST)
