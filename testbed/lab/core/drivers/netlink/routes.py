"""Routes of a plan as messages of rtnetlink(7)."""

from __future__ import annotations

from testbed.base.linux import rtnetlink
from testbed.lab.core.plan.operations import AddRoute


def route_message(item: AddRoute) -> bytes:
    """The message to the kernel that adds a route."""
    return rtnetlink.new_route(
        item.destination.network_address.packed,
        item.destination.prefixlen,
        item.gateway.packed if item.gateway else None,
        item.ifindex,
        table=item.table,
        source=item.source.packed if item.source else None,
        metric=item.metric,
        onlink=item.onlink,
    )
