"""The views of a deployed lab that `inspect` prints, but for its QoS."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from testbed.base.errors import DriverError, TestbedError
from testbed.base.units import Duration, Rate
from testbed.cli.counters.guard_rows import guard_rows
from testbed.cli.lab_choice import DeclaredLab, check_network, open_lab, open_or_declare, read_topology
from testbed.cli.labs.node_filter import NodeFilter
from testbed.cli.labs.sizing import emit_sizing
from testbed.cli.labs.tenants_view import show_tenants, show_vteps
from testbed.cli.labs.transport_scale import medium_rows, transport_rows
from testbed.cli.nodes.link_conditions import read_conditions
from testbed.cli.options import Format
from testbed.cli.output import emit_rows
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.packet_costs import PacketCosts
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.model import BACKEND, NETNS, OUT_OF_BAND, Delay, DelayBy, Link, LinkKind
from testbed.lab.core.plan.link_delays import mechanism_text
from testbed.lab.core.plan.operations import PortPlan
from testbed.lab.features.guards.watch import read_dropped
from testbed.lab.features.management.services_apply import read_services
from testbed.lab.features.mlag.apply import read_link_groups
from testbed.lab.features.scale_up.plan.time_scale import plan_scale_up
from testbed.lab.features.scale_up.watch_switches import dead_domains, dead_line


def show_view(
    what: str, name: str | None, topology: str | None, network: str | None, nodes: NodeFilter, form: Format
) -> None:
    """Print one view of a deployed lab, or of one network of it. Raises `TestbedError` for a view or a network that
    there is not."""
    seen_views: Mapping[str, Callable[[RunningLab | DeclaredLab, NodeFilter, Format], None]] = {
        "scale": _scale,
        "sizing": _sizing,
        "tenants": show_tenants,
    }
    live_views: Mapping[str, Callable[[RunningLab, NodeFilter, Format], None]] = {
        "nodes": _nodes,
        "links": _links,
        "routes": _routes,
        "bgp": _bgp,
        "guards": _guards,
        "link-groups": _link_groups,
        "services": _services,
        "vteps": show_vteps,
    }
    if what == "sizing" and topology is not None:  # of the file as it is, whatever runs under its name
        model = read_topology(topology, name)
        check_network(model, network)
        emit_sizing(model if network is None else model.of_network(network), form)
    elif what in seen_views:
        seen = open_or_declare(name, topology)
        check_network(seen.model, network)
        seen_views[what](seen if network is None else seen.of_network(network), nodes, form)
    elif what in live_views:
        lab = open_lab(name, topology)
        check_network(lab.model, network)
        live_views[what](lab if network is None else lab.of_network(network), nodes, form)
    else:
        known = [*live_views, *seen_views, "qos", "scale-up"]
        raise TestbedError(f"cannot inspect {what!r}", hint=f"one of {', '.join(sorted(known))}")


def _guards(lab: RunningLab, nodes: NodeFilter, form: Format) -> None:
    """What each guard has dropped at each port, and each policy and border; in a table, only what is not zero."""
    dropped = read_dropped(lab)
    rows = [
        row
        for row in guard_rows(lab, dropped)
        if nodes.accepts(row["switch"]) and (row["dropped"] or form is not Format.TABLE)
    ]
    emit_rows(rows, ["switch", "port", "host", "guard", "dropped", "bytes"], form, title=f"{lab.name}: guards")
    if form is Format.TABLE and not rows:
        print("  nothing was dropped" if dropped else "  there are no guards here: `guards: on` of a network has them")


def _link_groups(lab: RunningLab, nodes: NodeFilter, form: Format) -> None:
    """Every member of every link group: whether it is in sync, with whom, and what its leaf does with it."""
    rows = []
    for status in read_link_groups(lab):
        pair = status.pair
        for group in status.groups if nodes.accepts(status.node) else ():
            for member in group.members:
                row = {
                    "node": status.node,
                    "group": group.name,
                    "member": member.name,
                    "in_sync": member.in_sync,
                    "lacp": str(member.receive),
                    "partner": member.partner,
                    "partner_port": member.partner_port,
                    "peer_link": "" if pair is None else pair.peer_link,
                    "note": "",
                }
                if pair is not None and (pair.reason or group.name in pair.detoured):
                    row["note"] = pair.reason or "over the peer link"
                rows.append(row)
    columns = ["node", "group", "member", "in_sync", "lacp", "partner", "peer_link", "note"]
    emit_rows(rows, columns, form, title=f"{lab.name}: link groups")
    if form is Format.TABLE and not rows:
        print("  no NIC of this lab is a link group")


def _services(lab: RunningLab, nodes: NodeFilter, form: Format) -> None:
    """Every service of the management network on every node: whether it answers, and what it says of itself."""
    rows = [
        {
            "service": status.service,
            "node": status.node,
            "address": status.address,
            "ports": list(status.ports),
            "state": status.state,
            "detail": status.detail,
            "pids": dict(status.pids),
            "log": status.log,
        }
        for status in read_services(lab)
        if nodes.accepts(status.node)
    ]
    columns = ["service", "node", "address", "ports", "state", "detail"]
    emit_rows(rows, columns, form, title=f"{lab.name}: services")
    if form is Format.TABLE and not rows:
        print("  this lab has no services: networks.NAME: {design: out-of-band, services: [ssh, dns]} has some")


def _nodes(lab: RunningLab, nodes: NodeFilter, form: Format) -> None:
    management = lab.plan.management if lab.model.design != OUT_OF_BAND else None
    managed = {} if management is None else management.addresses
    rows = [
        {
            "name": status.name,
            "kind": status.kind,
            "role": status.role,
            "runtime": status.runtime,
            "image": status.image,
            "state": status.state,
            "ipv4_address": status.addresses[0] if status.addresses else "",
            "addresses": list(status.addresses),
            "management": str(managed.get(status.name, "")),
            "pids": dict(status.pids),
            "missing": list(status.missing_daemons),
        }
        for status in lab.status()
        if nodes.accepts(status.name)
    ]
    emit_rows(rows, node_columns(rows), form, title=_title(lab), json_document={lab.name: rows})


def node_columns(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what a table shows of nodes: what tells containers from namespaces only where there are some."""
    columns = ["name", "kind", "role"]
    if any(row["runtime"] != NETNS and not row["image"] for row in rows):
        columns.append("runtime")
    if any(row["image"] for row in rows):
        columns.append("image")
    columns += ["state", "ipv4_address"]
    if any(row.get("management") for row in rows):
        columns.append("management")
    if any(row["missing"] for row in rows):
        columns.append("missing")
    return columns


def _title(lab: RunningLab) -> str:
    states = {status.state for status in lab.status()}
    dead = dead_domains(lab.plan, lab.state.run_directory(lab.name))
    state = "running" if states == {"running"} and not dead else ", ".join(["degraded", *map(dead_line, dead)])
    return f"{lab.name} ({lab.model.design or 'hand-written'}, {state}, k = {lab.record.k:g})"


def _links(lab: RunningLab, nodes: NodeFilter, form: Format) -> None:
    conditions = read_conditions(lab)
    ports = {(port.node, port.name): port for port in lab.plan.ports}
    rows: list[dict[str, Any]] = []
    for link in lab.model.links:
        if not (nodes.accepts(link.a.node) or nodes.accepts(link.b.node)):
            continue
        port = ports[link.a.node, link.a.interface]
        now, declared_delay = conditions[str(link.a)], _delay_text(link.delay, port.delay_by)
        rows.append(
            {
                "a": str(link.a),
                "b": str(link.b),
                "state": "up" if now.up else "down",
                "kind": link.kind.value,
                "network": link.network,
                "rate": str(now.rate),
                "lab_rate": str(now.lab_rate),
                "mtu": link.mtu_bytes,
                "delay": declared_delay if now.delay is None else str(now.delay),
                "declared_rate": str(now.declared_rate),
                "declared_lab_rate": str(now.declared_lab_rate),
                "declared_delay": declared_delay,
                "changes": list(now.changes),
            }
        )
    columns = ["a", "b", "state", "kind", "rate", "lab_rate", "mtu", "delay"]
    changed = [row for row in rows if row["changes"]]
    if form is not Format.TABLE:
        columns += ["declared_rate", "declared_lab_rate", "declared_delay", "changes"]
    elif changed:
        columns.append("changes")
        for row in rows:
            row |= {name: _beside(row[name], row[f"declared_{name}"]) for name in ("rate", "lab_rate", "delay")}
    if len({link.network for link in lab.model.links}) > 1:
        columns.insert(0, "network")
    emit_rows(rows, columns, form, title=_title(lab))
    _print_mechanism(lab, form)


def _beside(now: str, declared: str) -> str:
    """A value as it is, and what is declared beside it where that is another one."""
    return now if now == declared else f"{now} (declared {declared or 'none'})"


def _delay_text(delay: Delay | None, by: DelayBy) -> str:
    """Tell a link's delay in real time and who realises it."""
    if delay is None:
        return ""
    varying = f" +- {delay.jitter}" if delay.jitter else ""
    return f"{delay.value}{varying} ({'ignored' if by is DelayBy.IGNORE else f'by {by.value}'})"


def _links_with_ports(lab: RunningLab | DeclaredLab) -> Iterator[tuple[Link, PortPlan]]:
    """Yield every link with its port at the lower end."""
    ports = {(port.node, port.name): port for port in lab.plan.ports}
    for link in lab.model.links:
        yield link, ports[link.a.node, link.a.interface]


def _routes(lab: RunningLab, nodes: NodeFilter, form: Format) -> None:
    names = {(port.node, port.ifindex): port.name for port in lab.plan.ports}
    rows = []
    for switch in lab.plan.speakers:
        if not nodes.accepts(switch.node):
            continue
        planned = {route.prefix: route.next_hops for route in lab.plan.expected_routes.get(switch.node, ())}
        for route in lab.routes(switch.node):
            interfaces = [names.get((switch.node, index), f"#{index}") for index in route.interfaces]
            rows.append(
                {
                    "node": switch.node,
                    "prefix": str(route.prefix),
                    "protocol": route.protocol,
                    "next_hops": len(interfaces),
                    "planned": planned.get(route.prefix) if route.protocol == "bgp" else None,
                    "interfaces": interfaces,
                }
            )
    columns = ["node", "prefix", "protocol", "next_hops", "planned", "interfaces"]
    emit_rows(rows, columns, form, title=_title(lab))


def _bgp(lab: RunningLab, nodes: NodeFilter, form: Format) -> None:
    from testbed.lab.core.deploy.watch.sessions import read_sessions

    rows: list[Mapping[str, Any]] = []
    for switch in lab.plan.speakers:
        if not nodes.accepts(switch.node):
            continue
        try:
            sessions = read_sessions(switch, lab.run_directory(switch.node))
        except DriverError as error:
            rows.append({"node": switch.node, "asn": switch.asn, "state": "unknown", "remote": error.message})
            continue
        rows += [
            {
                "node": session.node,
                "asn": switch.asn,
                "interface": session.interface,
                "remote": session.remote,
                "remote_asn": session.remote_asn,
                "state": session.state,
                "bfd": session.bfd or "off",
                "received": session.prefixes_received,
                "sent": session.prefixes_sent,
                "uptime_s": round(session.uptime_s, 1),
            }
            for session in sessions
        ]
    columns = ["node", "asn", "interface", "remote", "remote_asn", "state", "bfd", "received", "sent", "uptime_s"]
    emit_rows(rows, columns, form, title=_title(lab))


def _scale(lab: RunningLab | DeclaredLab, _: NodeFilter, form: Format) -> None:
    k = lab.plan.k
    rows = [
        {"quantity": f"rate of {kind} links", "fabric": str(Rate(bps)), "lab": str(Rate(bps).scaled(k)), "law": "/ k"}
        if kind != LinkKind.MANAGEMENT
        else {"quantity": f"rate of {kind} links", "fabric": str(Rate(bps)), "lab": str(Rate(bps)), "law": "unchanged"}
        for kind, bps in sorted({(link.kind.value, link.rate.bps) for link in lab.model.links})
    ]
    delays = sorted({(_delay_text(link.delay, port.delay_by), port.delay_ns) for link, port in _links_with_ports(lab)})
    rows += [
        {"quantity": "link delay", "fabric": text, "lab": str(Duration(delay_ns)), "law": "x k"}
        for text, delay_ns in delays
        if text
    ]
    rows += [
        {"quantity": "MTU", "fabric": f"{mtu} B", "lab": f"{mtu} B", "law": "unchanged"}
        for mtu in sorted({link.mtu_bytes for link in lab.model.links})
    ]
    if (scale_up := lab.model.scale_up).stated:
        plan = plan_scale_up(scale_up, k)
        rows += [
            {"quantity": f"scale-up {what}", "fabric": str(real), "lab": str(scaled), "law": law}
            for what, real, scaled, law in (
                ("rate of a GPU", scale_up.rate, plan.gpu_rate, "/ k"),
                ("RTT, GPU to GPU", scale_up.rtt, plan.rtt, "x k"),
            )
        ]
    rows += medium_rows(lab.model, k)
    for network in lab.model.data_networks:
        if lab.model.carrier_of(network) != network:
            continue  # its switches are another one's
        bfd = lab.model.of_network(network).routing.bfd
        said = "off" if bfd is None else f"{bfd.interval} x {bfd.multiplier}"
        of = "" if network == lab.model.data_networks[0] else f", {network}"
        rows.append({"quantity": f"BFD{of}", "fabric": said, "lab": said, "law": "lab time, not scaled"})
    rows += [
        {
            "quantity": f"CPU time of a data packet, {cost.transport}",
            "fabric": "",
            "lab": f"{cost.us:.0f} us",
            "law": "measured on this machine",
        }
        for cost in PacketCosts(StateDirectory()).all()
    ]
    if BACKEND in lab.model.network_names:
        rows += transport_rows(lab.model.of_network(BACKEND), k)
    emit_rows(rows, ["quantity", "fabric", "lab", "law"], form, title=f"{lab.name}: time scale k = {k:g}")
    _print_mechanism(lab, form)


def _print_mechanism(lab: RunningLab | DeclaredLab, form: Format) -> None:
    """Print who realises the links' delays, where a person reads the output."""
    sentence = mechanism_text(lab.plan.ports)
    if sentence and form is Format.TABLE:
        print(sentence)


def _sizing(lab: RunningLab | DeclaredLab, _: NodeFilter, form: Format) -> None:
    emit_sizing(lab.model, form)
