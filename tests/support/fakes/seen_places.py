"""The namespaces of a lab as its plan makes them, as they would be read from the kernel."""

import socket
from collections import defaultdict
from dataclasses import replace
from ipaddress import IPv6Interface
from typing import Any

from testbed.base.linux import rtnetlink
from testbed.base.linux import traffic_control as traffic
from testbed.lab.core.deploy.changing.drift.kernel_drift import KERNELS_RULES, NO_PROGRAMS, queues_of, worth_asking
from testbed.lab.core.drivers.netlink.overlay_devices import LOCAL_PRIORITY
from testbed.lab.core.drivers.netlink.port_programs import PortInstaller
from testbed.lab.core.drivers.nodes.seen import SeenLink, SeenPlace, SeenQueues, SeenRoute, SeenRule, filter_tables
from testbed.lab.core.feature import filters
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import (
    AddAddress,
    AddRoute,
    AddRule,
    CreateVeth,
    DelayPort,
    InstallPort,
    SetBridgePort,
    SetNeighbour,
    SetSysctl,
    SetUp,
    ShapePort,
    place_of,
)
from testbed.lab.core.plan.overlay_operations import CreateVrfDevice, CreateVxlan, PreferVrfs

KINDS = {"CreateBridge": "bridge", "CreateBond": "bond", "CreateVrfDevice": "vrf", "CreateVxlan": "vxlan"}


def as_planned(plan: LabPlan) -> dict[str, SeenPlace]:
    """All namespaces of a lab that is up, without what the kernel and routing daemons add."""
    links: dict[str, dict[int, SeenLink]] = defaultdict(lambda: {1: _link("lo", "", 65536, 0, "")})
    found: dict[str, dict[str, Any]] = defaultdict(lambda: defaultdict(dict))
    rules: dict[str, list[SeenRule]] = defaultdict(list)
    routes: dict[str, list[SeenRoute]] = defaultdict(list)
    priorities: dict[str, set[tuple[int, int]]] = defaultdict(
        lambda: (
            {(family, priority) for family, _, priority in KERNELS_RULES} | {(socket.AF_INET, 0), (socket.AF_INET6, 0)}
        )
    )
    for item in plan.operations:
        match item:
            case CreateVeth():
                for end in (item.a, item.b):
                    links[end.node][end.ifindex] = _link(end.name, end.mac, item.mtu_bytes, end.master, "veth")
                    if end.ipv6:
                        own = IPv6Interface((rtnetlink.link_local_address(end.mac), 64))
                        found[end.node]["addresses"][end.ifindex, own] = b""
            case SetUp():
                here = links[place_of(item)]
                here[item.ifindex] = replace(here[item.ifindex], is_up=True)
            case SetSysctl():
                found[item.node]["settings"][item.key] = item.value
            case AddAddress():
                found[item.node]["addresses"][item.ifindex, item.address] = b""
            case AddRoute():
                routes[item.node].append(
                    SeenRoute(
                        table=item.table,
                        destination=item.destination,
                        metric=item.metric,
                        ifindex=item.ifindex,
                        gateway=item.gateway,
                        source=item.source,
                    )
                )
            case AddRule():
                rules[item.node].append(
                    SeenRule(source=item.source, table=item.table, priority=item.priority, destination=item.destination)
                )
            case ShapePort():
                batch = (
                    traffic.new_htb_qdisc(item.ifindex),
                    traffic.new_htb_line_class(item.ifindex, item.rate_bps, item.burst_bytes, 1500),
                )
                found[place_of(item)]["queues"][item.ifindex] = queues_of(batch)
            case InstallPort():
                assert plan.tables is not None
                batch = PortInstaller(plan.tables, NO_PROGRAMS).messages(item)
                found[place_of(item)]["queues"][item.ifindex] = queues_of(batch)
            case DelayPort():
                links[place_of(item)][item.ifb_ifindex] = _link(item.ifb_name, "", item.mtu_bytes, 0, "ifb")
                found[place_of(item)]["queues"][item.ifb_ifindex] = SeenQueues(delay_ns=(item.delay_ns, item.jitter_ns))
                if item.clsact:
                    own = found[place_of(item)]["queues"][item.ifindex]
                    hook = queues_of([traffic.new_clsact(item.ifindex)]).qdiscs
                    found[place_of(item)]["queues"][item.ifindex] = replace(own, qdiscs=own.qdiscs | hook)
            case SetNeighbour():
                found[item.node]["neighbours"][item.ifindex, item.address] = item.mac
            case SetBridgePort():
                told = item.learning, item.neighbour_suppression, item.isolated
                found[item.node]["bridge_ports"][item.ifindex] = told
            case PreferVrfs():
                for family in (socket.AF_INET, socket.AF_INET6)[: 2 if item.ipv6 else 1]:
                    priorities[item.node] -= {(family, 0)}
                    priorities[item.node] |= {(family, LOCAL_PRIORITY)}
            case _ if type(item).__name__ in KINDS:
                mtu_bytes = 0 if isinstance(item, CreateVrfDevice) else item.mtu_bytes  # type: ignore[union-attr]
                master = item.master if isinstance(item, CreateVxlan) else getattr(item, "master", 0)
                links[item.node][item.ifindex] = _link(  # type: ignore[union-attr]
                    item.name,  # type: ignore[union-attr]
                    getattr(item, "mac", ""),
                    mtu_bytes,
                    master,
                    KINDS[type(item).__name__],
                )
            case _ if type(item) in filters():
                place = getattr(item, "vrf", "") or item.node
                found[place]["filters"] |= filter_tables(filters()[type(item)](item))
    return {
        place: SeenPlace(
            links=links[place],
            addresses=found[place]["addresses"],
            routes=routes[place],
            rules=rules[place],
            priorities=priorities[place],
            queues=found[place]["queues"],
            neighbours=found[place]["neighbours"],
            bridge_ports=found[place]["bridge_ports"],
            settings=found[place]["settings"],
            filters=found[place]["filters"],
        )
        for place in worth_asking(plan)
    }


def _link(name: str, mac: str, mtu_bytes: int, master: int, kind: str) -> SeenLink:
    return SeenLink(name=name, mac=mac, mtu_bytes=mtu_bytes, master=master, is_up=False, kind=kind)
