"""The data path of a lab: its programs loaded, its maps filled, and the messages that put them on a port."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import fields
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.base.datapath import build, load, pins
from testbed.base.datapath.abi import (
    BALANCING_CODES,
    CLASSES,
    HASH_BITS,
    MARK_AT_FLAGS,
    MAX_PORTS,
    PROBABILITY_ONE,
    QUEUE_MAPS,
    TAG_BITS,
    AdaptPer,
    BalancingMode,
    ClassFlag,
    PortFlag,
)
from testbed.base.datapath.markers import MARKERS
from testbed.base.datapath.traffic_class import ClassPlan
from testbed.base.errors import DriverError
from testbed.base.linux import traffic_control as traffic
from testbed.lab.core.drivers.netlink.marking_qdiscs import new_marking_qdisc
from testbed.lab.core.model.qos import HashEngine
from testbed.lab.core.plan.operations import InstallPort
from testbed.lab.core.plan.qos.qos_plan import BufferPlan, PortProfile, QosTables
from testbed.protocols.uet.packets.codes import DSCP_TRIMMED, DSCP_TRIMMED_LASTHOP

if TYPE_CHECKING:
    from testbed.base.datapath.maps import LabMaps

_SHARED_PRIORITY = 1
"""HTB's rank of weighted classes; strict ones have 0 (HTB serves the lower first)."""
_CAP_TOLERANCE = 1.01
"""A cap polices so much more than it says: who keeps to it by another clock loses nothing."""
_CAP_BURST_NS = 50_000_000
"""A burst may have as much as a cap lets through in this time (lab time), and a packet: packets that waited for a
busy CPU come so."""
_SWITCH, _TRIM, _LAST_HOP, _FLOWLETS = map(int, PortFlag)
"""As plain numbers: each port of thousands has its flags joined."""

NO_ENTRY = 0xFFFF_FFFF
"""The value that a map that is searched has behind its last entry."""
ROOM = 256
"""A lab's maps have room for so many entries more, or for half as many more: the kernel never enlarges a map. A port
has some 10 kB."""


def port_entries(highest: int) -> int:
    """Return how many entries a map of ports has, in a lab whose highest port number this is."""
    return min(_with_room(1 + highest), MAX_PORTS + 1)


def _with_room(count: int) -> int:
    return count + max(ROOM, count // 2)


def lacking_room(maps: LabMaps, qos: QosTables, operations: Iterable[InstallPort]) -> str:
    """Say of what the maps of a lab that is up hold too few for the tables and ports of another plan, and how many they
    hold; "" where there is room for all."""
    ports = max((operation.port for operation in operations), default=0)
    needed = (
        ("ports", ports, maps.ports),
        ("QoS profiles", len(qos.profiles) - 1, maps.profiles),
        ("buffers", len(qos.buffers) - 1, maps.buffers),
        ("addresses", len(qos.destinations) - 1, maps.addresses),
        ("ways out of switches", len(qos.egresses) - 1, maps.egresses),
    )
    # of ports number 0 is none
    full = (f"{len(array) - (what == 'ports'):,} {what}" for what, last, array in needed if last >= len(array))
    return next(full, "")


def check_ports(operations: Sequence[InstallPort]) -> None:
    """Raise `DriverError` for more ports than the data path has numbers for."""
    if len(operations) > MAX_PORTS:
        raise DriverError(f"{len(operations)} ports; the data path numbers {MAX_PORTS} at most")


class PortInstaller:
    """The loaded data path of one lab, and the netlink messages that install a port of it."""

    def __init__(self, qos: QosTables, filters: load.Filters) -> None:
        self._profiles = qos.profiles
        self._filters = filters

    @classmethod
    def load(cls, directory: Path, qos: QosTables, operations: Sequence[InstallPort]) -> PortInstaller:
        """Mount `directory`, load the programs and fill the maps. Raises `CapabilityError`, `DriverError`."""
        from testbed.base.datapath.maps import LabMaps

        check_ports(operations)
        program_object = build.program_object()
        pins.mount(directory)
        # a peer may be a port of another machine, which nothing here writes to
        ports = port_entries(max((max(operation.port, operation.peer) for operation in operations), default=0))
        profiles = len(qos.profiles) + _with_room(len(qos.profiles))  # while they change there are old ones and new
        buffers = _with_room(len(qos.buffers))
        sizes = {"lab": 1, "profiles": profiles, "buffers": buffers, "ports": ports}
        sizes |= {"addresses": _with_room(len(qos.destinations)), "egresses": ports}
        sizes |= dict.fromkeys(QUEUE_MAPS, ports * CLASSES)
        installer = cls(qos, load.load_programs(program_object, directory, sizes))
        if qos.asks_kernel:
            load.attach_paths(program_object, directory)
        with contextlib.closing(LabMaps.open(directory, writable=True, with_room=True)) as maps:
            fill_maps(maps, qos, operations)
        return installer

    @classmethod
    def open(cls, directory: Path, qos: QosTables) -> PortInstaller:
        """The data path of a lab that is up, for ports that are added by a plan with these tables."""
        return cls(qos, load.open_filters(directory))

    def messages(self, operation: InstallPort) -> tuple[bytes, ...]:
        """All netlink messages of one port, in order."""
        return *self.hooks(operation), *self.queue(operation)

    def hooks(self, operation: InstallPort) -> tuple[bytes, ...]:
        """The messages that put programs on what a port receives, and on what it sends before that has a queue."""
        ifindex, port = operation.ifindex, operation.port
        trimming = self._profiles[operation.profile].trimming
        batch = [
            traffic.new_clsact(ifindex) if trimming or operation.grouped else traffic.new_ingress(ifindex),
            traffic.new_bpf_filter(ifindex, traffic.CLSACT_INGRESS, self._filters.ingress, "port_ingress", port),
        ]
        if trimming:
            batch.append(
                traffic.new_bpf_filter(ifindex, traffic.CLSACT_EGRESS, self._filters.egress, "port_egress", port)
            )
        return tuple(batch)

    def queue(self, operation: InstallPort) -> tuple[bytes, ...]:
        """The messages that make the queue of a port: each packet is counted there, until the other end has it.

        The filter comes before the classes. Its class ID is the port's number, and the kernel would bind it to a class
        that has this handle (`tcf_bind_filter`), which then could not be removed: port 19 to the class of priority 3.
        """
        ifindex, port = operation.ifindex, operation.port
        profile = self._profiles[operation.profile]
        batch = [
            traffic.new_htb_qdisc(ifindex, default=0x10 + profile.class_of_dscp[0]),
            traffic.new_bpf_filter(ifindex, traffic.HTB_ROOT_HANDLE, self._filters.enqueue, "port_enqueue", port),
            traffic.new_htb_line_class(ifindex, operation.rate_bps, operation.burst_bytes, operation.mtu_bytes),
        ]
        for item in profile.classes:
            batch += _new_class(operation, item)
        return tuple(batch)

    def close(self) -> None:
        self._filters.close()


def _traffic_class(operation: InstallPort, item: ClassPlan, *, change: bool = False) -> bytes:
    return traffic.new_htb_traffic_class(
        operation.ifindex,
        item.priority,
        line_rate_bps=operation.rate_bps,
        burst_bytes=operation.burst_bytes,
        quantum_bytes=item.quantum_bytes,
        rank=0 if item.strict else _SHARED_PRIORITY,
        change=change,
    )


def _new_class(operation: InstallPort, item: ClassPlan) -> list[bytes]:
    """The messages that make the queue of a class: its place in the line, its gate, and what marks in it."""
    batch = [_traffic_class(operation, item)]
    if item.lossless:
        batch.append(traffic.new_gate(operation.ifindex, item.priority, operation.mtu_bytes))
    if _marker(item):
        batch.append(new_marking_qdisc(operation, item))
    return batch


def set_classes(operation: InstallPort, profile: PortProfile) -> tuple[bytes, ...]:
    """The messages that set the rates and weights of an installed port again, whatever they are now."""
    classes = (_traffic_class(operation, item, change=True) for item in profile.classes)
    return _line_class(operation, change=True), *classes


def change_port(old: tuple[InstallPort, PortProfile], new: tuple[InstallPort, PortProfile]) -> list[bytes] | None:
    """The messages that bring an installed port from one profile to another; none where only numbers in maps differ.

    A queue that stays keeps its packets. That of a class that goes is dropped with what waits in it, and one that
    becomes lossless, or is no longer, is a new queue. None where the port as a whole has to be installed anew.
    """
    if not stays(old, new):
        return None
    operation, ifindex = new[0], new[0].ifindex
    if _rates(old[0]) == _rates(operation) and _queues(old[1]) == _queues(new[1]):
        return []
    before = {item.priority: item for item in old[1].classes}
    after = {item.priority: item for item in new[1].classes}
    batch: list[bytes] = []
    line = _line_class(operation, change=True)
    if line != _line_class(old[0], change=True):
        batch.append(line)
    for priority, was in before.items():
        item = after.get(priority)
        if item is None or _queue(was) != _queue(item):
            batch.append(traffic.delete_class(ifindex, priority))
    for priority, item in after.items():
        was_there = before.get(priority)
        if was_there is None or _queue(was_there) != _queue(item):
            batch += _new_class(operation, item)
            continue
        changed = _traffic_class(operation, item, change=True)
        if changed != _traffic_class(old[0], was_there, change=True):
            batch.append(changed)
        if _marker(item) and was_there != item:
            batch.append(new_marking_qdisc(operation, item, change=True))
    return batch


def stays(old: tuple[InstallPort, PortProfile], new: tuple[InstallPort, PortProfile]) -> bool:
    """Tell whether `change_port` brings a port from one profile to another where it is."""
    return _frame(*old) == _frame(*new)


def _rates(operation: InstallPort) -> tuple[int, ...]:
    """The numbers of a port that its classes are made with."""
    return operation.rate_bps, operation.burst_bytes, operation.mtu_bytes


def _queues(profile: PortProfile) -> list[tuple[Any, ...]]:
    """All that the kernel is told of a profile's classes: the rest stands in maps."""
    return [
        (item.priority, item.quantum_bytes, item.strict, _queue(item), item if _marker(item) else None)
        for item in profile.classes
    ]


def _line_class(operation: InstallPort, *, change: bool) -> bytes:
    return traffic.new_htb_line_class(
        operation.ifindex, operation.rate_bps, operation.burst_bytes, operation.mtu_bytes, change=change
    )


def _frame(operation: InstallPort, profile: PortProfile) -> tuple[Any, ...]:
    """The parts of a port that stand around its classes: where it differs, nothing of the port can stay."""
    hooks = (operation.ifindex, operation.vrf, operation.port, operation.grouped, profile.trimming)
    return hooks, profile.class_of_dscp[0]


def _queue(item: ClassPlan) -> tuple[bool, str]:
    """The parts that the queue of a class is made of, and not only numbered."""
    return item.lossless, _marker(item)


def _marker(item: ClassPlan) -> str:
    """The kernel's qdisc that marks in a class; "" for none."""
    return MARKERS[item.mark_by].qdisc if item.kmin_bytes is not None and item.kmax_bytes is not None else ""


def fill_maps(maps: LabMaps, qos: QosTables, operations: Iterable[InstallPort]) -> None:
    """Write the plan's numbers into fresh maps."""
    maps.lab["tag"][0] = secrets.randbits(TAG_BITS) | 1
    write_maps(maps, qos, operations)


def write_maps(maps: LabMaps, qos: QosTables, operations: Iterable[InstallPort]) -> None:
    """Write the numbers of ports, of their profiles, and of all buffers into maps that may be in use.

    Profiles first: a profile that is new has a number that no port names yet.
    """
    named = list(operations)
    profiles = [qos.profiles[operation.profile] for operation in named]
    buffers = [qos.buffers[operation.buffer] for operation in named]
    for index in sorted({operation.profile for operation in named}):
        _fill_profile(maps, index, qos.profiles[index])
    _write_paths(maps, qos)
    for index, buffer in enumerate(qos.buffers):
        maps.buffers["size_bytes"][index] = max(0, buffer.shared_bytes - buffer.headroom_bytes)
    if not named:
        return
    ports = [operation.port for operation in named]
    _write_thresholds(maps, ports, profiles)
    columns = {
        "ifindex": [operation.ifindex for operation in named],
        "buffer": [operation.buffer for operation in named],
        "flags": [_flags(*each) for each in zip(named, profiles, buffers, strict=True)],
        "seed": [operation.seed for operation in named],
        "peer": [operation.peer for operation in named],
        "cap_bps": [round(operation.cap_bps * _CAP_TOLERANCE) for operation in named],
        "cap_burst_ns": _CAP_BURST_NS,
        "profile": [operation.profile for operation in named],
    }
    of_buffers = {index: _numbers(qos.buffers[index]) for index in {operation.buffer for operation in named}}
    for name in of_buffers[named[0].buffer]:
        columns[name] = [of_buffers[operation.buffer][name] for operation in named]
    for name, values in columns.items():
        maps.ports[name][ports] = values


def _numbers(buffer: BufferPlan) -> dict[str, int]:
    """The numbers that each port of a switch has of its buffer and of how it balances load."""
    return {
        "balancing": _balancing(buffer),
        "gap_ns": buffer.gap_ns,
        "hash_fields": sum(HASH_BITS[field] for field in buffer.hash_fields),
        "stride": buffer.stride,
        "hysteresis_bytes": buffer.hysteresis_bytes,
    }


def _write_thresholds(maps: LabMaps, ports: Sequence[int], profiles: Sequence[PortProfile]) -> None:
    """Write from when on what a port received of a lossless class pauses its peer; 0 for a class that is lossy."""
    found: dict[int, list[list[int]]] = {}
    for profile in profiles:
        if id(profile) not in found:
            rows = [[0] * CLASSES for _ in range(3)]
            for item in profile.classes:
                if item.lossless:
                    thresholds = (item.xoff_bytes, item.xon_bytes, item.xoff_bytes + item.headroom_bytes)
                    for row, value in zip(rows, thresholds, strict=True):
                        row[item.priority] = value
            found[id(profile)] = rows
    ingress = maps.by_port("ingress")
    for place, name in enumerate(("limit_bytes", "xon_bytes", "xoff_bytes")):
        ingress[name][ports] = [found[id(profile)][2 - place] for profile in profiles]


def _write_paths(maps: LabMaps, qos: QosTables) -> None:
    """Write what the program looks paths up by: the order of destinations, and which port an interface is."""
    for place, name in enumerate(("address", "number")):
        maps.addresses[name] = NO_ENTRY
        maps.addresses[name][: len(qos.destinations)] = [item[place] for item in qos.destinations]
    for place, name in enumerate(("buffer", "ifindex", "port")):
        maps.egresses[name] = NO_ENTRY
        maps.egresses[name][: len(qos.egresses)] = [item[place] for item in qos.egresses]
    maps.lab["addresses"][0] = len(qos.destinations)
    maps.lab["egresses"][0] = len(qos.egresses)


def _flags(operation: InstallPort, profile: PortProfile, buffer: BufferPlan) -> int:
    flags = _SWITCH if operation.switch else 0
    flags |= _TRIM if profile.trimming else 0
    flags |= _LAST_HOP if operation.last_hop else 0
    return flags | (_FLOWLETS if buffer.mode is BalancingMode.ADAPTIVE and buffer.per is AdaptPer.FLOWLET else 0)


def forget_ports(maps: LabMaps, ports: Sequence[int]) -> None:
    """Clear all that the maps have of ports that are gone, so that what takes their numbers begins at 0."""
    maps.ports[list(ports)] = 0
    for name in QUEUE_MAPS:
        maps.by_port(name)[list(ports)] = 0


def _balancing(buffer: BufferPlan) -> int:
    return BALANCING_CODES["KERNEL" if buffer.hash is HashEngine.KERNEL else buffer.mode.name]


def _fill_profile(maps: LabMaps, index: int, profile: PortProfile) -> None:
    record = maps.profiles[index]
    record["class_of_dscp"] = profile.class_of_dscp
    record["control_class"] = profile.control_class
    record["trimmed_class"] = profile.trimmed_class
    record["trimmed_dscp"] = DSCP_TRIMMED
    record["trimmed_last_hop_dscp"] = DSCP_TRIMMED_LASTHOP
    if profile.trimming:
        record["class_of_dscp"][DSCP_TRIMMED] = profile.trimmed_class
    for item in profile.classes:
        _fill_class(record["classes"][item.priority], item, count_marks=profile.marks_account)


def _fill_class(record: Any, item: ClassPlan, *, count_marks: bool) -> None:
    """Write a class into its `class_config` (`programs/rules.h`): each field from that of the plan by the same name."""
    flags = ClassFlag.PRESENT
    if item.lossless:
        flags |= ClassFlag.LOSSLESS
    if item.strict:
        flags |= ClassFlag.STRICT
    if item.drop_non_ect:
        flags |= ClassFlag.DROP_NON_ECT
    if item.kmin_bytes is not None and item.kmax_bytes is not None:
        flags |= ClassFlag.ECN | (ClassFlag.COUNT_MARKS if count_marks else 0)
    if MARKERS[item.mark_by].qdisc:
        flags |= ClassFlag.MARK_BY_KERNEL
    record["flags"] = flags | MARK_AT_FLAGS.get(item.mark_at, 0)
    for each in fields(ClassPlan):
        if each.name in record.dtype.names:
            record[each.name] = _number(getattr(item, each.name), each.metadata.get("one", 1))


def _number(value: float | str | None, one: int) -> int:
    """Return a rule as 32 bits: a word by its place among others, of what has no bound the most."""
    match value:
        case None:
            return 0
        case Enum():
            return list(type(value)).index(value)
        case float():
            return round(value * one)
        case _:
            return min(int(value), PROBABILITY_ONE)
