"""The tables of a lab's nodes, of how they route, of GPUs, tenants and services: rows that the lab's views have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from testbed.api.console.sources.source import Source
from testbed.api.console.tables.table import Nodes, PageTable, TableQuery
from testbed.base.rows import column
from testbed.lab.features.management.services_apply import ServiceStatus, chosen_services
from testbed.lab.features.overlay.view import TenantRow, tenant_rows
from testbed.lab.features.scale_up.view import GpuRow, PlaneRow, gpu_rows, plane_rows
from testbed.lab.observe.routing_rows import RouteRow, SessionRow, route_rows, session_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenNode:
    """A node as it is now."""

    node: str
    kind: str
    role: str
    network: str
    state: str
    runtime: str
    address: str
    missing: tuple[str, ...] = column(sparse=True, default=())
    image: str = column(sparse=True, default="")


def _node_rows(source: Source, query: TableQuery, nodes: Nodes) -> Iterator[SeenNode]:
    networks = {node.name: node.network for node in source.shape.model.nodes}
    for status in source.lab.status():
        if nodes(status.name):
            yield SeenNode(
                node=status.name,
                kind=status.kind,
                role=status.role,
                network=networks.get(status.name, ""),
                state=status.state,
                runtime=status.runtime,
                address=status.addresses[0] if status.addresses else "",
                missing=status.missing_daemons,
                image=status.image,
            )


def _sessions(source: Source, query: TableQuery, nodes: Nodes) -> Iterable[SessionRow]:
    return session_rows(source.lab, nodes)


def _routes(source: Source, query: TableQuery, nodes: Nodes) -> Iterable[RouteRow]:
    return route_rows(source.lab, nodes)


def _gpus(source: Source, query: TableQuery, nodes: Nodes) -> Iterable[GpuRow]:
    return gpu_rows(source.shape.model, nodes)


def _planes(source: Source, query: TableQuery, nodes: Nodes) -> Iterable[PlaneRow]:
    return plane_rows(source.lab, nodes)


def _tenants(source: Source, query: TableQuery, nodes: Nodes) -> Iterable[TenantRow]:
    return tenant_rows(source.lab.model, source.lab.plan, lambda _: True)  # the words may mean switches, or a tenant


def _tenant_names(source: Source) -> Iterator[str]:
    overlay = source.shape.model.overlay
    return iter(() if overlay is None else [tenant.name for tenant in overlay.tenants])


def _services(source: Source, query: TableQuery, nodes: Nodes) -> Iterable[ServiceStatus]:
    return chosen_services(source.lab, nodes)


NODES = PageTable(
    name="nodes",
    title="Nodes",
    kind=SeenNode,
    rows=_node_rows,
    place=lambda row: row.node,
    key=lambda row: f"node:{row.node}",
)
SESSIONS = PageTable(
    name="sessions",
    title="Sessions",
    kind=SessionRow,
    rows=_sessions,
    place=lambda row: f"{row.node}:{row.interface or ''}",
    key=lambda row: f"port:{row.node}:{row.interface}" if row.interface else f"node:{row.node}",
)
ROUTES = PageTable(
    name="routes",
    title="Routes",
    kind=RouteRow,
    rows=_routes,
    place=lambda row: row.node,
    key=lambda row: f"node:{row.node}",
)
GPUS = PageTable(
    name="gpus",
    title="GPUs",
    kind=GpuRow,
    rows=_gpus,
    place=lambda row: f"{row.host}:{row.nic}",
    key=lambda row: f"port:{row.host}:{row.nic}",
    of=lambda source: bool(source.shape.document["gpus"]),
    moments=True,  # they are what they are
)
PLANES = PageTable(
    name="planes",
    title="Planes",
    kind=PlaneRow,
    rows=_planes,
    place=lambda row: row.gpu.partition(".gpu")[0],
    key=lambda row: f"gpu:{row.gpu.replace('.gpu', '/')}",
    of=lambda source: source.live and bool(source.lab.plan.scale_up_domains),
)
TENANTS = PageTable(
    name="tenants",
    title="Tenants",
    kind=TenantRow,
    rows=_tenants,
    place=lambda row: row.tenant,
    places=lambda row: (row.tenant, *row.nics, *row.switches),
    names=_tenant_names,
    key=lambda row: f"tenant:{row.tenant}",
    of=lambda source: source.live and source.shape.model.overlay is not None,
)
SERVICES = PageTable(
    name="services",
    title="Services",
    kind=ServiceStatus,
    rows=_services,
    place=lambda row: row.node,
    key=lambda row: f"node:{row.node}",
    of=lambda source: source.live and bool(source.lab.plan.services),
)
