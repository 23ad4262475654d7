"""What VXLAN costs: packets per second from NIC to NIC over the same leaves, the same spine and the same ports."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from figures import FIGURES, Figure, judge
from two_sides import PATIENCE_S, finished, in_turns, median_ratio

from testbed.api import Lab
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.state import StateDirectory

pytestmark = [pytest.mark.bench, pytest.mark.netns, pytest.mark.frr, pytest.mark.timeout(300)]

TOPOLOGY = """
name: benchvxlan
scale: {time: 1}
fabric: {design: rail-optimized, segments: 1, hosts: 2, gpus: 2, spines: 1, nic: {rate: 400G}, overlay: evpn}
tenants:
  red: {subnets: {web: {prefix: 10.1.0.0/24, nics: ["p1-s1-h1:rail1", "p1-s1-h2:rail2"]}}}
"""
PAYLOAD_BYTES = 64
BURST = 64
"""Packets that the receiver acknowledges together; two bursts are under way, which every queue has room for."""
DURATION_S = 2.0
ROUNDS = 5
PIPES = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
RECEIVER = f"""
import socket, sys
far = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
far.bind((sys.argv[1], 5201))
print("listening", flush=True)
data = bytearray(2048)
while True:
    for _ in range({BURST}):
        if far.recv_into(data) == 1:
            raise SystemExit
    far.sendto(b"whole", (sys.argv[2], 5202))
"""
SENDER = f"""
import socket, sys, time
near = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
near.bind((sys.argv[1], 5202))
near.connect((sys.argv[2], 5201))
near.settimeout(5)
data, sent, began = bytes({PAYLOAD_BYTES}), 0, time.monotonic()
for _ in range({BURST}):
    near.send(data)
while (took := time.monotonic() - began) < {DURATION_S}:
    for _ in range({BURST}):
        near.send(data)
    near.recv(2048)
    sent += {BURST}
near.recv(2048)
near.send(b".")
print(sent / took)
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    with Lab.deploy(TOPOLOGY, directory=tmp_path_factory.mktemp("overlay")) as deployed:
        yield RunningLab.open(deployed.name, StateDirectory())


def packets_per_s(lab: RunningLab, source: str, target: str) -> float:
    """What the first host gets across by one of its NICs, none of it lost: an open loop would measure what overload
    leaves of a machine that sends, forwards and receives on the same CPUs."""
    near, far = (lab.port(*end.split(":")).address for end in (source, target))
    there, here = str(far.ip), str(near.ip)

    def start(node: str, program: str, *addresses: str) -> subprocess.Popen[Any]:
        return lab.spawn(node, [sys.executable, "-c", program, *addresses], **PIPES)

    receiver = start(target.partition(":")[0], RECEIVER, there, here)
    try:
        assert "listening" in receiver.stdout.readline()
        found = finished(start(source.partition(":")[0], SENDER, here, there))
        receiver.communicate(timeout=PATIENCE_S)
    finally:
        receiver.kill()
        receiver.communicate()
    return float(found)


def test_packets_per_second_in_those_of_plain_routing(lab: RunningLab) -> None:
    """The tenant's NICs are on rail 1 and rail 2; those of rail 2 and rail 1, which nobody has, are plainly routed."""
    vxlan, plain = in_turns(
        ROUNDS,
        lambda: packets_per_s(lab, "p1-s1-h1:rail1", "p1-s1-h2:rail2"),
        lambda: packets_per_s(lab, "p1-s1-h1:rail2", "p1-s1-h2:rail1"),
    )
    FIGURES.append(Figure("VXLAN: packets/s", max(vxlan), at_least=0, unit="/s"))
    judge(
        Figure(
            f"VXLAN: packets/s, in those of plain routing ({max(plain):.0f}/s)",
            median_ratio(vxlan, plain),
            at_least=0.7,
            ratio=True,
        )
    )
