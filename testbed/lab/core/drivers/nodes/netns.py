"""The driver that realises a lab in network namespaces of this machine, over batched netlink."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

from testbed.base.errors import DriverError
from testbed.base.linux import namespaces, offload, processes, rtnetlink, syscalls
from testbed.base.linux import traffic_control as traffic
from testbed.base.linux.namespaces import Namespace
from testbed.base.linux.neighbours import NUD_PERMANENT, set_neighbour
from testbed.base.linux.nftables import NetfilterSocket, Table
from testbed.base.linux.processes import Process
from testbed.base.linux.rtnetlink import LinkEnd, RouteSocket
from testbed.base.linux.sysctl import open_setting
from testbed.base.names import namespace_name
from testbed.daemons.lag.groups import CreateBond
from testbed.lab.core.drivers.netlink import netem as wire
from testbed.lab.core.drivers.netlink import overlay_devices as overlay
from testbed.lab.core.drivers.netlink import rdma
from testbed.lab.core.drivers.netlink.port_programs import PortInstaller
from testbed.lab.core.drivers.netlink.routes import route_message
from testbed.lab.core.drivers.netlink.tcp_steering import steer_tcp
from testbed.lab.core.drivers.nodes import changing
from testbed.lab.core.feature import filters
from testbed.lab.core.plan.management_plan import FormCommunity, GuardManagement, StartService
from testbed.lab.core.plan.operations import (
    AddAddress,
    AddRoute,
    AddRule,
    CreateBridge,
    CreateNode,
    CreateRdma,
    CreateVeth,
    DelayPort,
    GuardSwitch,
    InstallPort,
    LocalOperation,
    Operation,
    SetBridgePort,
    SetNeighbour,
    SetSysctl,
    SetUp,
    ShapePort,
    StartContainer,
    StartRouting,
    SteerTcp,
    VethEnd,
    place_of,
)
from testbed.lab.core.plan.overlay_operations import (
    CreateVrf,
    CreateVrfDevice,
    CreateVxlan,
    PreferVrfs,
    SetBorder,
    SetPolicy,
)

_OF_INTERFACE = re.compile(r"(net/ipv[46]/conf)/(?!all/|default/)[^/]+/([^/]+)")
"""The key of a setting of one interface."""
_TICKS_A_SECOND = 100
_PRIORITIES = 1 << 30
"""Filters that replace others have the time since the boot, in ticks, as the priority of their chains: each follows all
before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """The account of a removal: how many of the nodes were there, and the processes that it ended."""

    nodes: int
    processes: tuple[Process, ...] = ()


GONE = (errno.ENODEV, errno.ENOENT, errno.ESRCH, errno.EADDRNOTAVAIL)
"""The errors of taking away what is not there: a link, a qdisc or a rule, a route, an address."""
_Item = TypeVar("_Item", bound=Operation)
_Local = TypeVar("_Local", bound=LocalOperation)


class NetnsKernel:
    """Applies operations to the nodes of one lab, which are network namespaces. One object for one lab and one thread.

    The fake one of the tests passes the same contract.
    """

    def __init__(self, lab: str, nodes: Iterable[str] = (), *, again: bool = False) -> None:
        """`nodes` are those that exist already; they are opened on first use. `again`: some of what is asked for may
        have been done before, by a command that was cut short, and stays done."""
        self._lab = lab
        self._existing = tuple(nodes)
        self._again = again
        self._namespaces: dict[str, Namespace] = {}
        self._factory: Namespace | None = None
        self._mtu: dict[tuple[str, int], int] = {}
        self._installer: PortInstaller | None = None

    def use_data_path(self, installer: PortInstaller) -> None:
        """Give the loaded data path that `InstallPort` needs; closed with this object."""
        self._installer = installer

    def create_nodes(self, operations: Sequence[CreateNode | CreateVrf]) -> Mapping[str, int]:
        """Make the nodes, invisible to others; their identities come back, for the journal."""
        return self._take(namespaces.create_namespaces([item.node for item in operations], _steering(operations)))

    def adopt_nodes(self, operations: Sequence[StartContainer], pids: Mapping[str, int]) -> Mapping[str, int]:
        """Do as `create_nodes`, for nodes whose namespaces somebody else made: each is that of a process in `pids`."""
        return self._take(namespaces.adopt_namespaces(pids, _steering(operations)))

    def _take(self, made: Mapping[str, Namespace]) -> Mapping[str, int]:
        for node, namespace in made.items():
            namespace.name = namespace_name(self._lab, node)
        self._namespaces |= made
        return {node: namespace.identity for node, namespace in made.items()}

    def publish(self, nodes: Iterable[str] | None = None, *, suffix: str = "") -> None:
        """Give the created nodes, or those of `nodes`, their names. Raises `NameInUse` and publishes no further.

        `suffix` is added to the names of namespaces that are to take the place of others.
        """
        namespaces.prepare_directory()
        for node in self._namespaces if nodes is None else nodes:
            made = self._namespaces[node]
            namespaces.publish(replace(made, name=f"{made.name}{suffix}"))

    def apply(self, operations: Sequence[Operation], *, replacing: bool = False) -> None:
        """Apply operations in order; raises `DriverError` for the first the kernel refuses.

        `replacing`: the lab is up. Filters take the place of those that are there, and the data path's queues come
        last: the other end of each link is to know of what is counted there.
        """
        for kind, group in groupby(operations, key=_stage):
            match kind:
                case "sysctl":
                    self._set_sysctls([item for item in group if isinstance(item, SetSysctl)])
                case "veth":
                    self._create_veths([item for item in group if isinstance(item, CreateVeth)])
                case "vxlan":
                    self._create_vxlans([item for item in group if isinstance(item, CreateVxlan)])
                case "rdma":
                    descriptors = {node: namespace.fd for node, namespace in self._open().items()}
                    for batch in self._one_by_one([item for item in group if isinstance(item, CreateRdma)]):
                        with self._done_before(errno.EEXIST):
                            rdma.create_devices(batch, descriptors)
                case "filter":
                    self._filter(list(group), replacing=replacing)
                case "local":
                    self._apply_local(
                        [item for item in group if isinstance(item, LocalOperation)],
                        self._hooks if replacing else self.encode,
                    )
                case _:
                    raise DriverError(f"the namespace driver does not apply {kind}", operation=kind)
        if replacing and self._installer is not None:
            self._apply_local([item for item in operations if isinstance(item, InstallPort)], self._installer.queue)

    def _one_by_one(self, operations: list[_Item]) -> list[list[_Item]]:
        """Return the operations together, or each alone where one that was done before must not keep the others."""
        return [[item] for item in operations] if self._again else [operations]

    @contextlib.contextmanager
    def _done_before(self, *done: int) -> Iterator[None]:
        """Pass over what was done before, where that may be: `done` are the errors that say so."""
        try:
            yield
        except DriverError as error:
            if not (self._again and error.errno in done):
                raise

    def _expect(self, route: RouteSocket, batch: Sequence[bytes], what: Sequence[str], *done: int) -> None:
        """Have the kernel carry out messages. Raises `DriverError` for the first that it refuses, unless it was done
        before: `done` are the errors that say so."""
        route.expect(batch, what, done if self._again else ())

    def _open(self) -> dict[str, Namespace]:
        if self._existing:
            names = {namespace_name(self._lab, node): node for node in self._existing}
            self._existing = ()
            self._namespaces |= {names[name]: item for name, item in namespaces.open_namespaces(names).items()}
        return self._namespaces

    def namespace(self, node: str) -> Namespace:
        return self._open()[node]

    def open_socket(self, node: str, kind: socket.SocketKind) -> socket.socket:
        """Open an IPv4 socket that belongs to a node's namespace, whether or not it has a name yet."""

        def make() -> socket.socket:
            syscalls.setns(self.namespace(node).fd, syscalls.CLONE_NEWNET)
            return socket.socket(socket.AF_INET, kind | socket.SOCK_CLOEXEC)

        return syscalls.in_thread(make)

    def _set_sysctls(self, operations: Sequence[SetSysctl]) -> None:
        opened = self._open()
        by_node: dict[str, list[SetSysctl]] = {}
        for operation in operations:
            by_node.setdefault(operation.node, []).append(operation)

        def write() -> None:
            for node, items in by_node.items():
                syscalls.setns(opened[node].fd, syscalls.CLONE_NEWNET)
                for item in items:
                    write_sysctl(item)

        syscalls.in_thread(write)

    def _create_veths(self, operations: Sequence[CreateVeth]) -> None:
        opened = self._open()
        factory = self._make_factory()

        def end(item: VethEnd) -> LinkEnd:
            return LinkEnd(opened[item.node].fd, item.name, item.ifindex, item.mac, item.master)

        batch: list[bytes] = []
        second_masters: dict[str, list[tuple[bytes, str]]] = {}
        for operation in operations:
            batch.append(
                rtnetlink.new_veth(end(operation.a), end(operation.b), operation.mtu_bytes, operation.queue_packets)
            )
            for item in (operation.a, operation.b):
                self._mtu[item.node, item.ifindex] = operation.mtu_bytes
            if operation.a.master and operation.b.master:
                enslave = rtnetlink.set_master(operation.a.ifindex, operation.a.master)
                second_masters.setdefault(operation.a.node, []).append((enslave, f"bridge port {operation.a.name}"))
        self._expect(factory.route, batch, _Descriptions(operations), errno.EEXIST)
        for node, items in second_masters.items():
            opened[node].route.expect([data for data, _ in items], [what for _, what in items])
        ends = (end for operation in operations for end in (operation.a, operation.b))
        self._switch_offloads_off((end.node, end.ifindex) for end in ends)

    def take_links(self, operations: Sequence[CreateVeth], sources: Mapping[str, Namespace]) -> None:
        """Move ends of links into nodes from the namespaces that these had before, their `sources`.

        They arrive down, without addresses and queues, as `apply` would have made them. Their other ends stay where
        they are, with all that they have. Raises `DriverError`.
        """
        opened = self._open()
        moved = [(item, end) for item in operations for end in (item.a, item.b) if end.node in sources]
        for operation, end in moved:
            what = f"move {end}"
            sources[end.node].route.expect([rtnetlink.set_namespace(end.ifindex, opened[end.node].fd)], [what])
            self._mtu[end.node, end.ifindex] = operation.mtu_bytes
            if end.master:
                opened[end.node].route.expect([rtnetlink.set_master(end.ifindex, end.master)], [what])
        self._switch_offloads_off((end.node, end.ifindex) for _, end in moved)

    def _make_factory(self) -> Namespace:
        """Return a namespace that is empty, and goes with this object."""
        if self._factory is None:
            self._factory = namespaces.create_namespaces(["factory"], {"factory": 1})["factory"]
        return self._factory

    def _create_vxlans(self, operations: Sequence[CreateVxlan]) -> None:
        opened = self._open()
        by_switch: dict[str, list[CreateVxlan]] = {}
        for operation in operations:
            by_switch.setdefault(operation.switch, []).append(operation)
        for switch, items in by_switch.items():
            batch = [overlay.new_vxlan(item, opened[item.node].fd) for item in items]
            self._expect(opened[switch].route, batch, _Descriptions(items), errno.EEXIST)

    def _switch_offloads_off(self, interfaces: Iterable[tuple[str, int]]) -> None:
        by_node: dict[str, list[int]] = {}
        for node, ifindex in interfaces:
            by_node.setdefault(node, []).append(ifindex)
        family = offload.ethtool_family() if by_node else None
        if family is None:
            return
        for node, indexes in by_node.items():
            batch = [offload.features_off(family, index) for index in indexes]
            self._open()[node].generic.expect(batch, [f"{node}: offloads off"] * len(batch))

    def _filter(self, operations: Sequence[Any], *, replacing: bool) -> None:
        """Put filters in force, each as one transaction of netfilter, `replacing` in the place of the one before."""
        tables = [(operation, filters()[type(operation)](operation)) for operation in operations]
        after = int(time.clock_gettime(time.CLOCK_BOOTTIME) * _TICKS_A_SECOND) % _PRIORITIES

        def put_in_force(socket: NetfilterSocket, operation: Any, table: Table) -> None:
            batch = table.replacement(after, socket.counted(table)) if replacing else table
            socket.commit(batch, str(operation))

        self._with_filters(tables, put_in_force)

    def _remove_filter(self, operation: Any) -> None:
        table = filters()[type(operation)](operation)
        self._with_filters(
            [(operation, table)], lambda socket, what, table: socket.commit(table.removal, f"undo: {what}")
        )

    def _with_filters(
        self, tables: Sequence[tuple[Any, Table]], work: Callable[[NetfilterSocket, Any, Table], None]
    ) -> None:
        """Do `work` for each filter and its table, with a netfilter socket of where it is."""
        opened = self._open()

        def work_inside() -> None:
            for operation, table in tables:
                syscalls.setns(opened[place_of(operation)].fd, syscalls.CLONE_NEWNET)
                with closing(NetfilterSocket()) as item:
                    work(item, operation, table)

        syscalls.in_thread(work_inside)

    def _hooks(self, operation: LocalOperation) -> tuple[bytes, ...]:
        """Return all messages of an operation but those of a queue of the data path."""
        if isinstance(operation, InstallPort) and self._installer is not None:
            return self._installer.hooks(operation)
        return self.encode(operation)

    def _apply_local(self, operations: Sequence[_Local], encode: Callable[[_Local], tuple[bytes, ...]]) -> None:
        by_node: dict[str, tuple[list[bytes], list[_Local]]] = {}
        for operation in operations:
            batch, items = by_node.setdefault(place_of(operation), ([], []))
            for data in encode(operation):
                batch.append(data)
                items.append(operation)
        opened = self._open()
        for node, (batch, items) in by_node.items():
            self._expect(opened[node].route, batch, _Descriptions(items), errno.EEXIST)
        bonds = [operation for operation in operations if isinstance(operation, CreateBond)]
        self._switch_offloads_off((bond.node, bond.ifindex) for bond in bonds)

    def undo(self, operations: Iterable[Operation]) -> None:
        """Take operations back, in this order, after the queues of all ports among them.

        Raises `DriverError` for the first that the kernel refuses.
        """
        there = [item for item in operations if not self._again or changing.undo_place(item) in self._open()]
        for operation in there:  # others went before, and with them what was in them
            if isinstance(operation, InstallPort):
                self._send(changing.undo_queue(operation), *GONE)
        for operation in there:
            if isinstance(operation, changing.Filter):
                with self._done_before(*GONE):
                    self._remove_filter(operation)
            elif isinstance(operation, SetSysctl):
                self._reset_sysctl(operation)
            else:
                self._send(changing.undo(operation, self.encode), *GONE)

    def _reset_sysctl(self, operation: SetSysctl) -> None:
        """Give a setting the value that it has where nobody sets it: of an interface that of its node's default, of new
        interfaces whether they have IPv6 what is written for all, else that of a namespace which has just been made."""
        interface = _OF_INTERFACE.fullmatch(operation.key)
        place, key = self._make_factory(), operation.key
        if interface:
            place, key = self._open()[operation.node], f"{interface[1]}/default/{interface[2]}"
        elif key == "net/ipv6/conf/default/disable_ipv6":  # who writes it for all writes this (addrconf_disable_ipv6)
            place, key = self._open()[operation.node], "net/ipv6/conf/all/disable_ipv6"

        def read() -> str:
            syscalls.setns(place.fd, syscalls.CLONE_NEWNET)
            with contextlib.suppress(FileNotFoundError):  # the kernel, or the interface, may be another one by now
                return Path("/proc/sys", key).read_text().strip()
            return ""

        if value := syscalls.in_thread(read):
            self._set_sysctls([replace(operation, value=value, optional=True)])

    def set_queue_lengths(self, changes: changing.KernelChanges) -> None:
        """Give the interfaces of links that stay the length that new queues on them take from them when they are made:
        a queue that is there keeps its own (net/sched/sch_fifo.c). Raises `DriverError`."""
        for old, new in changes.changed:
            if isinstance(old, CreateVeth) and isinstance(new, CreateVeth) and old.queue_packets != new.queue_packets:
                self._send(changing.set_queue_lengths(new), *GONE)

    def change(self, changes: changing.KernelChanges) -> None:
        """Change things where they are. Raises `DriverError` for the first that the kernel refuses."""
        self.undo(changes.outdated)
        self.undo(changes.following)
        for old, new in changes.changed:
            match old, new:
                case _, SetSysctl():
                    self._set_sysctls([new])
                case _, AddRoute():
                    batch = tuple(map(rtnetlink.replacing, self.encode(new)))
                    self._send([changing.NodeMessages(place=new.node, batch=batch, what=str(new))])
                case AddRule(), AddRule():
                    batch = (*self.encode(new), *map(rtnetlink.undone, self.encode(old)))
                    message = changing.NodeMessages(place=new.node, batch=batch, what=str(new))
                    self._send([message], errno.EEXIST, *GONE)
                case _:
                    self._send(changing.change(old, new, changes.tables) or (), errno.EEXIST, *GONE)

    def _send(self, messages: Sequence[changing.NodeMessages], *done: int) -> None:
        for item in messages:
            self._expect(self._open()[item.place].route, item.batch, [item.what] * len(item.batch), *done)

    def encode(self, operation: LocalOperation) -> tuple[bytes, ...]:
        """The messages that apply an operation inside one node."""
        match operation:
            case SetUp():
                return (rtnetlink.set_link_state(operation.ifindex, True),)
            case ShapePort():
                mtu = self._mtu.get((place_of(operation), operation.ifindex), 1500)
                return (
                    traffic.new_htb_qdisc(operation.ifindex),
                    traffic.new_htb_line_class(operation.ifindex, operation.rate_bps, operation.burst_bytes, mtu),
                )
            case InstallPort():
                if self._installer is None:
                    raise DriverError("the data path is not loaded", operation="InstallPort")
                return self._installer.messages(operation)
            case DelayPort():
                return wire.delay_port(operation)
            case AddAddress():
                address = operation.address
                return (rtnetlink.new_address(operation.ifindex, address.ip.packed, address.network.prefixlen),)
            case AddRoute():
                return (route_message(operation),)
            case AddRule():
                to = operation.destination
                prefix = None if to is None else (to.network_address.packed, to.prefixlen)
                source = operation.source.packed
                return (rtnetlink.new_source_rule(source, operation.table, operation.priority, prefix),)
            case CreateBridge():
                return (
                    rtnetlink.new_bridge(
                        operation.name,
                        operation.ifindex,
                        operation.mac,
                        operation.mtu_bytes,
                        operation.ageing_s,
                        operation.master,
                    ),
                )
            case CreateBond():
                from testbed.daemons.lag import bonding

                return (bonding.new_bond(operation),)
            case CreateVrfDevice():
                return overlay.new_vrf(operation)
            case PreferVrfs():
                return overlay.prefer_vrfs(ipv6=operation.ipv6)
            case SetNeighbour():
                return (
                    set_neighbour(
                        operation.ifindex, operation.address, operation.mac, state=NUD_PERMANENT, replace=False
                    ),
                )
            case SetBridgePort():
                return (overlay.set_bridge_port(operation),)
            case SteerTcp():
                return steer_tcp(operation)

    def remove(self, identities: Mapping[str, int]) -> Removal:
        """End every process of these nodes and remove them; one of another identity is left alone."""
        self.close()
        killed = processes.kill_all(set(identities.values()))
        names = {namespace_name(self._lab, node): identity for node, identity in identities.items()}
        rdma.remove_devices(namespaces.still_published(names))
        removed = namespaces.unpublish(names)
        return Removal(nodes=removed, processes=tuple(killed))

    def close(self) -> None:
        """Let go of descriptors; the nodes stay."""
        for namespace in self._namespaces.values():
            namespace.close()
        self._namespaces = {}
        if self._factory is not None:
            self._factory.close()
            self._factory = None
        if self._installer is not None:
            self._installer.close()
            self._installer = None


def _steering(operations: Sequence[CreateNode | CreateVrf | StartContainer]) -> dict[str, int]:
    """The CPUs (as a mask) that handle what each node receives."""
    cpus = sorted(os.sched_getaffinity(0))
    return {operation.node: 1 << cpus[operation.cpu_slot % len(cpus)] for operation in operations}


class _Descriptions(Sequence[str]):
    """Texts of operations, made only when one failed."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._operations = operations

    def __len__(self) -> int:
        return len(self._operations)

    def __getitem__(self, index: int) -> str:  # type: ignore[override]
        return str(self._operations[index])


def _stage(operation: Operation) -> str:
    match operation:
        case SetSysctl():
            return "sysctl"
        case CreateVeth():
            return "veth"
        case CreateVxlan():
            return "vxlan"
        case CreateRdma():
            return "rdma"
        case GuardSwitch() | SetPolicy() | SetBorder() | GuardManagement() | FormCommunity():
            return "filter"
        case (
            CreateVrfDevice()
            | PreferVrfs()
            | CreateBond()
            | CreateBridge()
            | SetBridgePort()
            | ShapePort()
            | InstallPort()
            | DelayPort()
            | SetNeighbour()
            | SetUp()
            | AddAddress()
            | AddRoute()
            | AddRule()
            | SteerTcp()
        ):
            return "local"
        case CreateNode() | CreateVrf() | StartContainer() | StartRouting() | StartService():
            return type(operation).__name__


def write_sysctl(item: SetSysctl) -> None:
    """Write a setting in the namespace of this thread. Raises `DriverError`."""
    try:
        fd = open_setting(f"/proc/sys/{item.key}")
    except OSError as error:
        lacking = isinstance(error, FileNotFoundError)
        if item.optional and lacking:
            return
        why = f"this kernel has no sysctl {item.key}" if lacking else f"sysctl {item.key}: {error.strerror}"
        raise DriverError(f"{item.node}: {why}", operation="sysctl", errno=error.errno or 0) from error
    try:
        os.write(fd, item.value.encode())
    except OSError as error:
        if item.optional and error.errno in (errno.ENOENT, errno.EPERM):
            return
        raise DriverError(
            f"{item.node}: sysctl {item.key}={item.value}: {error.strerror}", operation="sysctl", errno=error.errno or 0
        ) from error
    finally:
        os.close(fd)
