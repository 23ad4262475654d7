"""The measuring tools of a scale-up domain, between two GPUs of one over its switch."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from domain_lab import DomainLab, domain_lab, host_gpus

from testbed.api import Lab
from testbed.protocols.scale_up.domain.host_gpus import GPUS_VARIABLE
from testbed.protocols.scale_up.domain.link import LinkSettings

pytestmark = [pytest.mark.netns, pytest.mark.timeout(60), pytest.mark.timed]

PATIENCE_S = 30
PLANES = 2
RATE_BPS = 20_000_000
TIME_SCALE = 20_000.0
RTT_NS = 1_000
LINK = LinkSettings(rate_bps=RATE_BPS, delay_ns=round(RTT_NS * TIME_SCALE / 4), capacity=(240, 240))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DomainLab]:
    with domain_lab(tmp_path_factory.mktemp("tools"), LINK, gpus=2, planes=PLANES) as found:
        subprocess.run(["ip", "-n", found.gpu_namespace, "link", "set", "lo", "up"], check=True)
        yield found


def start(lab: DomainLab, directory: Path, tool: str, *argv: str) -> subprocess.Popen[str]:
    """A tool in the namespace of all GPUs, which is told of them as a lab tells its hosts."""
    path = directory / "gpus.json"
    path.write_text(host_gpus(lab, time_scale=TIME_SCALE, rtt_ns=RTT_NS).to_json())
    words = ["ip", "netns", "exec", lab.gpu_namespace, sys.executable, "-m", "testbed.endpoints.perftest", tool, *argv]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": os.environ | {GPUS_VARIABLE: str(path)}}
    return subprocess.Popen(words, text=True, **pipes)  # type: ignore[call-overload, no-any-return]


def measure(lab: DomainLab, directory: Path, tool: str, *argv: str) -> dict[str, Any]:
    """The JSON document of a run between GPU 1, which asks, and GPU 2."""
    result = directory / "out.json"
    with contextlib.ExitStack() as cleanup:
        server = start(lab, directory, tool, "--gpu", "2", *argv)
        client = start(lab, directory, tool, "--gpu", "1", "--out_json_file", str(result), *argv, "127.0.0.1")
        for process in (server, client):
            cleanup.callback(process.communicate)
            cleanup.callback(process.kill)
        outputs = [process.communicate(timeout=PATIENCE_S) for process in (client, server)]
    assert [client.returncode, server.returncode] == [0, 0], outputs
    ours, theirs = (out.splitlines() for out, _ in outputs)
    assert ours[-2:] == theirs[-2:], "both sides print the same table"
    document: dict[str, Any] = json.loads(result.read_text())
    return document


@pytest.mark.parametrize("tool", ["su_write_bw", "su_read_bw", "su_copy_bw"])
def test_bandwidth(lab: DomainLab, tool: str, tmp_path: Path) -> None:
    document = measure(lab, tmp_path, tool, "-s", "64k", "-n", "40", "--report_gbits")
    assert document["test_info"]["Mtu"] == LINK.coarse * 256
    assert document["test_info"]["Gpu"] == "h1.gpu1", "as --gpu and all commands count"
    results = document["results"]
    assert results["n_iterations"] == 40
    # at most the payload of a full frame; how near to it a busy machine comes is a figure of the benchmarks
    assert 0.5 < results["share_of_gpu_rate"] <= 4096 / (4096 + 30)
    lab_gbits = PLANES * RATE_BPS / 1e9
    assert results["BW_average"] == pytest.approx(results["share_of_gpu_rate"] * lab_gbits, rel=1e-3)
    assert results["BW_modelled_each_way_Gb"] == pytest.approx(results["BW_average"] * TIME_SCALE, rel=1e-3)


def test_both_directions_are_told_each_way(lab: DomainLab, tmp_path: Path) -> None:
    results = measure(lab, tmp_path, "su_write_bw", "-s", "64k", "-n", "40", "-b")["results"]
    assert 0.5 < results["share_of_gpu_rate"] <= 1


@pytest.mark.parametrize("tool", ["su_read_lat", "su_atomic_lat"])
def test_latency_is_told_in_modelled_round_trips(lab: DomainLab, tool: str, tmp_path: Path) -> None:
    document = measure(lab, tmp_path, tool, "-n", "30")
    results = document["results"]
    assert 1.0 <= results["t_min"] <= results["t_typical"] < 1.3
    assert document["valid"] is True
    assert 0 < document["rtt_floor_real_ns"] < 0.1 * RTT_NS
    assert document["rtt_floor_share"] == pytest.approx(document["rtt_floor_real_ns"] / RTT_NS, rel=0.01)


# --- a lab -------------------------------------------------------------------------------------------

TOPOLOGY = """
name: gpus
scale: {time: 20000}
fabric:
  design: rail-optimized
  hosts: 1
  segments: 1
  gpus: 4
  spines: 1
  scale_up: {preset: h100, by: packets}
"""


@pytest.mark.frr
def test_tools_in_a_lab(shared_sandbox: Any, tmp_path: Path) -> None:
    """A host's commands are told of its GPUs; a GPU is one program's at a time."""
    box = shared_sandbox
    with Lab.deploy(TOPOLOGY, name=box.name(), state=box.state, directory=box.work / "lab") as lab:
        box.note_daemons()
        host = lab.node("p1-s1-h1")
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        tool = [sys.executable, "-m", "testbed.endpoints.perftest", "su_write_bw", "-s", "64k", "-n", "100"]
        server = host.spawn([*tool, "--gpu", "4"], **pipes)
        try:
            out = host.run([*tool, "--gpu", "1", "--out_json_file", str(tmp_path / "out.json"), "127.0.0.1"]).stdout
            assert "modelled, each way[Gb/sec]" in out
            assert server.wait(PATIENCE_S) == 0
        finally:
            server.kill()
            server.communicate()
        document = json.loads((tmp_path / "out.json").read_text())
        assert document["test_info"]["GPU_rate_real_Gb"] == 3600
        assert 0.5 < document["results"]["share_of_gpu_rate"] < 1
