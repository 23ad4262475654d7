"""RoCEv2 on the simulator, from the file to the record: verdicts, repeatability, and the classes packets ride in."""

import json
from random import Random
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from testbed.base.datapath.traffic_class import ClassPlan
from testbed.endpoints.worker.transport_registry import transport_names
from testbed.protocols.roce.config import RoceConfig
from testbed.protocols.roce.packets.opcodes import UDP_PORT
from testbed.protocols.roce.rnic import Rnic
from testbed.protocols.simulation import FabricNetwork, FabricPortSettings, LinkSettings, NicHost, SwitchSettings
from testbed.record.json_schema import record_schema
from testbed.record.record import Outcome, Record
from testbed.record.store import encode_record
from testbed.run.placed.traffic import make_traffic
from testbed.run.simulated.execution import SimulatedRun, execute
from testbed.run.simulated.fabric import planned_lab
from testbed.run.simulated.sweep import run_simulated
from testbed.run.simulated.transport_registry import simulated_names, simulated_transport
from testbed.run.simulated.transports.roce import RnicHost
from testbed.run.sweep.runner import RecordOptions
from testbed.run.sweeps import read_sweep
from testbed.run.transports.registry import transport_on

pytestmark = pytest.mark.process

INCAST = """
name: small
topology:
  inline:
    name: small
    scale: {time: auto}
    fabric: {design: rail-optimized, segments: 2, hosts: 2, gpus: 1, spines: 2, nic: {per: gpu, rate: 400G}}
    qos: {preset: dcqcn, base_rtt: 12us}
transport: {kind: roce, cc: dcqcn}
workload: {kind: incast, senders: 3, bytes: 4bdp}
repeat: {runs: 1, seed: 3}
expect:
  - {metric: tail_fct_ratio, min: 1, max: 1.5, source: "ideal serialisation + base RTT"}
  - {metric: drops, max: 0, source: "a lossless class"}
"""


def run(text: str, **overrides: object) -> Record:
    outcome = run_simulated(read_sweep(text, overrides), RecordOptions(), processes=1)
    assert outcome.failure is None, outcome.failure
    return outcome.record


def executed(text: str, **overrides: object) -> tuple[SimulatedRun, Any]:
    """One run of the only point, and its lab."""
    sweep = read_sweep(text, overrides)
    [point] = sweep.points
    lab = planned_lab(sweep.lab_of(point))
    traffic = make_traffic(point.scenario, lab, seed=point.scenario.repeat.seed)
    transport = transport_on(lab, point.scenario.transport)
    return execute(lab, transport, traffic, limit_s=1.0, on_progress=lambda share: False), lab


ALL_TO_ALL = """
name: all-to-all
topology: {inline: {name: small, fabric: {design: single-switch, hosts: 12, gpus: 1}}}
transport: {kind: roce, qps: 2, dcis: 2, recovery: selective}
workload: {kind: all-to-all, bytes: 32kB}
matrix: {transport.connections: [rc, dct]}
expect:
  - {metric: wrong, max: 0, source: every element is checked}
"""


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ("cc: dcqcn, parameters: nvidia", {"alpha", "target_bps"}),
        ("cc: swift", {"target_ns"}),
        ("cc: timely", {"gradient"}),
        ("cc: none", set()),
        ("cc: dcqcn, connections: dct, dcis: 2", {"alpha", "target_bps"}),
    ],
)
def test_a_record_has_what_congestion_control_knows_over_time(settings: str, names: set[str]) -> None:
    record = run(INCAST.replace("cc: dcqcn", settings).replace("max: 1.5", "max: 99"))
    Draft202012Validator(record_schema()).validate(json.loads(encode_record(record)))
    channels = [channel for channel in record.points[0].runs[0].channels if channel.sent_bytes]
    assert channels and {name for one in channels for name in one.samples.control} == names
    for samples in (channel.samples for channel in channels):
        assert len(samples.rate_bps) == len(samples.at_s) > 4
        assert all(len(column) == len(samples.at_s) for column in samples.control.values())
        rates = [rate for rate in samples.rate_bps if rate is not None]
        assert max(rates) <= 400e9 and (settings != "cc: none" or set(rates) == {400e9})
    if "nvidia" in settings:
        lowest = min(rate for one in channels for rate in one.samples.rate_bps if rate is not None)
        alphas = [alpha for one in channels for alpha in one.samples.control["alpha"] if alpha is not None]
        assert lowest < 400e9 and 0 < min(alphas) < max(alphas) <= 1


def test_the_state_of_queue_pairs_grows_with_the_peers_and_that_of_a_pool_does_not() -> None:
    record = run(ALL_TO_ALL)
    assert record.verdict.outcome is Outcome.PASS, record.verdict
    reliable, dynamic = (point.runs[0].counters for point in record.points)
    assert reliable["connects"] == 0
    # Each of 12 hosts has 11 peers and 2 stripes to each: it attaches once for each of them, and keeps two attached.
    assert dynamic["connects"] == dynamic["attached"] == 12 * 11 * 2
    assert dynamic["disconnects"] >= 12 * (11 * 2 - 2)
    assert dynamic["qp_state_bytes"] < reliable["qp_state_bytes"] / 4


def test_a_scenario_comes_to_a_verdict_with_pauses_marks_and_notifications() -> None:
    record = run(INCAST)
    assert record.verdict.outcome is Outcome.PASS, record.verdict
    [one] = record.points[0].runs
    assert {check.name: check.ok for check in one.checks} == {
        "datagrams": True,
        "lossless": True,
        "reconcile": True,
        "ideal": True,
    }
    assert one.metrics["pause_frames"] and one.metrics["pause_time"] and one.metrics["ecn_mark_ratio"]
    assert one.metrics["drops"] == 0 and one.metrics["retransmits"] == 0
    assert one.counters["cnp_sent"] == one.counters["cnp_received"] > 0
    assert one.counters["datagrams_sent"] == one.counters["datagrams_received"]
    assert sum(channel.counters["cnps"] for channel in one.channels) == one.counters["cnp_received"]
    assert all(0 < (end or 0) < 1e-3 for end in one.transfers.end_s), "real time: microseconds"


@pytest.mark.parametrize("cc", ["dcqcn", "timely", "swift", "none"])
def test_the_same_seed_gives_the_same_record(cc: str) -> None:
    one, other = run(INCAST, **{"transport.cc": cc}), run(INCAST, **{"transport.cc": cc})
    assert one.points[0].runs == other.points[0].runs


def test_another_seed_gives_another_record() -> None:
    one, other = run(INCAST), run(INCAST, **{"repeat.seed": 50})
    assert one.points[0].runs[0].transfers.end_s != other.points[0].runs[0].transfers.end_s


def test_collectives_carry_their_data_and_it_is_checked_to_the_bit() -> None:
    text = INCAST.replace("kind: incast, senders: 3, bytes: 4bdp", "kind: all-reduce, bytes: 200kB")
    text = text.replace("{metric: tail_fct_ratio, min: 1, max: 1.5,", "{metric: wrong, max: 0,")
    for qps in (1, 4):
        record = run(text, **{"transport.qps": qps})
        assert record.verdict.outcome is Outcome.PASS, record.verdict
        assert record.points[0].runs[0].metrics["wrong"] == 0


@pytest.mark.parametrize("recovery", ["go-back-n", "selective"])
def test_what_a_link_loses_is_sent_again(recovery: str) -> None:
    fault = "faults: [{at: 0s, link: 'p1-s1-rail1:uplink1', set: {loss: 0.02, both: true}}]\nrepeat:"
    text = INCAST.replace("repeat:", fault).replace("max: 1.5", "max: 99")
    text = text.replace("kind: incast, senders: 3", "kind: permutation, scope: inter-leaf")
    [one] = run(text, **{"transport.recovery": recovery, "workload.bytes": "1MB"}).points[0].runs
    assert one.complete and one.metrics["retransmits"]
    assert {check.name: check.ok for check in one.checks}["datagrams"]


def test_data_and_notifications_ride_in_the_classes_of_their_own_dscps() -> None:
    done, lab = executed(INCAST)
    assert (
        done.measured.failure is None
        and done.measured.observation.growth is not None
        and done.measured.observation.table is not None
    )
    counters, table = done.measured.counters, done.measured.observation.table
    profile = next(item for item in lab.plan.qos.profiles if item.switch)
    transport = transport_on(lab, read_sweep(INCAST).points[0].scenario.transport)
    data, control = (profile.class_of_dscp[dscp] for dscp in (transport.dscp, transport.control_dscp))
    assert data != control == profile.control_class
    at_switches = np.array(table.switch, bool)
    arrived = done.measured.observation.growth.ingress["in_packets"][~at_switches]
    by_class = arrived.sum(axis=0)
    assert by_class[control] == counters["cnp_received"] > 0
    assert by_class[data] == done.sent - counters["cnp_sent"]
    assert by_class.sum() == done.sent


def test_a_nic_whose_data_is_paused_still_tells_of_congestion() -> None:
    """It has more data waiting than it takes ahead, and sends its CNPs in a class that is not paused."""
    rnics = [Rnic(address, RoceConfig(mtu=1024), Random(1), 0) for address in ("10.0.0.1", "10.0.0.2")]
    data = ClassPlan(priority=3, kmin_bytes=0, kmax_bytes=1)
    port = FabricPortSettings(classes=(data, ClassPlan(priority=6, strict=True)), priority_of=(3, 3, 3, 6, 6))
    network = FabricNetwork(rnics, destination_port=UDP_PORT, host=RnicHost)
    network.add_fabric_switch("switch", SwitchSettings())
    for rnic, peer in zip(rnics, reversed(rnics), strict=True):
        rate = {"10.0.0.1": 10, "10.0.0.2": 1}[rnic.address]
        link = LinkSettings(rate_bps=rate * 10**9, delay_ns=1000)
        network.connect(f"{rnic.address} up", rnic.address, "switch", link, out=port, into=port)
        network.connect(f"{rnic.address} down", "switch", rnic.address, link, out=port, into=port)
        network.route("switch", rnic.address, [f"{rnic.address} down"])
        qp = rnic.create_qp(number=17)
        qp.connect(peer.address, 17)
        qp.receive(bytearray(200_000), 0)
        qp.send(bytes(200_000), 0)
    network.outputs["10.0.0.2 up"].pause(0, 3)
    network.run(until=1_000_000)
    first, second = (network.nics[rnic.address] for rnic in rnics)
    assert second.port is not None and second.port.queue_of(3).out_packets == 0
    assert rnics[0].counters["cnp-received"] == rnics[1].counters["cnp-sent"] > 0
    assert first.delivered == rnics[0].counters["cnp-received"]


def test_what_can_be_simulated_are_transports_of_workers() -> None:
    assert simulated_names() == ("ib", "nvme-tcp", "roce", "tcp", "uet")
    for name in simulated_names():
        assert name in transport_names()
        assert issubclass(simulated_transport(name).host, NicHost)
