"""libfabric's own fi_pingpong over our provider, on two hosts of a lab at 20 Mbit/s: its rate, and the CPU it costs."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from figures import Figure, judge

from testbed.api import Lab
from testbed.base.datapath.build import compile_c
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.run.launch.libfabric import ServedProvider, serve_provider

pytestmark = [
    *(pytest.mark.bench, pytest.mark.netns, pytest.mark.frr, pytest.mark.timeout(600)),
    pytest.mark.skipif(shutil.which("fi_pingpong") is None, reason="apt-get install libfabric-bin libfabric-dev"),
]

TEXT = """name: benchfabric
scale: {time: 20000}
fabric:
  design: rail-optimized
  segments: 2
  hosts: 1
  gpus: 1
  spines: 4
  nic: {per: gpu, ports: 1, rate: 400G}
qos: {preset: uec, base_rtt: 2us}
"""
RATE_BPS = 20e6
PATIENCE_S = 200
SMALL_MESSAGES = 20_000
CHECK = Path(__file__).parents[1] / "support" / "libfabric" / "fabric_check.c"
_ROW = re.compile(r"^\s*(?P<size>\S+)\s+(?P<sent>\S+)\s+=\S+\s+\S+\s+\S+s\s+\S+\s+(?P<us>[\d.]+)\s", re.MULTILINE)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab.deploy(TEXT, directory=tmp_path_factory.mktemp("lab")) as found:
        yield found


@pytest.fixture
def served(lab: Lab) -> Iterator[ServedProvider]:
    with serve_provider(lab.running, [host.nics[0] for host in lab.plan.hosts]) as found:
        yield found


def ping_pong(lab: Lab, served: ServedProvider, size: int, count: int) -> float:
    """The time of a transfer each way of so many bytes, in us. The data is checked."""
    near, far = (host.nics[0] for host in lab.plan.hosts)
    words = ["fi_pingpong", "-p", "uet", "-e", "rdm", "-c", "-S", str(size), "-I", str(count)]
    assert far.address is not None

    def spawn(nic: PortPlan, *more: str) -> subprocess.Popen[bytes]:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return lab.running.spawn(nic.node, [*words, *more], env=environment(served, nic), **pipes)

    server = spawn(far)
    try:
        time.sleep(1)  # it says nothing when it listens
        client = spawn(near, str(far.address.ip))
        said, _ = client.communicate(timeout=PATIENCE_S)
        assert client.returncode == 0, said
        assert server.wait(PATIENCE_S) == 0
    finally:
        server.kill()
        server.wait()
    row = _ROW.search(said.decode())
    assert row is not None, said
    return float(row["us"])


def environment(served: ServedProvider, nic: PortPlan) -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin", **served.environment(nic)}


def cpu_s(served: ServedProvider) -> float:
    """The CPU time of our processes so far."""
    total = 0
    for pid in served.pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / 100


def test_a_large_message_fills_the_link(lab: Lab, served: ServedProvider) -> None:
    size = 1 << 20
    us = ping_pong(lab, served, size, 4)
    share = 8 * size / (us / 1e6) / RATE_BPS
    judge(Figure("libfabric: fi_pingpong of 1 MiB", share, at_least=0.92, unit="of line rate", ratio=True))


def test_a_small_message_is_cheap(lab: Lab, served: ServedProvider, tmp_path: Path) -> None:
    """Those of a program that has 64 under way, at both ends together; the program's own CPU is not in it."""
    program = tmp_path / "fabric_check"
    compile_c([CHECK], program, ("-std=gnu11", "-O1", "-lfabric"), what="the check of libfabric")
    nics = [host.nics[0] for host in lab.plan.hosts]
    peers = ",".join(str(nic.address.ip) for nic in nics if nic.address is not None)
    before = cpu_s(served)
    processes = []
    for rank, nic in enumerate(nics):
        env = environment(served, nic) | {"LAB_RANK": str(rank), "LAB_PEERS": peers}
        words = [str(program), "rate", str(SMALL_MESSAGES)]
        processes.append(lab.running.spawn(nic.node, words, env=env, stdout=subprocess.DEVNULL))
    try:
        assert [process.wait(PATIENCE_S) for process in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    us = (cpu_s(served) - before) / SMALL_MESSAGES * 1e6
    judge(Figure("libfabric: CPU of a message of 8 B", us, at_most=100, unit="us"))
