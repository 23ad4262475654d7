"""A lab that is not there: a small rail-optimised fabric with canned programs, for tests.

It satisfies `LiveLab`. Programs really run, but on this machine and not in a node, and they are those
that `program` chooses instead of the ones asked for. Counters say what a test puts in.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Interface
from pathlib import Path
from typing import Any, NoReturn

from testbed.base.linux.port_counters import PlainQueue, PortCounters
from testbed.base.names import host_name, rail_switch_name, spine_name
from testbed.base.units import Duration, Rate
from testbed.lab.core.model import BACKEND, Delay, DelayBy, End, Lab, Link, LinkKind, Node, NodeKind, Place, Role, Scale
from testbed.lab.core.plan.lab_plan import HostPlan, LabPlan, PortPlan
from testbed.lab.core.plan.link_delays import mechanism

Program = Callable[[str, Sequence[str]], Sequence[str]]
"""(node, the command asked for) -> the command run in its place."""


def small_lab(
    *, segments: int = 2, hosts: int = 2, rails: int = 4, spines: int = 4, k: float = 1000.0, name: str = "fake"
) -> tuple[Lab, LabPlan]:
    """A rail-optimised pod with one switch per rail and segment, and 400G links."""
    rate, mtu, delay = Rate.parse("400G"), 4500, Delay(value=Duration.parse("500ns"))
    nodes: list[Node] = []
    links: list[Link] = []
    for segment in range(1, segments + 1):
        for index in range(1, hosts + 1):
            place = Place(pod=1, segment=segment, index=index)
            nodes.append(Node(name=host_name(1, segment, index), kind=NodeKind.HOST, place=place))
        for rail in range(1, rails + 1):
            switch = rail_switch_name(1, segment, rail)
            place = Place(pod=1, segment=segment, index=rail)
            nodes.append(Node(name=switch, kind=NodeKind.SWITCH, role=Role.RAIL, place=place))
            for index in range(1, hosts + 1):
                a = End(node=host_name(1, segment, index), interface=f"rail{rail}")
                b = End(node=switch, interface=f"down{index}")
                links.append(Link(a=a, b=b, kind=LinkKind.ACCESS, rate=rate, mtu_bytes=mtu, rail=rail))
            for spine in range(1, spines + 1):
                a = End(node=switch, interface=f"uplink{spine}")
                b = End(node=spine_name(1, spine), interface=f"down{(segment - 1) * rails + rail}")
                links.append(Link(a=a, b=b, kind=LinkKind.FABRIC, rate=rate, mtu_bytes=mtu, delay=delay))
    for spine in range(1, spines + 1):
        place = Place(pod=1, index=spine)
        nodes.append(Node(name=spine_name(1, spine), kind=NodeKind.SWITCH, role=Role.SPINE, place=place))
    lab = Lab(
        name=name,
        nodes=tuple(nodes),
        links=tuple(links),
        scale=Scale(time=k),
        design="rail-optimized",
        source="fake.yml",
    )
    return lab, _plan(lab, k)


def _plan(lab: Lab, k: float) -> LabPlan:
    ports: list[PortPlan] = []
    for link in lab.links:
        for end, other in ((link.a, link.b), (link.b, link.a)):
            node = lab.node(end.node)
            address = None
            if node.kind is NodeKind.HOST and node.place is not None:
                address = IPv4Interface(f"10.{node.place.segment}.{link.rail}.{node.place.index}/24")
            ports.append(
                PortPlan(
                    node=end.node,
                    name=end.interface,
                    ifindex=len(ports) + 2,
                    mac="02:00:00:00:00:01",
                    mtu_bytes=link.mtu_bytes,
                    peer=str(other),
                    rate_bps=link.rate.scaled(k).bps,
                    line_rate_bps=link.rate.bps,
                    delay_ns=0 if link.delay is None else link.delay.value.scaled(k).ns,
                    delay_by=mechanism(link.delay, DelayBy.ENDPOINT),
                    address=address,
                    gateway=None if address is None else IPv4Address(address.network.network_address + 254),
                    rail=link.rail,
                )
            )
    hosts = tuple(
        HostPlan(node=host.name, nics=tuple(port for port in ports if port.node == host.name)) for host in lab.hosts
    )
    return LabPlan(
        lab=lab.name, slot=0, k=k, operations=(), ports=tuple(ports), switches=(), hosts=hosts, expected_routes={}
    )


class FakeLab:
    """`started` collects every command asked for, as (node, command)."""

    def __init__(self, model: Lab, plan: LabPlan, program: Program) -> None:
        self.name = model.name
        self.model = model
        self.plan = plan
        self.started: list[tuple[str, tuple[str, ...]]] = []
        self.sent: dict[tuple[str, str], int] = {}
        """Bytes that `counters` reports as sent, by port; a test fills it."""
        self._program = program
        self._readings = 0

    @property
    def whole(self) -> FakeLab:
        return self

    def of_network(self, name: str) -> FakeLab:
        """It has the back end alone."""
        assert name == BACKEND
        return self

    def spawn(self, node: str, argv: Sequence[str], **popen_kwargs: Any) -> subprocess.Popen[bytes]:
        self.started.append((node, tuple(argv)))
        popen_kwargs.pop("own_sysfs", None)
        return subprocess.Popen(list(self._program(node, argv)), **popen_kwargs)

    def namespace_file(self, node: str) -> str | None:
        """None: there is no network to open sockets in."""
        return None

    @property
    def processes_directory(self) -> Path | None:
        return None

    def counters(self) -> Mapping[tuple[str, str], PortCounters]:
        """The first reading of each pair is zero, the second has `sent`."""
        self._readings += 1
        if self._readings % 2:
            return {(port.node, port.name): PortCounters() for port in self.plan.ports}
        return {
            (port.node, port.name): PortCounters(tx_bytes=self.sent.get((port.node, port.name), 0))
            for port in self.plan.ports
        }

    def plain_queues(self) -> Mapping[tuple[str, str], PlainQueue]:
        """Nothing was dropped, and nothing waits."""
        return {(port.node, port.name): PlainQueue() for port in self.plan.ports}

    def maps(self, *, writable: bool = False) -> NoReturn:
        raise NotImplementedError("the fake lab has no data path: its plan has no qos")

    @property
    def pause_agent(self) -> NoReturn:
        raise NotImplementedError("the fake lab pauses nothing: its plan has no qos")
