"""The views of an overlay that `inspect` prints: its tenants with their subnets, and its VTEPs with their VRFs."""

from __future__ import annotations

from typing import Any

from testbed.base.errors import TestbedError
from testbed.base.names import namespace_name
from testbed.cli.lab_choice import DeclaredLab
from testbed.cli.labs.node_filter import NodeFilter
from testbed.cli.options import Format
from testbed.cli.output import emit_rows
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.model import Lab, Overlay, Tenant, VrfBy
from testbed.lab.features.overlay.watch import count_missing


def _overlay_of(lab: RunningLab | DeclaredLab) -> Overlay:
    if lab.model.overlay is None:
        raise TestbedError(
            f"{lab.name} has no overlay, and so no tenants",
            hint="fabric: {overlay: evpn} and a section tenants: in the topology file give it some",
        )
    return lab.model.overlay


def show_tenants(lab: RunningLab | DeclaredLab, nodes: NodeFilter, form: Format) -> None:
    """Print each subnet of each tenant: VNIs, shares, prefix, gateway, the switches and NICs that it is on."""
    overlay = _overlay_of(lab)
    addresses = {f"{nic.node}:{nic.name}": nic.address for host in lab.plan.hosts for nic in host.nics}
    addresses6 = {f"{nic.node}:{nic.name}": nic.address6 for host in lab.plan.hosts for nic in host.nics}
    vrfs = () if lab.plan.overlay is None else lab.plan.overlay.vrfs
    rows: list[dict[str, Any]] = []
    for tenant in overlay.tenants:
        for subnet in tenant.subnets:
            nics = [end for end in subnet.nics if nodes.accepts(end.node) and str(end) in addresses]
            if not nics and subnet.nics:
                continue
            here = [(vrf, vni) for vrf in vrfs for vni in vrf.l2 if vni.vni == subnet.vni]
            rows.append(
                {
                    "tenant": tenant.name,
                    "l3vni": tenant.vni,
                    "route_targets": {"import": list(tenant.imports), "export": list(tenant.exports)},
                    "talks_to": {
                        talk.tenant: [str(item) for item in talk.services] or "all" for talk in tenant.talks_to
                    },
                    "cap": None if tenant.cap is None else str(tenant.cap),
                    "traffic_class": tenant.traffic_class or None,
                    "guarantee": _guarantee(lab.model, tenant, subnet.network),
                    "subnet": subnet.name,
                    "network": subnet.network,
                    "mtu": overlay.mtu_bytes[subnet.network],
                    "prefix": str(subnet.prefix),
                    "l2vni": subnet.vni,
                    "gateway": str(subnet.prefix.network_address + 1),
                    "switches": [vrf.switch for vrf, _ in here],
                    "nics": [str(end) for end in nics],
                    "addresses": {str(end): str(addresses[str(end)]) for end in nics},
                    "prefix6": None if subnet.prefix6 is None else str(subnet.prefix6),
                    "gateway6": None if subnet.gateway6 is None else str(subnet.gateway6.ip),
                    "addresses6": {str(end): str(address) for end in nics if (address := addresses6[str(end)])},
                }
            )
    shares = [key for key in ("cap", "traffic_class", "guarantee") if any(row[key] for row in rows)]
    prefixes = ["prefix", "prefix6"] if any(row["prefix6"] for row in rows) else ["prefix"]
    columns = ["tenant", "l3vni", *shares, "subnet", *prefixes, "l2vni", "gateway", "mtu", "switches", "nics"]
    emit_rows(rows, columns, form, title=f"{lab.name}: tenants", json_document={"lab": lab.name, "rows": rows})


def _guarantee(lab: Lab, tenant: Tenant, network: str) -> str | None:
    """What a tenant's class has of the links between switches when all of them are busy, and with whom it shares it."""
    policy = lab.qos_of(network)
    if policy is None or not tenant.traffic_class:
        return None
    name = tenant.traffic_class
    found = [item.weight for profile in policy.profiles for item in profile.classes if item.name == name]
    others = [] if lab.overlay is None else lab.overlay.tenants
    sharing = [other.name for other in others if other is not tenant and other.traffic_class == name]
    return f"{min(found)} %" + (f" with {', '.join(sharing)}" if sharing else "")


def show_vteps(lab: RunningLab, nodes: NodeFilter, form: Format) -> None:
    """Print each VRF of each VTEP: what it is and where, its VNIs, and how many of its planned entries are there."""
    _overlay_of(lab)
    assert lab.plan.overlay is not None
    missing = count_missing(lab.plan)
    rows: list[dict[str, Any]] = []
    for vrf in lab.plan.overlay.vrfs:
        if not nodes.accepts(vrf.switch):
            continue
        planned = len(lab.plan.overlay.expected[vrf.node])
        rows.append(
            {
                "switch": vrf.switch,
                "vtep": str(vrf.vtep),
                "vrf": vrf.tenant,
                "by": (VrfBy.DEVICE if vrf.is_device else VrfBy.NAMESPACE).value,
                "namespace": namespace_name(lab.name, vrf.place),
                "l3vni": vrf.l3.vni,
                "l2vnis": [vni.vni for vni in vrf.l2],
                "rd": vrf.l3.rd,
                "router_mac": vrf.l3.mac,
                "entries": planned - missing[vrf.node],
                "planned": planned,
            }
        )
    columns = ["switch", "vtep", "vrf", "by", "namespace", "l3vni", "l2vnis", "router_mac", "entries", "planned"]
    emit_rows(rows, columns, form, title=f"{lab.name}: VTEPs", json_document={"lab": lab.name, "rows": rows})
