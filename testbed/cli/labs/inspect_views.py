"""The views of a lab that `inspect` prints, but for its QoS."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from typing import Any

from testbed.base.errors import DriverError, LabNotFound, TestbedError
from testbed.base.rows import column, for_programs, if_known, row_json, text_of
from testbed.base.units import Duration, Rate
from testbed.cli.lab_choice import DeclaredLab, check_network, open_lab, open_or_declare, read_topology
from testbed.cli.labs.routing_views import show_configurations, show_routes
from testbed.cli.nodes.link_changes import read_conditions
from testbed.cli.options import Format
from testbed.cli.output import emit, emit_json
from testbed.lab.core.deploy.live import NodeStatus, RunningLab
from testbed.lab.core.deploy.packet_costs import PacketCosts
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.fabric.base_rtt import declared_base_rtt, model_base_rtt
from testbed.lab.core.model import BACKEND, NETNS, OUT_OF_BAND, Delay, DelayBy, Lab, LinkKind
from testbed.lab.core.plan.link_delays import mechanism_text
from testbed.lab.features.management.services_apply import ServiceStatus, read_services
from testbed.lab.features.mlag.view import MemberRow, member_rows
from testbed.lab.features.overlay.view import TenantRow, VtepRow, tenant_rows, vtep_rows
from testbed.lab.features.scale_up.plan.time_scale import plan_scale_up
from testbed.lab.features.scale_up.view import (
    ScaleUpRow,
    scale_up_document,
    scale_up_rows,
    switch_document,
    switch_row,
)
from testbed.lab.features.scale_up.watch_switches import dead_domains, dead_line
from testbed.lab.observe.dropped import DroppedRow, dropped_rows, read_dropped
from testbed.protocols.congestion.controller import FlowSettings
from testbed.protocols.congestion.scaled_parameters import Dimension, scaled_parameters
from testbed.protocols.roce.config import RoceConfig

Nodes = Callable[[str], bool]
"""Chooses nodes by their names."""
_WILDCARDS = frozenset("*?[,")
_LAWS = {Dimension.TIME_NS: "x k", Dimension.RATE_BPS: "/ k", Dimension.SIZE_BYTES: "unchanged"}


def chosen_nodes(text: str | None) -> Nodes:
    """Read the comma-separated patterns of `--node-filter`, such as `leaf*,spine1`; None chooses every node."""
    patterns = [pattern.strip() for pattern in (text or "*").split(",")]
    return lambda node: any(fnmatchcase(node, pattern) for pattern in patterns)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """A node: what it is, whether it runs, and where it is found."""

    name: str
    kind: str
    role: str
    runtime: str
    image: str = column(sparse=True)
    state: str
    ipv4_address: str
    addresses: Sequence[str] = for_programs()
    management: str = column(sparse=True)
    pids: Mapping[str, int] = for_programs()
    missing: Sequence[str] = column(sparse=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRow:
    """A link as it is, and what is declared of it."""

    network: str
    a: str
    b: str
    state: str
    kind: str
    rate: str
    lab_rate: str
    mtu: int
    delay: str
    declared_rate: str = column(in_table=False)
    declared_lab_rate: str = column(in_table=False)
    declared_delay: str = column(in_table=False)
    changes: Sequence[str]

    def beside_declared(self) -> LinkRow:
        """Return the row for people: each value with what is declared beside it, where that is another one."""
        return replace(
            self,
            rate=_beside(self.rate, self.declared_rate),
            lab_rate=_beside(self.lab_rate, self.declared_lab_rate),
            delay=_beside(self.delay, self.declared_delay),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    """A BGP session at one of its ends; of a daemon that does not answer, only why."""

    node: str
    asn: int
    interface: str | None = if_known()
    remote: str
    remote_asn: int | None = if_known()
    state: str
    bfd: str | None = if_known()
    received: int | None = if_known()
    sent: int | None = if_known()
    uptime_s: float | None = if_known()


def show_view(
    what: str,
    name: str | None,
    topology: str | None,
    network: str | None,
    nodes: Nodes,
    form: Format,
    *,
    node: str | None = None,
) -> None:
    """Print one view of a deployed lab, or of one network of it; `node` must be there, where it is given. Raises
    `TestbedError` for a view, a network or a node that there is not."""
    seen_views: Mapping[str, Callable[[RunningLab | DeclaredLab, Nodes, Format], None]] = {
        "scale": _scale,
        "sizing": _sizing,
        "tenants": _tenants,
    }
    live_views: Mapping[str, Callable[[RunningLab, Nodes, Format], None]] = {
        "nodes": _nodes,
        "links": _links,
        "routes": show_routes,
        "bgp": _bgp,
        "config": show_configurations,
        "guards": _guards,
        "link-groups": _link_groups,
        "services": _services,
        "vteps": _vteps,
    }
    if what == "sizing" and topology is not None:  # of the file as it is, whatever runs under its name
        from testbed.cli.labs.sizing import emit_sizing

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
        if node is not None and not _WILDCARDS.intersection(node):
            lab.node(node)
        live_views[what](lab if network is None else lab.of_network(network), nodes, form)
    else:
        known = [*live_views, *seen_views, "qos", "scale-up"]
        raise TestbedError(f"cannot inspect {what!r}", hint=f"one of {', '.join(sorted(known))}")


def _emit(lab: RunningLab, rows: Sequence[Any], kind: type, form: Format, what: str, *, none: str) -> None:
    """Print a view of a lab; a table without a row says `none`."""
    emit(rows, kind, form, title=f"{lab.name}: {what}")
    if form is Format.TABLE and not rows:
        print(f"  {none}")


def _guards(lab: RunningLab, nodes: Nodes, form: Format) -> None:
    """Show the drops of each guard at each port, and of policies and borders; in a table, only what is not zero."""
    dropped = read_dropped(lab)
    rows = [
        row for row in dropped_rows(lab, dropped) if nodes(row.switch) and (row.dropped or form is not Format.TABLE)
    ]
    none = "nothing was dropped" if dropped else "there are no guards here: `guards: on` of a network has them"
    _emit(lab, rows, DroppedRow, form, "guards", none=none)


def _link_groups(lab: RunningLab, nodes: Nodes, form: Format) -> None:
    rows = member_rows(lab, nodes)
    _emit(lab, rows, MemberRow, form, "link groups", none="no NIC of this lab is a link group")


def _services(lab: RunningLab, nodes: Nodes, form: Format) -> None:
    rows = [status for status in read_services(lab) if nodes(status.node)]
    none = "this lab has no services: networks.NAME: {design: out-of-band, services: [ssh, dns]} has some"
    _emit(lab, rows, ServiceStatus, form, "services", none=none)


def _tenants(lab: RunningLab | DeclaredLab, nodes: Nodes, form: Format) -> None:
    _emit_overlay(lab, tenant_rows(lab.model, lab.plan, nodes), TenantRow, form, "tenants")


def _vteps(lab: RunningLab, nodes: Nodes, form: Format) -> None:
    _emit_overlay(lab, vtep_rows(lab.model, lab.plan, nodes), VtepRow, form, "VTEPs")


def _emit_overlay(lab: RunningLab | DeclaredLab, rows: Sequence[Any], kind: type, form: Format, what: str) -> None:
    document = {"lab": lab.name, "rows": list(map(row_json, rows))}
    emit(rows, kind, form, title=f"{lab.name}: {what}", document=document)


def _nodes(lab: RunningLab, nodes: Nodes, form: Format) -> None:
    management = lab.plan.management if lab.model.design != OUT_OF_BAND else None
    managed = {} if management is None else management.addresses
    rows = [_node_row(one, str(managed.get(one.name, ""))) for one in lab.status() if nodes(one.name)]
    document = {lab.name: list(map(row_json, rows))}
    emit(rows, NodeRow, form, title=_title(lab), document=document, without=unshown_columns(rows))


def _node_row(status: NodeStatus, management: str) -> NodeRow:
    return NodeRow(
        name=status.name,
        kind=status.kind,
        role=status.role,
        runtime=status.runtime,
        image=status.image,
        state=status.state,
        ipv4_address=status.addresses[0] if status.addresses else "",
        addresses=status.addresses,
        management=management,
        pids=status.pids,
        missing=status.missing_daemons,
    )


def unshown_columns(rows: Sequence[NodeRow]) -> Collection[str]:
    """Return what a table does not show of nodes: their runtimes, where all are namespaces or have an image."""
    return () if any(row.runtime != NETNS and not row.image for row in rows) else ("runtime",)


def _title(lab: RunningLab) -> str:
    states = {status.state for status in lab.status()}
    dead = dead_domains(lab.plan, lab.state.run_directory(lab.name))
    state = "running" if states == {"running"} and not dead else ", ".join(["degraded", *map(dead_line, dead)])
    return f"{lab.name} ({lab.model.design or 'hand-written'}, {state}, k = {lab.record.k:g})"


def _links(lab: RunningLab, nodes: Nodes, form: Format) -> None:
    conditions = read_conditions(lab)
    ports = {(port.node, port.name): port for port in lab.plan.ports}
    rows = []
    for link in lab.model.links:
        if not (nodes(link.a.node) or nodes(link.b.node)):
            continue
        port = ports[link.a.node, link.a.interface]
        now, declared_delay = conditions[str(link.a)], _delay_text(link.delay, port.delay_by)
        rows.append(
            LinkRow(
                network=link.network,
                a=str(link.a),
                b=str(link.b),
                state="up" if now.up else "down",
                kind=link.kind.value,
                rate=str(now.rate),
                lab_rate=str(now.lab_rate),
                mtu=link.mtu_bytes,
                delay=declared_delay if now.delay is None else str(now.delay),
                declared_rate=str(now.declared_rate),
                declared_lab_rate=str(now.declared_lab_rate),
                declared_delay=declared_delay,
                changes=now.changes,
            )
        )
    unshown = [] if len({link.network for link in lab.model.links}) > 1 else ["network"]
    if form is Format.TABLE:
        if any(row.changes for row in rows):
            rows = [row.beside_declared() for row in rows]
        else:
            unshown.append("changes")
    emit(rows, LinkRow, form, title=_title(lab), without=unshown)
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


def _bgp(lab: RunningLab, nodes: Nodes, form: Format) -> None:
    from testbed.lab.core.deploy.watch.sessions import read_sessions

    rows: list[SessionRow] = []
    for switch in lab.plan.speakers:
        if not nodes(switch.node):
            continue
        try:
            sessions = read_sessions(switch, lab.run_directory(switch.node))
        except DriverError as error:
            rows.append(SessionRow(node=switch.node, asn=switch.asn, state="unknown", remote=error.message))
            continue
        rows += [
            SessionRow(
                node=session.node,
                asn=switch.asn,
                interface=session.interface,
                remote=session.remote,
                remote_asn=session.remote_asn,
                state=session.state,
                bfd=session.bfd or "off",
                received=session.prefixes_received,
                sent=session.prefixes_sent,
                uptime_s=round(session.uptime_s, 1),
            )
            for session in sessions
        ]
    emit(rows, SessionRow, form, title=_title(lab))


def _scale(lab: RunningLab | DeclaredLab, _: Nodes, form: Format) -> None:
    emit(list(_scaled(lab)), ScaledRow, form, title=f"{lab.name}: time scale k = {lab.plan.k:g}")
    _print_mechanism(lab, form)


def _scaled(lab: RunningLab | DeclaredLab) -> Iterator[ScaledRow]:
    """Yield both sides of everything that a lab scales, and of what it does not."""
    model, k = lab.model, lab.plan.k
    for kind, rate in sorted({(link.kind.value, link.rate) for link in model.links}, key=lambda it: (it[0], it[1].bps)):
        if kind == LinkKind.MANAGEMENT:
            yield ScaledRow.unchanged(f"rate of {kind} links", str(rate))
        else:
            yield ScaledRow.rate(f"rate of {kind} links", rate, k)
    ports = {(port.node, port.name): port for port in lab.plan.ports}
    lower = ((link, ports[link.a.node, link.a.interface]) for link in model.links)
    for text, delay_ns in sorted({(_delay_text(link.delay, port.delay_by), port.delay_ns) for link, port in lower}):
        if text:
            yield ScaledRow(quantity="link delay", fabric=text, lab=str(Duration(delay_ns)), law="x k")
    for mtu in sorted({link.mtu_bytes for link in model.links}):
        yield ScaledRow.unchanged("MTU", f"{mtu} B")
    if (scale_up := model.scale_up).stated:
        plan = plan_scale_up(scale_up, k)
        yield ScaledRow(quantity="scale-up rate of a GPU", fabric=str(scale_up.rate), lab=str(plan.gpu_rate), law="/ k")
        yield ScaledRow(quantity="scale-up RTT, GPU to GPU", fabric=str(scale_up.rtt), lab=str(plan.rtt), law="x k")
    yield from medium_rows(model, k)
    for network in model.data_networks:
        if model.carrier_of(network) != network:
            continue  # its switches are another one's
        bfd = model.of_network(network).routing.bfd
        said = "off" if bfd is None else f"{bfd.interval} x {bfd.multiplier}"
        of = "" if network == model.data_networks[0] else f", {network}"
        yield ScaledRow.unchanged(f"BFD{of}", said, law="lab time, not scaled")
    for cost in PacketCosts(StateDirectory()).all():
        what, law = f"CPU time of a data packet, {cost.transport}", "measured on this machine"
        yield ScaledRow(quantity=what, fabric="", lab=f"{cost.us:.0f} us", law=law)
    if BACKEND in model.network_names:
        yield from transport_rows(model.of_network(BACKEND), k)


def _print_mechanism(lab: RunningLab | DeclaredLab, form: Format) -> None:
    """Print who realises the links' delays, where a person reads the output."""
    sentence = mechanism_text(lab.plan.ports)
    if sentence and form is Format.TABLE:
        print(sentence)


def _sizing(lab: RunningLab | DeclaredLab, _: Nodes, form: Format) -> None:
    from testbed.cli.labs.sizing import emit_sizing

    emit_sizing(lab.model, form)


def show_networks(lab: RunningLab, form: Format) -> None:
    """Print every network of a deployed lab in a line, and all of them in one. Raises `TestbedError` where its counters
    cannot be read."""
    from testbed.lab.observe.networks import (
        TABLE,
        NetworkRow,
        network_rows,
        planned_sessions,
        read_live,
        scale_up_line,
        scale_up_summary,
        total_row,
    )

    planned = {name: planned_sessions(lab, name) for name in lab.model.network_names}
    rows = network_rows(lab.model, read_live(lab), planned)
    total = total_row(lab.model, rows)
    if form is Format.TABLE:
        every = [*rows, total]
        items = {item.name: item for item in fields(NetworkRow)}
        columns = [name for name in TABLE if any(text_of(row, items[name]) for row in every)]
        title = f"{lab.name}: {len(rows)} networks, k = {lab.record.k:g}"
        emit(every, NetworkRow, form, title=title, columns=columns)
        if line := scale_up_line(lab.model):
            print(line)
        return
    document = {
        "lab": lab.name,
        "k": lab.record.k,
        "networks": list(map(row_json, rows)),
        "total": row_json(total),
        "scale_up": scale_up_summary(lab.model),
    }
    emit(rows, NetworkRow, form, document=document)


def inspect_scale_up(name: str | None, topology: str | None, form: Format) -> None:
    """Show the scale-up domains of a deployed lab or of a file. Raises `TestbedError` for a lab without GPUs."""
    from testbed.lab.features.scale_up.apply import domain_states

    lab, k, running = _lab_and_scale(name, topology)
    document = scale_up_document(lab, k)
    states = [] if running is None else domain_states(running)
    document["switches"] = [switch_document(state) for state in states]
    if not document["domains"]:
        raise TestbedError(
            f"{lab.name} has no GPUs that a domain could join", hint="GPUs come with NICs of the back end"
        )
    if form is Format.JSON:
        emit_json(document)
        return
    at = "" if k is None else f", k = {k:g}"
    rows = [*scale_up_rows(lab, k), *map(switch_row, states)]
    emit(rows, ScaleUpRow, form, title=f"{lab.name}: scale-up{at}, all rates per direction")
    if form is Format.TABLE and k is None:
        print("  lab units: of a deployed lab, or of a file with a fixed time scale")


def _lab_and_scale(name: str | None, topology: str | None) -> tuple[Lab, float | None, RunningLab | None]:
    """The lab, its time scale where that is known: of a deployed one, or where the file fixes it; and the deployed."""
    if topology is None:
        running = open_lab(name)
        return running.model, running.record.k, running
    lab = read_topology(topology, name)
    try:
        running = open_lab(lab.name)
    except LabNotFound:
        return lab, lab.scale.time, None
    return running.model, running.record.k, running


# --- both sides of what is scaled ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledRow:
    """A quantity of the fabric as it is written and as it is in the lab, and by which law."""

    quantity: str
    fabric: str
    lab: str
    law: str

    @classmethod
    def rate(cls, quantity: str, rate: Rate, k: float) -> ScaledRow:
        return cls(quantity=quantity, fabric=str(rate), lab=str(rate.scaled(k)), law="/ k")

    @classmethod
    def time(cls, quantity: str, time: Duration, k: float) -> ScaledRow:
        return cls(quantity=quantity, fabric=str(time), lab=str(time.scaled(k)), law="x k")

    @classmethod
    def unchanged(cls, quantity: str, value: str, law: str = "unchanged") -> ScaledRow:
        return cls(quantity=quantity, fabric=value, lab=value, law=law)


def transport_rows(lab: Lab, k: float) -> Iterator[ScaledRow]:
    """Yield the rows of `inspect scale`: the base round trip of a fabric, and parameters of a flow from its fastest
    NIC. A set is named as `transport.cc` and `transport.parameters` name it, a parameter as its `cc_` key does."""
    hosts = {node.name for node in lab.hosts}
    rates = [link.rate.bps for link in lab.links if link.a.node in hosts or link.b.node in hosts]
    if not rates:
        return
    base_rtt = declared_base_rtt(lab) or model_base_rtt(lab)
    settings = FlowSettings(
        link_rate_bps=max(1, round(max(rates) / k)),
        base_rtt_ns=base_rtt.scaled(k).ns,
        time_scale=k,
        mtu_bytes=RoceConfig().mtu,
    )
    yield ScaledRow.time("base round trip", base_rtt, k)
    for one in scaled_parameters(settings):
        yield ScaledRow(
            quantity=f"roce, {one.controller} {one.parameters}: {one.name}",
            fabric=_text(one.dimension, one.fabric),
            lab=_text(one.dimension, one.lab),
            law=_LAWS[one.dimension],
        )


def medium_rows(lab: Lab, k: float) -> Iterator[ScaledRow]:
    """Yield the rows of the media that storage targets have, each kind once."""
    media = [node.target.medium for node in lab.targets if node.target is not None]
    for rate in sorted({medium.rate for medium in media if medium.rate is not None}, key=lambda rate: rate.bps):
        yield ScaledRow.rate("rate of a medium", rate, k)
    for latency in sorted({one.latency for one in media if one.latency is not None}, key=lambda time: time.ns):
        yield ScaledRow.time("latency of a medium", latency, k)


def _text(dimension: Dimension, value: float) -> str:
    match dimension:
        case Dimension.TIME_NS:
            return str(Duration(round(value)))
        case Dimension.RATE_BPS:
            return str(Rate(max(1, round(value)))) if value else "0"
        case Dimension.SIZE_BYTES:
            return f"{value:.0f} B"
