"""The views of the verb `inspect`. Nothing is loaded of what they show."""

from typing import NamedTuple


class Rows(NamedTuple):
    """A view that is a table: `testbed.lab.MODULE` has the data class `kind` of its rows, and `rows`, which takes a lab
    and a function that chooses nodes. A table without a row says `none`."""

    module: str
    kind: str
    rows: str
    none: str = ""


VIEWS = {
    "nodes": None,
    "links": None,
    "routes": Rows("observe.routing_rows", "RouteRow", "route_rows"),
    "bgp": None,
    "config": None,
    "guards": None,
    "ib": None,
    "link-groups": Rows("features.mlag.view", "MemberRow", "member_rows", "no NIC of this lab is a link group"),
    "machines": None,
    "scale": None,
    "scale-up": None,
    "services": Rows(
        "features.management.services_apply",
        "ServiceStatus",
        "chosen_services",
        "this lab has no services: networks.NAME: {design: out-of-band, services: [ssh, dns]} has some",
    ),
    "sizing": None,
    "qos": None,
    "tenants": None,
    "vteps": None,
}
"""Every view, in the order of the help; None for one that `inspect_views` or `qos` has a function for."""
