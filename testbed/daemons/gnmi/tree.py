"""The leaves of a switch in OpenConfig's models, as far as a lab has what they say. It has no configuration: all of
them are state.

Models: openconfig-interfaces, openconfig-qos (and `ecn-marked-pkts`, which SONiC and Cumulus Linux add to it), and
openconfig-network-instance with openconfig-bgp-neighbor. Counters are those of the lab, whose rates are the real
fabric's divided by its time scale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from testbed.base.linux.port_counters import PortCounters
from testbed.daemons.gnmi.configuration import TargetSwitch
from testbed.daemons.gnmi.paths import ANY, ANY_DEPTH, TreePath, element
from testbed.daemons.gnmi.readings import QueueCounters, SwitchReadings

Scalar = int | str | bool
Leaves = dict[TreePath, Scalar]
MODELS = (
    ("openconfig-interfaces", "OpenConfig working group", "3.5.0"),
    ("openconfig-qos", "OpenConfig working group", "0.7.0"),
    ("openconfig-network-instance", "OpenConfig working group", "2.0.0"),
)
"""Name, organization and version of each model."""
MODULES: Mapping[str, str] = {
    "interfaces": "openconfig-interfaces",
    "qos": "openconfig-qos",
    "network-instances": "openconfig-network-instance",
}
"""The module of each tree, which qualifies its names in JSON_IETF (RFC 7951)."""
_STATES = {
    "Idle": "IDLE",
    "Connect": "CONNECT",
    "Active": "ACTIVE",
    "OpenSent": "OPENSENT",
    "OpenConfirm": "OPENCONFIRM",
    "Established": "ESTABLISHED",
}
_FAMILIES = {"ipv4Unicast": "IPV4_UNICAST", "ipv6Unicast": "IPV6_UNICAST", "l2VpnEvpn": "L2VPN_EVPN"}
_INSTANCE = (
    element("network-instances"),
    element("network-instance", {"name": "default"}),
    element("protocols"),
    element("protocol", {"identifier": "BGP", "name": "BGP"}),
    element("bgp"),
)


def read_leaves(switch: TargetSwitch, readings: SwitchReadings, patterns: tuple[TreePath, ...]) -> Leaves:
    """Read the leaves of the trees that patterns may mean, and of no other: BGP is asked only by who wants it."""
    found: Leaves = {}
    readers: dict[str, Callable[[], Iterator[tuple[TreePath, Scalar]]]] = {
        "interfaces": lambda: interface_leaves(switch, readings.interfaces.get()),
        "qos": lambda: queue_leaves(readings.queues.get()),
        "network-instances": lambda: bgp_leaves(readings.neighbors.get()),
    }
    for tree, read in readers.items():
        if any(_may_mean(pattern, tree) for pattern in patterns):
            found.update(read())
    return found


def _may_mean(pattern: TreePath, tree: str) -> bool:
    return not pattern or pattern[0][0] in (tree, ANY, ANY_DEPTH)


def interface_leaves(switch: TargetSwitch, counters: Mapping[str, PortCounters]) -> Iterator[tuple[TreePath, Scalar]]:
    """Yield `/interfaces`: the ports of data networks."""
    for port in switch.ports:
        read = counters.get(port.name)
        if read is None:
            continue
        place = (element("interfaces"), element("interface", {"name": port.name}))
        yield (*place, element("name")), port.name
        state = (*place, element("state"))
        up = "UP" if read.up else "DOWN"
        for name, value in (
            ("name", port.name),
            ("type", "iana-if-type:ethernetCsmacd"),
            ("mtu", port.mtu_bytes),
            ("ifindex", port.ifindex),
            ("oper-status", up),
        ):
            yield (*state, element(name)), value
        for name, number in (
            ("in-octets", read.rx_bytes),
            ("in-pkts", read.rx_packets),
            ("in-discards", read.rx_dropped),
            ("out-octets", read.tx_bytes),
            ("out-pkts", read.tx_packets),
            ("out-discards", read.tx_dropped),
        ):
            yield (*state, element("counters"), element(name)), number


def queue_leaves(queues: Mapping[tuple[str, str], QueueCounters]) -> Iterator[tuple[TreePath, Scalar]]:
    """Yield `/qos`: the egress queues of ports with QoS, by the names of their traffic classes."""
    for port in dict.fromkeys(port for port, _ in queues):
        place = (element("qos"), element("interfaces"), element("interface", {"interface-id": port}))
        yield (*place, element("interface-id")), port
        yield (*place, element("state"), element("interface-id")), port
    for (port, name), read in queues.items():
        queue = (
            element("qos"),
            element("interfaces"),
            element("interface", {"interface-id": port}),
            element("output"),
            element("queues"),
            element("queue", {"name": name}),
        )
        yield (*queue, element("name")), name
        yield (*queue, element("state"), element("name")), name
        for leaf, number in (
            ("transmit-pkts", read.sent_packets),
            ("transmit-octets", read.sent_bytes),
            ("dropped-pkts", read.dropped_packets),
            ("dropped-octets", read.dropped_bytes),
            ("max-queue-len", read.longest_bytes),
            ("ecn-marked-pkts", read.marked_packets),
        ):
            yield (*queue, element("state"), element(leaf)), number


def bgp_leaves(neighbors: Mapping[str, Any]) -> Iterator[tuple[TreePath, Scalar]]:
    """Yield the BGP of `/network-instances`: neighbours by their address, or by the interface while they have none."""
    if not neighbors:
        return
    instance = _INSTANCE[:2]
    yield (*instance, element("name")), "default"
    yield (*_INSTANCE[:4], element("identifier")), "openconfig-policy-types:BGP"
    yield (*_INSTANCE[:4], element("name")), "BGP"
    first = next(iter(neighbors.values()))
    if (asn := _number(first.get("localAs"))) is not None:
        yield (*_INSTANCE, element("global"), element("state"), element("as")), asn
    if isinstance(router := first.get("localRouterId"), str):
        yield (*_INSTANCE, element("global"), element("state"), element("router-id")), router
    for name, item in neighbors.items():
        yield from _neighbor_leaves(name, item)


def _neighbor_leaves(name: str, item: Mapping[str, Any]) -> Iterator[tuple[TreePath, Scalar]]:
    told = item.get("bgpNeighborAddr")
    address = told if isinstance(told, str) and told not in ("", "none") else name
    place = (*_INSTANCE, element("neighbors"), element("neighbor", {"neighbor-address": address}))
    state = (*place, element("state"))
    yield (*place, element("neighbor-address")), address
    yield (*state, element("neighbor-address")), address
    yield (*state, element("description")), name
    said = str(item.get("bgpState", ""))
    yield (*state, element("session-state")), _STATES.get(said, "IDLE")
    messages = item.get("messageStats")
    counts = messages if isinstance(messages, dict) else {}
    for leaf, value in (
        ("peer-as", item.get("remoteAs")),
        ("local-as", item.get("localAs")),
        ("established-transitions", item.get("connectionsEstablished")),
    ):
        if (number := _number(value)) is not None:
            yield (*state, element(leaf)), number
    for direction, key in (("sent", "updatesSent"), ("received", "updatesRecv")):
        if (number := _number(counts.get(key))) is not None:
            yield (*state, element("messages"), element(direction), element("UPDATE")), number
    families = item.get("addressFamilyInfo")
    for family, info in families.items() if isinstance(families, dict) else ():
        if family not in _FAMILIES or not isinstance(info, dict):
            continue
        of_family = (
            *place,
            element("afi-safis"),
            element("afi-safi", {"afi-safi-name": f"openconfig-bgp-types:{_FAMILIES[family]}"}),
        )
        yield (*of_family, element("afi-safi-name")), f"openconfig-bgp-types:{_FAMILIES[family]}"
        for leaf, key in (("received", "acceptedPrefixCounter"), ("sent", "sentPrefixCounter")):
            if (number := _number(info.get(key))) is not None:
                yield (*of_family, element("state"), element("prefixes"), element(leaf)), number


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
