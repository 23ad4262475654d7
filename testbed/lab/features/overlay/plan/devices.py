"""VRFs as devices of the kernel, in the namespace of their switch: what is needed there that a namespace has by itself.

A device has a table of routes of its own, and the local addresses of its interfaces are in it. Packets that come in at
one of its interfaces are routed by that table alone (Documentation/networking/vrf.rst of Linux): the local table of the
switch must come after it, or a tenant would reach the addresses of the underlay, and it must end in an unreachable
default route, or what it lacks would be looked up in the main table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from testbed.base.errors import PlanError
from testbed.lab.core.model import Lab, LinkKind, VrfBy
from testbed.lab.core.plan.operations import Operation, SetSysctl, SetUp
from testbed.lab.core.plan.overlay_operations import CreateVrfDevice, PreferVrfs
from testbed.lab.core.plan.overlay_plan import VrfPlan

FIRST_VRF = 1 << 28
"""The interface index of a VRF device is this plus its L3VNI."""
FIRST_TABLE = 1 << 24
"""The number of its table is this plus its L3VNI: the kernel has 253 to 255 for itself."""


def vrf_text(vrfs: Iterable[VrfPlan]) -> str:
    """Return by which mechanism VRFs are there, as a sentence; "" for none."""
    sentences = {
        frozenset(): "",
        frozenset({True}): "VRFs by device (the kernel's, in the namespaces of their switches)",
        frozenset({False}): "VRFs by namespace (one for each, beside that of its switch)",
        frozenset({True, False}): "VRFs by device on some switches and by namespace on others",
    }
    return sentences[frozenset(vrf.is_device for vrf in vrfs)]


def device_switches(lab: Lab, auto: VrfBy) -> frozenset[str]:
    """The switches whose VRFs are devices. `auto` is what they are where it is left to the machine.

    Leaves that are pairs have namespaces for VRFs, whatever the kernel has.
    """
    if lab.overlay is None:
        return frozenset()
    paired = {link.network: VrfBy.NAMESPACE for link in lab.links if link.kind is LinkKind.MEMBER}
    given = paired | dict(lab.overlay.vrf_by)
    return frozenset(node.name for node in lab.switches if given.get(node.network, auto) is VrfBy.DEVICE)


def create_devices(vrfs: Sequence[VrfPlan]) -> list[Operation]:
    """Make the devices among VRFs, and have their tables come before the local ones of their switches."""
    devices = [vrf for vrf in vrfs if vrf.is_device]
    operations: list[Operation] = [
        CreateVrfDevice(node=vrf.place, name=vrf.tenant, ifindex=vrf.ifindex, table=vrf.table, ipv6=vrf.ipv6)
        for vrf in devices
    ]
    dual = {vrf.place for vrf in devices if vrf.ipv6}
    return operations + [
        PreferVrfs(node=node, ipv6=node in dual) for node in dict.fromkeys(vrf.place for vrf in devices)
    ]


def interface_sysctls(node: str, name: str) -> tuple[SetSysctl, ...]:
    """The settings of a VRF's interface that a namespace has for all of its own.

    It routes, though the switch may not: its rails may be isolated. Gratuitous ARP makes a neighbour.
    """
    return tuple(
        SetSysctl(node=node, key=f"net/ipv4/conf/{name}/{key}", value="1") for key in ("forwarding", "arp_accept")
    )


def set_up_devices(vrfs: Sequence[VrfPlan], wires: Callable[[str], Iterable[str]]) -> list[Operation]:
    """Bring the devices among VRFs up, and set what they route by. `wires` are the interfaces to others, by VRF."""
    operations: list[Operation] = []
    for vrf in vrfs:
        if vrf.is_device:
            for name in (*(vni.bridge for vni in (vrf.l3, *vrf.l2)), *wires(vrf.node)):
                operations += interface_sysctls(vrf.place, name)
    return operations + [SetUp(node=vrf.place, name=vrf.tenant, ifindex=vrf.ifindex) for vrf in vrfs if vrf.is_device]


def check_device_names(
    vrfs: Sequence[VrfPlan], wires: Callable[[str], Iterable[str]], others: Mapping[str, Iterable[str]]
) -> None:
    """Raise `PlanError` where a VRF device, or an interface in one, has the name of another interface of its switch.

    `wires` are the interfaces to other tenants, by VRF, `others` those that each switch has without an overlay.
    """
    taken = {vrf.place: {"lo", *others[vrf.place]} for vrf in vrfs if vrf.is_device}
    devices = [vrf for vrf in vrfs if vrf.is_device]
    for vrf in devices:
        ours = {name for vni in (vrf.l3, *vrf.l2) for name in (vni.bridge, vni.vxlan)} | {*wires(vrf.node)}
        for name in sorted(ours & taken[vrf.place]):
            raise PlanError(f"{vrf.switch}: two things want the interface {name}", code="duplicate-interface")
        taken[vrf.place] |= ours
    for vrf in devices:
        if vrf.tenant in taken[vrf.place]:
            raise PlanError(
                f"the VRF of {vrf.tenant} on {vrf.switch} would be an interface, and there is another one of that name",
                field=f"tenants.{vrf.tenant}",
                code="duplicate-interface",
                hint="give the tenant another name, or overlay: {evpn: {vrf_by: namespace}}",
            )
