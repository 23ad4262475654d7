"""The generator: a shape becomes nodes and links, in canonical order.

Nodes: pod by pod, in it segment by segment the rail switches and the hosts, then the pod's spines; the
super-spines last. Links: access, rail switch to spine, spine to super-spine. Every design is one shape of
the same Clos (RFC 7938 section 3), so there is one generator.

Where the fabric has planes, each is such a Clos by itself, and hosts alone are in several: either port p of every NIC
is in plane p (HPN, Qian et al., SIGCOMM 2024), or rail switch i is in plane (i - 1) mod planes + 1, and with it the NIC
of each GPU (DeepSeek-V3, Zhao et al., ISCA 2025).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import product

from testbed.base.names import host_name, plane_letter, rail_switch_name, spine_name, super_spine_name
from testbed.lab.core.fabric.bfd import resolve_routing
from testbed.lab.core.fabric.figures.cables import CABLE_LABEL
from testbed.lab.core.fabric.numbers import RailSwitchNumbers
from testbed.lab.core.fabric.params import FabricParams
from testbed.lab.core.fabric.ports import access_port, nic_name, parallel_links, super_spine_position
from testbed.lab.core.fabric.shape import Shape, resolve_shape
from testbed.lab.core.model import End, Lab, Link, LinkKind, Node, NodeKind, Place, RailSubnet, Rdma, Role


def generate_fabric(params: FabricParams, *, name: str, source: str = "") -> Lab:
    """The lab that `params` describes. Pure.

    Raises `FabricError` with the dotted key at fault; `check_params` gives all faults at once.
    """
    shape = resolve_shape(params)
    return Lab(
        name=name,
        nodes=tuple(_nodes(shape, params.nic.rdma)),
        links=(
            *_access_links(shape, params.mtu),
            *_peer_links(shape, params.mtu),
            *_uplinks(shape, params.mtu),
            *_core_links(shape, params.mtu),
        ),
        rail_subnets=tuple(_rail_subnets(shape)),
        routing=resolve_routing(params.routing, shape.fabric_links, aggregate=shape.slots > 1 and shape.spines > 0),
        design=shape.design.name,
        isolated_rails=shape.design.isolated_rails,
        gpus_per_nic=shape.gpus_per_nic,
        planes=len(shape.planes),
        switch_radix=shape.switch_radix,
        tier_radix={role.value: ports for role, ports in shape.tier_radix.items()},
        source=source,
    )


def _segments(shape: Shape) -> Iterator[tuple[int, int]]:
    """Yield every (pod, segment)."""
    for pod in range(1, shape.pods + 1):
        for segment in range(1, shape.segments + 1):
            yield pod, segment


def _nodes(shape: Shape, rdma: Rdma | None) -> Iterator[Node]:
    numbers = RailSwitchNumbers(shape)
    for pod in range(1, shape.pods + 1):
        for segment in range(1, shape.segments + 1):
            for index, plane, _ in shape.rail_switch_places():
                block = numbers.block(pod, segment, index, plane)
                place = Place(pod=pod, segment=segment, index=index, plane=plane, block=block)
                switch = rail_switch_name(pod, segment, index, plane_letter(plane))
                yield Node(name=switch, kind=NodeKind.SWITCH, role=Role.RAIL, place=place)
            for host in range(1, shape.hosts_in(pod, segment) + 1):
                place = Place(pod=pod, segment=segment, index=host)
                yield Node(name=host_name(pod, segment, host), kind=NodeKind.HOST, place=place, rdma=rdma)
        for plane, spine in product(shape.planes, range(1, shape.spines + 1)):
            place = Place(pod=pod, index=spine, plane=plane)
            name = spine_name(pod, spine, plane_letter(plane))
            yield Node(name=name, kind=NodeKind.SWITCH, role=Role.SPINE, place=place)
    for plane, index in product(shape.planes, range(1, shape.super_spines + 1)):
        place = Place(index=index, plane=plane)
        name = super_spine_name(index, plane_letter(plane))
        yield Node(name=name, kind=NodeKind.SWITCH, role=Role.SUPER_SPINE, place=place)


def _rail_slots(shape: Shape) -> Iterator[tuple[int, int, int]]:
    """Yield every rail with the rail switch that carries it and its slot there: (rail, index, slot)."""
    for rail in range(1, shape.nics + 1):
        yield rail, (rail - 1) // shape.slots + 1, (rail - 1) % shape.slots


def _rail_subnets(shape: Shape) -> Iterator[RailSubnet]:
    for pod, segment in _segments(shape):
        for port in shape.ports[:1] if shape.link_groups else shape.ports:  # a pair has the subnet of its first switch
            for rail, index, slot in _rail_slots(shape):
                plane = plane_letter(shape.plane_of_rail_switch(index, port))
                yield RailSubnet(
                    switch=rail_switch_name(pod, segment, index, plane),
                    rail=rail,
                    slot=slot,
                    prefix_length=shape.prefix_length,
                    aggregate_length=shape.aggregate_length,
                )


def _access_links(shape: Shape, mtu_bytes: int) -> Iterator[Link]:
    labels = _cable_label(shape.nic_cable)
    for pod, segment in _segments(shape):
        wiring = [
            (
                rail,
                slot,
                nic_name(rail, port, shared=shape.shared_nics),
                rail_switch_name(pod, segment, index, plane_letter(shape.plane_of_rail_switch(index, port))),
            )
            for rail, index, slot in _rail_slots(shape)
            for port in shape.ports
        ]
        for host in range(1, shape.hosts_in(pod, segment) + 1):
            node = host_name(pod, segment, host)
            for rail, slot, nic, switch in wiring:
                yield Link(
                    a=End(node=node, interface=nic),
                    b=End(node=switch, interface=access_port(host, slot, shape.slots, shape.port_map)),
                    kind=LinkKind.MEMBER if shape.link_groups else LinkKind.ACCESS,
                    rate=shape.nic_rate,
                    mtu_bytes=mtu_bytes,
                    rail=rail,
                    labels=labels,
                )


def _peer_links(shape: Shape, mtu_bytes: int) -> Iterator[Link]:
    """Yield the links between the two rail switches of each rail, where they are one partner of link groups.

    The ports have different names, as those of pairs of leaves (`testbed.lab.core.fabric.networks`).
    """
    for pod, segment in _segments(shape) if shape.link_groups else ():
        for index in range(1, shape.rail_switches + 1):
            first, second = (rail_switch_name(pod, segment, index, plane_letter(port)) for port in shape.ports)
            yield Link(
                a=End(node=first, interface="peer2"),
                b=End(node=second, interface="peer1"),
                kind=LinkKind.PEER,
                rate=shape.uplink_rate,
                mtu_bytes=mtu_bytes,
            )


def _cable_label(cable: str | None) -> Mapping[str, str]:
    """Return the labels of links that have this kind of cable."""
    return {} if cable is None else {CABLE_LABEL: str(cable)}


def _uplinks(shape: Shape, mtu_bytes: int) -> Iterator[Link]:
    """Yield the links from every rail switch to every spine of its pod and plane."""
    link = partial(
        Link,
        rate=shape.uplink_rate,
        mtu_bytes=mtu_bytes,
        delay=shape.uplink_delay,
        loss=shape.uplink_loss,
        labels=_cable_label(shape.uplink_cable),
    )
    for pod, segment in _segments(shape):
        for index, plane, within in shape.rail_switch_places():
            switch = rail_switch_name(pod, segment, index, plane_letter(plane))
            above = plane_letter(plane) if len(shape.planes) > 1 else ""
            spines = [spine_name(pod, spine, above) for spine in range(1, shape.spines + 1)]
            position = (segment - 1) * shape.leaves_of_plane + within
            yield from parallel_links(switch, position, spines, shape.uplink_count, link)


def _core_links(shape: Shape, mtu_bytes: int) -> Iterator[Link]:
    """Yield the links from every spine to every super-spine of its group and plane."""
    link = partial(
        Link,
        rate=shape.core_rate,
        mtu_bytes=mtu_bytes,
        delay=shape.core_delay,
        loss=shape.core_loss,
        labels=_cable_label(shape.core_cable),
    )
    spines = range(1, shape.spines + 1)
    for pod, plane, spine in product(range(1, shape.pods + 1), map(plane_letter, shape.planes), spines):
        group, within = (spine - 1) % shape.groups, (spine - 1) // shape.groups
        above = [super_spine_name(index, plane) for index in range(group + 1, shape.super_spines + 1, shape.groups)]
        position = super_spine_position(pod, within, shape.pods)
        yield from parallel_links(spine_name(pod, spine, plane), position, above, shape.core_count, link)
