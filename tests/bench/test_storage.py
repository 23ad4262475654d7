"""NVMe/TCP in user space against what was promised of it: GB/s over a bare veth, in those of nbdkit, and in the rate of
a port of a lab.

Two namespaces joined by a veth of an MTU of 9000, each side on a CPU of its own, 4 MiB at a depth of 8, both servers
keep the bytes in memory. nbdkit is driven by fio. Other work on the machine takes more from one round than from
another: a ratio is the median of those of each round, and a rate the best of all.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from figures import Figure, judge
from storage_sides import NQN
from two_sides import NEEDS_TWO_CPUS, PIPES, Pair, finished, in_turns, joined, median_ratio

from testbed.api import Lab
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.state import StateDirectory

pytestmark = [pytest.mark.bench, pytest.mark.netns, pytest.mark.nbdkit, pytest.mark.fio, NEEDS_TWO_CPUS]

NEAR, FAR = "10.85.0.2", "10.85.0.1"
ROUNDS = 3
SIZE = 512 << 20
LEAST_BYTES_PER_S = 1.2e9
LEAST_OF_NBDKIT = 0.6
LEAST_OF_RATE = 0.9
SHAPED = """
name: benchstorage
scale: {time: 500}
fabric: {design: rail-optimized, segments: 1, hosts: 1, gpus: 1, spines: 1}
networks: {storage: {design: single-switch, nic: {rate: 200G}, mtu: 9000, targets: {flash: {rate: 200G}}}}
"""
"""400 Mbit/s of lab time: a twentieth of what both sides can do."""
SHAPED_SIZE = 128 << 20


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """The initiator is near; both servers are far, and neither does anything while the other is measured."""
    config: Path = tmp_path_factory.mktemp("storage") / "target.json"
    subsystem = {"nqn": NQN, "namespaces": [{"size": SIZE}]}
    config.write_text(json.dumps({"listen": [{"address": FAR}], "subsystems": [subsystem]}))
    target = (sys.executable, "-m", "testbed.endpoints.storage.target", "--config", str(config))
    with (
        joined("nvb", NEAR, FAR, mtu=9000) as pair,
        pair.serving(*target, until="listening"),
        nbdkit_serving(pair, config.with_name("nbdkit.pid")),
    ):
        yield pair


@contextmanager
def nbdkit_serving(pair: Pair, pid: Path) -> Iterator[None]:
    """nbdkit writes its pid when it takes connections."""
    process = pair.start(pair.far, "nbdkit", "-f", "-P", str(pid), "-i", FAR, "memory", str(SIZE))
    try:
        while not (pid.exists() and pid.read_text()):
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.01)
        yield
    finally:
        process.kill()
        process.communicate()


def nvme_bytes_per_s(pair: Pair, operation: str) -> float:
    words = ("--path", FAR, "--nqn", NQN, "--bs", "4M", "--depth", "8", "--json")
    document = json.loads(pair.client(sys.executable, "-m", "testbed.endpoints.storage.initiator", operation, *words))
    assert document["bytes"] == SIZE
    return float(document["bytes_per_second"])


def nbd_bytes_per_s(pair: Pair, operation: str) -> float:
    job = ("--name=x", "--ioengine=nbd", f"--uri=nbd://{FAR}/", f"--rw={operation}", "--bs=4M", "--iodepth=8")
    out = pair.client("fio", *job, f"--size={SIZE}", "--output-format=json")
    document = json.loads(out[out.index("{") :])
    return float(document["jobs"][0][operation]["bw_bytes"])


@pytest.mark.parametrize("operation", ["write", "read"])
def test_large_transfers(pair: Pair, operation: str) -> None:
    for measure in (nvme_bytes_per_s, nbd_bytes_per_s):
        measure(pair, "write")  # Memory that was never written costs the first who writes it.
    ours, theirs = in_turns(ROUNDS, lambda: nvme_bytes_per_s(pair, operation), lambda: nbd_bytes_per_s(pair, operation))
    judge(
        Figure(
            f"NVMe/TCP: {operation}s of 4 MiB, depth 8", max(ours) / 1e9, at_least=LEAST_BYTES_PER_S / 1e9, unit="GB"
        ),
        Figure(
            f"NVMe/TCP: {operation}s of 4 MiB, in nbdkit's",
            median_ratio(ours, theirs),
            at_least=LEAST_OF_NBDKIT,
            ratio=True,
        ),
    )


@pytest.fixture(scope="module")
def shaped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    with Lab.deploy(SHAPED, directory=tmp_path_factory.mktemp("shaped")) as deployed:
        yield RunningLab.open(deployed.name, StateDirectory())


@pytest.mark.frr
@pytest.mark.parametrize("operation", ["write", "read"])
def test_the_rate_of_a_port_is_used(shaped: RunningLab, tmp_path: Path, operation: str) -> None:
    """1 MiB at a depth of 16 between a host and a storage target, by the ports of both and those of the switch."""
    nic = next(nic for host in shaped.plan.hosts if host.node == "flash" for nic in host.nics)
    config, address = tmp_path / "target.json", str(nic.address.ip)
    subsystem = {"nqn": NQN, "namespaces": [{"size": SHAPED_SIZE}]}
    config.write_text(json.dumps({"listen": [{"address": address}], "subsystems": [subsystem]}))
    target = shaped.spawn(
        "flash", [sys.executable, "-m", "testbed.endpoints.storage.target", "--config", str(config)], **PIPES
    )
    try:
        assert any("listening" in line for line in target.stdout)
        words = ["--path", address, "--nqn", NQN, "--bs", "1M", "--depth", "16", "--json"]
        command = [sys.executable, "-m", "testbed.endpoints.storage.initiator", operation, *words]
        document = json.loads(finished(shaped.spawn("p1-s1-h1", command, **PIPES)))
    finally:
        target.kill()
        target.communicate()
    assert document["bytes"] == SHAPED_SIZE
    judge(
        Figure(
            f"NVMe/TCP: {operation}s of 1 MiB, in a port's rate",
            8 * document["bytes_per_second"] / nic.nic_bps,
            at_least=LEAST_OF_RATE,
            ratio=True,
        )
    )
