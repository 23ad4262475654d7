"""A plan in words: one line per operation for a dry run, and a summary."""

from __future__ import annotations

from collections import Counter
from typing import assert_never

from testbed.base.units import ByteCount, Duration, Rate
from testbed.daemons.lag.groups import CreateBond
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
    LabPlan,
    Operation,
    SetBridgePort,
    SetNeighbour,
    SetSysctl,
    SetUp,
    ShapePort,
    StartContainer,
    StartRouting,
)
from testbed.lab.core.plan.qos.qos_plan import QosPlan
from testbed.lab.features.management.plan.management_plan import FormCommunity, GuardManagement
from testbed.lab.features.management.plan.service_operations import StartService
from testbed.lab.features.overlay.plan.device_operations import CreateVrf, CreateVrfDevice, CreateVxlan, PreferVrfs
from testbed.lab.features.overlay.plan.policy_operations import SetBorder, SetPolicy


def describe_operation(operation: Operation) -> str:
    """One line without a newline, such as `create veth p1-s1-h1:rail1 <-> p1-s1-rail1:down1 mtu 4500`."""
    match operation:
        case CreateNode(node=node):
            return f"create node {node}"
        case StartContainer(node=node, container=container):
            return f"start container {node} of {container.image or container.runtime}"
        case CreateVrf(node=node, switch=switch, tenant=tenant):
            return f"create VRF {tenant} on {switch} as {node}"
        case CreateVrfDevice(node=node, name=name, table=table, ipv6=ipv6):
            return f"create VRF device {node}:{name} table {table}{' with IPv6' if ipv6 else ''}"
        case PreferVrfs(node=node, ipv6=ipv6):
            return f"look up tables of VRFs before the local one on {node}{', in IPv6, too' if ipv6 else ''}"
        case SetSysctl(node=node, key=key, value=value, optional=optional):
            return f"set {node} {key.replace('/', '.')} = {value}{' (if present)' if optional else ''}"
        case CreateBond(node=node, name=name, mtu_bytes=mtu):
            return f"create bond {node}:{name} mtu {mtu}"
        case CreateBridge(node=node, name=name, mtu_bytes=mtu, master=master):
            return f"create bridge {node}:{name} mtu {mtu}" + (f" in VRF device {master}" if master else "")
        case CreateVxlan(node=node, name=name, vni=vni, local=local, mtu_bytes=mtu, dscp=dscp):
            marked = "" if dscp is None else f" dscp {dscp}"
            return f"create vxlan {node}:{name} vni {vni} local {local} mtu {mtu}{marked}"
        case SetBridgePort(
            node=node, name=name, learning=learning, neighbour_suppression=suppression, isolated=isolated
        ):
            on = {True: "on", False: "off"}
            apart = " isolated" if isolated else ""
            return (
                f"set bridge port {node}:{name} learning {on[learning]} neighbour suppression {on[suppression]}{apart}"
            )
        case CreateVeth(a=a, b=b, mtu_bytes=mtu):
            return f"create veth {a.node}:{a.name} <-> {b.node}:{b.name} mtu {mtu}"
        case ShapePort(node=node, name=name, rate_bps=rate, burst_bytes=burst):
            return f"shape {node}:{name} to {Rate(rate)} burst {ByteCount(burst)}"
        case InstallPort(node=node, name=name, rate_bps=rate, burst_bytes=burst, profile=profile, cap_bps=cap):
            capped = f" cap {Rate(cap)}" if cap else ""
            return f"install port {node}:{name} at {Rate(rate)} burst {ByteCount(burst)} profile {profile}{capped}"
        case DelayPort(node=node, name=name, delay_ns=delay, jitter_ns=jitter, limit_packets=limit):
            varying = f" +- {Duration(jitter)}" if jitter else ""
            return f"delay what {node}:{name} receives by {Duration(delay)}{varying}, at most {limit} packets"
        case GuardSwitch(node=node, ports=guarded, guards=guards):
            return f"guard {len(guarded)} ports of {node} by {', '.join(guards.kinds)}"
        case SetPolicy(node=node, ports=wires):
            return f"let pass into {node} from {len(wires)} other tenants what they may ask for"
        case SetBorder(node=node, name=name, sources=sources):
            return f"let pass into {node}:{name} from {', '.join(map(str, sources))} what is to the tenant"
        case GuardManagement(node=node, name=name, prefix=prefix):
            return f"keep {prefix} on {node}:{name}, and everything else off it"
        case FormCommunity(node=node, hosts=hosts, tcp=tcp):
            ports = ", ".join(str(item.start) if len(item) == 1 else f"{item[0]}-{item[-1]}" for item in tcp)
            return f"let {len(hosts)} hosts on {node} speak with each other at tcp/{ports}"
        case SetNeighbour(node=node, name=name, address=address, mac=mac):
            return f"set neighbour {node}:{name} {address} at {mac}"
        case SetUp(node=node, name=name):
            return f"set up {node}:{name}"
        case AddAddress(node=node, name=name, address=address):
            return f"add address {node}:{name} {address}"
        case AddRoute(node=node, destination=destination, gateway=gateway, ifindex=ifindex, table=table) as route:
            where = "default" if destination.prefixlen == 0 else str(destination)
            via = f" via {gateway}" if gateway is not None else ""
            by = f" source {route.source}" if route.source is not None else ""
            by += f" metric {route.metric}" if route.metric else ""
            return f"add route {node} {where}{via} interface {ifindex} table {table}{by}"
        case AddRule(node=node, source=source, table=table, priority=priority, destination=destination):
            to = f" to {destination}" if destination is not None else ""
            what = f"table {table}" if table else "unreachable"
            return f"add rule {node} from {source}{to} {what} priority {priority}"
        case CreateRdma(node=node, name=name, device=device):
            return f"create rxe device {device} on {node}:{name}"
        case StartService(node=node, service=service, address=address):
            return f"start service {service} on {node} at {address}"
        case StartRouting(node=node, daemons=daemons):
            return f"start {' '.join(daemons)} on {node}"
        case _:
            assert_never(operation)


def _qos_line(qos: QosPlan) -> str:
    """`inspect qos` has the rest."""
    switch_ports = [profile for profile in qos.profiles if profile.switch]
    count = len({profile.profile for profile in switch_ports})
    lossless = any(item.lossless for profile in switch_ports for item in profile.classes)
    return (
        f"qos: {count} profile{'' if count == 1 else 's'} of switch ports, {'with' if lossless else 'without'} lossless"
        f" classes; modelled base RTT {Duration(qos.base_rtt_ns)} (real time)"
    )


def summarize_plan(plan: LabPlan) -> str:
    """A few lines: how much of everything, the time scale, the span of AS numbers."""
    counts = Counter(type(operation).__name__ for operation in plan.operations)
    sessions = sum(len(switch.neighbors) for switch in plan.speakers) // 2
    routes = sum(len(table) for table in plan.expected_routes.values())
    lines = [
        f"lab {plan.lab}: {len(plan.hosts)} hosts, {len(plan.switches)} switches, {counts['CreateVeth']} links",
        f"time scale: k = {plan.k:g}",
        f"routing: {sessions} BGP sessions, {routes} routes when converged",
        f"operations: {len(plan.operations)}",
    ]
    started = [item.container for item in plan.operations if isinstance(item, StartContainer)]
    images = Counter(container.image or container.runtime for container in started)
    if images:
        shown = ", ".join(f"{count} of {image}" for image, count in sorted(images.items()))
        lines.insert(1, f"containers: {shown}")
    rates = sorted({(port.line_rate_bps, port.rate_bps) for port in plan.ports})
    if rates:
        scaled = ", ".join(f"{Rate(line)} as {Rate(rate)}" for line, rate in rates)
        lines.insert(lines.index(f"time scale: k = {plan.k:g}") + 1, f"rates: {scaled}")
    if plan.overlay is not None:
        tenants = {vrf.tenant for vrf in plan.overlay.vrfs}
        entries = sum(len(entries) for entries in plan.overlay.expected.values())
        lines.append(
            f"overlay: {len(tenants)} tenants in {len(plan.overlay.vrfs)} VRFs, {entries} entries when converged"
        )
    if plan.qos is not None:
        lines.append(_qos_line(plan.qos))
    lines += [f"{_qos_line(qos)}, {name}" for name, qos in plan.qos_beside.items()]
    return "\n".join(lines)
