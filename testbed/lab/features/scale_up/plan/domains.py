"""Planning of scale-up domains by packets: who is joined by which wires, and the operations that make them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from testbed.base.errors import PlanError
from testbed.base.names import domain_node_name
from testbed.lab.core.model import Lab, ScaleUp, ScaleUpBy
from testbed.lab.core.plan.domain_plan import DomainPlan, DomainWire
from testbed.lab.core.plan.interfaces import SCALE_UP_START
from testbed.lab.core.plan.operations import CreateNode, CreateVeth, SetSysctl, SetUp, VethEnd
from testbed.lab.core.plan.stable import stable_hash
from testbed.lab.features.scale_up.plan.time_scale import plan_planes, plan_pool
from testbed.lab.features.scale_up.sizing import ScaleUpDomain, domain_ends, find_domains, gpus_of_hosts

WIRE_MTU_BYTES = 9_200
"""Room for the largest frame: 32 transactions of 256 bytes (`coarse`) with their headers."""
PLANES_APART = 64
"""Interface indexes of one GPU: a GPU has so many planes at most (`MAX_PLANES` of the topology file)."""


def packet_domains(lab: Lab) -> tuple[ScaleUpDomain, ...]:
    """The scale-up domains of a lab that has a switch for each; none where transfers go by time."""
    return find_domains(lab) if lab.scale_up.by is ScaleUpBy.PACKETS else ()


def domain_nodes(lab: Lab) -> list[str]:
    """Return the names by which operations call the namespaces of the switches of a lab's domains."""
    return [domain_node_name(domain.name) for domain in packet_domains(lab)]


class DomainPlanner:
    """The scale-up domains of a lab whose transfers are frames; empty for any other lab."""

    def __init__(self, lab: Lab, k: float) -> None:
        """Raises `PlanError` where a node has the name of a domain's namespace."""
        self._domains = packet_domains(lab)
        self._links = plan_planes(lab.scale_up, k) if self._domains else ()
        gpus = gpus_of_hosts(lab)
        self._pool = None if lab.scale_up.pool is None else plan_pool(lab.scale_up, lab.scale_up.pool, k)
        self._wires = {domain.name: list(_wires(domain, gpus, lab.scale_up)) for domain in self._domains}
        self._of_hosts: dict[str, list[str]] = {}
        for wire in self._all():
            self._of_hosts.setdefault(wire.host, []).append(wire.interface)
        nodes = {node.name for node in lab.nodes}
        for domain in self._domains:
            if (name := domain_node_name(domain.name)) in nodes:
                raise PlanError(
                    f"the switch of the scale-up domain {domain.name} is called {name}, and so is a node",
                    field="topology.nodes",
                    code="duplicate-node",
                    hint="give the node another name",
                )

    def _all(self) -> Iterator[DomainWire]:
        return (wire for wires in self._wires.values() for wire in wires)

    @property
    def interfaces(self) -> list[tuple[str, str]]:
        """All ends of wires, as (place, interface)."""
        return [
            end
            for domain, wires in self._wires.items()
            for wire in wires
            for end in ((wire.host, wire.interface), (domain_node_name(domain), wire.switch_interface))
        ]

    def host_interfaces(self, host: str) -> list[str]:
        """The ends of wires in the namespace of one host."""
        return self._of_hosts.get(host, [])

    def plans(self, macs: Mapping[tuple[str, str], str]) -> tuple[DomainPlan, ...]:
        """The domains, with the MACs of all `interfaces`."""
        found = []
        for domain in self._domains:
            node = domain_node_name(domain.name)
            wires = tuple(
                replace(wire, mac=macs[wire.host, wire.interface], switch_mac=macs[node, wire.switch_interface])
                for wire in self._wires[domain.name]
            )
            found.append(
                DomainPlan(
                    name=domain.name, node=node, gpus=domain.gpus, wires=wires, links=self._links, pool=self._pool
                )
            )
        return tuple(found)


def _wires(domain: ScaleUpDomain, gpus: Mapping[str, int], scale_up: ScaleUp) -> Iterator[DomainWire]:
    """The wires of a domain, yet without MACs."""
    ends = domain_ends(domain, gpus, scale_up.devices)
    for plane in range(1, scale_up.planes + 1):
        for gpu, (host, local, memory, name) in enumerate(ends):
            yield DomainWire(
                gpu=gpu,
                plane=plane,
                host=host,
                local_gpu=local,
                interface=f"{name}p{plane}",
                mac="",
                ifindex=_ifindex(local, plane),
                memory=memory,
                switch_interface=f"g{gpu}p{plane}",
                switch_mac="",
                switch_ifindex=_ifindex(gpu, plane),
            )


def _ifindex(gpu: int, plane: int) -> int:
    return SCALE_UP_START + gpu * PLANES_APART + plane - 1


def create_switches(domains: Sequence[DomainPlan]) -> list[CreateNode]:
    """The namespaces of the domains' switches."""
    return [CreateNode(node=domain.node, cpu_slot=_cpu_slot(domain.name)) for domain in domains]


def _cpu_slot(domain: str) -> int:
    """Neighbours by number land on different CPUs, whatever other domains there are."""
    return sum(map(int, re.findall(r"\d+", domain))) or stable_hash(f"cpu {domain}", 16)


def domain_sysctls(domains: Sequence[DomainPlan]) -> list[SetSysctl]:
    """A domain has no IP: nothing but frames of GPUs is on its wires."""
    return [SetSysctl(node=domain.node, key="net/ipv6/conf/all/disable_ipv6", value="1") for domain in domains]


def wire_veths(domains: Sequence[DomainPlan]) -> list[CreateVeth]:
    """All wires. They are to be made while new interfaces of hosts have no IPv6."""
    return [
        CreateVeth(
            a=VethEnd(node=wire.host, name=wire.interface, ifindex=wire.ifindex, mac=wire.mac),
            b=VethEnd(node=domain.node, name=wire.switch_interface, ifindex=wire.switch_ifindex, mac=wire.switch_mac),
            mtu_bytes=WIRE_MTU_BYTES,
        )
        for domain in domains
        for wire in domain.wires
    ]


def set_wires_up(domains: Sequence[DomainPlan]) -> list[SetUp]:
    """Both ends of all wires."""
    ends = [
        end
        for domain in domains
        for wire in domain.wires
        for end in (
            (wire.host, wire.interface, wire.ifindex),
            (domain.node, wire.switch_interface, wire.switch_ifindex),
        )
    ]
    return [SetUp(node=node, name=name, ifindex=ifindex) for node, name, ifindex in ends]
