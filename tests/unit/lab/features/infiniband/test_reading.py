"""Tables as management datagrams have them, and the service levels of paths."""

from pathlib import Path

import pytest

from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.features.infiniband import reading
from testbed.lab.features.infiniband.configuration import plan_subnet
from testbed.lab.features.infiniband.plane import Plane
from testbed.lab.features.infiniband.reading import (
    SubnetReader,
    decode_arbitration,
    decode_path_sl,
    decode_pkeys,
    decode_sl2vl,
)
from testbed.lab.features.infiniband.simulator import SimulatedNode, SimulatedPort, Simulator

TWO_PARTITIONS = """name: lab
fabric:
  design: rail-optimized
  segments: 3
  hosts: 1
  gpus: 1
  spines: 1
  link_layer: infiniband
  infiniband:
    vls: 2
    partitions:
      first: {nodes: [p1-s1-h1, p1-s2-h1], sl: 0}
      second: {nodes: ["*"], sl: 1}
"""


def test_lanes_are_four_bits_each() -> None:
    data = bytes([0x01, 0x23, 0x45, 0x67, 0x89, 0xAB, 0xCD, 0xEF]) + bytes(56)
    assert decode_sl2vl(data) == tuple(range(16))


def test_weights_of_zero_are_none() -> None:
    assert decode_arbitration(bytes([1, 64, 0, 0, 2, 8]) + bytes(58)) == ((1, 64), (2, 8))


def test_empty_pkeys_are_none() -> None:
    data = bytes.fromhex("7fff8001") + bytes(60)
    assert decode_pkeys(data) == {0x7FFF, 0x8001}


def test_the_service_level_of_a_path_is_below_its_class() -> None:
    record = bytearray(64)
    record[52:54] = (0xABC5).to_bytes(2, "big")
    assert decode_path_sl(bytes(record)) == 5


def test_a_pair_in_two_partitions_has_the_level_of_the_one_with_less_pkey_even_if_it_is_0() -> None:
    lab = load_topology_text(TWO_PARTITIONS, file="lab.yml")
    assert lab.infiniband is not None
    planned = plan_subnet(lab.infiniband)
    nodes = {
        hca.identifier: SimulatedNode(
            identifier=hca.identifier,
            guid=hca.guid,
            is_switch=False,
            ports={1: SimulatedPort(number=1, peer="S1", peer_port=1, state="Active", lid=lid)},
        )
        for lid, hca in enumerate(planned.hcas, 1)
    }
    reader = SubnetReader(plane=Plane(directory=Path("/nowhere")), planned=planned)
    assert reader._service_levels(nodes, "ftree", planned.hcas[0]) == {(1, 3): 1, (3, 1): 1, (2, 3): 1, (3, 2): 1}


def test_the_places_of_killed_tools_are_freed_before_tables_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = load_topology_text(TWO_PARTITIONS, file="lab.yml")
    assert lab.infiniband is not None
    planned = plan_subnet(lab.infiniband)
    active = SimulatedPort(number=1, peer="S1", peer_port=1, state="Active", lid=1)
    nodes = {
        node.identifier: SimulatedNode(
            identifier=node.identifier, guid=node.guid, is_switch=node.is_switch, ports={1: active}
        )
        for node in planned.nodes.values()
    }
    done: list[str] = []

    def ask(plane: Plane, identifier: str, questions: list[list[object]]) -> list[bytes | None]:
        done.append("asked")
        return [None] * len(questions)

    monkeypatch.setattr(Simulator, "dump", lambda self: nodes)
    monkeypatch.setattr(Simulator, "forget_dead", lambda self: done.append("freed"))
    monkeypatch.setattr(reading, "ask_tables", ask)
    (manager,) = SubnetReader(plane=Plane(directory=Path("/nowhere")), planned=planned).managers()
    assert manager.state == "dead"
    assert done == ["freed", "asked"]
