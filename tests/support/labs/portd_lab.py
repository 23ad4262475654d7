"""A lab for tests of the pause agent: two senders, two switches in a row, a receiver, all ports with the data path.

    a --- s1 --- s2 --- z
    b --/

Priorities 3 (DSCP 24) and 4 (DSCP 32) are lossless, 0 is not. No routing daemons, no journal.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from pathlib import Path
from typing import TypeVar

from testbed.base.datapath import pins
from testbed.base.datapath.maps import LabMaps
from testbed.base.datapath.traffic_class import ClassPlan
from testbed.base.linux.namespaces import NETNS_DIRECTORY, in_namespace
from testbed.base.names import namespace_name
from testbed.daemons.portd.attachment import LabAttachment, PortAttachment
from testbed.lab.core.drivers.netlink.port_programs import PortInstaller
from testbed.lab.core.drivers.nodes.netns import NetnsKernel
from testbed.lab.core.model.qos import BalancingMode, HashEngine
from testbed.lab.core.plan.operations import (
    AddAddress,
    AddRoute,
    CreateNode,
    CreateVeth,
    InstallPort,
    Operation,
    SetSysctl,
    SetUp,
    VethEnd,
)
from testbed.lab.core.plan.qos.qos_plan import BufferPlan, PortProfile, QosPlan

_T = TypeVar("_T")
MTU = 1500
TABLE_MAIN = 254
LOSSLESS = (3, 4)
DSCP = {0: 0, 3: 24, 4: 32}
SOL_PACKET, PACKET_IGNORE_OUTGOING = 263, 23
LINKS = (("a", "s1"), ("b", "s1"), ("s1", "s2"), ("s2", "z"))
SINK = "10.99.3.2"


def _class(priority: int, xoff: int, xon: int) -> ClassPlan:
    lossless = priority in LOSSLESS
    return ClassPlan(
        priority=priority,
        name=f"class{priority}",
        strict=False,
        weight=33,
        quantum_bytes=3028,
        lossless=lossless,
        limit_bytes=200_000,
        reserved_bytes=3000,
        alpha=0.0 if lossless else 1.0,
        xoff_bytes=xoff if lossless else 0,
        xon_bytes=xon if lossless else 0,
        headroom_bytes=400_000 if lossless else 0,
    )


class PauseLab:
    """`port("s1", "a")` is the number of s1's port towards a."""

    def __init__(
        self,
        name: str,
        run: Path,
        *,
        rate_bps: int = 50_000_000,
        sink_rate_bps: int = 20_000_000,
        xoff: int = 24_000,
        xon: int = 15_000,
        detect_ns: int = 0,
        restore_ns: int = 0,
    ) -> None:
        self.name = name
        self.run = run
        self.pins = pins.lab_directory(run / name)
        self.events_file = run / f"{name}.events"
        nodes = sorted({node for link in LINKS for node in link})
        self._numbers: dict[tuple[str, str], int] = {}
        for a, b in LINKS:
            for end, other in ((a, b), (b, a)):
                self._numbers[end, other] = len(self._numbers) + 1
        classes = tuple(_class(priority, xoff, xon) for priority in (0, *LOSSLESS))
        rates = dict.fromkeys(LINKS, rate_bps) | {LINKS[-1]: sink_rate_bps}
        class_of_dscp = tuple(next((p for p, d in DSCP.items() if d == dscp), 0) for dscp in range(64))
        profiles = tuple(
            PortProfile(
                profile=0,
                switch=switch,
                rate_bps=rate_bps,
                mtu_bytes=MTU,
                bdp_bytes=50_000,
                classes=classes,
                class_of_dscp=class_of_dscp,
                control_class=0,
                trimmed_class=0,
                trimming=False,
            )
            for switch in (False, True)
        )
        buffer = BufferPlan(
            node="",
            shared_bytes=4_000_000,
            headroom_bytes=0,
            mode=BalancingMode.FLOW,
            hash=HashEngine.EBPF,
            gap_ns=0,
            seed=1,
        )
        self._qos = QosPlan(profiles=profiles, buffers=(buffer, buffer), base_rtt_ns=0, reaction_ns=0)
        creations = [CreateNode(node=node, cpu_slot=slot) for slot, node in enumerate(nodes)]
        operations: list[Operation] = [
            SetSysctl(node=node, key="net/ipv4/ip_forward", value="1") for node in ("s1", "s2")
        ]
        installs: list[InstallPort] = []
        ups: list[Operation] = []
        ports: list[PortAttachment] = []
        for number, (a, b) in enumerate(LINKS):
            ends = [
                VethEnd(node=node, name=f"to-{other}", ifindex=10 + number, mac=f"02:00:00:00:{number:02x}:{side:02x}")
                for side, (node, other) in enumerate(((a, b), (b, a)))
            ]
            operations.append(CreateVeth(a=ends[0], b=ends[1], mtu_bytes=MTU))
            for side, (end, other) in enumerate(((ends[0], b), (ends[1], a))):
                switch = end.node.startswith("s")
                installs.append(
                    InstallPort(
                        node=end.node,
                        name=end.name,
                        ifindex=end.ifindex,
                        port=self._numbers[end.node, other],
                        peer=self._numbers[other, end.node],
                        rate_bps=rates[a, b],
                        burst_bytes=6000,
                        mtu_bytes=MTU,
                        profile=int(switch),
                        buffer=int(switch),
                        switch=switch,
                        seed=1,
                    )
                )
                ups.append(SetUp(node=end.node, name=end.name, ifindex=end.ifindex))
                address = IPv4Interface(f"10.99.{number}.{side + 1}/24")
                ups.append(AddAddress(node=end.node, name=end.name, ifindex=end.ifindex, address=address))
                ports.append(
                    PortAttachment(
                        number=self._numbers[end.node, other],
                        peer=self._numbers[other, end.node],
                        node=end.node,
                        interface=end.name,
                        namespace=str(NETNS_DIRECTORY / namespace_name(name, end.node)),
                        ifindex=end.ifindex,
                        mac=end.mac,
                        rate_bps=rates[a, b],
                        mtu_bytes=MTU,
                        lossless=LOSSLESS,
                        watchdog_detect_ns=detect_ns,
                        watchdog_restore_ns=restore_ns,
                    )
                )
        everything = IPv4Network("10.99.0.0/16")
        routes: list[Operation] = [
            AddRoute(node=node, destination=everything, gateway=IPv4Address(gateway), ifindex=ifindex, table=TABLE_MAIN)
            for node, gateway, ifindex in (
                ("a", "10.99.0.2", 10),
                ("b", "10.99.1.2", 11),
                ("s1", "10.99.2.2", 12),
                ("s2", "10.99.2.1", 12),
                ("z", "10.99.3.1", 13),
            )
        ]
        self._kernel = NetnsKernel(name)
        self._identities = self._kernel.create_nodes(creations)
        self._kernel.publish()
        self._kernel.use_data_path(PortInstaller.load(self.pins, self._qos, installs))
        self._kernel.apply([*operations, *installs, *ups, *routes])
        self.attachment = LabAttachment(
            lab=name, pin_directory=self.pins, events_file=self.events_file, ports=tuple(ports)
        )

    def port(self, node: str, towards: str) -> int:
        return self._numbers[node, towards]

    def maps(self) -> LabMaps:
        return LabMaps.open(self.pins, writable=True)

    def inside(self, node: str, function: Callable[[], _T]) -> _T:
        """The result of `function` in the node's namespace."""
        return in_namespace(namespace_name(self.name, node), function)

    def udp(self, node: str, priority: int) -> socket.socket:
        """A socket in `node` whose packets have that priority; never blocks."""

        def make() -> socket.socket:
            item = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
            item.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, DSCP[priority] << 2)
            item.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
            return item

        return self.inside(node, make)

    def packets(self, node: str, interface: str) -> socket.socket:
        """A packet socket on an interface, for frames of our own and for looking at what arrives."""

        def make() -> socket.socket:
            item = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            item.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
            item.bind((interface, 0x0003))
            item.settimeout(5.0)
            return item

        return self.inside(node, make)

    def remove(self) -> None:
        self._kernel.remove(self._identities)
        self._kernel.close()
        pins.unmount(self.pins)
        for path in (self.pins, self.run / self.name):
            path.rmdir()
        self.events_file.unlink(missing_ok=True)


@contextmanager
def pause_lab(name: str, run: Path, **options: int) -> Iterator[PauseLab]:
    lab = PauseLab(name, run, **options)
    try:
        yield lab
    finally:
        lab.remove()


def own_name(suffix: str) -> str:
    return f"pd{os.getpid()}{suffix}"
