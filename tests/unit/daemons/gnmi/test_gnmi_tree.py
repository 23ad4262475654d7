"""Paths of gNMI, the leaves of a switch, their JSON, and what a subscriber of a stream gets when."""

from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.base.linux.port_counters import PortCounters
from testbed.daemons.gnmi.configuration import TargetPort, TargetSwitch
from testbed.daemons.gnmi.paths import Element, PathError, TreePath, covers, element, path_text
from testbed.daemons.gnmi.readings import FRESH_S, Fresh, QueueCounters
from testbed.daemons.gnmi.subscriptions import Stream, WantedPath, When, is_counter
from testbed.daemons.gnmi.tree import read_leaves
from testbed.daemons.gnmi.values import subtrees


def path_of(text: str) -> TreePath:
    """Read a path such as `/interfaces/interface[name=uplink1]/state`."""
    found: list[Element] = []
    for part in _parts(text):
        name, *keys = part.split("[")
        found.append(element(name, dict(key.rstrip("]").split("=", 1) for key in keys)))
    return tuple(found)


def _parts(text: str) -> Iterator[str]:
    """Yield what stands between slashes, but for those in keys."""
    depth, begun = 0, ""
    for character in f"{text}/":
        depth += {"[": 1, "]": -1}.get(character, 0)
        if character == "/" and not depth:
            if begun:
                yield begun
            begun = ""
        else:
            begun += character


SECOND = 1_000_000_000
SWITCH = TargetSwitch(
    name="leaf1",
    namespace="lab-leaf1",
    address=IPv4Address("192.168.0.2"),
    daemons=Path("/run/testbed/lab/leaf1"),
    ports=(
        TargetPort(name="uplink1", ifindex=4097, namespace="lab-leaf1", mtu_bytes=9216, number=1),
        TargetPort(name="down1", ifindex=4098, namespace="lab-leaf1", mtu_bytes=9216, number=2),
    ),
)
COUNTERS = {
    "uplink1": PortCounters(
        rx_bytes=1 << 40, tx_bytes=20, rx_packets=3, tx_packets=4, rx_dropped=5, tx_dropped=6, up=True
    ),
    "down1": PortCounters(up=False),
}
QUEUES = {
    ("uplink1", "rdma"): QueueCounters(
        sent_packets=1, sent_bytes=2, dropped_packets=3, dropped_bytes=4, longest_bytes=5, marked_packets=6
    )
}
NEIGHBORS = {
    "uplink1": {
        "bgpNeighborAddr": "fe80::1",
        "remoteAs": 65001,
        "localAs": 65002,
        "localRouterId": "10.0.0.2",
        "bgpState": "Established",
        "connectionsEstablished": 1,
        "messageStats": {"updatesSent": 7, "updatesRecv": 8},
        "addressFamilyInfo": {"ipv4Unicast": {"acceptedPrefixCounter": 9, "sentPrefixCounter": 10}},
    },
    "uplink2": {"bgpNeighborAddr": "none", "remoteAs": 65001, "localAs": 65002, "bgpState": "Clearing"},
}
INTERFACE = "/interfaces/interface[name=uplink1]"
QUEUE = "/qos/interfaces/interface[interface-id=uplink1]/output/queues/queue[name=rdma]/state"
BGP = "/network-instances/network-instance[name=default]/protocols/protocol[identifier=BGP][name=BGP]/bgp"
NEIGHBOR = f"{BGP}/neighbors/neighbor[neighbor-address=fe80::1]"


def readings(**changed: Any) -> Any:
    found = {"interfaces": COUNTERS, "queues": QUEUES, "neighbors": NEIGHBORS, **changed}
    return SimpleNamespace(**{name: SimpleNamespace(get=lambda value=value: value) for name, value in found.items()})


def leaves(*patterns: str) -> dict[str, Any]:
    found = read_leaves(SWITCH, readings(), tuple(map(path_of, patterns or ("/",))))
    return {path_text(path): value for path, value in found.items()}


@pytest.mark.parametrize(
    ("pattern", "path", "count"),
    [
        ("/", INTERFACE, 0),
        ("/interfaces", INTERFACE, 1),
        ("/interfaces/interface", INTERFACE, 2),
        ("/interfaces/interface[name=*]", INTERFACE, 2),
        ("/interfaces/interface[name=down1]", INTERFACE, None),
        ("/interfaces/interface[other=uplink1]", INTERFACE, None),
        ("/*/interface", INTERFACE, 2),
        ("/...", INTERFACE, 0),
        ("/.../state", QUEUE, 7),
        ("/.../counters", QUEUE, None),
        ("/interfaces/interface/state", INTERFACE, None),
        ("/qos/.../queue[name=rdma]/state", QUEUE, 7),
    ],
)
def test_a_pattern_covers_paths(pattern: str, path: str, count: int | None) -> None:
    assert covers(path_of(pattern), path_of(path)) == count


def test_a_path_is_read_as_it_is_written() -> None:
    text = "/interfaces/interface[name=Ethernet1/1]/state"
    assert path_of(text)[1] == ("interface", (("name", "Ethernet1/1"),))
    assert path_text(path_of(text)) == text
    assert element("openconfig-interfaces:interfaces") == ("interfaces", ())
    with pytest.raises(PathError):
        element("")


def test_interfaces_have_their_state_and_counters() -> None:
    found = leaves("/interfaces")
    state = f"{INTERFACE}/state"
    assert found[f"{state}/oper-status"] == "UP"
    assert found["/interfaces/interface[name=down1]/state/oper-status"] == "DOWN"
    assert (found[f"{state}/mtu"], found[f"{state}/ifindex"]) == (9216, 4097)
    counters = {path.rpartition("/")[2]: value for path, value in found.items() if path.startswith(f"{state}/counters")}
    assert counters == {
        "in-octets": 1 << 40, "in-pkts": 3, "in-discards": 5, "out-octets": 20, "out-pkts": 4, "out-discards": 6,
    }  # fmt: skip
    assert not any(path.startswith("/qos") for path in found), "no other tree is read"


def test_a_port_that_is_not_there_has_no_leaves() -> None:
    found = read_leaves(SWITCH, readings(interfaces={"down1": PortCounters()}), (path_of("/interfaces"),))
    assert {dict(path[1][1])["name"] for path in found} == {"down1"}


def test_queues_have_the_names_of_their_classes() -> None:
    found = leaves("/qos")
    counters = {path.rpartition("/")[2]: value for path, value in found.items() if path.startswith(QUEUE)}
    assert counters == {
        "name": "rdma", "transmit-pkts": 1, "transmit-octets": 2, "dropped-pkts": 3, "dropped-octets": 4,
        "max-queue-len": 5, "ecn-marked-pkts": 6,
    }  # fmt: skip


def test_bgp_has_a_neighbour_by_its_address_or_by_its_interface() -> None:
    found = leaves("/network-instances")
    assert (found[f"{BGP}/global/state/as"], found[f"{BGP}/global/state/router-id"]) == (65002, "10.0.0.2")
    state = f"{NEIGHBOR}/state"
    assert found[f"{state}/session-state"] == "ESTABLISHED"
    assert (found[f"{state}/peer-as"], found[f"{state}/established-transitions"]) == (65001, 1)
    assert (found[f"{state}/messages/sent/UPDATE"], found[f"{state}/messages/received/UPDATE"]) == (7, 8)
    family = f"{NEIGHBOR}/afi-safis/afi-safi[afi-safi-name=openconfig-bgp-types:IPV4_UNICAST]/state/prefixes"
    assert (found[f"{family}/received"], found[f"{family}/sent"]) == (9, 10)
    without = f"{BGP}/neighbors/neighbor[neighbor-address=uplink2]/state/session-state"
    assert found[without] == "IDLE"


@pytest.mark.parametrize("said", [{}, {"x": {}}, {"x": {"remoteAs": "many", "messageStats": [], "localAs": True}}])
def test_whatever_bgpd_says_is_no_error(said: dict[str, Any]) -> None:
    found = read_leaves(SWITCH, readings(neighbors=said), (path_of("/network-instances"),))
    assert not any(path[-1][0] in ("peer-as", "local-as", "UPDATE") for path in found)


def test_json_is_that_of_rfc_7951_where_it_is_asked_for() -> None:
    found = read_leaves(SWITCH, readings(), (path_of("/interfaces"),))
    ((place, plain),) = subtrees(found, path_of(f"{INTERFACE}/state"), ietf=False).items()
    assert path_text(place) == f"{INTERFACE}/state"
    assert (plain["counters"]["in-octets"], plain["mtu"]) == (1 << 40, 9216)
    (ietf,) = subtrees(found, path_of(f"{INTERFACE}/state"), ietf=True).values()
    assert ietf["openconfig-interfaces:counters"]["in-octets"] == str(1 << 40), "64 bits are text"
    assert ietf["openconfig-interfaces:mtu"] == 9216
    (leaf,) = subtrees(found, path_of(f"{INTERFACE}/state/counters/in-octets"), ietf=True).values()
    assert leaf == str(1 << 40)
    (whole,) = subtrees(found, path_of("/interfaces"), ietf=True).values()
    assert [entry["name"] for entry in whole["openconfig-interfaces:interface"]] == ["uplink1", "down1"]
    every = subtrees(found, path_of("/interfaces/interface/state/oper-status"), ietf=True)
    assert list(every.values()) == ["UP", "DOWN"]


def test_the_json_of_bgp_has_one_entry_for_the_protocol() -> None:
    found = read_leaves(SWITCH, readings(), (path_of("/network-instances"),))
    (document,) = subtrees(found, path_of("/"), ietf=True).values()
    (instance,) = document["openconfig-network-instance:network-instances"]["network-instance"]
    (protocol,) = instance["protocols"]["protocol"]
    assert (protocol["identifier"], protocol["name"]) == ("openconfig-policy-types:BGP", "BGP")
    assert len(protocol["bgp"]["neighbors"]["neighbor"]) == 2


def test_a_reading_is_shared_while_it_is_fresh() -> None:
    now, count = [0.0], [0]

    def read() -> int:
        count[0] += 1
        return count[0]

    fresh = Fresh(read, clock=lambda: now[0])
    assert (fresh.get(), fresh.get()) == (1, 1)
    now[0] = FRESH_S + 0.01
    assert fresh.get() == 2


def stream(*wanted: WantedPath) -> Stream:
    made = Stream(wanted, 0)
    made.begin({path_of("/a/state/counters/x"): 1, path_of("/a/state/oper-status"): "UP"})
    return made


def told(made: Stream, now_ns: int, **values: Any) -> dict[str, Any]:
    known = {"x": "/a/state/counters/x", "status": "/a/state/oper-status"}
    updates, gone = made.step({path_of(known[name]): value for name, value in values.items()}, now_ns)
    return {path[-1][0]: value for path, value in updates.items()} | {path[-1][0]: None for path in gone}


def test_samples_come_at_their_interval_whether_anything_changed_or_not() -> None:
    made = stream(WantedPath(pattern=(), when=When.SAMPLE, interval_ns=SECOND))
    assert made.due_ns == SECOND
    assert told(made, SECOND - 1, x=2, status="UP") == {}
    assert told(made, SECOND, x=2, status="UP") == {"x": 2, "oper-status": "UP"}
    assert made.due_ns == 2 * SECOND
    assert told(made, 5 * SECOND + 1, x=2, status="UP") == {"x": 2, "oper-status": "UP"}
    assert made.due_ns == 6 * SECOND, "rounds that nobody had time for are left out"


def test_redundant_samples_are_left_out_until_the_heartbeat() -> None:
    wanted = WantedPath(
        pattern=(), when=When.SAMPLE, interval_ns=SECOND, suppress_redundant=True, heartbeat_ns=3 * SECOND
    )
    made = stream(wanted)
    assert told(made, SECOND, x=1, status="UP") == {}
    assert told(made, 2 * SECOND, x=2, status="UP") == {"x": 2}
    assert told(made, 3 * SECOND, x=2, status="UP") == {"x": 2, "oper-status": "UP"}


def test_changes_are_told_and_so_is_the_end_of_a_leaf() -> None:
    made = stream(WantedPath(pattern=(), when=When.ON_CHANGE))
    look = made.due_ns
    assert told(made, look, x=1, status="UP") == {}
    assert told(made, 2 * look, x=1, status="DOWN") == {"oper-status": "DOWN"}
    assert told(made, 3 * look, x=1) == {"oper-status": None}
    assert told(made, 4 * look, x=1) == {}
    assert told(made, 5 * look, x=1, status="UP") == {"oper-status": "UP"}


def test_a_target_samples_counters_and_tells_changes_of_all_else() -> None:
    made = stream(WantedPath(pattern=(), interval_ns=SECOND))
    look = made.due_ns
    assert look < SECOND
    assert told(made, look, x=5, status="DOWN") == {"oper-status": "DOWN"}
    assert told(made, SECOND, x=6, status="DOWN") == {"x": 6}


def test_no_subscriber_is_served_more_often_than_the_least_interval() -> None:
    assert WantedPath(pattern=(), interval_ns=1).sampled_every_ns == 100_000_000
    assert WantedPath(pattern=()).sampled_every_ns == 10 * SECOND


@pytest.mark.parametrize(
    ("path", "counts"),
    [
        (f"{INTERFACE}/state/counters/in-octets", True),
        (f"{INTERFACE}/state/oper-status", False),
        (f"{QUEUE}/transmit-pkts", True),
        (f"{QUEUE}/name", False),
        (f"{NEIGHBOR}/state/session-state", False),
        (f"{NEIGHBOR}/state/messages/sent/UPDATE", True),
        (f"{NEIGHBOR}/state/established-transitions", True),
    ],
)
def test_counters_are_told_from_states(path: str, counts: bool) -> None:
    assert is_counter(path_of(path)) is counts
