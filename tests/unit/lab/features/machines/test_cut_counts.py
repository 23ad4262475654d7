"""Questions to the part of a lab that runs: whom does the machine hear, and what crossed its cut links."""

import os
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.base.linux.port_counters import PortCounters
from testbed.daemons.kit import configuration, lock
from testbed.daemons.wires.configuration import LOCK_NAME, STATUS_NAME, WiresStatus
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.deploy.watch.check import CheckStatus
from testbed.lab.core.model.machines import LabMachine
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.features.machines import watch
from testbed.lab.features.machines.part import WIRES, LabPart, Peer, stub_name
from testbed.lab.features.machines.places import place_nodes
from testbed.lab.features.machines.watch import CutCounts, check_machines, count_cuts
from testbed.lab.features.machines.wires import wires_directory

MACHINES = (LabMachine(name="a", ssh="root@a"), LabMachine(name="b", ssh="root@b"))
TWO_NETWORKS = """name: parts
fabric: {design: rail-optimized, segments: 2, hosts: 2, gpus: 1, spines: 2}
qos: {preset: uec}
networks:
  frontend: {design: leaf-spine, leaves: 2, spines: 2, nic: {per: host, ports: 1, rate: 100G}}
"""


def test_a_network_without_queues_is_counted_beside_one_that_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = load_topology_text(TWO_NETWORKS, file="<text>")
    peers = {"b": Peer(address="10.99.0.12")}
    part = LabPart(machine="a", places=place_nodes(lab, MACHINES), address="10.99.0.11", device="eth0", peers=peers)
    plan = part.plan(plan_lab(lab, slot=7, k=20_000))
    cuts = part.cuts(plan)
    plain = {cut.port for cut in cuts if cut.port not in plan.port_numbers}
    assert plain and len(plain) < len(cuts), "cut links of both networks"

    def of_classes(_lab: object, ports: Mapping[str, str], numbers: Mapping[str, int]) -> list[CutCounts]:
        return [CutCounts(port=port, peer=peer, out={"0": numbers[port]}, came={}) for port, peer in ports.items()]

    stubs = {WIRES: {stub_name(cut.number): PortCounters(tx_dropped=cut.number) for cut in cuts}}
    monkeypatch.setattr(watch, "ask_inside", lambda *_: stubs)
    monkeypatch.setattr(watch, "_counts_of_classes", of_classes)
    counters = {(cut.node, cut.port.partition(":")[2]): PortCounters(tx_packets=5, rx_packets=6) for cut in cuts}
    running: Any = SimpleNamespace(name="parts", part=part, plan=plan, counters=lambda: counters)
    found = {item.port: item for item in count_cuts(running)}
    assert set(found) == {cut.port for cut in cuts}
    assert {port for port, item in found.items() if item.out == {"all": 5} and item.came == {"all": 6}} == plain
    assert all(found[cut.port].dropped == cut.number for cut in cuts)


def test_what_the_process_of_wires_said_before_it_ended_counts_for_nothing(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "state", tmp_path / "run")
    running: Any = SimpleNamespace(plan=SimpleNamespace(lab="parts"), state=state)
    directory = wires_directory(running.plan, state)
    directory.mkdir(parents=True)
    configuration.write(directory / STATUS_NAME, WiresStatus(heard=("b",)))
    found = check_machines(running)
    assert found.status is CheckStatus.FAIL and "has ended" in found.failures[0]
    held = lock.hold(directory / LOCK_NAME, create=True)
    assert held is not None
    assert check_machines(running).status is CheckStatus.PASS
    os.close(held)
