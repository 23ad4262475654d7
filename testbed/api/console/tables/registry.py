"""All tables, in the order in which a page offers them."""

from __future__ import annotations

from testbed.api.console.tables.nodes import NODES, ROUTES, SERVICES, SESSIONS, TENANTS
from testbed.api.console.tables.ports import PORTS, QUEUES
from testbed.api.console.tables.scale_up import GPUS, PLANES

TABLES = {table.name: table for table in (PORTS, QUEUES, NODES, SESSIONS, ROUTES, GPUS, PLANES, TENANTS, SERVICES)}
