"""Ports without a kernel: maps in memory, and packets that move through them as the data path would count them.

For tests of whatever reads the maps. Every step keeps the laws of `testbed.lab.observe.laws`; a test breaks them by
hand.
"""

from dataclasses import replace
from typing import Any

from memory_maps import maps_in_memory

from testbed.base.datapath.abi import CLASSES, DEPTH_BINS
from testbed.base.datapath.traffic_class import ClassPlan
from testbed.lab.core.fabric import FabricParams, generate_fabric
from testbed.lab.core.model.qos import BalancingMode, HashEngine
from testbed.lab.core.model.telemetry import DropCause
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import InstallPort
from testbed.lab.core.plan.qos.qos_plan import BufferPlan, PortProfile, QosPlan
from testbed.lab.observe.port_table import PortTable, tabulate_ports

BULK, RDMA, CONTROL = 0, 3, 6
"""Priorities of the classes of `fake_plan`."""


def fake_plan(*, hosts: int = 2, gpus: int = 2, spines: int = 2, name: str = "fake", k: float = 1000) -> LabPlan:
    """The plan of a small rail-optimised fabric whose ports have three classes: bulk, lossless rdma, strict control."""
    plan = plan_lab(
        generate_fabric(FabricParams(design="rail-optimized", hosts=hosts, gpus=gpus, spines=spines), name=name), k=k
    )
    numbers = {f"{port.node}:{port.name}": number for number, port in enumerate(plan.ports, start=1)}
    switches = {switch.node: index for index, switch in enumerate(plan.switches, start=1)}
    installs = tuple(
        InstallPort(
            node=port.node,
            name=port.name,
            ifindex=port.ifindex,
            port=number,
            peer=numbers[port.peer],
            rate_bps=port.rate_bps,
            burst_bytes=port.mtu_bytes * 2,
            mtu_bytes=port.mtu_bytes,
            profile=1 if port.node in switches else 0,
            buffer=switches.get(port.node, 0),
            switch=port.node in switches,
            seed=number,
        )
        for number, port in enumerate(plan.ports, start=1)
    )
    buffers = tuple(_buffer(node) for node in ("", *switches))
    qos = QosPlan(
        profiles=(_profile(switch=False), _profile(switch=True)), buffers=buffers, base_rtt_ns=10_000, reaction_ns=0
    )
    return replace(plan, qos=qos, tables=qos, operations=plan.operations + installs)


def _profile(*, switch: bool) -> PortProfile:
    def one(priority: int, name: str, **options: Any) -> ClassPlan:
        settings = {"strict": False, "weight": 0, "lossless": False, **options}
        return ClassPlan(
            priority=priority,
            name=name,
            quantum_bytes=9000,
            limit_bytes=1_000_000,
            reserved_bytes=0,
            alpha=1.0,
            **settings,
        )

    classes = (
        one(BULK, "bulk", weight=40),
        one(RDMA, "rdma", weight=60, lossless=True),
        one(CONTROL, "control", strict=True),
    )
    of_dscp = [BULK] * 64
    of_dscp[26], of_dscp[48] = RDMA, CONTROL
    return PortProfile(
        profile=0,
        switch=switch,
        rate_bps=400_000_000,
        mtu_bytes=4500,
        bdp_bytes=500_000,
        classes=classes,
        class_of_dscp=tuple(of_dscp),
        control_class=CONTROL,
        trimmed_class=CONTROL,
        trimming=False,
    )


def _buffer(node: str) -> BufferPlan:
    return BufferPlan(
        node=node,
        shared_bytes=16_000_000,
        headroom_bytes=0,
        mode=BalancingMode.SPRAY,
        hash=HashEngine.EBPF,
        gap_ns=50_000_000,
        seed=1,
    )


class FakePorts:
    """A lab's maps, its table, and the steps of packets. Ports are numbers; `size` is the bytes of each packet."""

    def __init__(self, plan: LabPlan | None = None) -> None:
        self.plan = plan or fake_plan()
        self.table: PortTable = tabulate_ports(self.plan)
        self.maps = maps_in_memory(self.table.count, profiles=2, buffers=len(self.plan.qos.buffers))
        self.maps.ports["peer"] = self.table.peer
        self.maps.ports["buffer"] = self.table.buffer
        self.maps.ports["profile"] = self.table.profile
        self.maps.buffers["size_bytes"][1:] = 16_000_000
        for record, profile in zip(self.maps.profiles, self.plan.qos.profiles, strict=True):
            record["class_of_dscp"] = profile.class_of_dscp
            record["control_class"], record["trimmed_class"] = profile.control_class, profile.trimmed_class

    def number(self, place: str) -> int:
        """The port at `NODE:IF`."""
        return next(n for n in range(1, self.table.count + 1) if self.table.place(n) == place)

    def receive(self, port: int, priority: int, packets: int, *, size: int = 1500, lost: int = 0) -> None:
        """Packets from the peer, `lost` of them by the wire."""
        ingress = self.maps.ingress[port * CLASSES + priority]
        _add(ingress, "in", packets - lost, size)
        _add(ingress, "lost", lost, size)

    def offer(
        self,
        port: int,
        priority: int,
        packets: int,
        *,
        size: int = 1500,
        came_in_at: int = 0,
        dropped: dict[DropCause, int] | None = None,
        marked: int = 0,
    ) -> None:
        """Packets for a queue, some of them dropped, the others enqueued; `came_in_at` a port of the same switch."""
        queue = self.maps.queues[port * CLASSES + priority]
        _add(queue, "in", packets, size)
        queue["depth"][min(int(queue["bytes"]).bit_length() - 8 if queue["bytes"] >= 256 else 0, DEPTH_BINS - 1)] += (
            packets
        )
        if came_in_at:
            _add(queue, "forwarded", packets, size)
        stays = packets
        for cause, number in (dropped or {}).items():
            _add(queue, cause.value, number, size)
            stays -= number
        _add(queue, "enqueued", stays, size)
        queue["ce_packets"] += marked
        queue["ect_packets"] += stays
        self._hold(port, priority, came_in_at, stays * size)

    def send(self, port: int, priority: int, packets: int, *, size: int = 1500, came_in_at: int = 0) -> None:
        """Packets leave their queue; they are on the link until `receive`."""
        _add(self.maps.queues[port * CLASSES + priority], "out", packets, size)
        self._hold(port, priority, came_in_at, -packets * size)

    def purge(self, port: int, priority: int, packets: int, *, size: int = 1500, came_in_at: int = 0) -> None:
        """Packets are lost with their queue."""
        _add(self.maps.queues[port * CLASSES + priority], "purged", packets, size)
        self._hold(port, priority, came_in_at, -packets * size)

    def carry(self, port: int, priority: int, packets: int, *, size: int = 1500, lost: int = 0) -> None:
        """Offered, sent, and received at the peer."""
        self.offer(port, priority, packets, size=size)
        self.send(port, priority, packets, size=size)
        self.receive(int(self.table.peer[port]), priority, packets, size=size, lost=lost)

    def _hold(self, port: int, priority: int, came_in_at: int, growth: int) -> None:
        for record, now in (
            (self.maps.queues[port * CLASSES + priority], "bytes"),
            (self.maps.ingress[came_in_at * CLASSES + priority] if came_in_at else None, "bytes"),
            (self.maps.buffers[self.table.buffer[port]] if self.table.buffer[port] else None, "used_bytes"),
        ):
            if record is not None:
                record[now] = int(record[now]) + growth
                record["max_bytes"] = max(record["max_bytes"], record[now])


def _add(record: Any, name: str, packets: int, size: int) -> None:
    record[f"{name}_packets"] += packets
    record[f"{name}_bytes"] += packets * size
