"""What ibsim prints at its prompt, as recorded of ibsim 0.10."""

from pathlib import Path

import pytest

from testbed.base.errors import DriverError
from testbed.lab.core.model.infiniband import InfinibandSettings
from testbed.lab.features.infiniband.configuration import PlannedNode, PlannedSubnet
from testbed.lab.features.infiniband.plane import Plane
from testbed.lab.features.infiniband.simulator import Simulator, is_in_force, parse_attached, parse_dump, reached_nodes
from testbed.protocols.infiniband.subnet import SubnetLink

ATTACHED = (
    'Client 0: pid 15003 connected at "H1" port 0x100001, lid 1, qp 0 SM\n'
    'Client 1: pid 16200 connected at "H5" port 0x100009, lid 14, qp 0 \n'
)
DUMP = """# Net status - Sun Nov 29 13:43:37 2026

Ca 1 "H1"\tnodeguid 100000\tsysimgguid 100000
100001\t[1]\t"S1"[1]\t lid 1 lmc 0 smlid 1  4x  2.5G Active/LinkUp

Ca 1 "H2"\tnodeguid 100002\tsysimgguid 100002
100003\t[1]\t\t\t lid 5 lmc 0 smlid 1  4x  2.5G Down/Polling

Switch 4 "S1"\tnodeguid 200000\tsysimgguid 200000
#\tlinearcap 1024 FDBtop 17 portchange 0
#\tForwarding table 0-15: [0]FF [1]1 [2]0 [3]3 [4]3 [5]2 [6]3 [7]3 [8]3 [9]4 [10]4 [11]3 [12]4 [13]3 [14]4 [15]FF
#\tForwarding table 16-17: [16]A [17]4
200000\t[0]\t"Sma Port"[0]\t lid 2 lmc 0 smlid 1  4x  2.5G Active/LinkUp
200000\t[1]\t"H1"[1]\t  4x  2.5G Active/LinkUp
200000\t[2]\t\t\t  4x  2.5G Down/Polling
#  dumped 3 nodes
"""


def test_programs_that_are_attached() -> None:
    assert parse_attached(ATTACHED) == [(0, 15003), (1, 16200)]
    assert parse_attached("") == []


def test_nodes_ports_and_tables() -> None:
    nodes = parse_dump(DUMP)
    assert set(nodes) == {"H1", "H2", "S1"}
    hca, cut, switch = nodes["H1"], nodes["H2"], nodes["S1"]
    assert (hca.guid, hca.lid, hca.is_switch) == (0x100000, 1, False)
    assert (hca.ports[1].peer, hca.ports[1].peer_port, hca.ports[1].manager_lid) == ("S1", 1, 1)
    assert (hca.ports[1].state, cut.ports[1].state, cut.ports[1].peer) == ("Active", "Down", "")
    assert (switch.lid, switch.is_switch, sorted(switch.ports)) == (2, True, [0, 1, 2])
    assert switch.ports[2].peer == ""


def test_a_table_is_read_whole_with_hexadecimal_ports() -> None:
    table = parse_dump(DUMP)["S1"].table
    assert len(table) == 18, "up to the largest LID"
    assert (table[1], table[5], table[15], table[16], table[17]) == (1, 2, 255, 10, 4)


def test_what_is_no_dump_has_no_nodes() -> None:
    assert parse_dump("# nodeid not found\n[1]\tgarbage\n") == {}


def test_a_dump_without_all_of_its_nodes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    simulator = Simulator(plane=Plane(directory=Path("/nowhere")))
    monkeypatch.setattr(Simulator, "ask", lambda self, command: DUMP)
    assert len(simulator.dump()) == 3
    for said in ("", ATTACHED, DUMP.replace('Ca 1 "H2"', "Ca 1")):
        monkeypatch.setattr(Simulator, "ask", lambda self, command, said=said: said)
        with pytest.raises(DriverError, match="has not told all nodes"):
            simulator.dump()


def test_a_change_is_in_force_where_ports_are_active_or_no_table_leads_into_them() -> None:
    nodes = {
        name: PlannedNode(name=name, identifier=name, guid=1, ports=4, is_switch=name.startswith("S"))
        for name in ("H1", "H2", "S1")
    }
    links = (
        SubnetLink(a="H1", a_port=1, b="S1", b_port=1, rate_bps=1),
        SubnetLink(a="H2", a_port=1, b="S1", b_port=2, rate_bps=1),
    )
    subnet = PlannedSubnet(nodes=nodes, links=links, settings=InfinibandSettings())
    everywhere = set(nodes)

    def in_force(dump: str, index: int, reached: set[str] = everywhere) -> bool:
        return is_in_force(parse_dump(dump), subnet, index, reached)

    assert in_force(DUMP, 0)
    assert not in_force(DUMP.replace("Active", "Init"), 0), "not swept since it came up"
    assert not in_force(DUMP, 1), "LID 5 is still led into the link that is cut"
    assert in_force(DUMP.replace("[5]2", "[5]FF"), 1)
    assert in_force(DUMP, 1, {"H2"}), "no manager can write tables of a switch that it does not reach"


def test_nodes_are_reached_over_links_that_are_up() -> None:
    assert reached_nodes(parse_dump(DUMP), ["H1"]) == {"H1", "S1"}
    assert reached_nodes(parse_dump(DUMP), ["H2"]) == {"H2"}
