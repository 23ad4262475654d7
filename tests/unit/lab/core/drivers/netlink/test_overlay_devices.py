"""Messages that make VXLAN and VRF devices, and set bridge ports."""

import socket
import struct
from ipaddress import IPv4Address

from testbed.base.linux import rtnetlink as nl
from testbed.base.linux.rtnetlink import fields
from testbed.lab.core.drivers.netlink.overlay_devices import new_vrf, new_vxlan, prefer_vrfs, set_bridge_port
from testbed.lab.core.plan.operations import SetBridgePort
from testbed.lab.core.plan.overlay_operations import CreateVrfDevice, CreateVxlan

VTEP, MAC = IPv4Address("172.18.0.2"), "02:00:00:00:00:07"
BRIDGE, VXLAN = 70, 71


def test_a_vxlan_device_learns_nothing_and_hands_on_the_dscp() -> None:
    operation = CreateVxlan(
        node="leaf-red",
        switch="leaf",
        name="vx10101",
        ifindex=VXLAN,
        mac=MAC,
        vni=10101,
        local=VTEP,
        master=BRIDGE,
        mtu_bytes=4450,
    )
    link = fields(new_vxlan(operation, 9), 32)
    assert link[nl.IFLA_NET_NS_FD] == struct.pack("=I", 9)
    assert link[nl.IFLA_MASTER] == struct.pack("=I", BRIDGE)
    assert link[nl.IFLA_MTU] == struct.pack("=I", 4450)
    info = fields(link[nl.IFLA_LINKINFO])
    assert info[nl.IFLA_INFO_KIND] == b"vxlan\0"
    options = fields(info[nl.IFLA_INFO_DATA])
    # linux/if_link.h: IFLA_VXLAN_ID, LOCAL, TOS (1: inherit), LEARNING, PORT
    assert options == {1: struct.pack("=I", 10101), 4: VTEP.packed, 6: b"\1", 7: b"\0", 15: (4789).to_bytes(2, "big")}


def test_a_bridge_port_is_set_as_bridge_link_set_does() -> None:
    operation = SetBridgePort(
        node="leaf-red", name="vx10101", ifindex=VXLAN, learning=False, neighbour_suppression=True
    )
    data = set_bridge_port(operation)
    assert (data[16], int.from_bytes(data[20:24], "little")) == (socket.AF_BRIDGE, VXLAN)
    # IFLA_PROTINFO with IFLA_BRPORT_LEARNING, IFLA_BRPORT_NEIGH_SUPPRESS and IFLA_BRPORT_ISOLATED
    assert fields(fields(data, 32)[12]) == {8: b"\0", 32: b"\1", 33: b"\0"}
    isolated = set_bridge_port(SetBridgePort(node="mgmt-sw1", name="down1", ifindex=9, isolated=True))
    assert fields(fields(isolated, 32)[12]) == {8: b"\1", 32: b"\0", 33: b"\1"}


def test_a_vrf_device_with_ipv6_has_its_rules_and_the_end_of_its_table_in_both_families() -> None:
    _, *routes = new_vrf(CreateVrfDevice(node="leaf", name="red", ifindex=7, table=1 << 24 | 50001, ipv6=True))
    assert [(route[16], route[16 + 7]) for route in routes] == [(socket.AF_INET, 7), (socket.AF_INET6, 7)]
    assert [rule[16] for rule in prefer_vrfs(ipv6=True)] == [socket.AF_INET] * 2 + [socket.AF_INET6] * 2


def test_a_vrf_device_comes_with_the_end_of_its_table() -> None:
    link, route = new_vrf(CreateVrfDevice(node="leaf", name="red", ifindex=7, table=1 << 24 | 50001))
    info = fields(fields(link, 32)[nl.IFLA_LINKINFO])
    assert info[nl.IFLA_INFO_KIND] == b"vrf\0"
    assert fields(info[nl.IFLA_INFO_DATA]) == {1: struct.pack("=I", 1 << 24 | 50001)}
    assert route[16 + 7] == 7, "unreachable"
    assert fields(route, 28)[nl.RTA_TABLE] == struct.pack("=I", 1 << 24 | 50001)
    added, removed = (fields(item, 28)[nl.FRA_PRIORITY] for item in prefer_vrfs())
    assert (added, removed) == (struct.pack("=I", 32765), bytes(4))
