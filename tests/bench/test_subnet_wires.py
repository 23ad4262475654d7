"""Figures of live InfiniBand wires, by one lab of four HCAs: the goodput of connections and of datagrams, the weights
of lanes, and what a subnet costs that carries nothing.

Each figure compares with what was counted in the same run: goodput with the rate that the HCA itself says, weights with
the frames of the other lane, and the process's CPU time with its own life.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from figures import Figure, judge

from testbed.api import Lab
from testbed.api.scenarios import run_on_lab
from testbed.base.installation.packages import missing_programs
from testbed.endpoints.infiniband.adapter import HostAdapter
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.features.infiniband.live import LiveSubnet
from testbed.lab.features.infiniband.plane import PROGRAMS, SEARCH

pytestmark = [
    pytest.mark.bench,
    pytest.mark.netns,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        bool(missing_programs(PROGRAMS, SEARCH)),
        reason="what InfiniBand needs is not installed: `testbed doctor` says so",
    ),
]
TOPOLOGY = Path(__file__).parents[2] / "topologies" / "infiniband" / "wires.yml"
TARGET, SENDERS = "p1-s2-h2", ("p1-s1-h1", "p1-s1-h2")
FRAMES = 5000
WEIGHTED_FRAMES = 3000
EDGE_FRAMES = 100
"""Frames at the beginning and the end of the time in which both lanes have any, which are not counted."""
PAYLOAD = bytes(4096)
RC_BYTES, UD_BYTES = 4096 + 26, 4096 + 34
"""A full frame of a reliable connection: LRH, BTH, ICRC and VCRC beside the payload; of a datagram the DETH, too."""
MESSAGE_BYTES = 4096 * 4000
IDLE_S = 10.0
PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    with Lab.deploy(TOPOLOGY, directory=tmp_path_factory.mktemp("lab")) as deployed:
        yield RunningLab.open(deployed.name, StateDirectory())


def test_goodput_of_a_connection(lab: RunningLab) -> None:
    """One flow alone, of 4,000 full packets: 99.4 % of the rate is payload (4,096 of 4,122 bytes)."""
    workload = f"{{kind: incast, senders: 1, bytes: {MESSAGE_BYTES}}}"
    result = run_on_lab(
        lab,
        f"name: goodput\ntopology: {{file: x.yml}}\ntransport: {{kind: ib}}\nworkload: {workload}\n"
        "repeat: {runs: 1, seed: 1}\n",
    )
    run = result.record.points[0].runs[0]
    assert run.complete and not run.metrics["ib_lost"]
    (took_s,) = (end for end in run.transfers.end_s if end is not None)
    wires = LiveSubnet(lab).wires
    with HostAdapter(wires.adapter(f"{TARGET}:rail1")) as hca:
        rate_bps = hca.rate_bps
    share = MESSAGE_BYTES * 8 / took_s / rate_bps
    what = "InfiniBand wires: goodput of a connection, of what its headers leave"
    judge(Figure(what, share / (4096 / RC_BYTES), at_least=0.995, ratio=True))


def test_goodput_of_datagrams(lab: RunningLab) -> None:
    with subprocess_of(lab, TARGET, "receive", "--frames", str(FRAMES)) as receiver:
        lid = json.loads(receiver.stdout.readline())["lid"]
        sent = lab.run(SENDERS[0], ("ibframes", "send", str(lid), "--frames", str(FRAMES)), timeout_s=PATIENCE_S)
        assert sent.returncode == 0, sent
        received = json.loads(receiver.stdout.readline())
    assert (received["frames"], received["missing"], received["wrong"]) == (FRAMES, 0, 0)
    share = received["goodput_bps"] / received["link_bps"]
    what = "InfiniBand wires: goodput of datagrams, of what headers leave"
    judge(Figure(what, share / (4096 / UD_BYTES), at_least=0.995, ratio=True))


def subprocess_of(lab: RunningLab, host: str, *arguments: str) -> subprocess.Popen[str]:
    return lab.spawn(host, ("ibframes", *arguments), stdout=subprocess.PIPE, text=True)  # type: ignore[return-value]


def test_weights_of_lanes(lab: RunningLab) -> None:
    """Two hosts of a leaf send on a lane each to one of another leaf; SL 1 has three times the weight of SL 0."""
    wires = LiveSubnet(lab).wires
    order: list[int] = []
    with HostAdapter(wires.adapter(f"{TARGET}:rail1"), PATIENCE_S) as target:
        senders = [
            threading.Thread(target=send_all, args=(wires.adapter(f"{host}:rail1"), target.lid, sl))
            for sl, host in enumerate(SENDERS)
        ]
        for sender in senders:
            sender.start()
        while len(order) < 2 * WEIGHTED_FRAMES:
            found = target.receive()
            order.append(found.sl)
        for sender in senders:
            sender.join()
    last = len(order) - order[::-1].index(1)
    both = order[EDGE_FRAMES : last - EDGE_FRAMES]
    ratio = sum(both) / (len(both) - sum(both))
    judge(Figure("InfiniBand wires: weights of lanes 3:1, off by", abs(ratio / 3 - 1), at_most=0.02, ratio=True))


def send_all(path: Path, lid: int, sl: int) -> None:
    with HostAdapter(path, PATIENCE_S) as adapter:
        for number in range(WEIGHTED_FRAMES):
            adapter.send(lid, PAYLOAD, psn=number, sl=sl)


def test_an_idle_subnet(lab: RunningLab) -> None:
    wires = LiveSubnet(lab).wires
    before = wires.status()
    time.sleep(IDLE_S)
    now = wires.status()
    share = (now["cpu_ns"] - before["cpu_ns"]) / (now["up_ns"] - before["up_ns"])
    judge(Figure("InfiniBand wires: share of a core of an idle subnet", share, at_most=0.02, ratio=True))
