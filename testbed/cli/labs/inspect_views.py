"""The views of a lab that `inspect` prints, but for its QoS."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from importlib import import_module
from itertools import groupby
from typing import TYPE_CHECKING, Any

from testbed.base.errors import LabNotFound, TestbedError
from testbed.base.names import choice_hint
from testbed.base.rows import column, for_programs, row_json, text_of
from testbed.cli.lab_choice import DeclaredLab, check_network, open_lab, open_or_declare, read_topology
from testbed.cli.labs.views import VIEWS
from testbed.cli.options import Format
from testbed.cli.output import emit, emit_json
from testbed.lab.core.model import NETNS, OUT_OF_BAND

if TYPE_CHECKING:
    from testbed.lab.core.deploy.live import NodeStatus, RunningLab
    from testbed.lab.core.deploy.watch.running_config import ConfigLine
    from testbed.lab.core.model import InfinibandFabric, Lab

Nodes = Callable[[str], bool]
"""Chooses nodes by their names."""
_WILDCARDS = frozenset("*?[,")


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
    mtu: int | str
    delay: str
    declared_rate: str = column(in_table=False)
    declared_lab_rate: str = column(in_table=False)
    declared_mtu: int = column(in_table=False)
    declared_delay: str = column(in_table=False)
    changes: Sequence[str]

    def beside_declared(self) -> LinkRow:
        """Return the row for people: each value with what is declared beside it, where that is another one."""
        return replace(
            self,
            rate=_beside(self.rate, self.declared_rate),
            lab_rate=_beside(self.lab_rate, self.declared_lab_rate),
            mtu=_beside(str(self.mtu), str(self.declared_mtu)),
            delay=_beside(self.delay, self.declared_delay),
        )


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
    if what == "sizing" and topology is not None:  # of the file as it is, whatever runs under its name
        from testbed.cli.labs.sizing import emit_sizing

        model = read_topology(topology, name)
        check_network(model, network)
        emit_sizing(model if network is None else model.of_network(network), form)
    elif what in SEEN_VIEWS:
        seen = open_or_declare(name, topology)
        check_network(seen.model, network)
        SEEN_VIEWS[what](seen if network is None else seen.of_network(network), nodes, form)
    elif what in VIEWS:
        lab = open_lab(name, topology)
        check_network(lab.model, network)
        subnet = lab.model.infiniband if what == "ib" else None
        if node is not None and not _WILDCARDS.intersection(node) and not _is_switch_of(subnet, node):
            lab.node(node)
        lab = lab if network is None else lab.of_network(network)
        if (table := VIEWS[what]) is None:
            LIVE_VIEWS[what](lab, nodes, form)
        else:
            module = import_module(f"testbed.lab.{table.module}")
            rows = list(getattr(module, table.rows)(lab, nodes))
            _emit(lab, rows, getattr(module, table.kind), form, what.replace("-", " "), none=table.none)
    else:
        raise TestbedError(f"cannot inspect {what!r}", hint=choice_hint(what, sorted(VIEWS)))


def _is_switch_of(subnet: InfinibandFabric | None, node: str) -> bool:
    """Tell whether a subnet, which is beside the nodes of its lab, has a switch of that name."""
    return subnet is not None and any(switch.name == node for switch in subnet.switches)


def _emit(lab: RunningLab, rows: Sequence[Any], kind: type, form: Format, what: str, *, none: str) -> None:
    """Print a view of a lab; a table without a row says `none`, unless that is ""."""
    emit(rows, kind, form, title=f"{lab.name}: {what}")
    if form is Format.TABLE and not rows and none:
        print(f"  {none}")


def _guards(lab: RunningLab, nodes: Nodes, form: Format) -> None:
    """Show the drops of each guard at each port, and of policies and borders; in a table, only what is not zero."""
    from testbed.lab.observe.dropped import DroppedRow, dropped_rows, read_dropped

    dropped = read_dropped(lab)
    rows = [
        row for row in dropped_rows(lab, dropped) if nodes(row.switch) and (row.dropped or form is not Format.TABLE)
    ]
    none = "nothing was dropped" if dropped else "there are no guards here: `guards: on` of a network has them"
    _emit(lab, rows, DroppedRow, form, "guards", none=none)


def _infiniband(lab: RunningLab, nodes: Nodes, form: Format) -> None:
    from testbed.lab.features.infiniband.live import LiveSubnet
    from testbed.lab.features.infiniband.view import SubnetRow, view_subnet

    view = view_subnet(LiveSubnet(lab), nodes)
    document = {"lab": lab.name, **view.document, "nodes": list(map(row_json, view.rows))}
    emit(view.rows, SubnetRow, form, title=f"{lab.name}: subnet", document=document)
    if form is Format.TABLE:
        for name, fact in view.facts:
            print(f"  {name}: {fact}")


def _tenants(lab: RunningLab | DeclaredLab, nodes: Nodes, form: Format) -> None:
    from testbed.lab.features.overlay.view import TenantRow, tenant_rows

    _emit_overlay(lab, tenant_rows(lab.model, lab.plan, nodes), TenantRow, form, "tenants")


def _vteps(lab: RunningLab, nodes: Nodes, form: Format) -> None:
    from testbed.lab.features.overlay.view import VtepRow, vtep_rows

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
    from testbed.lab.features.scale_up.watch_switches import dead_domains, dead_line

    states = {status.state for status in lab.status()}
    dead = dead_domains(lab.plan, lab.state.run_directory(lab.name))
    state = "running" if states == {"running"} and not dead else ", ".join(["degraded", *map(dead_line, dead)])
    return f"{lab.name} ({lab.model.design or 'hand-written'}, {state}, k = {lab.record.k:g})"


def _links(lab: RunningLab, nodes: Nodes, form: Format) -> None:
    from testbed.cli.labs.scale_view import delay_text, print_mechanism
    from testbed.cli.nodes.link_changes import read_conditions

    conditions = read_conditions(lab)
    ports = {(port.node, port.name): port for port in lab.plan.ports}
    rows = []
    for link in lab.model.links:
        if not (nodes(link.a.node) or nodes(link.b.node)):
            continue
        port = ports[link.a.node, link.a.interface]
        now, declared_delay = conditions[str(link.a)], delay_text(link.delay, port.delay_by)
        rows.append(
            LinkRow(
                network=link.network,
                a=str(link.a),
                b=str(link.b),
                state="up" if now.up else "down",
                kind=link.kind.value,
                rate=str(now.rate),
                lab_rate=str(now.lab_rate),
                mtu=link.mtu_bytes if now.mtu_bytes is None else now.mtu_bytes,
                declared_mtu=link.mtu_bytes,
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
    print_mechanism(lab, form)


def _beside(now: str, declared: str) -> str:
    """A value as it is, and what is declared beside it where that is another one."""
    return now if now == declared else f"{now} (declared {declared or 'none'})"


def _bgp(lab: RunningLab, nodes: Nodes, form: Format) -> None:
    from testbed.lab.observe.routing_rows import SessionRow, session_rows

    emit(session_rows(lab, nodes), SessionRow, form, title=_title(lab))


def _configurations(lab: RunningLab, nodes: Nodes, form: Format) -> None:
    """Show what routing daemons run, line by line; for people those lines are marked that differ from the plan."""
    from testbed.lab.core.deploy.watch.running_config import ConfigLine, compare_configuration, read_configuration

    lines: list[ConfigLine] = []
    for speaker in lab.plan.speakers:
        if not nodes(speaker.node):
            continue
        running = read_configuration(lab.run_directory(speaker.node), lab.daemons.get(speaker.node, ()))
        found, is_known = compare_configuration(lab.processes_directory, speaker.node, running)
        lines += found
        if form is Format.TABLE:
            _print_configuration(speaker.node, found, is_known=is_known)
    if form is not Format.TABLE:
        emit(lines, ConfigLine, form)
    elif not lines:
        print("no routing daemon runs there: switches have some, and hosts that speak BGP")


def _print_configuration(node: str, lines: Sequence[ConfigLine], *, is_known: bool) -> None:
    from testbed.lab.core.deploy.watch.running_config import Difference

    differing = sum(line.differs is not Difference.NONE for line in lines)
    if not is_known:
        said = "what was planned is not noted: the deploy did not wait for routing"
    elif differing:
        said = f"{differing} lines differ from the plan: + runs, - does not"
    else:
        said = "as planned"
    print(f"{node}: {said}")
    for daemon, items in groupby(lines, key=lambda line: line.daemon):
        print(f"! {daemon}")
        for item in items:
            print(f"{item.differs.value:2}{item.line}" if differing else item.line)


def _scale(lab: RunningLab | DeclaredLab, _: Nodes, form: Format) -> None:
    from testbed.cli.labs.scale_view import show_scale

    show_scale(lab, form)


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
    from testbed.lab.features.scale_up.view import (
        ScaleUpRow,
        scale_up_document,
        scale_up_rows,
        switch_document,
        switch_row,
    )

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


def inspect_machines(name: str | None, form: Format) -> None:
    """Show the machines of a lab, how its part on each is, and which others each hears. Raises `LabNotFound`."""
    from testbed.api.pool.over.live import PartRow, machine_rows
    from testbed.cli.machine.over import spread_named

    record = spread_named(["inspect", "machines", *(() if name is None else ("-n", name))])
    if record is None:
        which = "no lab" if name is None else f"no lab named {name}"
        raise LabNotFound(f"{which} is over several machines", hint="deploy --over ssh://user@a,ssh://user@b")
    emit(machine_rows(record), PartRow, form)


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


SEEN_VIEWS: Mapping[str, Callable[[RunningLab | DeclaredLab, Nodes, Format], None]] = {
    "scale": _scale,
    "sizing": _sizing,
    "tenants": _tenants,
}
"""Views of a lab that is deployed or declared, beside `testbed.cli.labs.views`."""
LIVE_VIEWS: Mapping[str, Callable[[RunningLab, Nodes, Format], None]] = {
    "nodes": _nodes,
    "links": _links,
    "bgp": _bgp,
    "config": _configurations,
    "guards": _guards,
    "ib": _infiniband,
    "vteps": _vteps,
}
"""Views of a deployed lab alone."""
