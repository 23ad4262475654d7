"""`trace` says which way a flow goes, and packets of that flow go there: the counters of ports are the witness."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from sandbox import Sandbox
from waiting import until

from testbed.base.datapath.flow_hash import FiveTuple
from testbed.base.linux.namespaces import in_namespace
from testbed.lab.core.deploy.hash_seeds import DEPLOYED, set_hash_seeds
from testbed.lab.core.deploy.links.changes import LinkChange, LinkControl
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.watch.sessions import ESTABLISHED
from testbed.lab.core.fabric import QOS_PRESETS
from testbed.lab.core.model import BalancingMode, HashEngine, LoadBalancing, QosPolicy, QosProfile
from testbed.lab.observe.flow_ends import flow_ends
from testbed.lab.observe.flow_path import FlowPath, FlowTracer

pytestmark = [pytest.mark.netns, pytest.mark.frr]

A, B = "p1-s1-h1:rail1", "p1-s2-h2:rail1"
PACKETS = 150
FEW = 40
"""More than BGP and its neighbours say of their own accord while a flow passes."""


def profile(hash_by: HashEngine) -> QosProfile:
    return replace(QOS_PRESETS["uec"].profile, load_balancing=LoadBalancing(mode=BalancingMode.FLOW, hash=hash_by))


@pytest.fixture(scope="module", params=["no qos", "ebpf", "kernel"])
def lab(shared_sandbox: Any, request: pytest.FixtureRequest) -> Iterator[RunningLab]:
    """Two segments under four spines, whose switches hash by each of the ways that there are."""
    model = shared_sandbox.model("t", gpus=1, spines=4)
    if request.param != "no qos":
        model = replace(model, qos=QosPolicy(profiles=(profile(HashEngine(request.param)),)))
    yield shared_sandbox.deploy(model).lab
    shared_sandbox.destroy("t")


def five_tuple(lab: RunningLab, source_port: int, kind: int = 17, a: str = A, b: str = B) -> FiveTuple:
    near, far = flow_ends(lab, a, b)
    return FiveTuple(
        source=near.address, destination=far.address, protocol=kind, source_port=source_port, destination_port=4791
    )


def traced(lab: RunningLab, packet: FiveTuple, a: str = A, b: str = B) -> FlowPath:
    near, far = flow_ends(lab, a, b)
    with FlowTracer(lab) as tracer:
        return tracer.trace(near.node, near.place, far.node, packet)


def send(lab: RunningLab, packet: FiveTuple) -> None:
    """Send datagrams of a flow that takes them from its NIC one after the other: no queue on the way is too short."""

    def work() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as item:
            item.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            item.bind((str(packet.source), packet.source_port))
            item.connect((str(packet.destination), packet.destination_port))
            for _ in range(PACKETS):
                item.send(bytes(100))

    in_namespace(lab.namespace(A.partition(":")[0]), work)


@contextmanager
def sink(lab: RunningLab, packet: FiveTuple) -> Iterator[None]:
    """Have somebody take the packets of a flow, so that no host answers that nobody does."""

    def listen() -> socket.socket:
        item = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        item.bind((str(packet.destination), packet.destination_port))
        return item

    with in_namespace(lab.namespace(B.partition(":")[0]), listen):
        yield


def sent(lab: RunningLab) -> dict[str, int]:
    return {f"{node}:{name}": counters.tx_packets for (node, name), counters in lab.counters().items()}


def ports_of(path: FlowPath) -> list[str]:
    return [f"{hop.port.node}:{hop.port.name}" for hop in path.hops]


def went_by(lab: RunningLab, packet: FiveTuple, expected: list[str]) -> set[str]:
    """The ports that have sent the packets of a flow, once all expected ones have."""
    with sink(lab, packet):
        before = sent(lab)
        send(lab, packet)
        until(
            lambda: all(sent(lab)[port] - before[port] >= PACKETS for port in expected),
            f"{PACKETS} packets at {', '.join(expected)}",
        )
    return {port for port, count in sent(lab).items() if count - before[port] >= FEW}


def test_packets_go_where_trace_says(lab: RunningLab) -> None:
    random = Random(7)
    uplinks = set()
    for source_port in random.sample(range(20_000, 60_000), 8):
        packet = five_tuple(lab, source_port)
        path = traced(lab, packet)
        assert path.is_certain and path.arrives == B and not path.lost
        expected = ports_of(path)
        assert [port.partition(":")[0] for port in expected[:2]] == ["p1-s1-h1", "p1-s1-rail1"]
        assert went_by(lab, packet, expected) == set(expected), "these ports, and no others"
        uplinks.add(expected[1])
    assert len(uplinks) > 1, "flows spread, and each is followed"


def test_a_run_with_other_seeds_is_followed(lab: RunningLab) -> None:
    packets = [five_tuple(lab, port) for port in range(30_000, 30_032)]
    before = [ports_of(traced(lab, packet)) for packet in packets]
    set_hash_seeds(lab, 5)
    try:
        after = [ports_of(traced(lab, packet)) for packet in packets]
        if lab.plan.tables is not None and traced(lab, packets[0]).hops[1].by == "hash of the switch":
            assert before != after
        assert went_by(lab, packets[0], after[0]) == set(after[0])
    finally:
        set_hash_seeds(lab, DEPLOYED)
    assert [ports_of(traced(lab, packet)) for packet in packets] == before


def test_a_link_that_goes_is_left_out(lab: RunningLab) -> None:
    packet = five_tuple(lab, 45_000)
    before = ports_of(traced(lab, packet))

    def has_session() -> bool:
        """The kernel leaves a hop out while its link is down; BGP ends the session, and begins it again, later."""
        return any(f"{one.node}:{one.interface}" == before[1] and one.state == ESTABLISHED for one in lab.sessions())

    with LinkControl(lab) as control:
        control.set(before[1], LinkChange(up=False))
        try:
            until(lambda: before[1] not in ports_of(traced(lab, packet)) and not has_session(), "another way")
            after = ports_of(traced(lab, packet))
            assert went_by(lab, packet, after) == set(after)
        finally:
            control.set(before[1], LinkChange(up=True))
    until(lambda: has_session() and ports_of(traced(lab, packet)) == before, "the way of before")


def test_within_a_subnet_a_link_that_is_down_is_the_end(lab: RunningLab) -> None:
    packet = five_tuple(lab, 46_000, b="p1-s1-h2:rail1")
    with LinkControl(lab) as control:
        control.set("p1-s1-h2:rail1", LinkChange(up=False))
        try:
            path = traced(lab, packet, b="p1-s1-h2:rail1")
        finally:
            control.set("p1-s1-h2:rail1", LinkChange(up=True))
    assert path.arrives == "" and path.hops[-1].port.node == "p1-s1-rail1"
    assert path.lost and "no carrier" in path.lost[0]
    until(lambda: traced(lab, packet, b="p1-s1-h2:rail1").arrives == "p1-s1-h2:rail1", "the carrier is back")


def test_within_a_subnet_and_from_a_switch(lab: RunningLab) -> None:
    packet = five_tuple(lab, 46_000, b="p1-s1-h2:rail1")
    assert ports_of(traced(lab, packet, b="p1-s1-h2:rail1"))[0] == A
    path = traced(lab, packet, b="p1-s1-h2:rail1")
    assert path.arrives == "p1-s1-h2:rail1" and len(path.hops) == 2
    from_switch = five_tuple(lab, 46_000, a="p1-s1-rail1")
    path = traced(lab, from_switch, a="p1-s1-rail1")
    assert path.arrives == B and path.hops[0].port.node == "p1-s1-rail1"


def test_the_verb(shared_sandbox: Any, lab: RunningLab) -> None:
    done = shared_sandbox.cli(
        *("trace", "p1-s1-h1", "p1-s2-h2", "-n", lab.name, "--source-port", "45000", "-f", "json")
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["arrives"] == B and said["certain"] is True
    assert [f"{hop['node']}:{hop['interface']}" for hop in said["hops"]] == ports_of(
        traced(lab, five_tuple(lab, 45_000))
    )
    for hop in said["hops"]:
        assert hop["queue_bytes"] >= 0 and hop["rate_bps"] == lab.port(hop["node"], hop["interface"]).rate_bps
        assert hop["load_bps"] >= 0
        if lab.plan.tables is not None:
            assert hop["class"] and hop["marked_packets"] is not None
    shown = shared_sandbox.cli("trace", "h1", "p1-s2-h2", "-n", lab.name)
    assert shown.returncode not in (0, 1)
    assert "did you mean p1-s1-h1 or p1-s2-h1?" in shown.stderr
    table = shared_sandbox.cli("trace", "p1-s1-h1", "p1-s2-h2", "-n", lab.name, "--over", "0")
    assert table.returncode == 0 and f"arrives at {B}" in table.stdout


TENANTS = """
name: {name}
scale: {{time: 10000}}
fabric: {{design: rail-optimized, segments: 2, hosts: 2, gpus: 1, spines: 2, overlay: evpn, mtu: 4200}}
tenants:
  red:
    subnets:
      web: {{prefix: 172.30.0.0/24, nics: ["p1-s1-h1:rail1", "p1-s2-h1:rail1"]}}
      db: {{prefix: 172.30.1.0/24, nics: ["p1-s2-h2:rail1"]}}
  blue:
    talks_to: [red]
    subnets: {{web: {{prefix: 172.31.0.0/24, nics: ["p1-s1-h2:rail1"]}}}}
"""


@pytest.mark.parametrize("end", ["p1-s2-h1:rail1", "p1-s2-h2:rail1"])
def test_between_vteps_all_ways_are_followed(tenants: RunningLab, end: str) -> None:
    """Bridged within a subnet, routed into another one: in both cases nobody knows the outer source port."""
    packet = five_tuple(tenants, 47_000, b=end)
    path = traced(tenants, packet, b=end)
    assert path.arrives == end and not path.is_certain and not path.lost
    up = [hop for hop in path.hops if hop.number == 2]
    assert [hop.port.name for hop in sorted(up, key=lambda hop: hop.port.name)] == ["uplink1", "uplink2"]
    assert {hop.by for hop in up} == {"hash of an unknown port"}
    assert {hop.port.node for hop in path.hops if hop.number == 4} == {"p1-s2-rail1"}


@pytest.mark.parametrize("source", ["p1-s1-h1:rail1", "p1-s2-h1:rail1"])
def test_tenants_that_talk_are_joined_by_a_wire_in_their_switch(tenants: RunningLab, source: str) -> None:
    packet = five_tuple(tenants, 48_000, a=source, b="p1-s1-h2:rail1")
    path = traced(tenants, packet, a=source, b="p1-s1-h2:rail1")
    assert path.arrives == "p1-s1-h2:rail1" and not path.lost
    assert path.hops[-1].port.node == "p1-s1-rail1"


@pytest.fixture(scope="module")
def tenants(shared_sandbox: Sandbox) -> Iterator[RunningLab]:
    yield shared_sandbox.lab(TENANTS, "o")
    shared_sandbox.destroy("o")
