"""All tables, in the order in which a page offers them."""

from __future__ import annotations

from testbed.api.console.tables.nodes import GPUS, NODES, PLANES, ROUTES, SERVICES, SESSIONS, TENANTS
from testbed.api.console.tables.ports import PORTS, QUEUES

TABLES = {table.name: table for table in (PORTS, QUEUES, NODES, SESSIONS, ROUTES, GPUS, PLANES, TENANTS, SERVICES)}
