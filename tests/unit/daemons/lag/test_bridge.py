"""What a leaf tells its kernel of one bridge, and the file that its process is started from."""

import socket
import struct
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Any, cast

from testbed.base.linux.neighbours import RTM_DELNEIGH, RTM_NEWNEIGH
from testbed.base.linux.rtnetlink import attribute, mac_bytes
from testbed.daemons.kit.configuration import read, write
from testbed.daemons.lag.bridge import TOLD_AGAIN_S, BridgeTables
from testbed.daemons.lag.configuration import LagConfiguration, LeafGroup, MemberPort, PairedBridge, PairedLeaf
from testbed.daemons.lag.kernel import Change, NeighbourChange, _change

PORT, PEER_PORT = 11, 12
MAC, OTHER_MAC = "02:00:00:00:00:01", "02:00:00:00:00:02"


class RecordingKernel:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.there = True

    def set_station(self, mac: str, port: int) -> bool:
        self.told.append(("station", mac, port))
        return self.there

    def forget_station(self, mac: str, port: int) -> None:
        self.told.append(("forget", mac, port))

    def set_neighbour(self, bridge: int, address: IPv4Address | IPv6Address, mac: str, *, announced: bool) -> bool:
        self.told.append(("neighbour", bridge, str(address), mac, announced))
        return self.there


def bridge(vlan: int = 7) -> PairedBridge:
    member = LeafGroup(name="h1", key=1, member=MemberPort(name="down1", ifindex=PORT, number=257))
    return PairedBridge(namespace="lab-leaf-red", ifindex=10, peer_port=PEER_PORT, groups=(member,), vlan=vlan, tail=13)


def tables(vlan: int = 7) -> tuple[BridgeTables, list[tuple[Any, ...]]]:
    kernel = RecordingKernel()
    return BridgeTables(bridge(vlan), cast("Any", kernel)), kernel.told


def test_the_kernel_is_told_changes_alone() -> None:
    made, told = tables()
    made.set_stations({MAC: PORT})
    made.set_stations({MAC: PORT})
    assert told == [("station", MAC, PORT)]
    made.set_stations({MAC: PEER_PORT})
    made.set_stations({})
    assert told[1:] == [("station", MAC, PEER_PORT), ("forget", MAC, PEER_PORT)]


def test_what_the_bridge_has_learned_itself_it_is_not_told() -> None:
    made, told = tables()
    made.learned(MAC, PORT)
    made.set_stations({MAC: PORT})
    assert told == []
    assert not made.unlearned(MAC, PEER_PORT)
    assert made.unlearned(MAC, PORT)
    made.set_stations({MAC: PORT})
    made.flushed()
    made.set_stations({MAC: PORT})
    assert told == [("station", MAC, PORT)] * 2


def test_what_could_not_be_told_is_told_once_it_can() -> None:
    kernel = RecordingKernel()
    made = BridgeTables(bridge(), cast("Any", kernel))
    kernel.there = False
    for _ in range(2):
        made.set_stations({MAC: PORT})
        made.set_neighbours({"10.0.0.2": MAC}, 1.0)
    assert len(kernel.told) == 4, "the port and the bridge are gone: nothing was told"
    kernel.there = True
    for _ in range(2):
        made.set_stations({MAC: PORT})
        made.set_neighbours({"10.0.0.2": MAC}, 1.0)
    assert len(kernel.told) == 6


def test_of_a_port_that_is_made_anew_nothing_counts_as_known() -> None:
    made, told = tables()
    made.learned(MAC, PORT)
    made.set_stations({OTHER_MAC: PORT})
    assert made.dropped(PEER_PORT) == []
    assert made.dropped(PORT) == [MAC]
    made.set_stations({MAC: PORT, OTHER_MAC: PORT})
    assert told == [("station", OTHER_MAC, PORT), ("station", MAC, PORT), ("station", OTHER_MAC, PORT)]


def test_neighbours_of_a_tenant_are_announced_and_those_of_the_own_subnet_are_not() -> None:
    for vlan, announced in ((7, True), (0, False)):
        made, told = tables(vlan)
        for address in ("10.0.0.2", "fd00:1::2"):
            made.set_neighbours({address: MAC}, 1.0)
            made.set_neighbours({address: MAC}, 2.0)
            assert told == [("neighbour", 10, address, MAC, announced)]
            made.forgot_neighbour(ip_address(address), 3.0)
            made.set_neighbours({address: MAC}, 3.0)
            assert len(told) == 1 and made.next_due() == 3.0 + TOLD_AGAIN_S
            made.set_neighbours({address: MAC}, made.next_due())
            assert told == [("neighbour", 10, address, MAC, announced)] * 2, "what the kernel has forgotten"
            told.clear()


def test_a_leaf_hears_neighbours_of_both_versions_but_those_of_the_link_alone() -> None:
    def heard(family: int, address: str, state: int = 0x02, kind: int = RTM_NEWNEIGH) -> Change | None:
        body = struct.pack("=BxxxiHBB", family, 10, state, 0, 0)
        body += attribute(1, ip_address(address).packed) + attribute(2, mac_bytes(MAC))
        return _change(kind, memoryview(body))

    for family, address in ((socket.AF_INET, "10.0.0.2"), (socket.AF_INET6, "fd00:1::2")):
        assert heard(family, address) == NeighbourChange(10, ip_address(address), MAC)
        assert heard(family, address, 0x40) is None, "what it was told itself"
        for forgotten in (heard(family, address, 0x20), heard(family, address, 0x40, RTM_DELNEIGH)):
            assert forgotten == NeighbourChange(10, ip_address(address), "")
    assert heard(socket.AF_INET6, "fe80::2") is None


def test_the_same_address_in_two_tenants_has_two_names() -> None:
    assert tables(7)[0].key(MAC) != tables(8)[0].key(MAC)


def test_the_file_has_the_bridges_of_a_leaf(tmp_path: Path) -> None:
    leaf = PairedLeaf(
        namespace="lab-leaf",
        node="leaf",
        peer="other",
        primary=True,
        system=MAC,
        secret="00",
        peer_interface="peer2",
        peer_ifindex=3,
        loopback="192.168.0.1",
        peer_loopback="192.168.0.2",
        bridges=(bridge(), bridge(0)),
        uplinks=(4, 5),
        routes=9,
        vtep="192.168.0.190",
    )
    path = tmp_path / "configuration.json"
    write(path, LagConfiguration(directory=tmp_path, leaves=(leaf,), hosts=()))
    assert read(path, LagConfiguration).nodes == (leaf,)
    assert [group.name for group in leaf.groups] == ["h1", "h1"]
