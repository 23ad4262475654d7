"""An overlay as `inspect` shows it: its tenants with their subnets, and its VTEPs with their VRFs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from testbed.base.errors import TestbedError
from testbed.base.names import namespace_name
from testbed.base.rows import column, for_programs
from testbed.lab.core.model import Lab, Overlay, Tenant, VrfBy
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.features.overlay.watch import count_missing


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantRow:
    """A subnet of a tenant: VNIs, shares, prefix, gateway, the switches and NICs that it is on."""

    tenant: str
    l3vni: int
    route_targets: Mapping[str, Sequence[str]] = for_programs()
    talks_to: Mapping[str, list[str] | str] = for_programs()
    cap: str | None = column(sparse=True)
    traffic_class: str | None = column(sparse=True)
    guarantee: str | None = column(sparse=True)
    subnet: str
    network: str = for_programs()
    prefix: str
    prefix6: str | None = column(sparse=True)
    l2vni: int
    gateway: str
    gateway6: str | None = for_programs()
    mtu: int
    switches: Sequence[str]
    nics: Sequence[str]
    addresses: Mapping[str, str] = for_programs()
    addresses6: Mapping[str, str] = for_programs()


@dataclass(frozen=True, slots=True, kw_only=True)
class VtepRow:
    """A VRF of a VTEP: what it is and where, its VNIs, and how many of its planned entries are there."""

    switch: str
    vtep: str
    vrf: str
    by: str
    namespace: str
    l3vni: int
    l2vnis: Sequence[int]
    rd: str = for_programs()
    router_mac: str
    entries: int
    planned: int


def overlay_of(lab: Lab) -> Overlay:
    """Raises `TestbedError` for a lab without tenants."""
    if lab.overlay is None:
        raise TestbedError(
            f"{lab.name} has no overlay, and so no tenants",
            hint="fabric: {overlay: evpn} and a section tenants: in the topology file give it some",
        )
    return lab.overlay


def tenant_rows(lab: Lab, plan: LabPlan, wanted: Callable[[str], bool]) -> list[TenantRow]:
    """Make a row for each subnet that has NICs of nodes that are `wanted`. Raises `TestbedError`."""
    overlay = overlay_of(lab)
    ports = {f"{nic.node}:{nic.name}": nic for host in plan.hosts for nic in host.nics}
    vrfs = () if plan.overlay is None else plan.overlay.vrfs
    rows = []
    for tenant in overlay.tenants:
        for subnet in tenant.subnets:
            nics = [str(end) for end in subnet.nics if wanted(end.node) and str(end) in ports]
            if not nics and subnet.nics:
                continue
            rows.append(
                TenantRow(
                    tenant=tenant.name,
                    l3vni=tenant.vni,
                    route_targets={"import": tenant.imports, "export": tenant.exports},
                    talks_to={talk.tenant: list(map(str, talk.services)) or "all" for talk in tenant.talks_to},
                    cap=None if tenant.cap is None else str(tenant.cap),
                    traffic_class=tenant.traffic_class or None,
                    guarantee=_guarantee(lab, tenant, subnet.network),
                    subnet=subnet.name,
                    network=subnet.network,
                    prefix=str(subnet.prefix),
                    prefix6=None if subnet.prefix6 is None else str(subnet.prefix6),
                    l2vni=subnet.vni,
                    gateway=str(subnet.prefix.network_address + 1),
                    gateway6=None if subnet.gateway6 is None else str(subnet.gateway6.ip),
                    mtu=overlay.mtu_bytes[subnet.network],
                    switches=[vrf.switch for vrf in vrfs for vni in vrf.l2 if vni.vni == subnet.vni],
                    nics=nics,
                    addresses={nic: str(ports[nic].address) for nic in nics},
                    addresses6={nic: str(address) for nic in nics if (address := ports[nic].address6)},
                )
            )
    return rows


def _guarantee(lab: Lab, tenant: Tenant, network: str) -> str | None:
    """Say which share of the links between switches a tenant's class has when all of them are busy, and with whom it
    shares it."""
    policy = lab.qos_of(network)
    if policy is None or not tenant.traffic_class:
        return None
    name = tenant.traffic_class
    found = [item.weight for profile in policy.profiles for item in profile.classes if item.name == name]
    others = [] if lab.overlay is None else lab.overlay.tenants
    sharing = [other.name for other in others if other is not tenant and other.traffic_class == name]
    return f"{min(found)} %" + (f" with {', '.join(sharing)}" if sharing else "")


def vtep_rows(lab: Lab, plan: LabPlan, wanted: Callable[[str], bool]) -> list[VtepRow]:
    """Make a row for each VRF of the switches that are `wanted`, from what the kernel has. Raises `TestbedError`."""
    overlay_of(lab)
    assert plan.overlay is not None
    missing = count_missing(plan)
    return [
        VtepRow(
            switch=vrf.switch,
            vtep=str(vrf.vtep),
            vrf=vrf.tenant,
            by=(VrfBy.DEVICE if vrf.is_device else VrfBy.NAMESPACE).value,
            namespace=namespace_name(lab.name, vrf.place),
            l3vni=vrf.l3.vni,
            l2vnis=[vni.vni for vni in vrf.l2],
            rd=vrf.l3.rd,
            router_mac=vrf.l3.mac,
            entries=(planned := len(plan.overlay.expected[vrf.node])) - missing[vrf.node],
            planned=planned,
        )
        for vrf in plan.overlay.vrfs
        if wanted(vrf.switch)
    ]
