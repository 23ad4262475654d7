"""Messages about neighbours, against what iproute2 sends."""

import socket
import struct
from ipaddress import IPv4Address

from testbed.base.linux.neighbours import NUD_PROBE, set_neighbour, set_station, use_neighbour
from testbed.base.linux.rtnetlink import fields, mac_bytes

ADDRESS, MAC, BRIDGE = IPv4Address("10.1.0.3"), "02:00:00:00:00:07", 70


def test_neighbours_are_asked_for() -> None:
    use, probe = use_neighbour(BRIDGE, ADDRESS), set_neighbour(BRIDGE, ADDRESS, MAC, state=NUD_PROBE)
    # struct ndmsg: family, ifindex, state, flags (NTF_USE), type; state NUD_PROBE
    assert struct.unpack_from("=BxxxiHBB", use, 16) == (socket.AF_INET, BRIDGE, 0, 1, 0)
    assert struct.unpack_from("=BxxxiHBB", probe, 16) == (socket.AF_INET, BRIDGE, 0x10, 0, 0)
    assert fields(probe, 28) == {1: ADDRESS.packed, 2: mac_bytes(MAC)}


def test_a_station_is_told_to_the_bridge_of_its_port() -> None:
    # state NUD_REACHABLE, flags NTF_MASTER and NTF_EXT_LEARNED
    assert struct.unpack_from("=BxxxiHBB", set_station(9, MAC), 16) == (socket.AF_BRIDGE, 9, 0x02, 0x14, 0)
    assert fields(set_station(9, MAC), 28) == {2: mac_bytes(MAC)}
