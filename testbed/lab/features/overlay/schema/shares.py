"""The shares of tenants, the keys `cap` and `traffic_class`, held against the QoS of the networks that they are in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from testbed.base.errors import Problem
from testbed.base.names import known_names_hint
from testbed.base.units import Rate
from testbed.base.yaml.paths import Path
from testbed.lab.core.model import Lab, Link, QosPolicy, Tenant
from testbed.lab.features.overlay.schema.talks import ProblemAt


def capped(link: Link, cap: Rate | None) -> Link:
    """The link of a tenant's NIC at the tenant's cap, where that is less than its rate."""
    return link if cap is None or cap.bps >= link.rate.bps else replace(link, rate=cap)


def check_shares(tenants: Sequence[Tenant], lab: Lab, problem: ProblemAt) -> Iterator[Problem]:
    """Find what is wrong with the shares of tenants: they need QoS, and a class that has one meaning everywhere."""
    for tenant in tenants:
        networks = dict.fromkeys(subnet.network for subnet in tenant.subnets if subnet.nics)
        keys = {"cap": tenant.cap is not None, "traffic_class": bool(tenant.traffic_class)}
        for key in (key for key, is_written in keys.items() if is_written):
            path: Path = ("tenants", tenant.name, key)
            for network in networks:
                policy = lab.qos_of(network)
                if policy is None:
                    message = f"the ports of the network {network} have no qos, which shares of tenants need"
                    yield problem("share-without-qos", path, message, "a section qos: has classes with weights")
                elif key == "traffic_class":
                    yield from _check_class(tenant.traffic_class, policy, path, problem)


def _check_class(name: str, policy: QosPolicy, path: Path, problem: ProblemAt) -> Iterator[Problem]:
    """VTEPs write one DSCP, and every port on the way must take it for the class."""
    known = [item.name for item in policy.profiles[0].classes]
    if name not in known:
        yield problem("unknown-class", path, f"there is no class {name}", known_names_hint(name, known))
        return
    dscp = policy.profiles[0].dscp_of(name)
    if dscp is None:
        message = f"no DSCP is of the class {name}, and VTEPs write one"
        yield problem("class-of-tenant", path, message, f"{name}: {{dscp: [...]}}")
        return
    items = [profile.class_of(dscp) for profile in policy.profiles]
    if other := next((item.name for item in items if item.name != name), None):
        message = f"DSCP {dscp} is of the class {name} at some ports and of {other} at others"
        yield problem("class-of-tenant", path, message, "the class of a tenant needs the same DSCPs at all ports")
    elif any(item.strict or item.lossless for item in items):
        kind = "strict: it would starve others" if items[0].strict else "lossless: it pauses hosts by their own DSCP"
        hint = "a weighted class that is not lossless has a guarantee, its weight"
        yield problem("class-of-tenant", path, f"the class {name} is {kind}", hint)
